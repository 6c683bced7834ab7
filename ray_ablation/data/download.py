"""Files of others, fetched once: whole and of the expected hash, or not at all.

A file is fetched into a folder of its own beside its place, checked and moved. So a kill leaves
nothing that is trusted, and the next call, which holds the lock, clears it away. Of several
processes one fetches and the others wait. What lies there is believed by its sha256, noted when it
came, so a warm cache asks nobody.

    <folder>/<name>, <name>.json              the file; the note holds its url, sha256 and md5
    <cache>/unpacked/<name>-<digest>/files/   what an archive held

pooch moves the bytes. It neither tries again after a server error nor clears up after a kill, so
both are done here. Files of the hub are in `hub.py`.
"""

import hashlib
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock, Timeout

from ray_ablation.atomic import read_json, write_json
from ray_ablation.data.cache import LOCK_TIMEOUT_S, build, remembered_sha256
from ray_ablation.data.files import DataError
from ray_ablation.data.hub import fetch_hub, hub_files
from ray_ablation.data.patience import AgainError, patiently, raise_status
from ray_ablation.data.progress import Progress, Say
from ray_ablation.problems import one_line

__all__ = ["Say", "fetch", "fetch_hub", "hub_files", "known_md5", "unpack"]

READ_TIMEOUT_S = 60.0


def fetch(
    url: str,
    folder: Path,
    *,
    name: str | None = None,
    md5: Sequence[str] = (),
    sha256: str | None = None,
    size: int | None = None,
    say: Say = print,
    waits: Sequence[float] | None = None,
) -> Path:
    """A file behind a URL, fetched unless it lies in `folder` already.

    Args:
        url: http or https.
        folder: Where it is kept.
        name: Its name there; None takes the URL's last part.
        md5: Hashes that are accepted, any one; none accepts every file that arrives whole.
        sha256: The hash it must have.
        size: Bytes it must have.
        say: Told when it starts, how far it is, and when it is there.
        waits: Seconds before each further try.

    Raises:
        DataError: It cannot be had, or is not the expected one; names file, URL, hash and the way
            round.
    """
    name = name or PurePosixPath(url.partition("?")[0]).name
    path = folder / name
    wanted = _Wanted(path, url, tuple(md5), sha256, size)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / f".{name}.lock", timeout=LOCK_TIMEOUT_S):
            if not wanted.there():
                patiently(lambda: wanted.fetch(say), waits, wanted.remedy, say)
    except Timeout:
        raise DataError(f"{path} is being fetched by another process; wait or stop it") from None
    return path


def known_md5(path: Path) -> str | None:
    """The md5 that a fetched file was recognised by."""
    note = read_json(path.with_name(f"{path.name}.json"))
    return note["md5"] if note else None


class _Wanted:
    """One file to be had from a URL."""

    def __init__(
        self, path: Path, url: str, md5: tuple[str, ...], sha256: str | None, size: int | None
    ) -> None:
        self.path, self.url, self.md5, self.sha256, self.size = path, url, md5, sha256, size
        self.note = path.with_name(f"{path.name}.json")

    def remedy(self, reason: str) -> str:
        hashes = [f"md5 {value}" for value in self.md5]
        hashes += [f"sha256 {self.sha256}"] if self.sha256 else []
        expected = f" (expected {' or '.join(hashes)})" if hashes else ""
        return (
            f"{self.path.name} cannot be had from {self.url}{expected}: {reason}. Fetch it on "
            "another machine and give its folder in the grid: paths: {name: /folder}"
        )

    def there(self) -> bool:
        """Whether it lies there as it came, from this URL or with this hash."""
        note = read_json(self.note)
        if note is None or not self.path.is_file():
            return False
        fits = note["md5"] in self.md5 if self.md5 else note["url"] == self.url
        fits = fits and self.sha256 in (None, note["sha256"])
        return fits and remembered_sha256(self.path, self.path.parent) == note["sha256"]

    def fetch(self, say: Say) -> None:
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            arrived = temporary / self.path.name
            self._transfer(arrived, say)
            note = self._checked(arrived)
            os.replace(arrived, self.path)
            write_json(self.note, {"url": self.url} | note)
        except OSError as error:
            raise DataError(
                f"{self.path} cannot be written: {error}. Free some space or let execution.cache "
                "name another folder"
            ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _transfer(self, arrived: Path, say: Say) -> None:
        import pooch
        import requests

        bar = Progress(self.path.name, say)
        try:
            pooch.HTTPDownloader(progressbar=bar, timeout=READ_TIMEOUT_S)(
                self.url, str(arrived), None
            )
        except requests.RequestException as error:
            if error.response is None:
                raise AgainError(_cause(error)) from None
            status = error.response.status_code
            raise_status(status, f"HTTP {status} {error.response.reason}", self.remedy)
        finally:
            bar.stop()

    def _checked(self, arrived: Path) -> dict[str, Any]:
        """Hashes of what arrived."""
        found = arrived.stat().st_size
        if self.size is not None and found != self.size:
            raise AgainError(f"{found:,} bytes arrived of {self.size:,}")
        with arrived.open("rb") as file:
            md5 = hashlib.file_digest(file, "md5").hexdigest()
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if (self.md5 and md5 not in self.md5) or self.sha256 not in (None, sha256):
            got = f"md5 {md5}" if self.md5 else f"sha256 {sha256}"
            raise DataError(self.remedy(f"what arrived ({found:,} bytes) has {got}"))
        return {"md5": md5, "sha256": sha256}


def _cause(error: BaseException) -> str:
    """What happened to the connection, without the layers of wrapping around it."""
    inner = error.args[0] if error.args else None
    if (reason := getattr(inner, "reason", None)) is not None:
        return str(reason).partition("): ")[2] or one_line(error)
    parts = getattr(inner, "args", ())
    return str(parts[0]) if parts else one_line(error)


def unpack(archive: Path, cache: Path) -> Path:
    """The folder of what a .zip or .tar.gz holds, unpacked once.

    Raises:
        DataError: It is no archive, damaged, or a path in it leads outside.
    """
    stem = archive.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".zip")
    key = remembered_sha256(archive, cache)[:12]
    folder = cache / "unpacked" / f"{stem}-{key}"

    def fill(temporary: Path) -> dict[str, Any]:
        try:
            _unpack(archive, temporary / "files")  # its own about.json is not ours
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as error:
            raise DataError(
                f"{archive} cannot be unpacked: {one_line(error)}; delete it, so that it is "
                "fetched again, or unpack it by hand and give the folder: paths: {name: /folder}"
            ) from None
        return {"archive": archive.name}

    build(folder, fill)
    return folder / "files"


def _unpack(archive: Path, folder: Path) -> None:
    if not zipfile.is_zipfile(archive):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")  # refuses what leads outside
        return
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            # zipfile would drop the dots and put the file somewhere else.
            if PurePosixPath(name).is_absolute() or ".." in name.replace("\\", "/").split("/"):
                raise DataError(
                    f"{archive} holds {name!r}, a path that leads outside its folder; nothing was "
                    "unpacked. Do not trust this archive"
                )
        packed.extractall(folder)
