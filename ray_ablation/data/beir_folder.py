"""Reading a folder as BEIR publishes it (Thakur et al. 2021, arXiv:2104.08663).

    corpus.jsonl        {"_id": ..., "title": ..., "text": ...} a line, or corpus.jsonl.gz
    queries.jsonl       {"_id": ..., "text": ...} a line
    qrels/<split>.tsv   query-id, corpus-id, score; tab-separated, under a header

A document's text is its title and its text joined by a space and stripped, as BEIR's own dense
retrieval joins them; a missing title is "", and so is a document without any text. What can be read
in two ways is an error that names the line.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ray_ablation.data.files import DataError, find, lines, listed, records

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
    """The three files of a benchmark."""

    corpus: Path
    queries: Path
    qrels: Path


def find_files(folder: Path, split: str) -> Files:
    """The files of one split.

    Raises:
        DataError: The folder lacks one of them.
    """
    return Files(
        corpus=find(folder, "corpus.jsonl", LAYOUT),
        queries=find(folder, "queries.jsonl", LAYOUT),
        qrels=find(folder / "qrels", f"{split}.tsv", f"{LAYOUT}; `split` in the grid picks one"),
    )


def read_qrels(path: Path) -> tuple[Qrels, int]:
    """Judgements in the order of the file, and how many were judged before (the last one holds).

    Raises:
        DataError: No header, no rows, or a row that is not query, document, whole number.
    """
    qrels: Qrels = {}
    repeated = 0
    for line, text in lines(path):
        # BEIR writes and reads with csv's quoting, which ids with quotation marks need.
        row = next(csv.reader([text], delimiter="\t", quoting=csv.QUOTE_MINIMAL))
        score = _score(row, path, line)
        if score is not None:
            found = qrels.setdefault(row[0], {})
            repeated += row[1] in found
            found[row[1]] = score
    if not qrels:
        raise DataError(f"{path} judges nothing; expected rows under the header {HEADER}")
    return qrels, repeated


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


def read_queries(path: Path, qrels: Qrels, judged_in: Path) -> dict[str, str]:
    """Id -> text of the queries that `qrels` judges, in the order of the file.

    Raises:
        DataError: A repeated id, a judged query without text, or one that is not there.
    """
    seen: dict[str, int] = {}
    queries: dict[str, str] = {}
    for line, record in records(path):
        query_id = _id(record, path, line)
        if (first := seen.setdefault(query_id, line)) != line:
            raise DataError(
                f"{path}, line {line}: query id {query_id!r} stands on line {first} already; "
                "ids must be unique. Rename or drop one"
            )
        if query_id in qrels:
            text = _text(record, "text", path, line)
            if not text.strip():
                raise DataError(
                    f"{path}, line {line}: query {query_id!r} has no text, and {judged_in.name} "
                    "judges it; give it a text, or take its rows out of the qrels"
                )
            queries[query_id] = text
    if missing := [query_id for query_id in qrels if query_id not in queries]:
        raise DataError(
            f"{judged_in} judges {len(missing)} queries that {path.name} lacks: {listed(missing)}; "
            "the two files must be of one set"
        )
    return queries


def read_documents(path: Path) -> Iterator[Document]:
    """The documents, in the order of the file; ids may repeat.

    Raises:
        DataError: A line without an id, or with a title or text that is no string.
    """
    for line, record in records(path):
        title = _text(record, "title", path, line)
        text = f"{title} {_text(record, 'text', path, line)}".strip()
        yield Document(_id(record, path, line), text, record.get("title") is not None)


def _id(record: dict[str, Any], path: Path, line: int) -> str:
    found = record.get("_id")
    # A run file separates its fields by spaces.
    if isinstance(found, str) and found.split() == [found] and not UNFIT.search(found):
        return found
    raise DataError(
        f"{path}, line {line}: _id is {found!r}; expected a string of characters without spaces, "
        "as the qrels name it"
    )


def _text(record: dict[str, Any], key: str, path: Path, line: int) -> str:
    found = record.get(key)
    if found is not None and not isinstance(found, str):
        raise DataError(f"{path}, line {line}: {key} is {found!r}; expected a string")
    if found and SURROGATE.search(found):
        raise DataError(f"{path}, line {line}: {key} holds half a surrogate pair; remove it")
    return found or ""
