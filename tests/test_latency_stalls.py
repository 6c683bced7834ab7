"""Stalls whose cause is planted are put down to it, and to nothing else."""

import numpy as np
import pandas as pd
import pytest

from ray_ablation.latency import stalls
from ray_ablation.latency.stalls import stalls_of

SEEDS = range(20)
TEXTS, CALLS = 100, 500


def trace(cause: str | None, seed: int, others_ms: float = 0.0) -> pd.DataFrame:
    """500 calls of some 13 ms, texts in permuted passes, a ninth to a seventh of them stalled.

    Args:
        cause: What stalls follow; None for none.
        seed: Of everything.
        others_ms: Time that other encoders take between blocks of five calls.
    """
    rng = np.random.default_rng(seed)
    text = np.concatenate([rng.permutation(TEXTS) for _ in range(CALLS // TEXTS)])
    shape_of = rng.integers(60, size=TEXTS)
    shape = shape_of[text]
    first = ~pd.Series(shape).duplicated().to_numpy()
    gc = rng.random(CALLS) < 0.12
    slow_texts = rng.choice(TEXTS, 12, replace=False)
    period, phase = rng.uniform(7.0, 9.0), rng.uniform(0, 8)
    every_s, began_s = rng.uniform(0.31, 0.45), rng.uniform(0, 0.3)
    frame = pd.DataFrame({"call": range(CALLS), "text": text, "first_shape": first, "gc": gc})
    frame["nivcsw"] = rng.random(CALLS) < 0.05
    walls, starts, now = [], [], 0.0
    for call in range(CALLS):
        now += others_ms / 1e3 if call % 5 == 0 else 0.0
        wall = 13.0 + rng.gamma(2.0, 0.2)
        ticks = np.floor((now - began_s) / every_s), np.floor((now + 0.013 - began_s) / every_s)
        stalled = {
            "first_shape": first[call],
            "text": text[call] in slow_texts,
            "call": (call + phase) % period < 1,
            "clock": ticks[1] > ticks[0],
            "random": rng.random() < 0.12,
            "gc": gc[call],
            None: False,
        }[cause]
        starts.append(now)
        walls.append(wall + 303 * stalled)
        # The work between calls varies, or a period in calls would be one in seconds.
        now += walls[-1] / 1e3 + rng.exponential(0.012)
    frame["wall_ms"], frame["start_ns"] = walls, (np.array(starts) * 1e9).astype("int64")
    return frame


@pytest.mark.parametrize("cause", ["first_shape", "text", "call", "clock", "random", "gc"])
@pytest.mark.parametrize("others_ms", [0.0, 40.0])
def test_planted_causes_are_named(cause, others_ms):
    found = [stalls_of(trace(cause, seed, others_ms)) for seed in SEEDS]
    right = sum(one.cause == cause for one in found)
    assert right >= 0.95 * len(found), [(one.cause, one.scores) for one in found]
    assert all(300 < one.median_ms < 325 for one in found)
    unexplained = [one.unexplained / one.share for one in found if one.cause == cause]
    assert set(unexplained) == {1.0 if cause == "random" else 0.0}


def test_the_share_is_of_calls_over_five_medians():
    frame = trace("text", 0)
    found = stalls_of(frame)
    assert found.share == (frame["wall_ms"] > 300).mean() == 0.12
    none = stalls_of(trace(None, 0))
    assert (none.share, none.median_ms, none.cause, none.unexplained) == (0.0, None, None, 0.0)
    assert stalls_of(frame[:0]).share is None
    at_the_limit = frame[:3].assign(wall_ms=[10.0, 50.0, 10.0])
    assert stalls_of(at_the_limit).share == 0.0


def test_a_period_of_calls_at_constant_time_is_named_as_either():
    frame = trace(None, 0)
    slow = np.arange(CALLS) % 8 == 0
    frame["wall_ms"] = np.where(slow, 303.0, 10.0)
    frame["start_ns"] = np.arange(CALLS) * 50_000_000
    assert stalls_of(frame).cause == "periodic"


def test_few_stalls_name_no_period():
    """Six stalls fit one of a thousand periods by chance."""
    names = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        frame = trace(None, seed)
        frame.loc[rng.choice(CALLS, 6, replace=False), "wall_ms"] = 303.0
        names.append(stalls_of(frame).cause)
    assert set(names) == {"random"}


def test_the_rayleigh_score_is_one_minus_the_circular_variance():
    from scipy.stats import circvar

    at = np.arange(400.0)
    slow = (at % 10) < 2
    phases = 2 * np.pi * (at[slow] % 10) / 10
    score = stalls.periodicity(at, slow, (9.99, 10.01))
    assert score == pytest.approx(1 - circvar(phases), abs=0.01)
