"""Frames against the ledger's own files, read by hand."""

from dataclasses import replace

import pandas as pd
import pytest

import synthetic
from ray_ablation import frames
from ray_ablation import grid as grids
from ray_ablation.atomic import write_json
from ray_ablation.latency.frame import latency_frame


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    root = tmp_path_factory.mktemp("frames")
    ledger = synthetic.write_study(
        root,
        missing=("L6-b32-80k",),
        failed={"L12-b32-20k-s44": "RuntimeError: out of memory"},
        unscored=(("L3-b32-80k", "fiqa"),),
    )
    return grids.load(ledger.study_grid("depth-study"), here=False), ledger


def test_every_trial_has_a_row_with_its_state(written):
    grid, ledger = written
    frame = frames.trials_frame(grid, ledger).set_index("trial")
    assert list(frame.index) == [trial.id for trial in grid.trials]
    assert frame["state"].value_counts().to_dict() == {"done": 13, "missing": 1, "failed": 1}
    failed = frame[frame["state"] == "failed"].iloc[0]
    assert failed["reason"] == "RuntimeError: out of memory"
    assert failed[["loss", "parameters", "node"]].isna().all()


def test_fields_without_effect_are_null_and_whole_numbers_stay_whole(written):
    grid, ledger = written
    frame = frames.trials_frame(grid, ledger).set_index("trial")
    untrained = frame[frame["steps"] == 0]
    nulls = ["seed", "batch", "learning_rate", "passes", "in_batch_negatives", "loss"]
    assert untrained[nulls].isna().all(axis=None)
    assert str(frame["seed"].dtype) == "Int64"
    trained = frame.loc[[t.id for t in grid.trials if t.id.startswith("L12-b32-80k")]].iloc[0]
    assert (trained["examples"], trained["passes"]) == (2_560_000, 5.12)
    assert trained["in_batch_negatives"] == 63
    assert trained["negative_systems"] == "all"


def test_values_are_means_of_the_score_files(written):
    grid, ledger = written
    results = frames.results_frame(grid, ledger).set_index(["trial", "benchmark", "measure"])
    trial = next(t.id for t in grid.trials if t.id.startswith("L6-b32-20k-s43"))
    means = []
    for name in ("nfcorpus", "scifact", "fiqa"):
        file = pd.read_parquet(ledger.scores_parquet(trial, name))
        row = results.loc[(trial, name, "nDCG@10")]
        assert row["value"] == pytest.approx(file["nDCG@10"].sum() / len(file))
        assert row["n_queries"] == len(file)
        assert row["depth"] == 6
        means.append(row["value"])
    assert results.loc[(trial, "mean", "nDCG@10"), "value"] == pytest.approx(sum(means) / 3)


def test_a_mean_with_a_missing_part_is_null(written):
    grid, ledger = written
    results = frames.results_frame(grid, ledger)
    trial = next(t.id for t in grid.trials if t.id.startswith("L3-b32-80k"))
    own = results[(results["trial"] == trial) & (results["measure"] == "nDCG@10")]
    values = own.set_index("benchmark")["value"]
    assert values[["nfcorpus", "scifact"]].notna().all()
    assert values[["fiqa", "mean"]].isna().all()
    assert not (results["value"] == 0).any()


def test_a_column_is_there_for_every_cell_asked_for(written):
    grid, ledger = written
    results = frames.results_frame(grid, ledger)
    assert len(results) == 15 * (3 + 1) * 4
    assert not results.duplicated(["trial", "benchmark", "measure"]).any()


@pytest.mark.parametrize(
    "change", ["evaluation: {k: 200}", "evaluation: {max_length: 64}", "evaluation: {dtype: fp16}"]
)
def test_scores_under_other_settings_do_not_count(tmp_path, change):
    ledger = synthetic.write_study(tmp_path)
    file = tmp_path / "changed.yaml"
    file.write_text(synthetic.GRID + change + "\n")
    grid = grids.load(file, here=False)
    assert frames.results_frame(grid, ledger)["value"].isna().all()


def test_scores_of_another_encoder_do_not_count(tmp_path):
    ledger = synthetic.write_study(tmp_path)
    grid = grids.load(ledger.study_grid("depth-study"), here=False)
    trial = grid.trials[-1]
    record = ledger.read_trial(trial.id)
    record["result"]["encoder_sha256"] = "0" * 64
    write_json(ledger.trial_json(trial.id), record)
    results = frames.results_frame(grid, ledger)
    assert set(results[results["value"].isna()]["trial"]) == {trial.id}


