"""Data sets of the hub, each at the commit at which it was first seen.

huggingface_hub moves the files into <cache>/hub; HF_ENDPOINT and HF_TOKEN are its own settings. It
checks sizes alone, so here the hash is checked as well. <cache>/hub/listings/ pins a data set's
revision to a commit and its list of files: what was fetched once neither changes nor needs a
network, and deleting the listing asks again.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from ray_ablation.atomic import digest_of, read_json, write_json
from ray_ablation.data.cache import LOCK_TIMEOUT_S, remembered_sha256
from ray_ablation.data.files import DataError, listed
from ray_ablation.data.patience import AgainError, patiently, raise_status
from ray_ablation.data.progress import Say, bars
from ray_ablation.data.sources import Hub
from ray_ablation.problems import one_line

T = TypeVar("T")


def hub_files(
    hub: Hub, cache: Path, *, say: Say = print, waits: Sequence[float] | None = None
) -> list[str]:
    """Names of the files of a data set on the hub, sorted; below `hub.path` where it has one.

    Raises:
        DataError: There is no such data set, or the hub cannot be reached.
    """
    under = f"{hub.path}/" if hub.path else ""
    names = _listing(hub, cache, say, waits)["files"]
    return [name.removeprefix(under) for name in names if name.startswith(under)]


def fetch_hub(
    hub: Hub, file: str, cache: Path, say: Say = print, waits: Sequence[float] | None = None
) -> Path:
    """A file of a data set on the hub, below `hub.path`, fetched unless it is here already.

    All files are of the commit that was the revision's when the data set was first seen.

    Raises:
        DataError: It cannot be had, or is damaged.
    """
    name = f"{hub.path}/{file}" if hub.path else file
    listing = _listing(hub, cache, say, waits)
    if name not in listing["files"]:
        raise DataError(f"{hub} lacks {file}; it holds {listed(listing['files'])}")
    folder = cache / "hub" / f"datasets--{hub.repo.replace('/', '--')}"
    kept: Path = folder / "snapshots" / listing["commit"] / name
    if kept.is_file() and _of_its_hash(kept, cache):
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".fetching.lock", timeout=LOCK_TIMEOUT_S):
            for left in folder.glob("blobs/*.incomplete"):  # by a killed process
                left.unlink()
            remedy = _remedy(hub, file)
            call = partial(_download, hub, name, str(listing["commit"]), cache, say)
            path: Path = patiently(lambda: _told(call, remedy), waits, remedy, say)
            return path
    except Timeout:
        raise DataError(f"{hub} is being fetched by another process; wait or stop it") from None


def _download(hub: Hub, name: str, commit: str, cache: Path, say: Say) -> Path:
    from huggingface_hub import hf_hub_download

    with bars(name, say) as bar:
        found = hf_hub_download(
            hub.repo,
            name,
            repo_type="dataset",
            revision=commit,
            cache_dir=cache / "hub",
            endpoint=_endpoint(),
            tqdm_class=bar,
        )
    path = Path(found)
    if not _of_its_hash(path, cache):
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise AgainError("what arrived is not what the hub lists: its hash differs")
    return path


def _listing(hub: Hub, cache: Path, say: Say, waits: Sequence[float] | None) -> dict[str, Any]:
    """`commit` and `files`, as they were when the data set was first seen."""
    key = digest_of([hub.repo, hub.revision])[:12]
    note = cache / "hub" / "listings" / f"{hub.repo.replace('/', '--')}-{key}.json"
    if (known := read_json(note)) is not None:
        return known
    from huggingface_hub import HfApi

    remedy = _remedy(hub, "the list of files")
    call = partial(HfApi(endpoint=_endpoint()).dataset_info, hub.repo, revision=hub.revision)
    info = patiently(lambda: _told(call, remedy), waits, remedy, say)
    files = sorted(sibling.rfilename for sibling in info.siblings or [])
    write_json(note, {"commit": info.sha, "files": files})
    return {"commit": info.sha, "files": files}


def _endpoint() -> str | None:
    """None is the hub itself."""
    return os.environ.get("HF_ENDPOINT")


def _remedy(hub: Hub, file: str) -> Callable[[str], str]:
    return lambda reason: (
        f"{file} of {hub} cannot be had from {_endpoint() or 'https://huggingface.co'}: {reason}. "
        "Fetch it on another machine and give its folder in the grid: paths: {name: /folder}"
    )


def _told(call: Callable[[], T], remedy: Callable[[str], str]) -> T:
    """The call's result, its errors as ours."""
    from httpx2 import HTTPError
    from huggingface_hub import errors

    try:
        return call()
    except errors.OfflineModeIsEnabled:
        raise DataError(remedy("HF_HUB_OFFLINE is set")) from None
    except ValueError as error:  # no name of a data set, or an answer that is not the hub's
        raise DataError(remedy(one_line(error))) from None
    except (HTTPError, OSError) as error:
        # One that looked into the cache in vain carries the cause.
        for cause in (error, error.__cause__):
            if isinstance(cause, errors.HfHubHTTPError):
                status = cause.response.status_code
                raise_status(status, f"HTTP {status}, {_first_line(cause)}", remedy)
        raise AgainError(one_line(error.__cause__ or error)) from None


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines[1:] if line), lines[0]).rstrip(".")


def _of_its_hash(path: Path, cache: Path) -> bool:
    """The hub names a file's content by its sha256 (large files) or by git's sha1 of it."""
    name = path.resolve().name
    if len(name) == 64:
        return remembered_sha256(path.resolve(), cache) == name
    if len(name) == 40:
        content = path.read_bytes()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest() == name
    return True
