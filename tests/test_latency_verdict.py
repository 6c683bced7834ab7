"""What may be said of a figure: every rule, and what planted samples bring out."""

import numpy as np
import pandas as pd
import pytest

from ray_ablation.latency import verdict
from ray_ablation.latency.cell import Cell
from ray_ablation.latency.plan import Architecture
from ray_ablation.latency.samples import BLOCKS, SAMPLES, mark_clock, typed
from ray_ablation.latency.summary import duplicates, summarise


def test_the_verdict_needs_five_processes_and_says_all_that_failed():
    good = {"n_processes": 5, "n_calls": 500, "host_busy": 0.1, "tail": 1.1}
    assert verdict.judge(good, "cpu")["verdict"] == "stable"
    one = verdict.judge(good | {"n_processes": 1, "host_busy": 0.5}, "cpu")
    assert one["verdict"] == "insufficient"
    assert one["reasons"] == [
        {"code": "n_processes", "value": 1, "limit": 5},
        {"code": "host_busy", "value": 0.5, "limit": 0.2},
    ]
    assert verdict.judge(good | {"host_busy": 0.5, "tail": 2.0}, "cpu")["verdict"] == "contaminated"
    assert verdict.judge(good | {"tail": 1.2}, "cpu")["verdict"] == "stable"
    assert verdict.judge(good | {"tail": 1.2}, "cuda")["verdict"] == "unstable"


def test_what_was_not_measured_is_no_reason():
    checks = verdict.judge({"n_processes": 5, "n_calls": 500}, "cpu")["checks"]
    assert {c["code"] for c in checks if c["passed"] is None} == {
        code for code, rule in verdict.RULES.items() if rule.cpu is not None
    } - {"n_processes", "n_calls"}


@pytest.mark.parametrize("code", verdict.RULES)
def test_every_rule_can_fail(code):
    device = "cpu" if verdict.RULES[code].cpu is not None else "cuda"
    limit = verdict.RULES[code].limit(device)
    enough = {"n_processes": 5, "n_calls": 500}
    at = verdict.judge(enough | {code: limit}, device)
    beyond = limit - 1 if verdict.RULES[code].least else limit + 1
    assert at["verdict"] == "stable"
    assert verdict.judge(enough | {code: beyond}, device)["verdict"] == verdict.RULES[code].verdict


