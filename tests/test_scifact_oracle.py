"""SciFact with all-MiniLM-L6-v2, through Ray Data, against BEIR's own code and a published figure.

    SCIFACT=/folder/of/scifact pytest -m slow -s tests/test_scifact_oracle.py

5,183 documents are embedded three times: with one shard, with four, and by BEIR.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from beir.retrieval.evaluation import EvaluateRetrieval
from beir.retrieval.models import SentenceBERT
from beir.retrieval.search.dense import DenseRetrievalExactSearch

from ray_ablation import backbones, cluster
from ray_ablation import grid as grids
from ray_ablation.data.beir import read_qrels
from ray_ablation.evaluate import evaluate
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Execution
from ray_ablation.train import train_trial

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
# MTEB's results for this model on SciFact, test split.
PUBLISHED_NDCG_10 = 0.6451

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("SCIFACT" not in os.environ, reason="SCIFACT names no folder of SciFact"),
]


@pytest.fixture(scope="module")
def two_cpus() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "usable_cpus", lambda: 2)
        with cluster.start_ray(Execution(cpus_per_trial=1), address="local"):
            yield


@pytest.fixture(scope="module")
def beir() -> dict[str, float]:
    """nDCG@10 and R@100 by BEIR's search and evaluation."""
    folder = Path(os.environ["SCIFACT"])
    corpus, queries = (
        {record["_id"]: record for record in map(json.loads, (folder / name).open())}
        for name in ("corpus.jsonl", "queries.jsonl")
    )
    qrels, _ = read_qrels(folder / "qrels" / "test.tsv")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    model = SentenceBERT(str(backbones.locate(MINILM)), max_length=256, device="cpu")
    retriever = EvaluateRetrieval(
        DenseRetrievalExactSearch(model, batch_size=64, show_progress_bar=False), k_values=[10, 100]
    )
    run = retriever.retrieve(corpus, {query_id: queries[query_id]["text"] for query_id in qrels})
    torch.set_num_threads(threads)
    ndcg, _, recall, _ = retriever.evaluate(qrels, run, retriever.k_values)
    return {"nDCG@10": ndcg["NDCG@10"], "R@100": recall["Recall@100"]}


@pytest.mark.usefixtures("two_cpus")
@pytest.mark.parametrize("shards", [1, 4])
def test_scores_equal_beirs_and_the_published(
    shards: int, beir: dict[str, float], tmp_path: Path
) -> None:
    cpus = 2 if shards == 1 else 1  # one actor at work, or two
    file = tmp_path / "grid.yaml"
    file.write_text(
        f"""name: oracle
fixed: {{backbone: {MINILM}, depth: 6, steps: 0, max_length: 256}}
benchmarks: [scifact]
measures: [nDCG@10, R@100]
execution: {{device: cpu, evaluate: ray, shards: {shards}, cpus_per_trial: {cpus}}}
paths: {{scifact: $SCIFACT}}
"""
    )
    grid, ledger = grids.load(file), Ledger(tmp_path / "results")
    (trial,) = grid.trials
    train_trial(trial, {}, ledger, grid.execution)
    assert evaluate(grid, grid.trials, ledger, benchmarks=grid.benchmarks) == []
    stored = ledger.read_scores(trial.id, "scifact")
    assert stored is not None
    frame, about = stored
    print(f"shards {shards}: actors {about['pids']}, {about['docs_per_s']:.1f} documents/s each")
    print(frame[["nDCG@10", "R@100"]].mean().to_dict(), beir, about)
    assert os.getpid() not in about["pids"]
    assert (about["documents"], about["queries"], about["shards"]) == (5183, 300, shards)
    assert frame["nDCG@10"].mean() == pytest.approx(PUBLISHED_NDCG_10, abs=5e-5)
    for measure, expected in beir.items():
        assert frame[measure].mean() == pytest.approx(expected, abs=1e-4)
