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
import re
import shutil
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

from ray_ablation.problems import UserError

SCHEMES = ("s3", "gs", "abfs", "abfss")
EXPECTED = "give a folder, or a bucket and prefix as in s3://bucket/prefix ({} work alike)".format(
    ", ".join(f"{scheme}://" for scheme in SCHEMES[1:])
)
AT_ONCE = 4 << 20  # bytes that go up in one request
PARTS = ".parts"
"""Below the URI: uploads under way, and what interrupted ones left; may be deleted."""
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

    def check(self) -> None:
        """Refuse a store that does not answer, or a bucket that is not there."""
        system, root = _open(self.uri)
        bucket = root.partition("/")[0]
        with _named(self.uri, ""):
            if not bucket or system.get_file_info(bucket).type == fs.FileType.NotFound:
                raise ObjectsError(f"storage {self.uri}: there is no bucket {bucket!r}; make it")

    def put(self, file: Path, key: str) -> None:
        """Upload a file; readers see the old object or the new one.

        A stream cannot be given up: closing it publishes what is there so far, also after Ctrl-C.
        So a large file goes under a name nobody reads, and is moved within the store when whole.
        """
        system, root = _open(self.uri)
        with _named(self.uri, key):
            if file.stat().st_size <= AT_ONCE:
                _upload(system, file, f"{root}/{key}")
                return
            part = f"{root}/{PARTS}/{uuid.uuid4().hex}"
            _upload(system, file, part)
            system.move(part, f"{root}/{key}")

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

    def push(
        self, folder: Path, prefix: str, skip: Collection[str] = (), last: Collection[str] = ()
    ) -> None:
        """Upload all of a folder.

        Args:
            folder: Here.
            prefix: Of the keys.
            skip: Files and folders directly in it that are left out.
            last: Names of files that are handed on after all others.
        """
        names = (name for name in _files(folder) if name.split("/")[0] not in skip)
        for name in sorted(names, key=lambda name: name.rpartition("/")[2] in last):
            self.put(folder / name, f"{prefix}/{name}")

    def pull(self, folder: Path, prefix: str, skip: Collection[str] = ()) -> None:
        """Download what is below a prefix and missing or another in a folder."""
        for key, stamp in self.list(prefix).items():
            name = key.removeprefix(f"{prefix}/")
            if name.split("/")[0] not in skip and _stamp(folder / name) != stamp:
                self.get(key, folder / name)

    def prune(self, folder: Path, prefix: str) -> None:
        """Delete the objects below a prefix that a folder does not have."""
        system, root = _open(self.uri)
        with _named(self.uri, prefix):
            for key in self.list(prefix):
                if not (folder / key.removeprefix(f"{prefix}/")).exists():
                    system.delete_file(f"{root}/{key}")


def is_uri(text: str) -> bool:
    """Whether a storage setting names object storage rather than a folder.

    Raises:
        ObjectsError: It has the form of an address, but of nothing known.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", text)
    if scheme is None:
        return False
    if scheme[1] in SCHEMES and re.fullmatch(r"\w+:/(/[^/]+)+/?", text):
        return True
    raise ObjectsError(f"storage {text} is no address: {EXPECTED}")


def _files(folder: Path) -> list[str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = (path.relative_to(folder) for path in found)
    return [name.as_posix() for name in names if not any(p.startswith(".") for p in name.parts)]


def _upload(system: Any, file: Path, path: str) -> None:
    # fs.copy_files would lose the error of an upload that fails at its end; compression is guessed
    # from the name unless it is turned off. The first bytes are read before there is an object.
    with file.open("rb") as source:
        first = source.read(AT_ONCE)
        with system.open_output_stream(path, compression=None) as target:
            target.write(first)
            shutil.copyfileobj(source, target, AT_ONCE)


def _stamp(file: Path) -> Stamp | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return Stamp(stat.st_size, stat.st_mtime_ns)


@cache
def _open(uri: str) -> tuple[Any, str]:
    """The file system and the path in it; a process opens each once."""
    try:
        # Small files go up in one request; without this each takes three.
        system, root = fs.FileSystem.from_uri(
            uri + "?allow_delayed_open=true" * uri.startswith("s3:")
        )
    except (OSError, ValueError) as error:
        raise ObjectsError(f"storage {uri} cannot be opened: {error}; {EXPECTED}") from None
    return system, root.rstrip("/")


class _named:  # noqa: N801
    """Errors of a file system inside become one that names the object."""

    def __init__(self, uri: str, key: str) -> None:
        self._what = f"{uri.rstrip('/')}/{key}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError | ValueError) and not isinstance(error, ObjectsError):
            text = " ".join(str(error).split())
            raise ObjectsError(
                f"{self._what}: {text}. Check the address, the credentials in the environment "
                "and the network; what is done is kept, the same command goes on"
            ) from None
