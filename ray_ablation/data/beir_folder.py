"""Reading a set in BEIR's form (Thakur et al. 2021, arXiv:2104.08663), as it is found in the wild.

    corpus.jsonl        {"_id": ..., "title": ..., "text": ...} a line
    queries.jsonl       {"_id": ..., "text": ...} a line
    qrels/<split>.tsv   query-id, corpus-id, score; tab-separated, under a header

Each may be compressed (.gz), or be parquet files with those columns as the hub keeps them,
corpus/*.parquet, queries/*.parquet and qrels/<split>*.parquet; without a score a pair counts 1.

A document's text is its title and its text joined by a space and stripped, as BEIR's own dense
retrieval joins them; a missing title is "", and so is a document without any text. What can be read
in two ways is an error that names the line.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ray_ablation.data.files import DataError, lines, listed, records

HEADER = "query-id<TAB>corpus-id<TAB>score"
LAYOUT = "A BEIR folder has corpus.jsonl, queries.jsonl and qrels/<split>.tsv"

# JSON can spell half a surrogate pair, which no tokenizer and no file can hold.
SURROGATE = re.compile("[\ud800-\udfff]")
# trec_eval ends a string at NUL, so two ids could become one.
UNFIT = re.compile("[\ud800-\udfff\0]")
# Its gains are exact and its tables small up to here; TREC's own grades end at 4.
MOST_RELEVANT = 1000

Qrels = dict[str, dict[str, int]]


class Document(NamedTuple):
    """One line of the corpus."""

    doc_id: str
    text: str
    has_title: bool


@dataclass(frozen=True)
class Files:
    """The files of a benchmark; several where a part is cut into pieces."""

    corpus: tuple[Path, ...]
    queries: tuple[Path, ...]
    qrels: tuple[Path, ...]


# Part -> the names it may have, best first; a name with a star stands for all that match.
NAMES = {
    "corpus": ("corpus.jsonl", "corpus.jsonl.gz", "corpus/*.parquet"),
    "queries": ("queries.jsonl", "queries.jsonl.gz", "queries/*.parquet"),
    "qrels": (
        "qrels/{split}.tsv",
        "qrels/{split}.tsv.gz",
        "qrels/{split}.jsonl",
        "qrels/{split}.parquet",
        "qrels/{split}-*.parquet",
    ),
}


def pick(part: str, names: Iterable[str], split: str) -> list[str]:
    """Those of the names that are the part's files, in order; none where it is not there."""
    names = sorted(names)
    for pattern in NAMES[part]:
        if found := [n for n in names if fnmatchcase(n, pattern.format(split=split))]:
            return found
    return []


def choose(place: object, names: Iterable[str], split: str, get: Callable[[str], Path]) -> Files:
    """The files of one split among all there are.

    Args:
        place: Where they lie, for errors.
        names: Of all files, relative to it.
        split: Which qrels.
        get: Name -> the file itself.

    Raises:
        DataError: A part is not there.
    """
    names = sorted(names)
    parts = {part: pick(part, names, split) for part in NAMES}
    for part, found in parts.items():
        if not found:
            first, *others = (pattern.format(split=split) for pattern in NAMES[part])
            near = [n for n in names if n.startswith("qrels")] if part == "qrels" else names
            hint = "; `split` in the grid picks one" if part == "qrels" and near else ""
            raise DataError(
                f"{place} lacks {first} (or {', '.join(others)}); it holds "
                f"{listed(near or names) or 'nothing'}. {LAYOUT}{hint}"
            )
    return Files(**{part: tuple(map(get, found)) for part, found in parts.items()})


