"""Where a benchmark's files are: in a folder, behind a URL, on the hub, or with BEIR's public zips.

Whatever is not on this machine is fetched first. On the hub the judgements may lie in a data set of
their own, called like the other with -qrels, as BEIR's own do.
"""

from pathlib import Path, PurePosixPath

from ray_ablation.atomic import digest_of
from ray_ablation.data import docstrings
from ray_ablation.data.beir_folder import (
    LAYOUT,
    Files,
    choose,
    find_files,
    inner_folder,
    pick,
)
from ray_ablation.data.download import Say, fetch, fetch_hub, hub_files, known_md5, unpack
from ray_ablation.data.files import DataError
from ray_ablation.data.public import HOW_TO, NOT_GIVEN_AWAY, PUBLIC, Public
from ray_ablation.data.sources import Hub, Source, Url


def locate(name: str, split: str, source: Source | None, cache: Path, say: Say) -> Files:
    """The files of one split of a benchmark, on this machine.

    Args:
        name: As in BENCHMARKS, or any with a source.
        split: Which judgements.
        source: Where it lies; None where `name` says it.
        cache: Folder of what was fetched and prepared.
        say: Told what is fetched.

    Raises:
        DataError: It is nowhere, cannot be fetched, or lacks a part.
    """
    if source is None and name in docstrings.BENCHMARKS:
        source = docstrings.benchmark_folder(name, cache)
    if isinstance(source, Hub):
        return _from_hub(source, split, cache, say)
    inner = PUBLIC[name].folder or name if name in PUBLIC else name
    place: object = source
    if source is None:
        public = _public(name)
        place, folder = public.url, unpack(_fetch_public(name, public, cache, say), cache)
    elif isinstance(source, Url):
        folder = unpack(_fetch_url(source, cache, say), cache)
    else:
        folder = unpack(source, cache) if source.is_file() else source
    return find_files(inner_folder(folder, inner), split, place)


def _public(name: str) -> Public:
    if name in PUBLIC:
        return PUBLIC[name]
    folder = f"say in the grid where its folder lies: paths: {{{name}: /folder}}. {LAYOUT}"
    if name in NOT_GIVEN_AWAY:
        raise DataError(
            f"benchmark {name!r} has no public download, as its owners allow none; make it as "
            f"{HOW_TO} tells, and {folder}"
        )
    raise DataError(f"benchmark {name!r} is not known; {folder}")


def _fetch_public(name: str, public: Public, cache: Path, say: Say) -> Path:
    archive = fetch(public.url, cache / "downloads" / "beir", md5=public.md5, say=say)
    if len(public.md5) > 1:
        found = known_md5(archive)
        which = "present" if found == public.md5[0] else "earlier"
        say(f"benchmark {name}: its zip is that of BEIR's {which} list, md5 {found}")
    return archive


def _fetch_url(source: Url, cache: Path, say: Say) -> Path:
    # Zips of different hosts may have one name.
    return fetch(source.url, cache / "downloads" / digest_of(source.url)[:8], say=say)


def _from_hub(hub: Hub, split: str, cache: Path, say: Say) -> Files:
    where = {name: (hub, name) for name in hub_files(hub, cache, say=say)}
    if pick("corpus", where, split) and not any(name.startswith("qrels") for name in where):
        beside = Hub(f"{hub.repo}-qrels")
        for name in hub_files(beside, cache, say=say):
            where[f"qrels/{PurePosixPath(name).name}"] = (beside, name)
    return choose(hub, where, split, lambda name: fetch_hub(*where[name], cache, say))
