"""Estimators, the shape of calls, and what a cell makes of samples known by hand."""

import numpy as np
import pandas as pd
import pytest

from ray_ablation.latency import estimate, guards, shape
from ray_ablation.latency.cell import Cell
from ray_ablation.latency.samples import BLOCKS, SAMPLES, mark_clock, typed


def test_a_percentile_needs_its_calls():
    calls = np.arange(1.0, 1501.0)
    assert estimate.percentile(calls[:499], 0.95) is None
    assert estimate.percentile(calls[:500], 0.95) == pytest.approx(475.05)
    assert estimate.percentile(calls[:1499], 0.99) is None
    assert estimate.percentile(calls, 0.99) == pytest.approx(1485.01)
    assert estimate.percentile(calls[:63], 0.9) is None
    assert estimate.percentile(calls[:1], 0.5) == 1.0
    assert estimate.percentile(calls[:0], 0.5) is None


def test_the_figure_of_several_processes_is_their_median_and_has_an_interval_from_five_on():
    assert estimate.over_processes([None, None]) == estimate.Estimate(None)
    assert estimate.over_processes([3.0, 1.0, None, 2.0, 9.0]) == estimate.Estimate(2.5)
    five = estimate.over_processes([1.0, 2.0, 3.0, 4.0, 5.0])
    # All five draws equal 1 (or all but two) has probability 5.8 %: the interval reaches 1 and 5.
    assert (five.est, five.lo, five.hi) == (3.0, 1.0, 5.0)
    assert estimate.over_processes([2.0] * 6) == estimate.Estimate(2.0, 2.0, 2.0)


def one_process(blocks: dict[str, list[tuple[int, float]]], calls: int = 5) -> pd.DataFrame:
    """Measured samples: per encoder its (cycle, ms) blocks of equal calls."""
    rows = [
        {"variant": name, "cycle": cycle, "wall_ms": ms}
        for name, found in blocks.items()
        for cycle, ms in found
        for _ in range(calls)
    ]
    return pd.DataFrame(rows)


def test_a_cycle_ratio_survives_a_change_of_level_that_fools_the_ratio_of_medians():
    """Two copies of one encoder; the machine slows by half in the middle of cycle 5 of 11."""
    a = [(cycle, 10.0 if cycle <= 5 else 15.0) for cycle in range(11)]
    b = [(cycle, 10.0 if cycle < 5 else 15.0) for cycle in range(11)]
    samples = one_process({"a": a, "b": b})
    walls = dict(iter(samples.groupby("variant")))
    medians = walls["a"]["wall_ms"].median() / walls["b"]["wall_ms"].median()
    assert medians == pytest.approx(10 / 15)
    ratio = estimate.cycle_ratio(*(estimate.block_medians(walls[name]) for name in "ab"))
    assert ratio == 1.0


def test_a_cycle_ratio_uses_the_cycles_both_have():
    a, b = pd.Series({0: 2.0, 1: 8.0, 2: 9.0}), pd.Series({0: 1.0, 1: 2.0})
    assert estimate.cycle_ratio(a, b) == 3.0
    assert estimate.cycle_ratio(a, pd.Series(dtype=float)) is None


def noisy(level: float, count: int, seed: int, noise: float = 0.02) -> np.ndarray:
    return level * np.exp(np.random.default_rng(seed).normal(0, noise, count))


def test_level_shift_sees_levels_and_not_single_stalls():
    steady = np.full(100, 10.0)
    assert shape.level_shift(steady) == 1.0
    assert shape.level_shift(np.concatenate([steady, 1.25 * steady])) == pytest.approx(1.25)
    stalled = steady.copy()
    stalled[::8] = 300.0
    assert shape.level_shift(stalled) == 1.0
    assert shape.level_shift(steady[:49]) is None


def test_noise_alone_is_neither_a_level_nor_a_mode():
    """Also when its medians spread by more than the limit of 5 %."""
    seeds = range(20)
    for noise in (0.02, 0.2):
        calls = [noisy(10, 500, seed, noise) for seed in seeds]
        assert sum(shape.level_shift(one) > 1.05 for one in calls) <= 1
        assert {shape.mode_ratio(one) for one in calls} == {1.0}


