"""Files that are there whole or not at all, and are believed only when they prove sound.

Everything kept is written beside its place and moved there. JSON carries a checksum of itself and
parquet those of its pages, so a cut or flipped file reads as missing, and just that piece is made
again.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


def sha256_file(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_of(value: Any) -> str:
    """Hex sha256 of a JSON value, keys sorted."""
    text = json.dumps(value, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """UTF-8 text, whole or not at all."""

    def write(temporary: Path) -> None:
        temporary.write_text(text, encoding="utf-8")

    write_atomic(path, write)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """JSON with a `checksum` of everything else in it."""
    body = value | {"checksum": digest_of(value)}
    write_text(path, json.dumps(body, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any] | None:
    """What write_json wrote, None when missing or damaged."""
    try:
        value: dict[str, Any] = json.loads(path.read_bytes())
        checksum = value.pop("checksum")
        return value if checksum == digest_of(value) else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def write_frame(path: Path, frame: pd.DataFrame, about: dict[str, Any]) -> None:
    """Parquet with page checksums and `about` as JSON in its schema."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    text = json.dumps(about, sort_keys=True, allow_nan=False)
    table = table.replace_schema_metadata((table.schema.metadata or {}) | {b"about": text})
    write_atomic(path, lambda file: pq.write_table(table, file, write_page_checksum=True))


def read_frame(path: Path) -> tuple[pd.DataFrame, dict[str, Any]] | None:
    """Frame and `about` of write_frame, None when missing or damaged."""
    try:
        # One file through a handle: a path would be searched for key=value folders.
        with path.open("rb") as file:
            opened = pq.ParquetFile(file, page_checksum_verification=True)
            table = opened.read(use_threads=False)  # a report reads thousands of small files
        return table.to_pandas(use_threads=False), json.loads(table.schema.metadata[b"about"])
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