def process_calls(
    unit: int, walls_ms: np.ndarray, variant: str = "L6", phase: str = "measured"
) -> pd.DataFrame:
    """One process's calls of an encoder, in blocks of five, texts in passes of a fifth."""
    count = len(walls_ms)
    rng = np.random.default_rng(unit)
    texts = np.concatenate([rng.permutation(max(1, count // 5)) for _ in range(5)])
    wall_ns = np.round(walls_ms * 1e6).astype("int64")
    frame = pd.DataFrame({"unit": unit, "call": np.arange(count), "wall_ns": wall_ns})
    frame["cycle"], frame["block"] = frame["call"] // 5, frame["call"] // 5
    frame["text"], frame["cpu_ns"] = texts[:count], wall_ns
    frame["start_ns"] = np.concatenate([[0], np.cumsum(wall_ns)[:-1]])
    flags = {"finite": True, "first_shape": False, "gc": False, "nivcsw": 0}
    about = {"arm": "default", "variant": variant, "seq": 128, "phase": phase}
    return mark_clock(typed(frame.assign(**flags, **about).to_dict("records"), _filled()))


def _filled() -> dict[str, str]:
    return {
        name: "Int64"
        if kind == "int64" and name in ("round", "position", "pass", "tokens")
        else kind
        for name, kind in SAMPLES.items()
    }


def said(unit: int, kind: str = "paired", **more) -> dict:
    return {"unit": unit, "kind": kind, "failures": {}, "warmups": [], "variants": {}} | more


def result(frames: list[pd.DataFrame], processes: list[dict], device: str = "cpu") -> dict:
    found = Cell(pd.concat(frames), typed([], BLOCKS), processes, "L6", 128, "default")
    return found.result(device, "exact", {})


def codes(found: dict) -> dict[str, float]:
    return {reason["code"]: reason["value"] for reason in found["reasons"]}


def quiet(seed: int, level: float = 10.0, count: int = 500) -> np.ndarray:
    return level * np.exp(np.random.default_rng(seed).normal(0, 0.01, count))


def test_five_quiet_processes_are_stable_on_a_cpu_and_on_a_gpu():
    frames = [process_calls(unit, quiet(unit)) for unit in range(5)]
    for device in ("cpu", "cuda"):
        found = result(frames, [said(unit) for unit in range(5)], device)
        assert (found["verdict"], found["reasons"]) == ("stable", [])
        assert found["p95_ms"] is not None
        assert found["p99_ms"] is None
        assert len(found["process_intervals_ms"]) == 5
        assert found["quantiles_ms"][100] == pytest.approx(found["p50_ms"]["est"], rel=1e-3)


def test_a_mixture_of_stalls_is_unstable_for_its_tail_its_modes_and_no_known_cause():
    """12 % of the calls take 303 ms more, at random."""
    frames = []
    for unit in range(5):
        walls = quiet(unit, 13.0)
        slow = np.random.default_rng(unit).choice(500, 60, replace=False)
        walls[slow] += 303
        frames.append(process_calls(unit, walls))
    found = result(frames, [said(unit) for unit in range(5)], "cuda")
    assert found["verdict"] == "unstable"
    assert set(codes(found)) == {"tail", "multimodal", "stall_unexplained"}
    assert found["stall"]["share"] == 0.12
    assert found["stall"]["attribution"] == "random"
    assert codes(found)["stall_unexplained"] == 0.12


def test_percentiles_are_null_below_their_calls():
    frames = [process_calls(unit, quiet(unit, count=495)) for unit in range(5)]
    found = result(frames, [said(unit) for unit in range(5)])
    assert (found["p95_ms"], found["p99_ms"]) == (None, None)
    assert found["p90_ms"] is not None


def test_the_absolute_figure_is_that_of_encoders_alone_and_ratios_are_of_pairs():
    paired = [process_calls(unit, quiet(unit, 11.0)) for unit in range(5)]
    paired += [process_calls(unit, quiet(unit + 50, 22.0), "L12") for unit in range(5)]
    solo = [process_calls(unit, quiet(unit, 10.0)) for unit in range(5, 10)]
    processes = [said(unit) for unit in range(5)] + [said(unit, "solo") for unit in range(5, 10)]
    found = result(paired + solo, processes)
    assert found["measured"] == "solo"
    assert found["p50_ms"]["est"] == pytest.approx(10.0, rel=0.01)
    assert found["paired_p50_ms"] == pytest.approx(11.0, rel=0.01)
    assert codes(found) == {"solo_vs_paired": pytest.approx(1 / 11, abs=0.005)}
    cells = [
        Cell(pd.concat(paired + solo), typed([], BLOCKS), processes, name, 128, "default")
        for name in ("L6", "L12")
    ]
    ratio = cells[0].ratio(cells[1])
    assert len(ratio["process"]) == 5
    assert ratio["est"] == pytest.approx(0.5, rel=0.01)


def test_marks_that_cost_time_and_a_coarse_clock_are_reasons():
    frames = [process_calls(unit, quiet(unit)) for unit in range(5)]
    staged = [process_calls(unit, quiet(unit, 11.0, 30), phase="staged") for unit in range(5)]
    processes = [said(unit, timer_ns=1_000_000) for unit in range(5)]
    assert codes(result(frames + staged, processes)) == {
        "stage_overhead": pytest.approx(0.1, abs=0.01),
        "timer_resolution": pytest.approx(0.1, abs=0.01),
    }


def test_a_clock_that_runs_backwards_loses_calls_and_says_so():
    frame = process_calls(0, quiet(0))
    frame.loc[100:, "start_ns"] -= 3_000_000_000
    marked = mark_clock(frame.drop(columns="clock_ok"))
    found = result([marked], [said(0)])
    assert (found["n_calls"], found["n_clock_errors"]) == (499, 1)


def test_two_models_with_the_very_same_samples_are_a_duplicate():
    assert duplicates(("m1", "s"), [("m1", "s"), ("m2", "s"), ("m2", "t")]) == 1
    assert duplicates(("m1", None), [("m2", None)]) == 0
    walls = {unit: quiet(unit) for unit in range(5)}
    samples = pd.concat(
        process_calls(unit, walls[unit], name) for unit in walls for name in ("L6", "L3")
    )
    found = [
        Architecture(f"L{depth}", {"depth": depth}, f"t{depth}", (), None, f"model {depth}")
        for depth in (6, 3)
    ]
    asked = {"lengths": [128], "rounds": 5, "calls": 500, "warmup_calls": 0, "inputs": "exact"}
    processes = [said(unit) for unit in walls]

    def verdicts(earlier: list) -> list:
        made = summarise(samples, typed([], BLOCKS), processes, [], found, asked, "cpu", earlier)
        return [codes(one).get("duplicate_result") for one in made["results"]]

    assert verdicts([]) == [1, 1]
    samples = samples[samples["variant"] == "L6"]
    found = found[:1]
    assert verdicts([]) == [None]
    own = Cell(samples, typed([], BLOCKS), processes, "L6", 128, "default").samples_sha256()
    assert verdicts([("another model", own)]) == [1]
    assert verdicts([("model 6", own)]) == [None]  # its own profile, measured before


def test_a_device_that_never_came_free_marks_every_result():
    samples = pd.concat(process_calls(unit, quiet(unit), "L6") for unit in range(5))
    found = [Architecture("L6", {"depth": 6}, "t6", (), None, "model 6")]
    asked = {"lengths": [128], "rounds": 5, "calls": 500, "warmup_calls": 0, "inputs": "exact"}
    free = {"waited_s": 1.5, "accepted": True, "gpu_processes": 0}
    taken = {"waited_s": 60.0, "accepted": False, "gpu_processes": 2}
    for gates, code in (([free] * 5, {}), ([free] * 4 + [taken], {"device_not_free": 1})):
        units = [{"gate": gate} for gate in gates]
        processes = [said(unit) for unit in range(5)]
        made = summarise(samples, typed([], BLOCKS), processes, units, found, asked, "cuda")
        assert codes(made["results"][0]) == code
        assert made["gates"]["accepted"] is not bool(code)
    assert made["results"][0]["verdict"] == "contaminated"
