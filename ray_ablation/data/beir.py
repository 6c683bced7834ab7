"""Evaluation sets in BEIR form, streamed once into parquet and audited.

`prepare` reads BEIR's files in memory that does not grow with the texts, and writes

    <cache>/benchmarks/<name>-<key>/
        corpus-00000.parquet ...  row, doc_id, text; at most 50,000 documents each
        queries.parquet           query_id, text; the split's judged queries, in the file's order
        qrels.parquet             query_id, doc_id, relevance
        about.json                sha256 of the content, and the audit

What is odd but has a meaning (a document without text, a judged document that is not in the corpus)
is counted in the audit; what has none is an error.

A benchmark may be a sample of another: all judged documents, and of the others those whose ids have
the smallest sha256, so that everyone draws the same. It is easier than the whole and says so
wherever it is shown.
"""

import hashlib
import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ray_ablation.atomic import digest_of
from ray_ablation.data.audit import CorpusAudit
from ray_ablation.data.beir_folder import (
    LAYOUT,
    Document,
    Files,
    Qrels,
    read_documents,
    read_ids,
    read_qrels,
    read_queries,
)
from ray_ablation.data.benchmarks import BENCHMARKS, GROUPS, Benchmark
from ray_ablation.data.cache import build, remembered_sha256
from ray_ablation.data.download import Say
from ray_ablation.data.files import DataError
from ray_ablation.data.locate import locate
from ray_ablation.data.public import PUBLIC
from ray_ablation.data.sources import Source

__all__ = ["BENCHMARKS", "GROUPS", "Benchmark", "Prepared", "describe", "prepare", "surprise"]

SHARD_DOCUMENTS = 50_000
GROUP_DOCUMENTS = 5_000  # held in memory at a time

CORPUS = pa.schema([("row", pa.int64()), ("doc_id", pa.string()), ("text", pa.string())])
QUERIES = pa.schema([("query_id", pa.string()), ("text", pa.string())])
QRELS = pa.schema([("query_id", pa.string()), ("doc_id", pa.string()), ("relevance", pa.int64())])


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


def prepare(benchmark: Benchmark, source: Source | None, cache: Path, say: Say = print) -> Prepared:
    """A benchmark, fetched, read and audited once; a second call finds it by its content.

    Args:
        benchmark: Which set and split.
        source: Where it lies; None where its name says it.
        cache: Folder of what was fetched and prepared.
        say: Told what is fetched.

    Raises:
        DataError: It cannot be had, what is in it cannot be scored, or it is not what BEIR calls
            so.
    """
    files = locate(benchmark.of or benchmark.name, benchmark.split, source, cache, say)
    digest = _digest(benchmark, files, cache)
    folder = cache / "benchmarks" / f"{benchmark.name}-{digest[:12]}"
    about = build(
        folder, lambda temporary: {"sha256": digest} | _fill(temporary, files, benchmark.others)
    )
    prepared = Prepared(benchmark, folder, about)
    if source is None and (text := surprise(prepared)):
        raise DataError(
            f"benchmark {benchmark.name} was fetched, but {text}; it is not the set of that name. "
            f"Delete {cache / 'downloads'} to fetch it again, or give a folder of your own: paths: "
            f"{{{benchmark.of or benchmark.name}: /folder}}"
        )
    return prepared


def surprise(prepared: Prepared) -> str:
    """How a set's size differs from that of the public set of its name; empty where it does not."""
    benchmark, about = prepared.benchmark, prepared.about
    name = benchmark.of or benchmark.name
    if name not in PUBLIC or benchmark.split != BENCHMARKS[name].split:
        return ""
    found = about["sample"]["of"] if "sample" in about else about["documents"], about["queries"]
    expected = PUBLIC[name].documents, PUBLIC[name].queries
    if found == expected:
        return ""
    have, published = (
        f"{documents:,} documents and {queries:,} queries"
        for documents, queries in (found, expected)
    )
    return f"it has {have}, where {name} as BEIR publishes it has {published}"


