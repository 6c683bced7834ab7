"""The whole phase on two tiny random encoders: in this process, and once through Ray."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import ray

from ray_ablation import encoder
from ray_ablation.atomic import read_json, write_json
from ray_ablation.grid import Grid, load
from ray_ablation.latency import plan
from ray_ablation.latency.lease import Lease, LeaseError, hold
from ray_ablation.latency.profile import Budget, _job, _measure, _write, profile
from ray_ablation.latency.record import stored
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Execution, Latency
from ray_ablation.trial import Trial
from tiny import tiny_bert

LATENCY = Latency(lengths=(8, 16), rounds=1, calls=10, warmup_calls=3, budget_s=150.0)


def make_grid(folder: Path) -> Grid:
    """Depths 2 and 1, each as a reference and as two seeds."""
    (folder / "mine").mkdir(exist_ok=True)
    file = folder / "grid.yaml"
    file.write_text(
        f"name: tiny\naxes: {{depth: [2, 1]}}\n"
        "experiments: {base: {steps: 0}, s1: {steps: 9, seed: 1}, s2: {steps: 9, seed: 2}}\n"
        f"fixed: {{backbone: {tiny_bert(folder / 'bert', layers=2)}}}\n"
        f"benchmarks: [mine]\npaths: {{mine: {folder / 'mine'}}}\n"
        "execution: {device: cpu}\n"
    )
    return replace(load(file), latency=LATENCY)


def add_trained(trial: Trial, ledger: Ledger) -> None:
    """A done trial as far as profiling reads it; its weights are the backbone's own."""
    built = encoder.build(trial)
    encoder.save(built, ledger.model_dir(trial.id))
    result = {
        "parameters": encoder.parameter_count(built),
        "encoder_sha256": encoder.weights_sha256(built),
    }
    write_json(ledger.trial_json(trial.id), {"id": trial.id, "result": result})


def depth(grid: Grid, wanted: int, seed: int | None = None) -> Trial:
    return next(
        trial
        for trial in grid.trials
        if trial.depth == wanted
        and (trial.steps == 0 if seed is None else trial.seed == seed)
        and (seed is None or trial.steps)
    )


@pytest.fixture
def study(tmp_path):
    """A grid and a ledger in which the references and the first seed are trained."""
    grid, ledger = make_grid(tmp_path), Ledger(tmp_path / "results")
    for trial in (depth(grid, 2), depth(grid, 1), depth(grid, 2, 1), depth(grid, 1, 1)):
        add_trained(trial, ledger)
    return grid, ledger


def test_a_profile_from_end_to_end_and_the_second_time_nothing(study):
    grid, ledger = study
    assert profile(grid, grid.trials, ledger, local=True) == []
    pointer = read_json(ledger.profile_json("tiny"))
    assert pointer is not None
    folder = ledger.latency_dir(pointer["profile_id"])
    assert {file.name for file in folder.iterdir() if file.is_file()} == {
        "plan.json",
        "samples.parquet",
        "blocks.parquet",
        "environment.json",
        "latency.json",
    }
    record = ledger.study_profile("tiny")
    assert record is not None
    check_record(record, grid)
    check_samples(folder, record)
    check_environment(folder)

    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    started = time.monotonic()
    assert profile(grid, grid.trials[::-1], ledger, local=True) == []
    assert time.monotonic() - started < 1.0
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before

    # A seed added later has an architecture that was timed: it joins, nothing is measured.
    add_trained(depth(grid, 1, 2), ledger)
    assert profile(grid, grid.trials, ledger, local=True) == []
    joined = ledger.study_profile("tiny")
    assert joined is not None
    assert joined["variants"]["L1"]["trials"][-1] == depth(grid, 1, 2).id
    assert joined["results"] == record["results"]


def check_record(record: dict, grid: Grid) -> None:
    assert (record["dtype_asked"], record["dtype"]) == ("fp16", "fp32")
    assert (record["device"], record["reference"], record["threads"]) == ("cpu", "L2", 1)
    assert record["variants"]["L2"]["trial"] == depth(grid, 2).id
    assert record["variants"]["L2"]["trials"] == [depth(grid, 2).id, depth(grid, 2, 1).id]
    assert [(r["variant"], r["seq"]) for r in record["results"]] == [
        ("L2", 8),
        ("L1", 8),
        ("L2", 16),
        ("L1", 16),
    ]
    for result in record["results"]:
        assert (result["n_processes"], result["n_calls"]) == (1, 10)
        assert 0 < result["min_ms"] <= result["p50_ms"]["est"]
        assert (result["p50_ms"]["lo"], result["p95_ms"], result["p99_ms"]) == (None, None, None)
        assert result["verdict"] == "insufficient"
        assert {"n_processes", "n_calls"} <= {reason["code"] for reason in result["reasons"]}
        assert all(value > 0 for value in result["stages_ms"].values())
        assert result["n_not_finite"] == 0
    assert [(r["a"], r["b"], r["seq"]) for r in record["ratios"]] == [
        ("L1", "L2", 8),
        ("L1", "L2", 16),
    ]
    assert record["aa"] is None
    assert record["canary"]["p50_ms"]["est"] > 0
    assert record["seconds"] < 150


