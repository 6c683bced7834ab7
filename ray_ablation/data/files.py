"""Reading other people's data files: a line at a time, with errors that name file and line.

Everything is streamed, so a file may be larger than memory. Lines end at "\\n" alone: passages
hold characters that Python's text mode would also split at. A file may be compressed (.gz), or lie
in a .tar.gz, of which one file is read without unpacking the others.
"""

import codecs
import gzip
import json
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from ray_ablation.problems import UserError

LISTED = 8


class DataError(UserError):
    """Data that cannot be used as it is; the text names the file, its line and the remedy."""


def find(folder: Path, name: str, expected: str) -> Path:
    """`name` in a folder, or `name`.gz.

    Raises:
        DataError: Neither is there; the text ends with `expected`.
    """
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; {expected}")
    holds = listed(sorted(path.name for path in folder.iterdir())) or "nothing"
    raise DataError(f"{folder} lacks {name} (or {name}.gz); it holds {holds}. {expected}")


def lines(path: Path, member: str = "") -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line that is not blank.

    Args:
        path: The file.
        member: Name of the file that is read of a .tar.gz, in whichever of its folders.

    Raises:
        DataError: The file cannot be read, is damaged, or a line is not UTF-8.
    """
    number = 0
    try:
        with _opened(path, member) as file:
            for number, raw in enumerate(file, start=1):
                raw = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
                if raw.strip():
                    yield number, raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number}: not UTF-8 ({error.reason})") from None
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DataError(
            f"{path} cannot be read after line {number}: {error}; fetch it again"
        ) from None


def records(path: Path, member: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
    """Number and object of each line of a JSON-lines file, or of each row of a parquet file.

    `member` is as for `lines`.

    Raises:
        DataError: A line is not a JSON object.
    """
    if path.suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    for number, line in lines(path, member):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: not JSON ({error}): {_short(line)}") from None
        if not isinstance(value, dict):
            raise DataError(f"{path}, line {number}: expected a JSON object, found {_short(line)}")
        yield number, value


def fields(path: Path, count: int, form: str, member: str = "") -> Iterator[tuple[int, list[str]]]:
    """Number and the `count` tab-separated fields of each line; `form` describes them in errors.

    `member` is as for `lines`.

    Raises:
        DataError: A line has fewer or more.
    """
    for number, line in lines(path, member):
        parts = line.split("\t")
        if len(parts) != count:
            raise DataError(
                f"{path}, line {number}: {len(parts)} tab-separated fields, expected {form}; "
                f"found {_short(line)}"
            )
        yield number, parts


def listed(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


def _parquet_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=1000):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{path} cannot be read after row {number}: {error}; fetch it again"
        ) from None


@contextmanager
def _opened(path: Path, member: str) -> Iterator[IO[bytes]]:
    with cast(IO[bytes], gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as file:
        if not path.name.endswith(".tar.gz"):
            yield file
            return
        with tarfile.open(fileobj=file, mode="r|") as archive:
            yield _member(archive, path, member)
        # The checksum of what was read stands at the end.
        while file.read(1 << 20):
            pass


def _member(archive: tarfile.TarFile, path: Path, name: str) -> IO[bytes]:
    found = []
    for entry in archive:
        if entry.isfile() and PurePosixPath(entry.name).name == name:
            return cast(IO[bytes], archive.extractfile(entry))
        found.append(entry.name)
    raise DataError(f"{path} lacks {name}; it holds {listed(found) or 'nothing'}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
