"""The MS MARCO passages with mined hard negatives, from the files as they are published.

    msmarco-hard-negatives.jsonl   {"qid": 1, "pos": [pid], "neg": {"bm25": [pid], ...}} a line
    collection.tsv                 pid, passage
    queries.train.tsv              qid, query
    qrels.train.tsv                qid, 0, pid, relevance; may be missing from a folder

Each may be compressed (.gz), the collection and the queries may lie in the archives they come in.
The first is sentence-transformers' msmarco-hard-negatives on the hub, the others are Microsoft's;
where the environment variable MSMARCO_MIRROR is set, they are fetched from below that URL instead.
Rows are streamed by ids; of the 8.8 million passages only those that a sample names are kept.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray_ablation.atomic import digest_of
from ray_ablation.data.download import fetch
from ray_ablation.data.files import DataError, fields, find, listed, records
from ray_ablation.data.hub import fetch_hub, hub_files
from ray_ablation.data.progress import Say
from ray_ablation.data.sampling import Row
from ray_ablation.data.sources import Hub, Source, Url

ROWS = "msmarco-hard-negatives.jsonl"
COLLECTION = "collection.tsv"
QUERIES = "queries.train.tsv"
QRELS = "qrels.train.tsv"
LAYOUT = f"A folder of this train set has {ROWS}, {COLLECTION} and {QUERIES} ({QRELS} may be there)"
FORM = '{"qid": 1, "pos": [2], "neg": {"bm25": [3]}}'

# Name of a file -> what it is published as.
PUBLISHED = {
    ROWS: f"{ROWS}.gz",
    COLLECTION: "collection.tar.gz",
    QUERIES: "queries.tar.gz",
    QRELS: QRELS,
}
HUB = Hub("sentence-transformers/msmarco-hard-negatives")
PUBLIC = "https://msmarco.z22.web.core.windows.net/msmarcoranking"
# As the TREC Deep Learning track lists them (microsoft.github.io/msmarco/TREC-Deep-Learning-2019).
MD5 = {
    COLLECTION: "87dd01826da3e2ad45447ba5af577628",
    QUERIES: "c177b2795d5f2dcc524cf00fcd973be1",
    QRELS: "733fb9fe12d93e497f7289409316eccf",
}


def files(source: Source, cache: Path, say: Say) -> dict[str, Path]:
    """Name -> path of the files, fetched where they are not of this machine.

    Args:
        source: A folder; a URL under which the files lie as they are published; or a data set of
            the hub, where what it lacks is fetched from Microsoft.
        cache: Folder of prepared data.
        say: Told how far downloads are.

    Raises:
        DataError: One of them is not there, cannot be fetched, or is not the published one.
    """
    if isinstance(source, Path):
        return _of_folder(source)
    if isinstance(source, Url):
        into = cache / "downloads" / digest_of(source.url)[:12]
        return {
            name: fetch(f"{source.url}/{file}", into, say=say) for name, file in PUBLISHED.items()
        }
    held = hub_files(source, cache, say=say)
    public = os.environ.get("MSMARCO_MIRROR", PUBLIC).rstrip("/")
    found = {}
    for name, file in PUBLISHED.items():
        if name == ROWS or file in held:
            found[name] = fetch_hub(source, file, cache, say)
        else:
            into = cache / "downloads" / "msmarco"
            found[name] = fetch(f"{public}/{file}", into, md5=(MD5[name],), say=say)
    return found


def _of_folder(folder: Path) -> dict[str, Path]:
    found = {}
    for name, published in PUBLISHED.items():
        forms = (folder / name, folder / f"{name}.gz", folder / published)
        there = [path for path in forms if path.is_file()]
        if there or name != QRELS:
            found[name] = there[0] if there else find(folder, name, LAYOUT)
    return found


def rows(paths: dict[str, Path]) -> Iterator[Row]:
    """The rows, in the order of their file.

    Raises:
        DataError: A line is not of the form above.
    """
    relevant = _relevant(paths[QRELS]) if QRELS in paths else {}
    path = paths[ROWS]
    for line, record in records(path, ROWS):
        try:
            query = int(record["qid"])
            positives = _ids(record["pos"])
            negatives = {name: _ids(ids) for name, ids in record["neg"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"{path}, line {line}: expected {FORM} with whole numbers as ids ({error!r})"
            ) from None
        yield Row(query, positives, negatives, frozenset(relevant.get(query, ())))


def texts(
    paths: dict[str, Path], queries: set[int], passages: set[int]
) -> tuple[dict[int, str], dict[int, str]]:
    """Texts of the queries and of the passages named.

    Raises:
        DataError: A file lacks some of them.
    """
    return _texts(paths, QUERIES, queries), _texts(paths, COLLECTION, passages)


def _ids(found: Any) -> list[int]:
    return [int(passage) for passage in found]


def _relevant(path: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for line, (query, _, passage, relevance) in fields(path, 4, "qid, 0, pid, relevance", QRELS):
        if _number(relevance, path, line) > 0:
            found[_number(query, path, line)].append(_number(passage, path, line))
    return found


def _texts(paths: dict[str, Path], name: str, wanted: set[int]) -> dict[int, str]:
    path = paths[name]
    found: dict[int, str] = {}
    for line, (number, text) in fields(path, 2, "id, text", name):
        if (key := _number(number, path, line)) in wanted:
            found[key] = text.strip()
    if missing := sorted(wanted - found.keys()):
        raise DataError(
            f"{path} lacks {len(missing)} of the ids that {ROWS} names: "
            f"{listed([str(key) for key in missing])}; both must be of one set, and whole"
        )
    return found


def _number(text: str, path: Path, line: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(f"{path}, line {line}: {text!r} where a whole number belongs") from None