def check_samples(folder: Path, record: dict) -> None:
    with (folder / "samples.parquet").open("rb") as file:
        samples = pd.read_parquet(file)
    with (folder / "blocks.parquet").open("rb") as file:
        blocks = pd.read_parquet(file)
    measured = samples[samples["phase"] == "measured"]
    assert measured.groupby(["variant", "seq"]).size().to_dict() == {
        (name, seq): 10 for name in ("L2", "L1", "canary") for seq in (8, 16)
    }
    # Each cycle visits each encoder once, in blocks of five calls in a row.
    runs = measured.groupby("block")["variant"].agg(["nunique", "size"])
    assert (set(runs["nunique"]), set(runs["size"])) == ({1}, {5})
    per_cycle = measured.groupby(["seq", "cycle"])["variant"].value_counts()
    assert set(per_cycle) == {5}
    assert len(blocks) == 2 * 2 * 3
    # All encoders meet the same texts in the same order.
    texts = measured.groupby(["seq", "variant"])["text"].agg(list)
    assert texts[8]["L2"] == texts[8]["L1"] == texts[8]["canary"]
    tokens = samples.groupby(["variant", "seq"])["tokens"].unique()
    assert [list(tokens[name, 16]) for name in ("L2", "canary")] == [[16], [64]]
    # The first call of a shape is in the warm-up.
    assert set(samples[samples["first_shape"]]["phase"]) == {"warmup"}
    warm = samples[samples["phase"] == "warmup"].groupby(["variant", "seq"]).size()
    assert warm.min() >= 3
    l2 = measured[(measured["variant"] == "L2") & (measured["seq"] == 8)]["wall_ns"]
    result = record["results"][0]
    assert result["p50_ms"]["est"] == pytest.approx(float(l2.median()) / 1e6)
    assert result["mean_ms"] == pytest.approx(float(l2.mean()) / 1e6)


def check_environment(folder: Path) -> None:
    environment = read_json(folder / "environment.json")
    assert environment is not None
    assert environment["process"]["threads"] == 1
    assert environment["variables"]["OMP_NUM_THREADS"] == "1"
    assert environment["variables"]["CUDA_VISIBLE_DEVICES"] == ""
    assert len(environment["process"]["affinity"]) == 1
    texts = [file.read_text() for file in folder.glob("*.json")]
    assert not any(str(folder.parents[1]) in text for text in texts), "an absolute path is stored"


def test_a_broken_encoder_is_named_and_the_others_are_timed(study):
    grid, ledger = study
    broken = depth(grid, 1)
    shutil.rmtree(ledger.model_dir(broken.id))
    [failure] = profile(grid, grid.trials, ledger, local=True)
    assert failure.what == f"{broken.id} / latency"
    assert failure.reason.startswith("BackboneError: encoder in")
    record = ledger.study_profile("tiny")
    assert record is not None
    by_name = {(r["variant"], r["seq"]): r for r in record["results"]}
    assert by_name["L2", 8]["n_calls"] == 10
    assert by_name["L1", 8]["n_calls"] == 0
    assert by_name["L1", 8]["p50_ms"]["est"] is None
    assert record["ratios"][0]["est"] is None
    assert {"code": "calls", "variant": "L1", "seq": 8, "value": 0, "limit": 10} in record[
        "unmet_criteria"
    ]


class FirstHangs(Lease):
    """Gives the first unit no more time than importing torch takes, as if it hung there."""

    def run(self, folder, spec, limit_s, soft_s):
        limit_s = 1.0 if spec["unit"] == 0 else limit_s
        return super().run(folder, spec, limit_s, soft_s)


def test_a_unit_that_hangs_is_killed_and_the_next_round_is_measured(study):
    grid, ledger = study
    latency = LATENCY.model_copy(update={"rounds": 2, "lengths": (8,), "budget_s": None})
    found = plan.architectures(grid.trials, ledger)
    holder = FirstHangs("cpu")
    job = _job(latency, found, ledger, holder.node(), Budget(150.0))
    measured = _measure(job, holder)
    [failure] = _write(job, measured)
    assert (failure.what, failure.reason) == ("latency / round 1", "killed after 1 s, its limit")
    record = read_json(ledger.latency_json(job.identifier))
    assert record is not None
    assert [unit["error"] for unit in record["units"]] == [failure.reason, None]
    assert {result["n_processes"] for result in record["results"]} == {1}
    rounds = {"code": "rounds", "variant": None, "seq": None, "value": 1, "limit": 2}
    assert rounds in record["unmet_criteria"]
    assert (job.folder / "units" / "0" / "log.txt").exists()
    assert not (job.folder / "units" / "1").exists()


