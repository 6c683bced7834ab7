"""Exact search by inner product, in float32, in the order of trec_eval.

Order: score descending, then document id descending by its UTF-8 bytes, as trec_eval's strcmp puts
them. Scores tie in practice (equal texts, coarse dtypes), also at the k-th place, where a plain
top-k keeps whichever of the tied documents it met first. Here a score and its document's place in
id order are packed into one int64, score above place: all keys differ, so top-k over keys is exact,
and no chunk size or shard count can change it.

Shapes: Q queries, N documents, C documents of a chunk, D dimensions, K documents kept.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

HITS = pa.schema([("query", pa.int32()), ("doc_id", pa.string()), ("score", pa.float32())])
"""A row a document found: place of its query, its id, its score; best first within a query."""

RANKING = [("query", "ascending"), ("score", "descending"), ("doc_id", "descending")]

# int64 keys of one chunk, 64 MiB, unless k asks for more documents than that leaves a query.
KEYS_PER_CHUNK = 1 << 23

LOW_32 = 0xFFFF_FFFF
POSITIVE_31 = 0x7FFF_FFFF


def top_k(
    queries_QD: NDArray[np.float32],
    docs_ND: NDArray[np.float32],
    doc_ids: pa.Array | Sequence[str],
    k: int,
    *,
    chunk: int | None = None,
    device: str = "cpu",
) -> pa.Table:
    """The k best documents of each query, all N when there are fewer.

    Args:
        queries_QD: Query vectors.
        docs_ND: Document vectors, finite.
        doc_ids: N ids, row by row with docs_ND.
        k: Documents kept per query.
        chunk: Documents scored at a time; None chooses by memory. Changes no result but the last
            bits of scores, where the matrix product rounds differently.
        device: Where the matrix product runs.

    Returns:
        A table like HITS, in the order of RANKING.
    """
    ids = doc_ids if isinstance(doc_ids, pa.Array) else pa.array(doc_ids, pa.string())
    by_id = pc.sort_indices(ids).to_numpy()  # arrow compares strings by their bytes
    places = torch.from_numpy(_inverse(by_id)).to(device)
    queries = torch.from_numpy(queries_QD).to(device)
    best = torch.empty((len(queries), 0), dtype=torch.int64, device=device)
    step = chunk or max(4 * k, KEYS_PER_CHUNK // max(1, len(queries)))
    with torch.inference_mode(), full_float32(device):
        for start in range(0, len(docs_ND), step):
            docs_CD = torch.from_numpy(docs_ND[start : start + step]).to(device)
            keys_QC = _pack(queries @ docs_CD.T, places[start : start + step])
            candidates = torch.cat([best, keys_QC], dim=1)
            best = candidates.topk(min(k, candidates.shape[1]), dim=1).values
    return _table(best.cpu(), ids, by_id)


def merge(parts: Sequence[pa.Table], k: int) -> pa.Table:
    """The k best of each query among the hits of shards that share no document."""
    everything = pa.concat_tables([HITS.empty_table(), *parts]).sort_by(RANKING)
    queries = everything["query"].to_numpy()
    first_of_query = np.searchsorted(queries, queries, side="left")
    return everything.filter(pa.array(np.arange(len(queries)) - first_of_query < k))


class Best:
    """The k best documents of each query over shards that share none, as they come.

    Sorting all that is held for every shard would take longer than a GPU takes to embed one when k
    is 1,000. So documents below a query's k-th score are dropped at once, and the others wait until
    they are as many as those held: memory stays at twice the result and one shard.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._held: pa.Table = HITS.empty_table()
        self._waiting: list[pa.Table] = []
        self._least = np.empty(0, dtype=np.float32)  # of each query that has k documents

    def add(self, hits: pa.Table) -> None:
        """One shard's hits, in any order."""
        queries, scores = hits["query"].to_numpy(), hits["score"].to_numpy()
        known = queries < len(self._least)
        # A tie is decided by document id, so it waits.
        worse = known & (scores < np.append(self._least, -np.inf)[np.where(known, queries, -1)])
        self._waiting.append(hits.filter(pa.array(~worse)))
        if sum(part.num_rows for part in self._waiting) >= self._held.num_rows:
            self.table()

    def table(self) -> pa.Table:
        """A table like HITS, in the order of RANKING."""
        if self._waiting:
            self._held = merge([self._held, *self._waiting], self._k)
            self._waiting.clear()
            self._least = self._thresholds()
        return self._held

    def _thresholds(self) -> NDArray[np.float32]:
        queries = self._held["query"].to_numpy()
        counts = np.bincount(queries) if len(queries) else np.empty(0, dtype=np.int64)
        full = np.flatnonzero(counts >= self._k)
        least = np.full(len(counts), -np.inf, dtype=np.float32)
        least[full] = self._held["score"].to_numpy()[np.cumsum(counts)[full] - 1]
        return least


@contextmanager
def full_float32(device: str) -> Iterator[None]:
    """Matrix products in true float32: no TF32, no bf16, no autocast, whatever was set before."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(torch.device(device).type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _inverse(permutation: NDArray[np.integer]) -> NDArray[np.int64]:
    inverse = np.empty(len(permutation), dtype=np.int64)
    inverse[permutation] = np.arange(len(permutation))
    return inverse


def _pack(scores_QC: Tensor, places_C: Tensor) -> Tensor:
    """Keys that order as (score, place): the score's bits above 32 bits of place."""
    bits = (scores_QC + 0.0).view(torch.int32)  # -0.0 + 0.0 is 0.0: the two are one score
    # Below zero a larger magnitude has larger bits; flipping those makes the order the score's.
    ordered = torch.where(bits < 0, bits ^ POSITIVE_31, bits)
    return (ordered.to(torch.int64) << 32) | places_C


def _table(keys_QK: Tensor, ids: pa.Array, by_id: NDArray[np.integer]) -> pa.Table:
    keys = keys_QK.numpy()
    ordered = (keys >> 32).astype(np.int32)
    bits = np.where(ordered < 0, ordered ^ np.int32(POSITIVE_31), ordered)
    documents = by_id[(keys & LOW_32).ravel()]
    queries = np.repeat(np.arange(len(keys), dtype=np.int32), keys.shape[1])
    scores = bits.view(np.float32).ravel()
    return pa.table([queries, ids.take(pa.array(documents)), scores], schema=HITS)