def test_a_damaged_record_is_missing_and_says_so(tmp_path):
    ledger = synthetic.write_study(tmp_path)
    grid = grids.load(ledger.study_grid("depth-study"), here=False)
    file = ledger.trial_json(grid.trials[4].id)
    file.write_bytes(file.read_bytes().replace(b"node-a", b"node-b"))
    row = frames.trials_frame(grid, ledger).iloc[4]
    assert row["state"] == "missing"
    assert row["reason"] == "its trial.json is damaged, or of another trial"


def test_queries_and_training_hold_every_row(written):
    grid, ledger = written
    queries = frames.queries_frame(grid, ledger)
    per_trial = (40 + 30 + 50) * 4
    assert len(queries) == 13 * per_trial - 50 * 4
    assert list(queries) == ["trial", "benchmark", "query_id", "measure", "value"]
    training = frames.training_frame(grid, ledger)
    assert training.groupby("trial").size().tolist() == [40] * 10
    assert training["eval_loss"].notna().sum() == 10 * 10


def test_trials_of_one_architecture_share_its_latency(written):
    grid, ledger = written
    frame = latency_frame(grid, ledger).set_index("trial")
    assert len(frame) == 15
    for trial in grid.trials:
        row = frame.loc[trial.id]
        assert row["p50_ms"] == 2.0 + trial.depth
        assert row["ratio"] == pytest.approx((2 + trial.depth) / 14)
        assert row["verdict"] == "insufficient"
    assert frame["p50_lo_ms"].isna().all()


def test_without_a_profile_latency_is_null(written, tmp_path):
    grid, _ = written
    empty = frames.Ledger(tmp_path)
    frame = latency_frame(grid, empty)
    assert list(frame["trial"]) == [trial.id for trial in grid.trials]
    assert frame["p50_ms"].isna().all()
    assert frames.queries_frame(grid, empty).empty
    assert frames.training_frame(grid, empty).empty
    assert frames.audit_frame(grid, empty).empty


def test_lists_are_text_that_parquet_and_groupby_take(tmp_path):
    text = """\
name: kept
axes: {keep: [first, [0, 5, 11]]}
fixed: {depth: 3, steps: 10}
benchmarks: [mine]
paths: {mine: ./mine}
"""
    ledger = synthetic.write_study(tmp_path, text=text)
    grid = grids.load(ledger.study_grid("kept"), here=False)
    results = frames.results_frame(grid, ledger)
    assert set(results["keep"]) == {"first", "0 5 11"}
    results.to_parquet(tmp_path / "results.parquet")
    assert results.groupby("keep")["value"].count().tolist() == [8, 8]


GROUPED = "[{name: nfcorpus, group: papers}, {name: scifact, group: papers}, fiqa]"


def test_a_group_is_the_mean_of_its_members_and_counts_once(tmp_path):
    text = synthetic.GRID.replace("[nfcorpus, scifact, fiqa]", GROUPED)
    unscored = (("L3-b32-80k", "scifact"),)
    ledger = synthetic.write_study(tmp_path, text=text, unscored=unscored)
    grid = grids.load(ledger.study_grid("depth-study"), here=False)
    results = frames.results_frame(grid, ledger)
    rows = results[results["measure"] == "nDCG@10"].pivot(
        index="trial", columns="benchmark", values="value"
    )
    whole = rows.dropna()
    assert len(whole) == len(rows) - 1
    papers = (whole["nfcorpus"] + whole["scifact"]) / 2
    assert whole["papers"].to_list() == pytest.approx(papers.to_list())
    assert whole["mean"].to_list() == pytest.approx(((papers + whole["fiqa"]) / 2).to_list())
    part = rows.drop(whole.index).iloc[0]
    assert part[["scifact", "papers", "mean"]].isna().all()
    assert not part[["nfcorpus", "fiqa"]].isna().any()
    assert results[results["benchmark"] == "papers"]["n_queries"].isna().all()


def test_a_sample_of_a_benchmark_carries_its_note(written):
    grid, ledger = written
    small = grid.benchmarks[0].model_copy(update={"of": "msmarco", "others": 10})
    audit = frames.audit_frame(replace(grid, benchmarks=(small, grid.benchmarks[1])), ledger)
    notes = audit.groupby("benchmark")["note"].unique()
    assert pd.isna(notes["scifact"]).all()
    assert notes["nfcorpus"].tolist() == [
        "nfcorpus is a sample of msmarco (judged documents and 10 others); not comparable with "
        "the full collection"
    ]