def test_a_budget_too_short_for_anything_leaves_nulls_and_says_so(study):
    grid, ledger = study
    grid = replace(grid, latency=LATENCY.model_copy(update={"budget_s": 1.0}))
    started = time.monotonic()
    [failure] = profile(grid, grid.trials, ledger, local=True)
    assert time.monotonic() - started < 3.0
    assert failure.reason == "not started: 1.0 s of budget are over"
    record = ledger.study_profile("tiny")
    assert record is not None
    assert {result["p50_ms"]["est"] for result in record["results"]} == {None}
    assert {"code": "rounds", "variant": None, "seq": None, "value": 0, "limit": 1} in record[
        "unmet_criteria"
    ]


def test_architectures_are_backbone_depth_and_pooling(study):
    grid, ledger = study
    found = plan.architectures(grid.trials, ledger)
    assert [(one.name, len(one.trials)) for one in found] == [("L2", 2), ("L1", 2)]
    last = Trial(backbone=grid.trials[0].backbone, depth=1, keep="last", steps=0)
    cls = last.model_copy(update={"keep": "first", "pooling": "cls"})
    for trial in (last, cls):
        add_trained(trial, ledger)
    names = [one.name for one in plan.architectures([*grid.trials, last, cls], ledger)]
    assert names == ["L2-mean", "L1-cls", "L1-mean"]


def test_the_id_changes_with_settings_node_and_encoders(study):
    grid, ledger = study
    found = plan.architectures(grid.trials, ledger)
    node = {"device": "cpu", "cpu": "A", "cpus": 2, "gpu": None, "gpus": None}
    ids = {
        plan.profile_id(plan.what(found, LATENCY), node),
        plan.profile_id(plan.what(found, LATENCY), node | {"cpu": "B"}),
        plan.profile_id(plan.what(found[:1], LATENCY), node),
        plan.profile_id(plan.what(found, LATENCY.model_copy(update={"calls": 20})), node),
    }
    assert len(ids) == 4
    reordered = plan.architectures(grid.trials[::-1], ledger)
    assert plan.profile_id(plan.what(reordered, LATENCY), node) in ids


def test_a_profile_counts_while_it_is_sound_complete_and_what_the_grid_asks(study):
    grid, ledger = study
    found = plan.architectures(grid.trials, ledger)
    sound = {
        "profile_id": "0123456789ab",
        "what": plan.what(found, LATENCY),
        "device": "cuda",
        "variants": {one.name: {"trials": list(one.trials)} for one in found},
        "failures": [],
    }
    file = ledger.latency_json(sound["profile_id"])
    write_json(ledger.profile_json("tiny"), {"profile_id": sound["profile_id"]})

    def counts(record, device="auto"):
        write_json(file, record)
        asked = replace(grid, execution=Execution(device=device))
        return stored(asked, grid.trials, ledger) is not None

    # Measured on a GPU, it stands when the report is made again where there is none.
    assert counts(sound)
    assert not counts(sound, device="cpu")
    assert not counts(sound | {"failures": [{"what": "L1", "reason": "gone"}]})
    assert not counts(sound | {"what": plan.what(found[:1], LATENCY)})
    write_json(file, sound)
    file.write_text(file.read_text().replace("cuda", "cudb"))
    assert stored(grid, grid.trials, ledger) is None
    assert profile(replace(grid, latency=None), grid.trials, ledger, local=True) == []


@pytest.fixture(scope="module")
def two_cpus():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


def test_a_lease_holds_all_cpus_until_it_ends(two_cpus, study):
    compete = ray.remote(num_cpus=1)(lambda: time.time())
    with hold("cpu", local=False) as holder:
        assert holder.node()["device"] == "cpu"
        waiting = compete.remote()
        assert ray.wait([waiting], timeout=2.0)[0] == []
        assert ray.available_resources().get("CPU", 0) == 0
        released = time.time()
    assert ray.get(waiting, timeout=60) > released

    blocker = ray.remote(num_cpus=1)(lambda: time.sleep(20)).remote()
    with (
        pytest.raises(
            LeaseError,
            match=r"was not free within 1 s: \{'CPU': 2.0\} is needed, \{'CPU': 1.0\} is free",
        ),
        hold("cpu", local=False, limit_s=1.0),
    ):
        pass
    ray.cancel(blocker, force=True)

    grid, ledger = study
    assert profile(grid, grid.trials, ledger) == []
    record = ledger.study_profile("tiny")
    assert record is not None
    assert {result["n_calls"] for result in record["results"]} == {10}
