"""A run and its qrels to per-query values, through ir_measures.

The providers behind ir_measures break ties in opposite ways (RR by document id ascending, nDCG
descending), so none of them sees a raw score: a run is sorted once, by score and then document id,
both descending, and is handed over as strictly decreasing rank scores. All measures then judge the
same list. Gains are graded and linear, as in trec_eval and BEIR.

The denominator never shrinks in silence: every judged query has a row, 0 where the run lacks it or
where nothing relevant exists.
"""

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ir_measures
import numpy as np
import pandas as pd

Run = Mapping[str, Mapping[str, float]]
Qrels = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Cut:
    """A run after the benchmark's rules.

    Attributes:
        run: run[query_id][doc_id] = score, best first, at most k documents a query.
        ties: Queries whose first document left out has the same score as the last one kept.
        self_ids: Documents left out because their id is the query's own.
    """

    run: dict[str, dict[str, float]]
    ties: int
    self_ids: int


def score(run: Run, qrels: Qrels, measures: Sequence[str]) -> pd.DataFrame:
    """A row a judged query, in the order of qrels: `query_id`, then a float64 column a measure."""
    parsed = {measure: ir_measures.parse_measure(measure) for measure in measures}
    # Below zero a judgement means not relevant; trec_eval's code reads outside its tables there.
    qrels = {q: {d: max(gain, 0) for d, gain in judged.items()} for q, judged in qrels.items()}
    values = {
        (metric.measure, metric.query_id): float(metric.value)
        for metric in ir_measures.iter_calc(list(parsed.values()), qrels, rank_scores(run))
    }
    columns = {
        name: pd.Series([values.get((measure, query), 0.0) for query in qrels], dtype="float64")
        for name, measure in parsed.items()
    }
    return pd.DataFrame({"query_id": pd.Series(list(qrels), dtype="str"), **columns})


def rank_scores(run: Run) -> dict[str, dict[str, float]]:
    """The run with the scores n, n - 1, ..., 1, so that no provider meets a tie."""
    ranked = {}
    for query_id, scores in run.items():
        documents = ranking(scores)
        ranked[query_id] = {doc: float(len(documents) - i) for i, doc in enumerate(documents)}
    return ranked


def ranking(scores: Mapping[str, float]) -> list[str]:
    """Document ids, best first: score, then id, both descending.

    Strings compare by code point, which is the order of their UTF-8 bytes.
    """
    return sorted(scores, key=lambda doc_id: (scores[doc_id], doc_id), reverse=True)


def cut(run: Run, k: int, self_ids: str) -> Cut:
    """Apply a benchmark's rule on self ids, then keep k documents a query.

    Args:
        run: At least k + 1 documents a query where there are so many, one more with "drop".
        k: Documents kept.
        self_ids: "drop" leaves out the document whose id is the query's own, "keep" does not.
    """
    kept: dict[str, dict[str, float]] = {}
    ties = dropped = 0
    for query_id, scores in run.items():
        documents = ranking(scores)
        if self_ids == "drop" and query_id in scores:
            documents.remove(query_id)
            dropped += 1
        ties += len(documents) > k and scores[documents[k - 1]] == scores[documents[k]]
        kept[query_id] = {doc_id: scores[doc_id] for doc_id in documents[:k]}
    return Cut(kept, ties, dropped)


def depth_needed(k: int, self_ids: str) -> int:
    """Documents a search must keep so that `cut` has k, and one to see a tie by."""
    return k + 1 + (self_ids == "drop")


def to_trec(run: Run, tag: str) -> bytes:
    """The run as TREC's six columns, gzipped, the same bytes for the same run.

    Ids are free of white space, which `data.beir` checks; scores have the nine significant digits
    that bring a float32 back exactly.
    """
    lines = [
        f"{query_id} Q0 {doc_id} {rank} {scores[doc_id]:.9g} {tag}\n"
        for query_id, scores in run.items()
        for rank, doc_id in enumerate(ranking(scores), start=1)
    ]
    return gzip.compress("".join(lines).encode(), mtime=0)


def from_trec(data: bytes) -> dict[str, dict[str, float]]:
    """The run that `to_trec` wrote."""
    run: dict[str, dict[str, float]] = {}
    for line in gzip.decompress(data).decode().splitlines():
        query_id, _, doc_id, _, value, _ = line.split(" ")
        run.setdefault(query_id, {})[doc_id] = float(np.float32(value))
    return run
