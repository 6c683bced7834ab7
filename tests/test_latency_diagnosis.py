"""The root-cause study in words, on runs whose causes are planted, and once in a real process."""

import math

import numpy as np
import pandas as pd
import pytest

from ray_ablation.atomic import read_json
from ray_ablation.latency import diagnose, diagnosis
from ray_ablation.latency.design import plackett_burman
from ray_ablation.latency.factors import screened
from tiny import tiny_bert

NAMES = screened("cpu")


def calls(p50_ms: float, slow: float, stall_ms: float, seed: int, variant: str) -> pd.DataFrame:
    """500 calls; a share of them stalls, on the texts that are first seen."""
    rng = np.random.default_rng(seed)
    walls = p50_ms * np.exp(rng.normal(0, 0.01, 500))
    first = np.arange(500) < round(500 * slow)
    walls[first] += stall_ms
    frame = pd.DataFrame({"variant": variant, "wall_ns": walls * 1e6, "call": range(500)})
    frame["start_ns"] = np.concatenate([[0], np.cumsum(frame["wall_ns"])[:-1]])
    frame["text"], frame["first_shape"] = np.arange(500) % 100, first
    return frame.assign(gc=False, nivcsw=0)


def run(wild: list[str], seed: int) -> dict:
    """Co-tenants double p50; natural inputs with a fixed warm-up stall 12 % for 303 ms."""
    p50 = 13.0 * (2.0 if "cotenants" in wild else 1.0)
    slow = 0.12 if "inputs" in wild else 0.0
    frames = [
        calls(p50 * scale, slow, 303, seed, name) for name, scale in (("L12", 1), ("L3", 0.8))
    ]
    return diagnosis.outcome(pd.concat(frames), ["L12", "L3"])


def test_an_outcome_is_that_of_the_deepest_and_compares_the_two():
    found = run(["inputs"], 0)
    assert found["p50_ms"] == pytest.approx(13.0, rel=0.01)
    assert found["p95_over_p50"] == pytest.approx(316 / 13, rel=0.02)
    assert (found["stall_share"], found["cause"]) == (0.12, "first_shape")
    assert found["ratio"] == pytest.approx(0.8, rel=0.01)
    assert found["stall_spread"] == pytest.approx(316 / 313.4, rel=0.01)
    nothing = diagnosis.outcome(pd.DataFrame(columns=["variant", "wall_ns"]), ["L12", "L3"])
    assert set(nothing.values()) == {None}


def screen():
    levels = np.tile(plackett_burman(len(NAMES)), (2, 1))
    runs = [
        run([name for name, level in zip(NAMES, row, strict=True) if level > 0], seed)
        for seed, row in enumerate(levels)
    ]
    return diagnosis.screen_effects(levels, runs, NAMES)


def test_the_answer_names_the_planted_causes_and_no_other():
    found = screen()
    assert math.exp(found["p50"]["cotenants"].est) == pytest.approx(2.0, rel=0.02)
    words = [diagnosis.moved(name, by_name) for name, by_name in found.items()]
    assert words[0].startswith("What moves p50: cotenants (×2.0")
    assert words[1].startswith("What moves the tail, p95/p50: inputs (×")
    assert words[2].startswith("What moves the stall share: inputs (+12.0 points, ")
    assert "Not seen to move it: " in words[2]
    assert set(diagnosis.top(found, 2)) == {"cotenants", "inputs"}
    assert diagnosis.moved("p50", {}) == "No factor is seen to move p50."


def test_the_published_signature_is_recognised_and_its_absence_too():
    cells = {"quiet": [run([], 1)], "wild": [run(["inputs"], 2)]}
    found = {one["cell"]: one for one in diagnosis.reproduction(cells)}
    assert [found[name]["reproduced"] for name in ("quiet", "wild")] == [False, True]
    said = diagnosis.reproduced_words(list(found.values()))
    assert said == "The published signature is reproduced by: wild."
    none = diagnosis.reproduced_words([found["quiet"]])
    assert none.startswith("The published signature is not reproduced by anything tried here")
    assert "share of calls that stall 0 (published 0.08 to 0.16)" in none
    assert "length of a stall, deepest over shallowest encoder not seen" in none


