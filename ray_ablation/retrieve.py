"""One shard of one corpus through one encoder: the work that evaluation spreads over a cluster.

`Retriever` is the callable class that Ray Data keeps in its actors, and that a plain loop calls in
this process; it knows nothing of Ray. It holds on to the encoder and the query vectors that it used
last, so a stream sorted by encoder and benchmark loads and embeds each once. An error in one shard
is an answer like any other, so that one damaged encoder costs its own scores and nobody else's.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer

from ray_ablation import encoder as encoders
from ray_ablation.data.beir import Prepared
from ray_ablation.embed import Embedded, embed_counted
from ray_ablation.problems import one_line
from ray_ablation.search import HITS, top_k

ANSWER = pa.schema(
    [
        ("trial_id", pa.string()),
        ("benchmark", pa.string()),
        ("shard", pa.int64()),
        ("error", pa.string()),
        ("documents", pa.int64()),
        ("truncated_documents", pa.int64()),
        ("truncated_queries", pa.int64()),
        ("tokens", pa.int64()),
        ("padded_tokens", pa.int64()),
        ("seconds", pa.float64()),
        ("device", pa.string()),
        ("threads", pa.int64()),
        ("node", pa.string()),
        ("pid", pa.int64()),
        ("hits", pa.list_(pa.struct(list(HITS)))),
    ]
)
"""A row a shard. `tokens` and `padded_tokens` are the documents'; `seconds` is from reading the
shard to its last hit, encoder and queries included when they were not at hand."""


@dataclass(frozen=True)
class Model:
    """An encoder to load, and how long a text it is given; `bring` puts it on this node."""

    folder: Path
    max_length: int
    bring: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Corpus:
    """A benchmark, and how many documents are kept per query and shard; `bring` as of a model."""

    prepared: Prepared
    depth: int
    bring: Callable[[], object] = lambda: None


class Retriever:
    """Answers shards: embeds their documents and keeps the best of them for each query."""

    def __init__(
        self,
        models: Mapping[str, Model],
        corpora: Mapping[str, Corpus],
        *,
        batch: int,
        dtype: str,
        device: str,
        threads: int | None,
    ) -> None:
        # Ray sets OMP_NUM_THREADS to 1 for a worker; None leaves a process of the user's own alone.
        if threads is not None:
            torch.set_num_threads(threads)
        self._models, self._corpora = models, corpora
        self._batch, self._dtype, self._device = batch, dtype, device
        self._encoder: tuple[str, SentenceTransformer] | None = None
        self._queries: tuple[tuple[str, str], Embedded] | None = None

    def __call__(self, shards: pa.Table) -> pa.Table:
        """Rows of trial_id, benchmark, shard, start, stop to rows like ANSWER."""
        answers = [self._answer(**row) for row in shards.to_pylist()]
        return pa.concat_tables([ANSWER.empty_table(), *answers])

    def _answer(self, trial_id: str, benchmark: str, shard: int, start: int, stop: int) -> pa.Table:
        began = time.perf_counter()
        hits: pa.Table = HITS.empty_table()
        counts: dict[str, Any] = {"documents": 0}
        reason = None
        try:
            hits, counts = self._retrieve(trial_id, benchmark, start, stop)
        except Exception as error:
            # Whatever it is belongs to this shard; the driver reports it under the trial's name.
            reason = one_line(error)
        row = counts | {
            "trial_id": trial_id,
            "benchmark": benchmark,
            "shard": shard,
            "error": reason,
            "seconds": time.perf_counter() - began,
            "device": self._device,
            "threads": torch.get_num_threads(),
            "node": socket.gethostname(),
            "pid": os.getpid(),
        }
        found = pa.ListArray.from_arrays([0, hits.num_rows], _structs(hits))
        columns = [pa.array([row.get(field.name)], field.type) for field in list(ANSWER)[:-1]]
        return pa.table([*columns, found], schema=ANSWER)

    def _retrieve(
        self, trial_id: str, benchmark: str, start: int, stop: int
    ) -> tuple[pa.Table, dict[str, Any]]:
        corpus = self._corpora[benchmark]
        if not corpus.prepared.folder.is_dir():
            corpus.bring()
        documents = read_rows(corpus.prepared.shards, start, stop)
        queries = self._query_vectors(trial_id, benchmark)
        embedded = self._embed(trial_id, documents["text"].to_pylist())
        doc_ids = documents["doc_id"].combine_chunks()
        hits = top_k(queries.vectors, embedded.vectors, doc_ids, corpus.depth, device=self._device)
        return hits, {
            "documents": documents.num_rows,
            "truncated_documents": embedded.truncated,
            "truncated_queries": queries.truncated,
            "tokens": embedded.tokens,
            "padded_tokens": embedded.padded_tokens,
        }

    def _query_vectors(self, trial_id: str, benchmark: str) -> Embedded:
        if self._queries is None or self._queries[0] != (trial_id, benchmark):
            texts = self._corpora[benchmark].prepared.queries()["text"].to_pylist()
            self._queries = (trial_id, benchmark), self._embed(trial_id, texts)
        return self._queries[1]

    def _embed(self, trial_id: str, texts: list[str]) -> Embedded:
        if self._encoder is None or self._encoder[0] != trial_id:
            self._encoder = None  # the old one goes before the new one takes its memory
            self._models[trial_id].bring()
            loaded = encoders.load(self._models[trial_id].folder, self._device)
            self._encoder = trial_id, loaded
        return embed_counted(
            self._encoder[1],
            texts,
            batch=self._batch,
            max_length=self._models[trial_id].max_length,
            dtype=self._dtype,
        )


def read_rows(files: list[Path], start: int, stop: int) -> pa.Table:
    """Documents start..stop - 1 of a corpus whose rows count on over its files.

    Only the row groups that hold them are read.
    """
    parts = []
    first = 0
    for path in files:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if first < stop and first + rows > start:
                table = file.read_row_group(group)
                parts.append(table.slice(max(0, start - first), stop - max(start, first)))
            first += rows
    found = pa.concat_tables(parts)
    if not np.array_equal(found["row"].to_numpy(), np.arange(start, stop)):
        raise ValueError(f"{files[0].parent} lacks some of the rows {start}..{stop - 1}")
    return found


def hits_of(answer: pa.Table) -> pa.Table:
    """The hits of one row like ANSWER, as a table like HITS."""
    structs = answer["hits"].combine_chunks().flatten()
    return pa.table(structs.flatten(), schema=HITS)


def _structs(hits: pa.Table) -> pa.StructArray:
    columns = [column.combine_chunks() for column in hits.columns]
    return pa.StructArray.from_arrays(columns, fields=list(HITS))
