"""The MS MARCO passages with mined hard negatives, from the files as they are published.

    msmarco-hard-negatives.jsonl   {"qid": 1, "pos": [pid], "neg": {"bm25": [pid], ...}} a line
    collection.tsv                 pid, passage
    queries.train.tsv              qid, query
    qrels.train.tsv                qid, 0, pid, relevance; may be missing

Each may be compressed (.gz). The first is sentence-transformers' msmarco-hard-negatives on the hub,
the others are Microsoft's. Rows are streamed by ids; of the 8.8 million passages only those that a
sample names are kept.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ray_ablation.data.files import DataError, fields, find, listed, records
from ray_ablation.data.sampling import Row

ROWS = "msmarco-hard-negatives.jsonl"
COLLECTION = "collection.tsv"
QUERIES = "queries.train.tsv"
QRELS = "qrels.train.tsv"
LAYOUT = f"A folder of this train set has {ROWS}, {COLLECTION} and {QUERIES} ({QRELS} may be there)"
FORM = '{"qid": 1, "pos": [2], "neg": {"bm25": [3]}}'


def files(source: Path | None) -> dict[str, Path]:
    """Name -> path of the files in a folder.

    Raises:
        DataError: No folder was given, or it lacks one of them.
    """
    if source is None:
        raise DataError(
            "train set 'msmarco-hard-negatives' is not on this machine and is not downloaded; say "
            "in the grid where its files lie: paths: {msmarco-hard-negatives: /folder}. " + LAYOUT
        )
    found = {name: find(source, name, LAYOUT) for name in (ROWS, COLLECTION, QUERIES)}
    for qrels in (source / QRELS, source / f"{QRELS}.gz"):
        if qrels.is_file():
            found.setdefault(QRELS, qrels)
    return found


def rows(paths: dict[str, Path]) -> Iterator[Row]:
    """The rows, in the order of their file.

    Raises:
        DataError: A line is not of the form above.
    """
    relevant = _relevant(paths[QRELS]) if QRELS in paths else {}
    path = paths[ROWS]
    for line, record in records(path):
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
    return _texts(paths[QUERIES], queries), _texts(paths[COLLECTION], passages)


def _ids(found: Any) -> list[int]:
    return [int(passage) for passage in found]


def _relevant(path: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for line, (query, _, passage, relevance) in fields(path, 4, "qid, 0, pid, relevance"):
        if _number(relevance, path, line) > 0:
            found[_number(query, path, line)].append(_number(passage, path, line))
    return found


def _texts(path: Path, wanted: set[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for line, (number, text) in fields(path, 2, "id, text"):
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