def test_one_at_a_time_and_together():
    base, loaded = [run([], 1)], [run(["cotenants"], 2)]
    change = diagnosis.one_at_a_time(base, loaded)
    assert change["p50_ratio"] == pytest.approx(2.0, rel=0.01)
    assert change["stall_share_change"] == 0.0
    cells = {(False, False): base, (True, False): loaded, (False, True): base}
    assert diagnosis.interaction(cells) is None
    both = [{"p50_ms": 13.0 * 6}]  # two factors, ×2 and ×1 alone, ×6 together
    assert diagnosis.interaction(cells | {(True, True): both}) == pytest.approx(3.0, rel=0.02)


def test_predictions_are_checked_against_what_was_measured():
    alone = {
        "gc": {"p50_ratio": 1.01},
        "process": {"p50_ratio": 1.2},
        "cotenants": {"p50_ratio": 2},
    }
    on_cpu = {p["code"]: p["true"] for p in diagnosis.check_predictions("cpu", [], alone, {})}
    assert on_cpu == {"leftovers": False, "cotenants": True}
    cells = {
        "controlled": [{"stall_share": 0.0, "ratio": 1 / 2.8}],
        "controlled + warmup + inputs + sdpa": [{"stall_share": 0.12}],
        "controlled + path": [{"ratio": 1 / 1.9}],
    }
    on_gpu = diagnosis.check_predictions("cuda", ["L12", "L3"], alone, cells)
    assert {p["code"]: p["true"] for p in on_gpu} == {
        "shapes": True,
        "leftovers": False,
        "cotenants": True,
        "wrapper": True,
        "length": None,
    }
    before = diagnosis.check_predictions("cuda", ["L12", "L3"], {}, {})
    assert {p["true"] for p in before} == {None}


def test_what_does_not_exist_on_a_cpu_is_listed():
    said = diagnosis.factor_words("cpu", NAMES)
    assert said.startswith("Not applicable on cpu: gpu_cotenant (")
    assert "compile (eager / torch.compile)" in said


GRID = """\
name: tiny
axes: {{depth: [2, 1]}}
fixed: {{backbone: {bert}, steps: 9}}
benchmarks: [mine]
paths: {{mine: {mine}}}
latency: {{lengths: [16], solo: false}}
execution: {{device: cpu, storage: {storage}}}
"""


def test_the_command_writes_its_predictions_first_and_then_its_answer(
    tmp_path, capsys, monkeypatch
):
    """One factor in real processes, of tiny encoders that no one has trained."""
    (tmp_path / "mine").mkdir()
    bert = tiny_bert(tmp_path / "bert", layers=2)
    file = tmp_path / "grid.yaml"
    storage = tmp_path / "results"
    file.write_text(GRID.format(bert=bert, mine=tmp_path / "mine", storage=storage))
    monkeypatch.setattr(diagnose, "screened", lambda device: ["inputs"])
    monkeypatch.setattr(diagnose, "plackett_burman", lambda count: np.array([[1.0], [-1.0]]))
    monkeypatch.setattr(diagnose.diagnosis, "top", lambda found: [])
    small = diagnose.Size(calls=10, warmup_calls=2, limit_s=5.0, replicates=1, top_only=True)
    monkeypatch.setitem(diagnose.SIZES, "small", small)
    assert diagnose.main([str(file), "--size", "small"]) == 0
    printed = capsys.readouterr().out
    assert printed.index("Predicted: ") < printed.index("screen, run 1 of 2")
    assert "Not applicable on cpu" in printed
    [folder] = (storage / "latency").iterdir()
    record = read_json(folder / "diagnosis.json")
    assert [run["part"] for run in record["runs"]].count("screen") == 2
    cells = {run["cell"] for run in record["runs"] if run["part"] == "leave one out"}
    assert cells == {"controlled", "wild"}
    assert all(run["p50_ms"] > 0 and run["error"] is None for run in record["runs"])
    assert (folder / "samples.parquet").is_file()


def test_a_grid_that_cannot_be_read_is_bad_input(tmp_path, capsys):
    assert diagnose.main([str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err
