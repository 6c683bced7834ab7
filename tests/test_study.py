"""A study's arrangement, what it varied together, and which of its differences a test separates."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

import synthetic
from analysis.beside import below, beside
from analysis.confounds import confounds, sentences
from analysis.differences import over_queries, pairs, separated
from analysis.imported import tidy
from analysis.imported_study import study_of
from analysis.readers import Once, read_study
from analysis.summary_tables import latency_line
from ray_ablation import atomic


def made(rows: list[dict]) -> object:
    """A study of rows (fields and nDCG@10 on scifact unless it says so)."""
    frame = pd.DataFrame([{"benchmark": "scifact"} | row for row in rows])
    return study_of(tidy(frame, "rows"), name="s", description="", source="a test")


def trials(*fields: dict) -> pd.DataFrame:
    return made([row | {"nDCG@10": 0.5} for row in fields]).trials


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return synthetic.write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def study(ledger):
    return read_study("depth-study", ledger)


def test_fields_that_always_change_together_are_confounded():
    found = confounds(
        trials({"depth": 6, "batch": 32}, {"depth": 12, "batch": 64}), ("depth", "batch")
    )
    assert [(one.kind, one.first, one.second) for one in found] == [("together", "depth", "batch")]


def test_a_full_cross_confounds_nothing():
    rows = [{"depth": d, "batch": b} for d in (6, 12) for b in (32, 64)]
    assert confounds(trials(*rows), ("depth", "batch")) == []


def test_the_studys_budgets_are_uncrossed_and_carry_their_negatives():
    common = {"samples": 500_000, "negatives": 1}
    rows = [
        {"batch": b, "steps": s} | common for b, s in ((256, 20_000), (32, 20_000), (32, 80_000))
    ]
    kinds = {(c.kind, c.first, c.second) for c in confounds(trials(*rows), ("batch", "steps"))}
    assert kinds == {("uncrossed", "batch", "steps"), ("carried", "in_batch_negatives", "passes")}
    first, second = sentences(trials(*rows), ("batch", "steps"))
    assert "between batch 256, 20k steps and batch 32, 80k steps, which differ in both" in first
    assert "no two configurations with equal passes differ in in-batch negatives" in second


def test_pairs_are_scipys_paired_t_tests_with_statsmodels_holm():
    rng = np.random.default_rng(3)
    values = {d: 0.3 + 0.01 * d / 12 + rng.normal(0, 0.002, 5) for d in (3, 6, 12)}
    rows = [
        {"depth": d, "seed": s, "nDCG@10": v} for d, vs in values.items() for s, v in enumerate(vs)
    ]
    found = pairs(made(rows))
    assert found[["level_a", "level_b"]].to_numpy().tolist() == [
        ["depth 3", "depth 6"],
        ["depth 3", "depth 12"],
        ["depth 6", "depth 12"],
    ]
    ps = [stats.ttest_rel(values[a], values[b]).pvalue for a, b in ((3, 6), (3, 12), (6, 12))]
    assert found["p"].tolist() == pytest.approx(ps)
    assert found["p_holm"].tolist() == pytest.approx(multipletests(ps, method="holm")[1].tolist())
    assert found["difference"].iloc[2] == pytest.approx(values[6].mean() - values[12].mean())


@pytest.mark.parametrize(("gap", "best"), [(0.05, "depth 12"), (0.0001, None)])
def test_the_best_is_marked_only_where_a_test_separates_it(gap, best):
    noise = np.random.default_rng(0).normal(0, 0.001, (3, 4))
    rows = [
        {"depth": d, "seed": s, "nDCG@10": 0.3 + gap * i + noise[i, s]}
        for i, d in enumerate((3, 6, 12))
        for s in range(4)
    ]
    assert separated(made(rows), "nDCG@10", "scifact") == best


def test_a_single_seed_in_the_column_leaves_nothing_marked():
    rows = [{"depth": 6, "seed": s, "nDCG@10": 0.5 + 0.001 * s} for s in range(4)]
    rows.append({"depth": 3, "seed": 0, "nDCG@10": 0.1})
    assert separated(made(rows), "nDCG@10", "scifact") is None


def test_queries_are_tested_per_benchmark_and_their_mean_drawn_again(study):
    found = over_queries(study)
    series = found.tests["context"].unique().tolist()
    assert series == ["batch 32, 20k steps", "batch 32, 80k steps"]
    assert len(found.tests) == 3 * 2 * 3  # pairs, series, benchmarks
    assert found.tests.groupby("benchmark")["n"].first().to_dict() == synthetic.QUERIES
    results = study.results[study.results["measure"] == "nDCG@10"].set_index("trial")
    row = found.means.iloc[0]
    assert (row["level_a"], row["level_b"], row["n_seeds"]) == ("depth 3", "depth 6", 3)
    means = {
        depth: results[
            (results["depth"] == depth)
            & (results["steps"] == 20_000)
            & (results["benchmark"] == "mean")
        ]["value"].mean()
        for depth in (3, 6)
    }
    assert row["estimate"] == pytest.approx(means[3] - means[6])
    assert row["low"] <= row["estimate"] <= row["high"]


def test_an_imported_study_says_why_there_is_no_test_over_queries():
    found = over_queries(made([{"depth": 6, "nDCG@10": 0.5}]))
    assert found.reason == "no per-query scores: these results were imported"


def test_different_queries_in_one_comparison_are_refused_and_named(tmp_path):
    ledger = synthetic.write_study(tmp_path)
    file = next(ledger.root.glob("trials/L6-b32-20k-s42*/scores/fiqa.parquet"))
    frame, about = atomic.read_frame(file)
    atomic.write_frame(file, frame.iloc[:-1], about)
    found = over_queries(read_study("depth-study", ledger))
    assert found.tests.empty
    assert found.reason.startswith("fiqa: depth 6 seed 42 (batch 32, 20k steps) has 49 queries")


def test_each_score_file_is_read_once(ledger, monkeypatch):
    read = []
    original = atomic.read_frame
    monkeypatch.setattr(
        "ray_ablation.ledger.read_frame", lambda file: read.append(file) or original(file)
    )
    found = read_study("depth-study", ledger)
    found.queries()
    found.queries("R@10")
    scores = [file for file in read if file.parent.name == "scores"]
    assert len(scores) == len(set(scores)) == 15 * 3


def test_a_ledger_that_remembers_reads_what_the_ledger_reads(ledger):
    once = Once(ledger.root)
    trial = next(ledger.root.glob("trials/*")).name
    assert once.read_trial(trial) == ledger.read_trial(trial)
    assert once.read_trial(trial) is once.read_trial(trial)


def test_queries_average_to_the_results(study):
    found = study.queries("R@10").groupby(["trial", "benchmark"], observed=True)["value"].mean()
    results = study.results[study.results["measure"] == "R@10"]
    for row in results[results["benchmark"] != "mean"].to_dict("records"):
        assert found[row["trial"], row["benchmark"]] == pytest.approx(row["value"])


def test_published_references_stand_beside_with_their_source(study):
    rows = beside(study)
    known = rows[rows["measure"] == "nDCG@10"].set_index("benchmark")["value"]
    assert known[["nfcorpus", "scifact", "fiqa"]].tolist() == [0.325, 0.665, 0.236]
    assert known["mean"] == pytest.approx((0.325 + 0.665 + 0.236) / 3)
    assert rows["source"].str.contains("Thakur").all()


def test_below_counts_configurations_below_the_reference():
    rows = [{"depth": d, "seed": s, "nDCG@10": v} for d, v in ((6, 0.7), (3, 0.6)) for s in (1, 2)]
    (text,) = below(made(rows))
    assert text.endswith("on 1 of 1 benchmarks: scifact (1 of 2, 0.6650).")
    assert list(below(made([row | {"nDCG@10": 0.8} for row in rows]))) == []


def test_the_latency_line_is_numpys(study):
    depths, p50 = [3, 6, 12], [5.0, 8.5, 14.0]
    rows = [{"depth": d, "nDCG@10": 0.5, "p50_ms": p} for d, p in zip(depths, p50, strict=True)]
    line = latency_line(made(rows))
    slope, intercept = np.polyfit(depths, p50, 1)
    assert (line["slope"], line["intercept"]) == pytest.approx((slope, intercept))
    assert line["r2"] == pytest.approx(np.corrcoef(depths, p50)[0, 1] ** 2)
    assert latency_line(made(rows[:2])) is None


def test_a_group_shares_the_weight_of_one():
    names = ("scifact", "cqadupstack-android", "cqadupstack-english")
    study = made([{"benchmark": name, "depth": 6, "nDCG@10": 0.5} for name in names])
    assert study.units == ["scifact", "cqadupstack"]
    assert study.weights == {"scifact": 0.5, names[1]: 0.25, names[2]: 0.25}
