"""Object storage behind the ledger: s3://, gs:// or abfs://, through pyarrow's file systems.

Where nodes share no folder, each works in a local one and the objects under one URI are what they
have in common. Keys are the ledger's own relative paths, so a bucket copied to a disk is a ledger.

An object is visible only once its upload is complete, which makes each put atomic; what belongs
together is put in an order that ends with the file that vouches for it (trial.json, state.json).
Two writers of one trial put the same bytes under the same keys. There are no locks.

Credentials and endpoints are those of the provider's usual environment variables (AWS_PROFILE,
AWS_ENDPOINT_URL, ...); none is read from a grid or written anywhere.
"""

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

from ray_ablation.problems import UserError

SCHEMES = ("s3", "gs", "abfs", "abfss")
CHUNK = 8 << 20
LOCAL = fs.LocalFileSystem()


class ObjectsError(UserError):
    """Object storage that cannot be used; the text says which and what to check."""


class Stamp(NamedTuple):
    """What shows that a file changed: its bytes, and when it was written."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Objects:
    """The objects under one URI; keys are relative, with slashes.

    Raises (all methods):
        ObjectsError: The storage does not answer, or refuses.
    """

    uri: str

    def put(self, file: Path, key: str) -> None:
        """Upload a file; readers see the old object or the new one."""
        system, root = _open(self.uri)
        # fs.copy_files would lose the error of an upload that fails at its end; compression is
        # guessed from the name unless it is turned off.
        with (
            _named(self.uri, key),
            file.open("rb") as source,
            system.open_output_stream(f"{root}/{key}", compression=None) as target,
        ):
            shutil.copyfileobj(source, target, CHUNK)

    def get(self, key: str, file: Path) -> None:
        """Download an object beside its place, then move it there with the object's time."""
        system, root = _open(self.uri)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
        try:
            with _named(self.uri, key):
                info = system.get_file_info(f"{root}/{key}")
                fs.copy_files(f"{root}/{key}", str(temporary), system, LOCAL)
            os.utime(temporary, ns=(info.mtime_ns, info.mtime_ns))
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)

    def list(self, prefix: str = "") -> dict[str, Stamp]:
        """Key -> size and time of the objects below a prefix, which ends at a slash of the keys."""
        system, root = _open(self.uri)
        base = f"{root}/{prefix}".rstrip("/")
        selector = fs.FileSelector(base, recursive=True, allow_not_found=True)
        with _named(self.uri, prefix):
            found = system.get_file_info(selector)
        return {
            info.path.removeprefix(f"{root}/"): Stamp(int(info.size), int(info.mtime_ns))
            for info in found
            if info.type == fs.FileType.File
        }

    def remove(self, prefix: str) -> None:
        """Delete the object of that key, or those below it."""
        system, root = _open(self.uri)
        path = f"{root}/{prefix}"
        with _named(self.uri, prefix):
            kind = system.get_file_info(path).type
            if kind == fs.FileType.Directory:
                system.delete_dir(path)
            elif kind == fs.FileType.File:
                system.delete_file(path)

    def push(self, folder: Path, prefix: str, last: Collection[str] = ()) -> None:
        """Upload all of a folder, files with a name in `last` at the end."""
        for name in _last(_files(folder), last):
            self.put(folder / name, f"{prefix}/{name}")

    def sync(
        self, folder: Path, prefix: str, skip: Collection[str] = (), last: Collection[str] = ()
    ) -> None:
        """Make a folder and the objects below a prefix the same; of two files theirs counts.

        A killed process may have left here what it did not come to upload.

        Args:
            folder: Here.
            prefix: Of the keys.
            skip: Folders directly in it that are left out.
            last: Names of files that are handed on after all others.
        """
        there = {key.removeprefix(f"{prefix}/"): stamp for key, stamp in self.list(prefix).items()}
        here = _files(folder)
        for name in _last(sorted({*here, *there}), last):
            if name.split("/")[0] in skip:
                continue
            file, key = folder / name, f"{prefix}/{name}"
            if name not in there:
                self.put(file, key)
            elif not file.is_file() or _stamp(file) != there[name]:
                self.get(key, file)


def is_uri(text: str) -> bool:
    """Whether a storage setting names object storage rather than a folder."""
    return text.partition("://")[0] in SCHEMES and "://" in text


def _files(folder: Path) -> list[str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = (path.relative_to(folder) for path in found)
    return [name.as_posix() for name in names if not any(p.startswith(".") for p in name.parts)]


def _stamp(file: Path) -> Stamp:
    stat = file.stat()
    return Stamp(stat.st_size, stat.st_mtime_ns)


def _last(names: list[str], last: Collection[str]) -> list[str]:
    return sorted(names, key=lambda name: name.rpartition("/")[2] in last)


@cache
def _open(uri: str) -> tuple[Any, str]:
    """The file system and the path in it; a process opens each once."""
    try:
        # Small files go up in one request; without this each takes three.
        system, root = fs.FileSystem.from_uri(
            uri + "?allow_delayed_open=true" * uri.startswith("s3:")
        )
    except (OSError, ValueError) as error:
        raise ObjectsError(
            f"storage {uri} cannot be opened: {error}; give a folder, or a URI that starts with "
            + ", ".join(f"{scheme}://" for scheme in SCHEMES)
        ) from None
    return system, root.rstrip("/")


class _named:  # noqa: N801
    """Errors of a file system inside become one that names the object."""

    def __init__(self, uri: str, key: str) -> None:
        self._what = f"{uri.rstrip('/')}/{key}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError) and not isinstance(error, ObjectsError):
            text = " ".join(str(error).split())
            raise ObjectsError(
                f"{self._what}: {text}. Check the address, the credentials in the environment "
                "and the network; what is done is kept, the same command goes on"
            ) from None
