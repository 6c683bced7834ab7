"""Documents per second, from the first batch to the last merge: ours against the library.

Both embed the same documents with the same encoder and keep the 100 nearest of each judged query.
Ours is `Retriever`, as evaluation runs it on a worker, then the merge of its one shard: documents
are read from parquet, tokenised, embedded and searched exactly. Stock is
`SentenceTransformer.encode`, then `util.semantic_search`, on texts that are in memory already.
Encoder and query vectors are at hand in both.
"""

import tempfile
import time
from pathlib import Path

import pyarrow as pa
from sentence_transformers import util

from perf import interleave
from perf.interleave import Bar, PaddedTokens, Timed
from ray_ablation import encoder as encoders
from ray_ablation.data.beir import BENCHMARKS, Benchmark, Prepared, prepare
from ray_ablation.retrieve import Corpus, Model, Retriever, hits_of, read_rows
from ray_ablation.search import merge
from ray_ablation.trial import Trial

MINILM = Trial(
    backbone="sentence-transformers/all-MiniLM-L6-v2", depth=6, max_length=256, steps=0
).reduced()
BATCH = 64
KEPT = 100  # documents per query


class Ours:
    """One evaluation worker with its encoder and queries loaded."""

    def __init__(self, model: Path, prepared: Prepared, documents: int) -> None:
        self._task = pa.table(
            {
                "trial_id": [MINILM.id],
                "benchmark": [prepared.benchmark.name],
                "shard": [0],
                "start": [0],
                "stop": [documents],
            }
        )
        self._retriever = Retriever(
            {MINILM.id: Model(model, MINILM.max_length)},
            {prepared.benchmark.name: Corpus(prepared, KEPT)},
            batch=BATCH,
            dtype="fp32",
            device="cpu",
            threads=None,
        )
        # Loads the encoder and embeds the queries.
        self._retriever(self._task.set_column(4, "stop", [[1]]))
        self.hits = pa.table({})

    def __call__(self, block: int) -> Timed:
        """Answer the shard and merge it."""
        started = time.perf_counter()
        answer = self._retriever(self._task)
        self.hits = merge([hits_of(answer)], KEPT)
        seconds = time.perf_counter() - started
        documents = answer["documents"][0].as_py()
        return Timed(seconds, documents, answer["padded_tokens"][0].as_py() / documents)


class Stock:
    """The library with its encoder and queries loaded."""

    def __init__(self, model: Path, prepared: Prepared, documents: int) -> None:
        self._encoder = encoders.load(model)
        self._texts = read_rows(prepared.shards, 0, documents)["text"].to_pylist()
        queries = prepared.queries()["text"].to_pylist()
        self._queries = self._encoder.encode(queries, batch_size=BATCH, convert_to_tensor=True)
        self._padded = PaddedTokens(self._encoder)
        self.scores: list[float] = []

    def __call__(self, block: int) -> Timed:
        """Encode and search."""
        self._padded.count = 0
        started = time.perf_counter()
        vectors = self._encoder.encode(self._texts, batch_size=BATCH, convert_to_tensor=True)
        found = util.semantic_search(self._queries, vectors, top_k=KEPT)
        seconds = time.perf_counter() - started
        self.scores = [hit["score"] for hits in found for hit in hits]
        return Timed(seconds, len(self._texts), self._padded.count / len(self._texts))


def _benchmark(folder: Path) -> Benchmark:
    return BENCHMARKS.get(folder.name) or Benchmark(name=folder.name)


def main() -> None:
    """Time both arms on the first documents of a BEIR folder."""
    parser = interleave.arguments(__doc__)
    parser.add_argument("--documents", type=int, default=300)
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data is missing: a BEIR folder (corpus.jsonl, queries.jsonl, qrels/)")
    interleave.set_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        prepared = prepare(_benchmark(options.data), options.data, Path(name) / "cache")
        documents = min(options.documents, prepared.about["documents"])
        model = Path(name) / "model"
        encoders.save(encoders.build(MINILM), model)
        ours, stock = Ours(model, prepared, documents), Stock(model, prepared, documents)
        interleave.compare(
            f"{MINILM.backbone}: the first {documents} documents and {prepared.about['queries']} "
            f"queries of {options.data.name}, batch {BATCH}, max length {MINILM.max_length}, fp32",
            ours,
            stock,
            Bar("docs_per_s", 0.95, lower_is_better=False),
            options.blocks,
        )
    apart = abs(ours.hits["score"].to_numpy() - stock.scores).max()
    print(f"Rank by rank, the scores that the arms found are at most {apart:.1e} apart.")


if __name__ == "__main__":
    main()