@pytest.mark.parametrize("share", [0.12, 0.5])
def test_two_modes_are_found_where_they_are(share):
    for seed in range(20):
        slow = round(share * 500)
        calls = np.concatenate([noisy(10, 500 - slow, seed), noisy(12.5, slow, seed + 100)])
        rng = np.random.default_rng(seed)
        assert shape.mode_ratio(rng.permutation(calls)) == pytest.approx(1.25, rel=0.02)
        assert 1.2 < shape.level_shift(calls) < 1.32  # here one follows the other
    assert shape.mode_ratio(calls[:9]) is None


def test_the_interval_of_a_median_knows_that_neighbours_are_alike():
    """Blocks of equal calls: the interval holds the truth; resampling single calls misses it."""
    from scipy.stats import bootstrap

    held = {"blocks": 0, "calls": 0}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        calls = np.repeat(10 + rng.normal(0, 1, 100), 5)
        ours = estimate.median_of_calls(calls)
        single = bootstrap(
            (calls,), np.median, n_resamples=500, rng=rng, method="percentile"
        ).confidence_interval
        held["blocks"] += ours.lo <= 10 <= ours.hi
        held["calls"] += single.low <= 10 <= single.high
    assert held["blocks"] >= 34 > held["calls"] + 5
    assert ours.est == np.median(calls)
    assert estimate.median_of_calls(calls[:0]) == estimate.Estimate(None)
    assert estimate.median_of_calls(calls[:1]) == estimate.Estimate(*[float(calls[0])] * 3)


def test_the_half_width_is_a_share_of_the_figure():
    assert estimate.Estimate(10.0, 9.0, 12.0).half_width == pytest.approx(0.15)
    assert estimate.Estimate(10.0).half_width is None
    assert estimate.Estimate(None).half_width is None


def test_outliers_are_counted_by_tukeys_fences():
    calls = np.concatenate([np.arange(1.0, 101.0), [176.0, 300.0]])
    # Quartiles 26.25 and 76.75, so the fences are at 152.5 and 228.25.
    assert estimate.outliers(calls) == {"mild": 1, "severe": 1}
    assert estimate.outliers(calls[:0]) == {"mild": 0, "severe": 0}


def test_steady_compares_the_last_three_windows():
    calls = np.array([90.0] * 5 + [10.0] * 4 + [11.0] * 4 + [10.5] * 4)
    assert estimate.steady_ratio(calls, 4) == pytest.approx(1.1)
    assert estimate.steady_ratio(calls[:11], 4) is None


def test_needed_processes_is_pyperfs_formula():
    """A coefficient of variation of 9.6 % needs about 1,400 processes for 1 %."""
    assert estimate.needed_processes([100 * (1 - 0.096), 100.0, 100 * (1 + 0.096)]) == 1417
    assert estimate.needed_processes([5.0]) is None
    assert estimate.needed_processes([5.0, 5.0]) == 1


def test_the_variance_between_processes_is_free_of_that_within():
    within = np.array([9.0, 11.0] * 50)
    split = estimate.variance_split([within, within + 4])
    assert split is not None
    assert split["within"] == pytest.approx(np.var(within, ddof=1))
    assert split["between"] == pytest.approx(8.0 - np.var(within, ddof=1) / 100)
    assert estimate.variance_split([within, within]) == {
        "between": 0.0,
        "within": split["within"],
    }
    assert estimate.variance_split([within]) is None


def test_a_clock_that_runs_backwards_is_marked_and_not_dropped():
    starts = [0, 10, 5, 40]  # the third begins before the second ends
    rows = [sample(call=i, start_ns=start, wall_ns=8) for i, start in enumerate(starts)]
    rows.append(sample(call=4, start_ns=60, wall_ns=-3))
    marked = mark_clock(typed(rows, SAMPLES))
    assert marked["clock_ok"].tolist() == [True, True, False, True, False]
    result = cell(marked).result("cpu", "exact", {})
    assert (result["n_calls"], result["n_clock_errors"]) == (3, 2)


