"""Evaluation sets in BEIR form, streamed once into parquet and audited.

`prepare` reads a BEIR folder in memory that does not grow with the texts, and writes

    <cache>/benchmarks/<name>-<key>/
        corpus-00000.parquet ...  row, doc_id, text; at most 50,000 documents each
        queries.parquet           query_id, text; the split's judged queries, in the file's order
        qrels.parquet             query_id, doc_id, relevance
        about.json                sha256 of the content, and the audit

What is odd but has a meaning (a document without text, a judged document that is not in the corpus)
is counted in the audit; what has none is an error.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from ray_ablation.atomic import digest_of
from ray_ablation.data import docstrings
from ray_ablation.data.audit import CorpusAudit
from ray_ablation.data.beir_folder import (
    LAYOUT,
    Files,
    Qrels,
    find_files,
    read_documents,
    read_qrels,
    read_queries,
)
from ray_ablation.data.cache import build, remembered_sha256
from ray_ablation.data.files import DataError
from ray_ablation.trial import Strict

SHARD_DOCUMENTS = 50_000
GROUP_DOCUMENTS = 5_000  # held in memory at a time

CORPUS = pa.schema([("row", pa.int64()), ("doc_id", pa.string()), ("text", pa.string())])
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
QRELS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("relevance", pa.int64())])

# They become file names.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class Benchmark(Strict):
    """An evaluation set: which files, which split, and the rule for ids that collide."""

    name: Name
    """As in `BENCHMARKS`, or any name whose folder the grid gives under `paths`."""
    split: Name = "test"
    """Which qrels are scored: qrels/<split>.tsv."""
    self_ids: Literal["keep", "drop"] = "keep"
    """drop leaves out of each ranking the document whose id is the query's own."""


@dataclass(frozen=True)
class Prepared:
    """A benchmark on disk, audited.

    Attributes:
        benchmark: What was prepared.
        folder: Where it lies.
        about: `sha256` of the content (corpus, queries, qrels, split); how many `documents`,
            `queries` and `judged_pairs`; `audit`, how many of them are odd in which way.
    """

    benchmark: Benchmark
    folder: Path
    about: dict[str, Any]

    @property
    def shards(self) -> list[Path]:
        """The corpus: parquet files with columns row, doc_id, text; rows count on over files."""
        return [self.folder / name for name in sorted(self.about["files"]) if "corpus-" in name]

    def queries(self) -> pa.Table:
        """Columns query_id, text: the judged queries, in the order of their file."""
        return pq.read_table(self.folder / "queries.parquet", page_checksum_verification=True)

    def qrels(self) -> Qrels:
        """Query id -> document id -> relevance; queries without a positive are in it."""
        table = pq.read_table(self.folder / "qrels.parquet", page_checksum_verification=True)
        columns = (column.to_pylist() for column in table.columns)
        qrels: Qrels = {}
        for query_id, doc_id, relevance in zip(*columns, strict=True):
            qrels.setdefault(query_id, {})[doc_id] = relevance
        return qrels


def prepare(benchmark: Benchmark, source: Path | None, cache: Path) -> Prepared:
    """A benchmark, read and audited once; a second call finds it by its content.

    Args:
        benchmark: Which set and split.
        source: Its BEIR folder; None where the set is made here (docstrings-*).
        cache: Folder of prepared data.

    Raises:
        DataError: No folder was given, or what is in it cannot be scored.
    """
    files = find_files(_source(benchmark, source, cache), benchmark.split)
    contents = {name: remembered_sha256(path, cache) for name, path in vars(files).items()}
    digest = digest_of(contents | {"split": benchmark.split})
    folder = cache / "benchmarks" / f"{benchmark.name}-{digest[:12]}"
    about = build(folder, lambda temporary: {"sha256": digest} | _fill(temporary, files))
    return Prepared(benchmark, folder, about)


