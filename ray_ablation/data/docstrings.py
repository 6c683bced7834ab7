"""The offline default: real text of the installed libraries, as a train set and three benchmarks.

A docstring is a natural pair: its summary is a query that only the rest of it answers. Sources are
parsed with `ast` and nothing is imported; what is read is what pip installed, so no text of others
is part of this project. Training reads torch, sympy and transformers, the benchmarks read the
standard library, numpy and pandas; a text that stands in both is left out of the benchmark.

    <cache>/docstrings/<key>/
        train.parquet                            id, query, document, sorted by id
        stdlib/ numpy/ pandas/                   BEIR folders
        about.json                               what was found and what was left out

The key is made of the names, sizes and modification times of the sources: looking at them takes
0.1 s, parsing them 12 s. What is trained and scored on is pinned by content elsewhere. No order of
files on disk plays a part: passages are sorted by id, a benchmark's are chosen by hash.
"""

import ast
import gc
import hashlib
import importlib.util
import inspect
import json
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ray_ablation.atomic import digest_of
from ray_ablation.data.cache import build
from ray_ablation.data.files import DataError

# Raised when the rules below pick other texts from the same sources.
RULES = 1

# A quickstart embeds three benchmarks with a dozen encoders, and 900 documents took one of 6 layers
# 10 s on 2 cores. Per-query nDCG spreads by about 0.4, so a mean over 100 has a standard error of
# 0.04.
BENCHMARK_DOCUMENTS = 100

# Below these a text says nothing of its own; above, the summary is a whole description.
QUERY_WORDS = range(3, 41)
DOCUMENT_WORDS = 10

# Test suites and vendored copies, wherever they lie.
SKIPPED = {"__pycache__", "test", "tests", "testing", "_testing", "_vendor", "site-packages"}

