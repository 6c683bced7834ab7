"""BM25 on each benchmark, the reference that encoders are shown beside.

Words, weights and search are those of bm25s; its `lucene` leaves out the factor k1 + 1, which
changes no order. As with Lucene, a document without any word of the query is not found at all, so a
query of unknown words has an empty ranking and scores 0.

bm25s holds words and index of all documents in memory: for MS MARCO's 8.8 million passages that
would be some 10 GB. Here the corpus is read twice, a row group at a time: for its statistics, then
to be scored. That gives what one index of everything gives, because a score depends on the other
documents only through those statistics.
"""

import heapq
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import bm25s
import numpy as np
import pyarrow.parquet as pq
import Stemmer
from numpy.typing import NDArray

from ray_ablation import metrics, scores
from ray_ablation.data.beir import Prepared
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.problems import Failure, one_line
from ray_ablation.settings import Bm25

# Raised by hand when the same settings and benchmark would get other numbers.
SCORING = 1

Words = list[str]
# Of one query: score and document id, best first.
Found = list[tuple[float, str]]

# bm25s sets its logger to DEBUG, and logs each index it builds.
logging.getLogger("bm25s").setLevel(logging.WARNING)


@dataclass(frozen=True)
class Statistics:
    """What BM25 knows of a whole corpus.

    Attributes:
        documents: How many there are.
        words: Per document, on average.
        containing: Documents that contain a word, for the words of queries.
    """

    documents: int
    words: float
    containing: Counter[str]


def score_missing(
    grid: Grid, ledger: Ledger, prepared: Sequence[Prepared], say: Callable[[str], object]
) -> list[Failure]:
    """Score the grid's references on every benchmark where their scores are missing.

    Args:
        grid: Gives references, measures and k.
        ledger: Gets scores and runs.
        prepared: The benchmarks.
        say: Told a line a reference and benchmark.

    Returns:
        Those that could not be scored, as "reference / benchmark".
    """
    failures = []
    for reference, one in itertools.product(grid.references, prepared):
        try:
            _score(reference, one, grid, ledger, say)
        except Exception as error:  # the encoders are scored all the same
            failures.append(Failure(f"{reference.id} / {one.benchmark.name}", one_line(error)))
    return failures


def _score(
    reference: Bm25, prepared: Prepared, grid: Grid, ledger: Ledger, say: Callable[[str], object]
) -> None:
    began = time.perf_counter()
    benchmark, k = prepared.benchmark, grid.evaluation.k
    what = {
        "scoring": SCORING,
        "reference": reference.model_dump() | {"method": "lucene"},
        "benchmark_sha256": prepared.about["sha256"],
        "split": benchmark.split,
        "self_ids": benchmark.self_ids,
        "k": k,
    }
    key = reference.id, benchmark.name
    files = scores.Files(
        ledger.reference_scores_parquet(*key), ledger.reference_run_trec(*key), ledger.publish
    )
    if scores.kept(files, what, prepared, grid.measures):
        return
    found = search(reference, prepared, metrics.depth_needed(k, benchmark.self_ids))
    cut = metrics.cut(found, k, benchmark.self_ids)
    about = {
        "what": what,
        "documents": prepared.about["documents"],
        "queries": len(found),
        "queries_without_match": sum(not ranking for ranking in found.values()),
        "seconds": time.perf_counter() - began,
        "versions": {name: version(name) for name in ("bm25s", "PyStemmer")},
    }
    frame = scores.keep(files, cut, reference.id, prepared, grid.measures, about)
    measure = grid.measures[0]
    say(
        f"scored {reference.label} on {benchmark.name}: {measure} {frame[measure].mean():.4f} "
        f"({about['documents']} documents, {about['seconds']:.1f} s)"
    )


def search(reference: Bm25, prepared: Prepared, depth: int) -> dict[str, dict[str, float]]:
    """The best documents of each judged query.

    Args:
        reference: How words are made and weighed.
        prepared: The benchmark.
        depth: Documents kept per query; those without a word of the query are never among them.

    Returns:
        run[query_id][doc_id] = score, a float32; in the order of trec_eval.
    """
    queries = prepared.queries()
    asked = _words(reference, queries["text"].to_pylist())
    whole = _statistics(reference, prepared, set(itertools.chain(*asked)))
    best: list[Found] = [[] for _ in asked]
    for doc_ids, documents in _parts(reference, prepared):
        index = _index(reference, documents, whole)
        for i, words in enumerate(asked):
            if index is not None and (known := index.get_tokens_ids(words)):
                # Rounded, so that equal documents of different parts tie.
                found = index.get_scores_from_ids(known).astype(np.float32)
                best[i] = _better(best[i], found, doc_ids, depth)
    ids = queries["query_id"].to_pylist()
    return {i: {doc: score for score, doc in found} for i, found in zip(ids, best, strict=True)}


def _words(reference: Bm25, texts: list[str]) -> list[Words]:
    found: list[Words] = bm25s.tokenize(
        texts,
        stopwords=reference.stopwords,
        stemmer=reference.stemmer and Stemmer.Stemmer(reference.stemmer),
        return_ids=False,
        show_progress=False,
    )
    return found


def _parts(reference: Bm25, prepared: Prepared) -> Iterator[tuple[list[str], list[Words]]]:
    """Ids and words of the documents, a row group at a time."""
    for path in prepared.shards:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=["doc_id", "text"])
            yield rows["doc_id"].to_pylist(), _words(reference, rows["text"].to_pylist())


def _statistics(reference: Bm25, prepared: Prepared, asked: set[str]) -> Statistics:
    documents = words = 0
    containing: Counter[str] = Counter()
    for _, part in _parts(reference, prepared):
        documents += len(part)
        words += sum(map(len, part))
        for document in part:
            containing.update(asked.intersection(document))
    return Statistics(documents, words / documents, containing)


def _index(reference: Bm25, documents: list[Words], whole: Statistics) -> bm25s.BM25 | None:
    """An index of a part of a corpus that scores as one of the whole; None of a part without words.

    bm25s takes the average length and the document frequencies from what it indexes. A length
    enters as k1 (1 - b + b length / average): other k1 and b make that the same for the part's
    average. A frequency enters as a factor of all weights of a word.
    """
    average = sum(map(len, documents)) / len(documents)
    if not average:
        return None
    stretched = reference.b * average / whole.words
    k1 = reference.k1 * (1 - reference.b + stretched)
    b = stretched * reference.k1 / k1
    index = bm25s.BM25(k1=k1, b=b, method="lucene", dtype="float64")
    index.index(documents, show_progress=False)
    times = np.diff(index.scores["indptr"])
    factors = np.ones(len(times))
    for word in whole.containing.keys() & index.vocab_dict.keys():
        at = index.vocab_dict[word]
        factors[at] = _rarity(whole.documents, whole.containing[word])
        factors[at] /= _rarity(len(documents), int(times[at]))
    index.scores["data"] *= np.repeat(factors, times)
    return index


def _rarity(documents: int, containing: int) -> float:
    """Inverse document frequency; that of Lucene, above 0 for every word."""
    return float(np.log1p((documents - containing + 0.5) / (containing + 0.5)))


def _better(best: Found, scores_N: NDArray[Any], doc_ids: list[str], depth: int) -> Found:
    """The best so far and those of N more documents, at most `depth`."""
    least = best[-1][0] if len(best) == depth else 0.0
    (places,) = np.nonzero((scores_N > 0) & (scores_N >= least))
    new = zip(scores_N[places].tolist(), (doc_ids[place] for place in places), strict=True)
    return heapq.nlargest(depth, itertools.chain(best, new))