def sample(**given) -> dict:
    """A row of samples.parquet."""
    row = dict.fromkeys(SAMPLES, 0) | {"arm": "default", "variant": "L6", "seq": 64}
    row |= {"phase": "measured", "finite": True, "first_shape": False, "gc": False}
    return row | given


def cell(samples: pd.DataFrame, blocks: list[dict] | None = None) -> Cell:
    processes = [
        {"unit": int(unit), "kind": "paired", "failures": {}, "warmups": [], "variants": {}}
        for unit in samples["unit"].unique()
    ]
    return Cell(samples, typed(blocks or [], BLOCKS), processes, "L6", 64, "default")


def test_a_stalling_process_among_quiet_ones_is_named():
    """Six processes of 500 calls of 10 ms; in one of them 12 % of the calls take 303 ms."""
    rows = []
    for unit in range(6):
        clock = 0
        for call in range(500):
            wall = 303_000_000 if unit == 3 and call % 25 in (0, 8, 16) else 10_000_000
            place = {"unit": unit, "call": call, "cycle": call // 5}
            rows.append(sample(start_ns=clock, wall_ns=wall, cpu_ns=10_000_000, **place))
            clock += wall
    samples = pd.concat(
        [mark_clock(frame) for _, frame in typed(rows, SAMPLES).groupby("unit")], ignore_index=True
    )
    result = cell(samples).result("cpu", "exact", {})
    assert (result["n_processes"], result["n_calls"]) == (6, 3000)
    assert result["p50_ms"] == {"est": 10.0, "lo": 10.0, "hi": 10.0}
    assert (result["p95_ms"], result["p99_ms"], result["mean_ms"]) == (10.0, None, 10.0)
    reasons = {reason["code"]: reason["value"] for reason in result["reasons"]}
    assert reasons["tail"] == pytest.approx(30.3)
    assert reasons["preempted"] == pytest.approx(0.88 + 0.12 * 30.3)
    assert result["verdict"] == "contaminated"


def test_busy_cores_are_the_hosts_less_the_processs_own():
    block = {
        "unit": 0,
        "seq": 64,
        "arm": "default",
        "variant": "canary",
        "wall_ns": 2_000_000_000,
        "own_cpu_ns": 1_900_000_000,
        "host_busy_ns": 3_100_000_000,
        "nr_throttled": 2,
    }
    gpu = [name for name in BLOCKS if name.startswith(("gpu_", "sm_", "mem_"))]
    row = dict.fromkeys(BLOCKS, 0) | dict.fromkeys(gpu) | block
    one = mark_clock(typed([sample(wall_ns=1000, cpu_ns=1000)], SAMPLES))
    checks = {c["code"]: c["value"] for c in cell(one, [row]).result("cpu", "exact", {})["checks"]}
    assert checks["host_busy"] == pytest.approx(0.6)
    assert checks["cpu_throttled"] == 2


def test_nothing_measured_is_null_everywhere():
    result = cell(mark_clock(typed([], SAMPLES))).result("cpu", "exact", {})
    assert (result["n_processes"], result["n_calls"]) == (0, 0)
    assert result["p50_ms"] == {"est": None, "lo": None, "hi": None}
    empty = ("mean_ms", "min_ms", "p95_ms", "cpu_p50_ms", "samples_sha256", "var_split")
    assert [result[name] for name in empty] == [None] * len(empty)
    assert set(result["stages_ms"].values()) == {None}
    assert result["verdict"] == "insufficient"


def test_this_machines_counters_can_be_read():
    reader = guards.Guards()
    before = reader.read()
    total = sum(i * i for i in range(400_000))
    after = reader.read()
    assert total > 0
    assert after.own_cpu_ns > before.own_cpu_ns
    assert after.time_ns > before.time_ns
    assert guards.other_busy_cores(before, after) >= 0
    assert guards.wait_quiet(0.0) == {
        "waited_s": 0.0,
        "accepted": False,
        "other_busy_cores": None,
        "gpu_processes": None,
    }