def find_files(folder: Path, split: str, place: object = None) -> Files:
    """The files of one split in a folder, which errors call `place`.

    Raises:
        DataError: The folder lacks one of them.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; {LAYOUT}")
    found = [path for depth in ("*", "*/*") for path in folder.glob(depth) if path.is_file()]
    names = [path.relative_to(folder).as_posix() for path in found]
    return choose(place or folder, names, split, folder.joinpath)


def inner_folder(folder: Path, name: str) -> Path:
    """The folder with a corpus: the only one inside, or the one called so; else this one.

    Raises:
        DataError: There are several, and none of that name.
    """
    for depth in ("*", "*/*"):
        found = [path for path in sorted(folder.glob(depth)) if _has_corpus(path)]
        named = [path for path in found if path.name == name]
        if _has_corpus(folder) or not found:
            continue
        if len(found) > 1 and not named:
            have = listed([path.name for path in found])
            raise DataError(f"{folder} holds several sets, but none called {name!r}: {have}")
        return (named or found)[0]
    return folder


def _has_corpus(folder: Path) -> bool:
    return any(next(folder.glob(name), None) for name in NAMES["corpus"])


def read_qrels(paths: Sequence[Path]) -> tuple[Qrels, int]:
    """Judgements in the order of the files, and how many were judged before (the last one holds).

    Raises:
        DataError: No header, no rows, or a row that is not query, document, whole number.
    """
    qrels: Qrels = {}
    repeated = 0
    for path in paths:
        for query_id, doc_id, score in _judgements(path):
            found = qrels.setdefault(query_id, {})
            repeated += doc_id in found
            found[doc_id] = score
    if not qrels:
        names = ", ".join(map(str, paths))
        raise DataError(f"{names} judges nothing; expected rows under the header {HEADER}")
    return qrels, repeated


def _judgements(path: Path) -> Iterator[tuple[str, str, int]]:
    if ".tsv" not in path.suffixes:
        for line, record in records(path):
            score = record.get("score", 1)
            if not isinstance(score, int | float) or score != int(score):
                raise DataError(f"{path}, line {line}: score is {score!r}; expected a whole number")
            yield (
                _id(record, path, line, "query-id"),
                _id(record, path, line, "corpus-id"),
                int(score),
            )
        return
    for line, text in lines(path):
        # BEIR writes and reads with csv's quoting, which ids with quotation marks need.
        row = next(csv.reader([text], delimiter="\t", quoting=csv.QUOTE_MINIMAL))
        relevance = _score(row, path, line)
        if relevance is not None:
            yield row[0], row[1], relevance


def _score(row: list[str], path: Path, line: int) -> int | None:
    """The relevance of a row, None for the header."""
    try:
        _query_id, _doc_id, score = row
        relevance = int(score)
        if "_" in score or abs(relevance) > MOST_RELEVANT:
            raise ValueError(score)
    except ValueError:
        if line == 1 and len(row) == 3:
            return None
        raise DataError(
            f"{path}, line {line}: found {row}; expected {HEADER}, the score a whole number "
            f"of at most {MOST_RELEVANT}"
        ) from None
    if line == 1:
        raise DataError(
            f"{path}, line 1: found {row}, but the first line must be the header {HEADER} "
            "(BEIR skips it unread); add it"
        )
    return relevance


def read_queries(paths: Sequence[Path], qrels: Qrels, judged_in: Path) -> dict[str, str]:
    """Id -> text of the queries that `qrels` judges, in the order of the files.

    Raises:
        DataError: A repeated id, a judged query without text, or one that is not there.
    """
    seen: dict[str, int] = {}
    queries: dict[str, str] = {}
    for path, line, record in _rows(paths):
        query_id = _id(record, path, line)
        if query_id in seen:
            raise DataError(
                f"{path}, line {line}: query id {query_id!r} stands on line {seen[query_id]} "
                "already; ids must be unique. Rename or drop one"
            )
        seen[query_id] = line
        if query_id in qrels:
            text = _text(record, "text", path, line)
            if not text.strip():
                raise DataError(
                    f"{path}, line {line}: query {query_id!r} has no text, and {judged_in.name} "
                    "judges it; give it a text, or take its rows out of the qrels"
                )
            queries[query_id] = text
    if missing := [query_id for query_id in qrels if query_id not in queries]:
        names = ", ".join(path.name for path in paths)
        raise DataError(
            f"{judged_in} judges {len(missing)} queries that {names} lacks: {listed(missing)}; "
            "the two files must be of one set"
        )
    return queries


def read_documents(paths: Iterable[Path]) -> Iterator[Document]:
    """The documents, in the order of the files; ids may repeat.

    Raises:
        DataError: A line without an id, or with a title or text that is no string.
    """
    for path, line, record in _rows(paths):
        title = _text(record, "title", path, line)
        text = f"{title} {_text(record, 'text', path, line)}".strip()
        yield Document(_id(record, path, line), text, record.get("title") is not None)


def read_ids(paths: Iterable[Path]) -> Iterator[str]:
    """The documents' ids, in the order of the files."""
    for path, line, record in _rows(paths):
        yield _id(record, path, line)


def _rows(paths: Iterable[Path]) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    for path in paths:
        for line, record in records(path):
            yield path, line, record


def _id(record: dict[str, Any], path: Path, line: int, key: str = "_id") -> str:
    found = record.get(key)
    # A run file separates its fields by spaces.
    if isinstance(found, str) and found.split() == [found] and not UNFIT.search(found):
        return found
    raise DataError(
        f"{path}, line {line}: {key} is {found!r}; expected a string of characters without spaces, "
        "as the qrels name it"
    )


def _text(record: dict[str, Any], key: str, path: Path, line: int) -> str:
    found = record.get(key)
    if found is not None and not isinstance(found, str):
        raise DataError(f"{path}, line {line}: {key} is {found!r}; expected a string")
    if found and SURROGATE.search(found):
        raise DataError(f"{path}, line {line}: {key} holds half a surrogate pair; remove it")
    return found or ""
