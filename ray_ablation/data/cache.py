"""Prepared data: built once, under a lock, moved into place whole, healed when damaged.

    <cache>/<kind>/<name>-<key>/      the files, and a record that is written last
    <cache>/digests/<signature>.json  sha256 of a source file, remembered

A folder is sound when its record carries its own checksum and every file it lists has the listed
sha256; any other is built again. So a build that was killed leaves nothing that is trusted.

The key of a folder is made of the contents of what it was prepared from. Reading gigabytes to learn
that nothing changed would make every start slow, so a file's sha256 is remembered under its path,
size, modification time and change time. These only decide whether it is read again: a copied or
touched file is, and gives the same key.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ray_ablation.atomic import read_json, sha256_file, write_json
from ray_ablation.data.files import DataError

# Raised when the same input is prepared into something else: folders of another format are
# built again.
FORMAT = 2

# The largest set takes minutes to prepare; whoever waits longer waits for a stuck process.
LOCK_TIMEOUT_S = 3600.0

# A file written within the last ticks of its file system's clock (2 s at the coarsest) may change
# again without its times showing it.
SETTLED_NS = 3_000_000_000


def build(
    folder: Path, fill: Callable[[Path], dict[str, Any]], record: str = "about.json"
) -> dict[str, Any]:
    """The record of a prepared folder, filled first where it is missing or damaged.

    Args:
        folder: Where it lies.
        fill: Writes the files into the folder it is handed and returns the record.
        record: Name of the record's file.

    Raises:
        DataError: The folder cannot be written, or another process holds it for an hour.
    """
    if (about := _sound(folder, record)) is not None:
        return about
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.parent / f".{folder.name}.lock"
        with FileLock(lock, timeout=LOCK_TIMEOUT_S):
            # Another process may have built it while this one waited.
            about = _sound(folder, record)
            return _build(folder, fill, record) if about is None else about
    except Timeout:
        raise DataError(
            f"{folder} is being prepared by another process (lock {lock}); wait for it, or stop it"
        ) from None
    except OSError as error:
        raise DataError(
            f"{folder} cannot be prepared: {error}. Free some space or let execution.cache name "
            "another folder"
        ) from None


def remembered_sha256(path: Path, cache: Path) -> str:
    """Hex sha256 of a file, read again only when its path, size or times are new."""
    stat = path.stat()
    times = (stat.st_mtime_ns, stat.st_ctime_ns)
    signature = hashlib.sha256(repr((str(path.resolve()), stat.st_size, *times)).encode())
    note = cache / "digests" / f"{signature.hexdigest()[:32]}.json"
    if (known := read_json(note)) is not None:
        return str(known["sha256"])
    digest = sha256_file(path)
    if time.time_ns() - max(times) > SETTLED_NS:
        write_json(note, {"sha256": digest})
    return digest


def _build(folder: Path, fill: Callable[[Path], dict[str, Any]], record: str) -> dict[str, Any]:
    # One name whatever the process: the lock is held, so what lies there a killed build left.
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        about = {"format": FORMAT} | fill(temporary)
        paths = sorted(path for path in temporary.rglob("*") if path.is_file())
        about["files"] = {
            path.relative_to(temporary).as_posix(): sha256_file(path) for path in paths
        }
        write_json(temporary / record, about)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return about


def _sound(folder: Path, record: str) -> dict[str, Any] | None:
    about = read_json(folder / record)
    if about is None or about.get("format") != FORMAT:
        return None
    try:
        sound = all(_content(folder / name) == sha256 for name, sha256 in about["files"].items())
    except OSError:
        return None
    return about if sound else None


def _content(path: Path) -> str:
    stat = path.stat()
    return _hashed(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _hashed(path: Path, size: int, mtime_ns: int) -> str:
    # Prepared data is asked for several times by one command; it is read once.
    return sha256_file(path)