def _source(benchmark: Benchmark, source: Path | None, cache: Path) -> Path:
    if source is not None:
        return source
    if benchmark.name in docstrings.BENCHMARKS:
        return docstrings.benchmark_folder(benchmark.name, cache)
    raise DataError(
        f"benchmark {benchmark.name!r} is not on this machine and is not downloaded; say in the "
        f"grid where its BEIR folder lies: paths: {{{benchmark.name}: /folder}}. {LAYOUT}"
    )


def _fill(folder: Path, files: Files) -> dict[str, Any]:
    qrels, repeated = read_qrels(files.qrels)
    queries = read_queries(files.queries, qrels, files.qrels)
    judged = set().union(*qrels.values())
    audit = CorpusAudit(judged, set(queries))
    _write_corpus(folder, files.corpus, audit)
    rows = [(q, d, relevance) for q, found in qrels.items() for d, relevance in found.items()]
    _write(folder / "queries.parquet", QUERIES, list(queries.items()))
    _write(folder / "qrels.parquet", QRELS, rows)
    without = sum(max(found.values()) <= 0 for found in qrels.values())
    odd = {"repeated_judgements": repeated, "queries_without_positive": without}
    return {
        "documents": len(audit),
        "queries": len(queries),
        "judged_pairs": len(rows),
        "audit": audit.counts() | odd,
    }


def _write_corpus(folder: Path, path: Path, audit: CorpusAudit) -> None:
    rows = _rows(path, audit)
    groups = SHARD_DOCUMENTS // GROUP_DOCUMENTS
    for number in itertools.count():
        group = list(itertools.islice(rows, GROUP_DOCUMENTS))
        if not group:
            break
        file = folder / f"corpus-{number:05d}.parquet"
        with pq.ParquetWriter(file, CORPUS, write_page_checksum=True) as writer:
            writer.write_table(_table(CORPUS, group))
            for _ in range(groups - 1):
                if group := list(itertools.islice(rows, GROUP_DOCUMENTS)):
                    writer.write_table(_table(CORPUS, group))
    if not len(audit):
        raise DataError(f"{path} holds no document. {LAYOUT}")
    audit.check_ids(path)


def _rows(path: Path, audit: CorpusAudit) -> Iterator[tuple[int, str, str]]:
    for row, document in enumerate(read_documents(path)):
        audit.add(*document)
        yield row, document.doc_id, document.text


def _write(path: Path, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> None:
    pq.write_table(_table(schema, rows), path, write_page_checksum=True)


def _table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)


# BEIR scores the split called test, and dev for MS MARCO, whose test judgements are not public
# (Thakur et al. 2021, table 1). Queries of ArguAna and Quora are documents themselves and would
# find themselves first: BEIR's own search drops a document whose id is the query's. In the other
# sets equal ids are coincidence, and the document stays.
# CQADupStack is twelve folders, each scored on its own.
_FORUMS = (
    "android english gaming gis mathematica physics programmers stats tex unix webmasters wordpress"
)
BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        # Made here from installed libraries (data/docstrings.py).
        Benchmark(name="docstrings-stdlib"),
        Benchmark(name="docstrings-numpy"),
        Benchmark(name="docstrings-pandas"),
        # BEIR.
        Benchmark(name="msmarco", split="dev"),
        Benchmark(name="trec-covid"),
        Benchmark(name="nfcorpus"),
        Benchmark(name="bioasq"),
        Benchmark(name="nq"),
        Benchmark(name="hotpotqa"),
        Benchmark(name="fiqa"),
        Benchmark(name="signal1m"),
        Benchmark(name="trec-news"),
        Benchmark(name="robust04"),
        Benchmark(name="arguana", self_ids="drop"),
        Benchmark(name="webis-touche2020"),
        Benchmark(name="quora", self_ids="drop"),
        Benchmark(name="dbpedia-entity"),
        Benchmark(name="scidocs"),
        Benchmark(name="fever"),
        Benchmark(name="climate-fever"),
        Benchmark(name="scifact"),
        *(Benchmark(name=f"cqadupstack-{forum}") for forum in _FORUMS.split()),
    )
}
