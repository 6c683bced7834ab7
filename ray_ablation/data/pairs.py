"""Anybody's train set: queries with a positive, and perhaps negatives, from JSON lines or parquet.

    {"query": "...", "positive": "...", "negative": "..."}     a line, or a row

Columns are taken by name, never by their order: by order, query and positive change places in
silence. Negatives are the columns `negative`, `negatives` and `negative_1`, `negative_2`, ..., each
a text or a list of texts; the column's name is what `negative_systems` calls a system. Nothing has
an id here, so a text is known by its hash: the files are streamed twice, and only the texts of the
sample are held. Where there are negatives, once more before: a passage that any row gives as the
positive of the same query is none.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ray_ablation.atomic import digest_of
from ray_ablation.data.download import fetch
from ray_ablation.data.files import DataError, listed, records
from ray_ablation.data.hub import fetch_hub, hub_files
from ray_ablation.data.progress import Say
from ray_ablation.data.sampling import Row, text_key
from ray_ablation.data.sources import Hub, Source, Url

# A role's own name, and what it may be called where only one of these is there.
QUERY = ("query", "anchor", "question")
POSITIVE = ("positive", "answer", "document")
NEGATIVE = re.compile(r"negatives?|negative_\d+")

# A NUL ends a text for some libraries, half of a surrogate pair has no UTF-8.
UNFIT = re.compile("[\0\ud800-\udfff]")
ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
FORM = (
    '{"query": "...", "positive": "...", "negative": "..."} a line, or parquet; no negative is fine'
)
ROWS_AT_A_TIME = 1_000


class Pair(NamedTuple):
    """One row; texts may be empty.

    Attributes:
        negatives: Column -> its texts, none of them empty.
    """

    query: str
    positive: str
    negatives: dict[str, list[str]]


class Columns(NamedTuple):
    """Which columns play which role."""

    query: str
    positive: str
    negatives: tuple[str, ...]


def files(source: Source | None, cache: Path, say: Say) -> dict[str, Path]:
    """Name -> path of the files, fetched where they are not of this machine.

    Of several files in a folder those called train* are read, where there are any; else all.

    Args:
        source: A file; a folder of them; the URL of a file; or a data set of the hub.
        cache: Folder of prepared data.
        say: Told how far downloads are.

    Raises:
        DataError: No file is there, or it is not clear which ones are meant.
    """
    if isinstance(source, Url):
        into = cache / "downloads" / digest_of(source.url)[:12]
        (name,) = _chosen([PurePosixPath(source.url.partition("?")[0]).name], source)
        return {name: fetch(source.url, into, name=name, say=say)}
    if isinstance(source, Hub):
        folder = source
        names = hub_files(source, cache, say=say)
        if not names:  # the path may be a file's
            folder = Hub(source.repo, source.revision, _parent(source.path))
            names = [PurePosixPath(source.path).name]
        return {name: fetch_hub(folder, name, cache, say) for name in _chosen(names, source)}
    if source is None:
        raise DataError(
            "a train set of your own needs its files; say in the grid where they lie: paths: "
            f"{{pairs: /file.jsonl}}. They hold {FORM}"
        )
    if source.is_file():
        return dict.fromkeys(_chosen([source.name], source), source)
    if not source.is_dir():
        raise DataError(f"{source} is not there; a file or folder of them holds {FORM}")
    names = sorted(p.relative_to(source).as_posix() for p in source.rglob("*") if p.is_file())
    return {name: source / name for name in _chosen(names, source)}


def rows(paths: dict[str, Path]) -> Iterator[Row]:
    """The rows by keys of their texts, in the order of the files.

    Raises:
        DataError: A file or one of its rows cannot be read.
    """
    known = _known(paths)
    for pair in _pairs(paths):
        query = text_key(pair.query) if pair.query else None
        positives = [text_key(pair.positive)] if pair.positive else []
        negatives = {name: list(map(text_key, texts)) for name, texts in pair.negatives.items()}
        relevant = (
            key for keys in negatives.values() for key in keys if hash((query, key)) in known
        )
        yield Row(query, positives, negatives, frozenset(relevant))


def texts(
    paths: dict[str, Path], queries: set[int], passages: set[int]
) -> tuple[dict[int, str], dict[int, str]]:
    """Texts of the keys named."""
    asked: dict[int, str] = {}
    answers: dict[int, str] = {}
    for pair in _pairs(paths):
        if (key := text_key(pair.query)) in queries:
            asked[key] = pair.query
        for text in (pair.positive, *(text for part in pair.negatives.values() for text in part)):
            if (key := text_key(text)) in passages:
                answers[key] = text
    return asked, answers


def _known(paths: dict[str, Path]) -> set[int]:
    """Hashes of each query with its positive, where any row has negatives."""
    if not any(pair.negatives for pair in _pairs(paths)):
        return set()
    return {hash((text_key(pair.query), text_key(pair.positive))) for pair in _pairs(paths)}


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _chosen(names: Sequence[str], source: Source) -> list[str]:
    readable = [name for name in names if name.endswith(ENDINGS)]
    found = [n for n in readable if PurePosixPath(n).name.startswith("train")] or readable
    if not found:
        holds = listed(list(names)) or "nothing"
        raise DataError(
            f"{source} holds no {', '.join(ENDINGS)} file; it holds {holds}. One holds {FORM}"
        )
    if len(folders := sorted({_parent(name) for name in found})) > 1:
        raise DataError(
            f"{source} holds files in several folders: {listed(folders)}; name one of them in "
            f"paths, as in {source}/{folders[-1]}"
        )
    return found


def _pairs(paths: dict[str, Path]) -> Iterator[Pair]:
    for path in paths.values():
        read = _parquet(path) if path.suffix == ".parquet" else _lines(path)
        for where, record in read:
            columns = _columns(tuple(record), path)
            yield Pair(
                _text(record[columns.query], columns.query, where),
                _text(record[columns.positive], columns.positive, where),
                {name: _texts(record[name], name, where) for name in columns.negatives},
            )


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, record in records(path):
        yield f"{path}, line {number}", record


def _parquet(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    try:
        # Without buffering ahead only the pages of one batch are in memory.
        with pq.ParquetFile(path, pre_buffer=False) as file:
            roles = _columns(tuple(file.schema_arrow.names), path)
            wanted = [roles.query, roles.positive, *roles.negatives]
            for batch in file.iter_batches(ROWS_AT_A_TIME, columns=wanted):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", record
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read after row {number}: {error}") from None


@lru_cache
def _columns(names: tuple[str, ...], path: Path) -> Columns:
    return Columns(
        _column(QUERY, names, path),
        _column(POSITIVE, names, path),
        tuple(sorted(name for name in names if NEGATIVE.fullmatch(name))),
    )


def _column(role: tuple[str, ...], names: tuple[str, ...], path: Path) -> str:
    own, *aliases = role
    found = [own] if own in names else [name for name in aliases if name in names]
    if len(found) == 1:
        return found[0]
    holds = f"it has the columns {listed(list(names))}" if names else "it has no columns"
    problem = f"{' and '.join(found)} may both be" if found else "no column is"
    raise DataError(
        f"{path}: {problem} the {own}; {holds}. Call it {own}"
        + ("" if found else f" ({' or '.join(aliases)} will do)")
    )


def _texts(value: Any, column: str, where: str) -> list[str]:
    values = value if isinstance(value, list) else [value]
    found = (_text(text, column, where) for text in values)
    return [text for text in found if text]


def _text(value: Any, column: str, where: str) -> str:
    """The text without the white space around it; null is empty."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{where}: {column} is {value!r:.60}, where a text belongs")
    if UNFIT.search(value):
        raise DataError(f"{where}: {column} holds a NUL or half a surrogate pair; mend the text")
    return value.strip()