def describe(prepared: Prepared) -> str:
    """One line: how large it is, and what is odd about it."""
    about = prepared.about
    odd = [f"{n:,} {name.replace('_', ' ')}" for name, n in about["audit"].items() if n]
    text = (
        f"benchmark {prepared.benchmark.name}: {about['documents']:,} documents, "
        f"{about['queries']:,} queries, {about['judged_pairs']:,} judged pairs"
    )
    text += f" ({', '.join(odd)})" if odd else ""
    if sample := about.get("sample"):
        text += (
            f"; {sample['judged']:,} judged + {sample['sampled']:,} sampled of {sample['of']:,}; "
            "not comparable with the full collection"
        )
    unlike = surprise(prepared)
    return text + (f"; note: {unlike}" if unlike else "")


def _digest(benchmark: Benchmark, files: Files, cache: Path) -> str:
    content: dict[str, Any] = {"split": benchmark.split}
    for part, paths in vars(files).items():
        hashes = [remembered_sha256(path, cache) for path in paths]
        content[part] = hashes[0] if len(hashes) == 1 else hashes
    if benchmark.others is not None:
        content["others"] = benchmark.others
    return digest_of(content)


def _fill(folder: Path, files: Files, others: int | None) -> dict[str, Any]:
    qrels, repeated = read_qrels(files.qrels)
    queries = read_queries(files.queries, qrels, files.qrels[0])
    judged = set().union(*qrels.values())
    audit = CorpusAudit(judged, set(queries))
    documents = read_documents(files.corpus)
    sample: dict[str, Any] = {}
    if others is not None:
        chosen, count = _choose(files.corpus, judged, others)
        kept = judged | chosen
        documents = (document for document in documents if document.doc_id in kept)
        sample = {"sampled": len(chosen), "of": count}
    _write_corpus(folder, documents, files.corpus, audit)
    rows = [(q, d, relevance) for q, found in qrels.items() for d, relevance in found.items()]
    _write(folder / "queries.parquet", QUERIES, list(queries.items()))
    _write(folder / "qrels.parquet", QRELS, rows)
    without = sum(max(found.values()) <= 0 for found in qrels.values())
    odd = {"repeated_judgements": repeated, "queries_without_positive": without}
    about = {
        "documents": len(audit),
        "queries": len(queries),
        "judged_pairs": len(rows),
        "audit": audit.counts() | odd,
    }
    if sample:
        about["sample"] = sample | {"judged": len(audit) - sample["sampled"]}
    return about


def _choose(paths: Sequence[Path], judged: set[str], others: int) -> tuple[set[str], int]:
    """Ids of the unjudged documents that are drawn, and how many documents there are in all.

    Memory holds what is drawn, never the ids of the whole.
    """
    largest_first: list[tuple[int, str]] = []
    count = 0
    for doc_id in read_ids(paths):
        count += 1
        if doc_id in judged:
            continue
        rank = -int.from_bytes(hashlib.sha256(doc_id.encode()).digest())
        if len(largest_first) < others:
            heapq.heappush(largest_first, (rank, doc_id))
        elif largest_first and rank > largest_first[0][0]:
            heapq.heapreplace(largest_first, (rank, doc_id))
    return {doc_id for _, doc_id in largest_first}, count


def _write_corpus(
    folder: Path, documents: Iterable[Document], paths: Sequence[Path], audit: CorpusAudit
) -> None:
    rows = _rows(documents, audit)
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
        raise DataError(f"{', '.join(map(str, paths))} holds no document. {LAYOUT}")
    audit.check_ids(paths)


def _rows(documents: Iterable[Document], audit: CorpusAudit) -> Iterator[tuple[int, str, str]]:
    for row, document in enumerate(documents):
        audit.add(*document)
        yield row, document.doc_id, document.text


def _write(path: Path, schema: pa.Schema, rows: list[tuple[Any, ...]]) -> None:
    pq.write_table(_table(schema, rows), path, write_page_checksum=True)


def _table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema)
