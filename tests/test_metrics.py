import math

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from beir.retrieval.evaluation import EvaluateRetrieval

from ray_ablation import metrics

MEASURES = ["nDCG@10", "RR@10", "R@10", "R@100", "P@5", "AP@100", "Success@1"]


def random_run(seed: int, ties: bool) -> tuple[dict, dict]:
    """40 queries over 300 documents with grades 0, 1, 2; with ties, only five distinct scores."""
    rng = np.random.default_rng(seed)
    run, qrels = {}, {}
    for query in range(40):
        found = rng.choice(300, 120, replace=False)
        scores = rng.integers(0, 5, 120) / 4 if ties else rng.random(120)
        run[f"q{query}"] = {f"d{d}": float(s) for d, s in zip(found, scores, strict=True)}
        judged = rng.choice(300, 12, replace=False)
        qrels[f"q{query}"] = {
            f"d{d}": int(g) for d, g in zip(judged, rng.integers(0, 3, 12), strict=True)
        }
    return run, qrels


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_pytrec_eval_per_query(seed: int, ties: bool) -> None:
    run, qrels = random_run(seed, ties)
    ours = metrics.score(run, qrels, MEASURES).set_index("query_id")
    # trec_eval itself sorts by score and then document id, both descending: raw scores are its.
    oracle = pytrec_eval.RelevanceEvaluator(
        qrels, {"ndcg_cut.10", "recall.10,100", "P.5", "map_cut.100", "success.1"}
    ).evaluate(run)
    theirs = pd.DataFrame(oracle).T.loc[ours.index]
    names = {
        "nDCG@10": "ndcg_cut_10",
        "R@10": "recall_10",
        "R@100": "recall_100",
        "P@5": "P_5",
        "AP@100": "map_cut_100",
        "Success@1": "success_1",
    }
    for measure, name in names.items():
        np.testing.assert_allclose(ours[measure], theirs[name], atol=1e-6, err_msg=measure)


@pytest.mark.parametrize("ties", [False, True])
def test_means_agree_with_beir(ties: bool) -> None:
    run, qrels = random_run(7, ties)
    ours = metrics.score(run, qrels, MEASURES)
    ndcg, _, recall, precision = EvaluateRetrieval.evaluate(qrels, run, [5, 10, 100])
    assert ours["nDCG@10"].mean() == pytest.approx(ndcg["NDCG@10"], abs=1e-5)
    assert ours["R@100"].mean() == pytest.approx(recall["Recall@100"], abs=1e-5)
    assert ours["P@5"].mean() == pytest.approx(precision["P@5"], abs=1e-5)


def test_reciprocal_rank_breaks_ties_as_every_other_measure() -> None:
    qrels = {"q": {"b": 1}}
    # a, b and c tie, so the order is c, b, a; msmarco's provider alone would say a, b, c.
    tied = {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}
    assert metrics.score(tied, qrels, ["RR@10"])["RR@10"].tolist() == [1 / 2]
    assert metrics.score(tied, {"q": {"a": 1}}, ["RR@10"])["RR@10"].tolist() == [1 / 3]
    assert metrics.score(tied, {"q": {"c": 1}}, ["RR@10", "P@1"])["RR@10"].tolist() == [1.0]


def test_reciprocal_rank_by_hand_stops_at_the_cutoff() -> None:
    run = {"q": {f"d{i:02}": float(-i) for i in range(20)}}
    values = metrics.score(run, {"q": {"d09": 1, "d10": 1}}, ["RR@10", "RR@9"])
    assert values["RR@10"].tolist() == [1 / 10]
    assert values["RR@9"].tolist() == [0.0]


def test_graded_gains_by_hand() -> None:
    qrels = {"q": {"best": 2, "good": 1, "bad": 0}}
    run = {"q": {"bad": 3.0, "good": 2.0, "best": 1.0}}
    dcg = 0 / math.log2(2) + 1 / math.log2(3) + 2 / math.log2(4)
    ideal = 2 / math.log2(2) + 1 / math.log2(3)
    values = metrics.score(run, qrels, ["nDCG@10", "nDCG@2", "R@2"])
    assert values["nDCG@10"][0] == pytest.approx(dcg / ideal, abs=1e-9)
    assert values["nDCG@2"][0] == pytest.approx((1 / math.log2(3)) / ideal, abs=1e-9)
    assert values["R@2"][0] == 1 / 2  # grade 0 is not relevant


def test_absent_queries_and_queries_without_positives_count_as_zero() -> None:
    qrels = {"z": {"a": 1}, "absent": {"a": 1}, "negative": {"a": 0}, "a": {"b": 1}}
    run = {"a": {"b": 1.0}, "z": {"a": 1.0}, "negative": {"a": 1.0}, "unjudged": {"a": 1.0}}
    values = metrics.score(run, qrels, MEASURES)
    assert values["query_id"].tolist() == list(qrels)
    assert all(values[measure].dtype == "float64" for measure in MEASURES)
    for measure in ("nDCG@10", "RR@10", "R@10"):
        assert values[measure].tolist() == [1.0, 0.0, 0.0, 1.0]


def test_one_query() -> None:
    values = metrics.score({"1": {"1": 0.5}}, {"1": {"1": 1}}, ["nDCG@10"])
    assert values.to_dict("records") == [{"query_id": "1", "nDCG@10": 1.0}]


def test_cut_keeps_k_and_counts_the_tie_it_cuts_through() -> None:
    run = {"q": {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.5}, "r": {"a": 1.0, "b": 0.5, "c": 0.4}}
    cut = metrics.cut(run, 2, "keep")
    assert {query: list(documents) for query, documents in cut.run.items()} == {
        "q": ["a", "d"],
        "r": ["a", "b"],
    }
    assert (cut.ties, cut.self_ids) == (1, 0)
    assert metrics.cut(run, 4, "keep").ties == 0


def test_self_ids_are_dropped_by_rule_and_only_the_querys_own() -> None:
    run = {"1": {"1": 1.0, "2": 0.9, "3": 0.8}, "2": {"1": 1.0, "3": 0.9, "4": 0.8}}
    kept = metrics.cut(run, 2, "keep")
    dropped = metrics.cut(run, 2, "drop")
    assert list(kept.run["1"]) == ["1", "2"]
    assert list(dropped.run["1"]) == ["2", "3"]  # k documents still
    assert list(dropped.run["2"]) == ["1", "3"]  # "1" is another query's id
    assert (kept.self_ids, dropped.self_ids) == (0, 1)
    assert (metrics.depth_needed(2, "keep"), metrics.depth_needed(2, "drop")) == (3, 4)
