"""The whole phase on two tiny random encoders: in this process, and once through Ray."""

import shutil
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import ray

from ray_ablation.atomic import read_json, write_json
from ray_ablation.grid import Grid
from ray_ablation.latency import plan
from ray_ablation.latency.frame import latency_frame
from ray_ablation.latency.lease import LeaseError, hold
from ray_ablation.latency.profile import profile
from ray_ablation.latency.record import stored
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial
from tiny_profile import LATENCY, add_trained, depth, make_study


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path)


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
    frame = latency_frame(grid, ledger).dropna(subset=["variant"])
    assert set(frame["measured"]) == {"paired"}
    assert (frame["forward_ms"] > 0).all()
    assert {len(quantiles) for quantiles in frame["quantiles_ms"]} == {201}
    assert set(frame.loc[frame["variant"] == "L2", "ratio"]) == {1.0}

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
    assert len(record["aa"]["process"]) == 2  # one per length
    assert 0.5 < record["aa"]["est"] < 2
    assert not {r["samples_sha256"] for r in record["results"]} & {None}
    assert record["canary"]["p50_ms"]["est"] > 0
    assert record["seconds"] < 90


def check_samples(folder: Path, record: dict) -> None:
    with (folder / "samples.parquet").open("rb") as file:
        samples = pd.read_parquet(file)
    with (folder / "blocks.parquet").open("rb") as file:
        blocks = pd.read_parquet(file)
    measured = samples[samples["phase"] == "measured"]
    assert measured.groupby(["variant", "seq"]).size().to_dict() == {
        (name, seq): 10 for name in ("L2", "L1", "canary", "canary-twin") for seq in (8, 16)
    }
    # Each cycle visits each encoder once, in blocks of five calls in a row.
    runs = measured.groupby("block")["variant"].agg(["nunique", "size"])
    assert (set(runs["nunique"]), set(runs["size"])) == ({1}, {5})
    per_cycle = measured.groupby(["seq", "cycle"])["variant"].value_counts()
    assert set(per_cycle) == {5}
    assert len(blocks) == 2 * 2 * 4
    # All encoders meet the same texts in the same order.
    texts = measured.groupby(["seq", "variant"])["text"].agg(list)
    assert texts[8]["L2"] == texts[8]["L1"] == texts[8]["canary"] == texts[8]["canary-twin"]
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
    grid = replace(
        grid, latency=LATENCY.model_copy(update={"solo": True, "lengths": (8,), "budget_s": 150.0})
    )
    broken = depth(grid, 1)
    shutil.rmtree(ledger.model_dir(broken.id))
    failures = profile(grid, grid.trials, ledger, local=True)
    assert [failure.what for failure in failures] == [f"{broken.id} / latency"], failures
    [failure] = failures
    assert failure.reason.startswith("BackboneError: encoder in")
    record = ledger.study_profile("tiny")
    assert record is not None
    by_name = {(r["variant"], r["seq"]): r for r in record["results"]}
    assert by_name["L2", 8]["n_calls"] == 10
    assert by_name["L2", 8]["measured"] == "solo"
    assert by_name["L2", 8]["paired_p50_ms"] > 0
    assert [unit["error"] for unit in record["units"]] == [None] * 3
    assert by_name["L1", 8]["n_calls"] == 0
    assert by_name["L1", 8]["p50_ms"]["est"] is None
    assert record["ratios"][0]["est"] is None
    assert {"code": "calls", "variant": "L1", "seq": 8, "value": 0, "limit": 10} in record[
        "unmet_criteria"
    ]


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
        ray.init(
            address="local",
            num_cpus=2,
            labels={"rack": "7"},
            include_dashboard=False,
            log_to_driver=False,
        )
        yield
        ray.shutdown()


def test_a_lease_holds_all_cpus_until_it_ends(two_cpus, study):
    compete = ray.remote(num_cpus=1)(lambda: time.time())
    with hold("cpu", local=False, node={"rack": "7"}) as holder:
        assert holder.node()["device"] == "cpu"
        waiting = compete.remote()
        assert ray.wait([waiting], timeout=2.0)[0] == []
        assert ray.available_resources().get("CPU", 0) == 0
        released = time.time()
    assert ray.get(waiting, timeout=60) > released

    with (
        pytest.raises(LeaseError, match=r"latency.node is \{'rack': '8'\}, which .* rack: 7"),
        hold("cpu", local=False, node={"rack": "8"}),
    ):
        pass

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