WORD = re.compile(r"[^\W\d_]{2,}")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`:])")
# A summary that names no content of its own, or is not a summary but a heading or a signature.
BOILERPLATE = re.compile(
    r"(see|alias|deprecated|todo|fixme|notes?|warning|internal|copied|adapted|taken|args|arguments"
    r"|parameters|raises|yields|examples?|usage)\b|[\w.]+\s*\(|[\w*]+ *:|.*:$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Library:
    """A body of Python sources.

    Attributes:
        name: What ids begin with: an installed package, or stdlib.
        skipped: Folders left out besides `SKIPPED`, relative to its root.
    """

    name: str
    skipped: frozenset[str] = frozenset()


class Source(NamedTuple):
    """A file of a library, and what shows that it changed."""

    name: str
    size: int
    mtime_ns: int


class Passage(NamedTuple):
    """One docstring: `id` is library/file.py:Qualified.name."""

    id: str
    query: str
    document: str


def benchmark_folder(name: str, cache: Path) -> Path:
    """The BEIR folder of one of `BENCHMARKS`, made when its libraries are new.

    Raises:
        DataError: A library is not installed.
    """
    return _prepared(cache) / BENCHMARKS[name].name


def train_file(cache: Path) -> Path:
    """The parquet file with all pairs to train on: id, query, document."""
    return _prepared(cache) / "train.parquet"


def _prepared(cache: Path) -> Path:
    libraries = (*TRAIN, *BENCHMARKS.values())
    sources = {library: list(find_sources(library, _root(library))) for library in libraries}
    found = {library.name: files for library, files in sources.items()}
    folder = cache / "docstrings" / digest_of([RULES, BENCHMARK_DOCUMENTS, found])[:12]
    build(folder, lambda temporary: _fill(temporary, sources))
    return folder


def _root(library: Library) -> Path:
    if library.name == "stdlib":
        return Path(sysconfig.get_path("stdlib"))
    # A top-level name is looked up without importing it.
    spec = importlib.util.find_spec(library.name)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the docstrings sets are made of installed libraries, and {library.name} is not "
            f"there; install it: pip install {library.name}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def find_sources(library: Library, root: Path) -> Iterator[Source]:
    """Python files of a library, by name; links are not followed."""
    for folder, subfolders, names in os.walk(root):
        inside = Path(folder).relative_to(root)
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in SKIPPED and (inside / name).as_posix() not in library.skipped
        )
        for name in sorted(names):
            if name.endswith(".py"):
                stat = os.stat(os.path.join(folder, name))
                yield Source((inside / name).as_posix(), stat.st_size, stat.st_mtime_ns)


def _fill(folder: Path, sources: dict[Library, list[Source]]) -> dict[str, Any]:
    passages, libraries = {}, {}
    for library, files in sources.items():
        passages[library], libraries[library.name] = read_library(library, _root(library), files)
    pool = sorted(passage for library in TRAIN for passage in passages[library])
    train, repeated = distinct(pool)
    pq.write_table(pa.Table.from_pylist([p._asdict() for p in train]), folder / "train.parquet")
    # Before repeats are dropped: what is left out of training may still not be scored on.
    seen = {normal(text) for passage in pool for text in passage[1:]}
    benchmarks = {
        name: write_benchmark(folder / library.name, sorted(passages[library]), seen)
        for name, library in BENCHMARKS.items()
    }
    counts = {"usable": len(pool), "repeated": repeated, "pairs": len(train)}
    return {"libraries": libraries, "train": counts, "benchmarks": benchmarks}


def read_library(
    library: Library, root: Path, files: list[Source]
) -> tuple[list[Passage], dict[str, int]]:
    """Passages of a library, and how many files, unreadable files and docstrings there were."""
    found: dict[str, Passage] = {}
    docstrings = unreadable = 0
    with _many_trees():
        for source in files:
            try:
                tree = ast.parse((root / source.name).read_bytes())
            except (SyntaxError, ValueError):
                # Templates, and files for other versions of Python.
                unreadable += 1
                continue
            for name, docstring in named_docstrings(tree.body):
                docstrings += 1
                passage_id = f"{library.name}/{source.name}:{name}"
                # The first of several definitions: a property's getter, a function's first branch.
                if passage_id not in found and (pair := split(docstring)):
                    found[passage_id] = Passage(passage_id, *pair)
    counts = {"files": len(files), "unreadable": unreadable, "docstrings": docstrings}
    return list(found.values()), counts | {"usable": len(found)}


@contextmanager
def _many_trees() -> Iterator[None]:
    """Trees are freed by reference counts; looking for cycles in them takes half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            # Other people's invalid escape sequences.
            warnings.simplefilter("ignore")
            yield
    finally:
        if enabled:
            gc.enable()


def named_docstrings(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Qualified name and docstring of the classes, methods and functions defined in `body`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if docstring := ast.get_docstring(node, clean=False):
                yield prefix + node.name, docstring
            if isinstance(node, ast.ClassDef):
                yield from named_docstrings(node.body, f"{prefix}{node.name}.")


def split(docstring: str) -> tuple[str, str] | None:
    """Summary and rest, None where one of them carries no meaning.

    The summary is the first sentence of the first paragraph, on one line.

    >>> split("Sort in place. Ties keep\\ntheir order.\\n\\nMerge sort, with half as much memory.")
    ('Sort in place.', 'Ties keep their order.\\n\\nMerge sort, with half as much memory.')
    >>> split("Sort in place.") is None
    True
    """
    text = inspect.cleandoc(docstring).encode("utf-8", "replace").decode()
    paragraph, _, below = text.partition("\n\n")
    summary, *more = SENTENCE_END.split(" ".join(paragraph.split()), maxsplit=1)
    rest = "\n\n".join([*more, below.strip()]).strip()
    if len(WORD.findall(summary)) not in QUERY_WORDS or BOILERPLATE.match(summary):
        return None
    return (summary, rest) if len(WORD.findall(_prose(rest))) >= DOCUMENT_WORDS else None


def _prose(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(">>>"))


def normal(text: str) -> str:
    """Letters and digits alone, in lower case: texts that differ in neither are one text."""
    return " ".join(re.findall(r"[^\W_]+", text.lower()))


def distinct(passages: list[Passage]) -> tuple[list[Passage], int]:
    """Passages whose query and document are new, the first of each, and how many are not."""
    known: set[str] = set()
    kept = []
    for passage in passages:
        texts = {normal(passage.query), normal(passage.document)}
        if not texts & known:
            kept.append(passage)
            known |= texts
    return kept, len(passages) - len(kept)


def write_benchmark(folder: Path, passages: list[Passage], trained: set[str]) -> dict[str, int]:
    """A BEIR folder of at most `BENCHMARK_DOCUMENTS` passages, and what was left out.

    Args:
        folder: Where it is made.
        passages: All of the library, sorted by id.
        trained: Normal texts that a train set holds.
    """
    fresh = [p for p in passages if not {normal(p.query), normal(p.document)} & trained]
    usable, repeated = distinct(fresh)
    # By hash: a library that changes one function changes one document of the benchmark.
    chosen = sorted(sorted(usable, key=lambda p: _hash(p.id))[:BENCHMARK_DOCUMENTS])
    corpus = [{"_id": p.id, "title": "", "text": p.document} for p in chosen]
    queries = [{"_id": f"q-{p.id}", "text": p.query} for p in chosen]
    (folder / "qrels").mkdir(parents=True)
    _write_lines(folder / "corpus.jsonl", map(json.dumps, corpus))
    _write_lines(folder / "queries.jsonl", map(json.dumps, queries))
    judged = (f"q-{p.id}\t{p.id}\t1" for p in chosen)
    _write_lines(folder / "qrels" / "test.tsv", ("query-id\tcorpus-id\tscore", *judged))
    return {
        "usable": len(passages),
        "in_train_set": len(passages) - len(fresh),
        "repeated": repeated,
        "documents": len(chosen),
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


TRAIN = (
    Library("torch"),
    Library("sympy"),
    # The models are written from one template: 4,800 docstrings, most of them copies with another
    # name filled in, which are false negatives of each other.
    Library("transformers", skipped=frozenset({"models"})),
)

BENCHMARKS = {
    # Applications and translators of old code, which are no library's documentation.
    "docstrings-stdlib": Library("stdlib", skipped=frozenset({"idlelib", "lib2to3", "turtledemo"})),
    "docstrings-numpy": Library("numpy"),
    "docstrings-pandas": Library("pandas"),
}
