"""Stalls: calls that take many times as long as the others, and what they follow. Pure.

A stall that follows the text, the shape or the number of the call comes from the program; one that
follows the clock, from something beside it; one that coincides with a collection or a preemption
is that. Scores between 0 and 1 are compared; the highest names the cause if it is above
`NAMED`, else the stalls are random as far as the record tells. A score counts only where chance
gives it rarely: a few stalls fit some period or other almost surely.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from ray_ablation.latency.estimate import Array

STALL = 5.0
"""A stall is a call longer than this many medians of its process."""
NAMED = 0.8
"""A score above which its cause is named."""
BOTH = 0.9
"""At a constant time per call, a period in calls is one in seconds: above it for both, neither is
told from the other."""
CHANCE = 0.01
"""Probability under which a score is not put down to chance."""
PERIODS_CALLS = (2.0, 40.0)
PERIODS_S = (0.1, 5.0)
FLAGS = {
    "first_shape": "first_shape",
    "gc": "gc",
    "preempted": "nivcsw",
    "throttled": "throttled",
    "clock_moved": "clock_moved",
}
"""Cause -> the column that coincides with it where it is true or not 0; one may be absent."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Stalls:
    """The stalls of one process.

    Attributes:
        share: Of all calls; None without calls.
        median_ms: Of the stalls; None without one.
        cause: A name in `scores`, "periodic" where two fit alike, "random" where none does; None
            without a stall.
        scores: Per cause, 0 to 1.
        unexplained: Share of all calls that stall and that the cause does not account for.
    """

    share: float | None
    median_ms: float | None = None
    cause: str | None = None
    scores: Mapping[str, float] | None = None
    unexplained: float | None = None


def stalls_of(calls: pd.DataFrame) -> Stalls:
    """Find and explain the stalls in one process's calls of one encoder at one length.

    Args:
        calls: In order; wall_ms, start_ns, call, text, and those of FLAGS that were recorded.
    """
    walls = calls["wall_ms"].to_numpy(float)
    if len(walls) == 0:
        return Stalls(None)
    slow = walls > STALL * np.median(walls)
    share = float(slow.mean())
    if not slow.any():
        return Stalls(0.0, unexplained=0.0)
    flags = {cause: _flag(calls[name]) for cause, name in FLAGS.items() if name in calls}
    flags["text"] = stalled_elsewhere(calls["text"].to_numpy(), slow)
    scores = {cause: coincidence(flag, slow) for cause, flag in flags.items()}
    scores["call"] = periodicity(calls["call"].to_numpy(float), slow, PERIODS_CALLS)
    scores["clock"] = periodicity(calls["start_ns"].to_numpy(float) / 1e9, slow, PERIODS_S)
    cause = name_cause(scores)
    explained = slow & flags[cause] if cause in flags else slow & (cause != "random")
    left = float((slow & ~explained).mean())
    return Stalls(share, float(np.median(walls[slow])), cause, scores, left)


def name_cause(scores: Mapping[str, float]) -> str:
    """The highest score's, if it is above `NAMED`."""
    best = max(scores, key=lambda name: scores[name])
    if scores[best] <= NAMED:
        return "random"
    if best in ("call", "clock") and min(scores["call"], scores["clock"]) > BOTH:
        return "periodic"
    return best


def coincidence(flag: Mask, slow: Mask) -> float:
    """F1 of a flag as a predictor of stalls; 0 where chance would do (Fisher's exact test)."""
    both = int((flag & slow).sum())
    table = [
        [both, int((flag & ~slow).sum())],
        [int((~flag & slow).sum()), int((~flag & ~slow).sum())],
    ]
    if both == 0 or stats.fisher_exact(table, alternative="greater").pvalue >= CHANCE:
        return 0.0
    return 2 * both / int(flag.sum() + slow.sum())


def stalled_elsewhere(text: NDArray[np.int64], slow: Mask) -> Mask:
    """Of each call, whether its text stalled in most of its other calls."""
    frame = pd.DataFrame({"text": text, "slow": slow})
    groups = frame.groupby("text")["slow"]
    others = groups.transform("size") - 1
    stalled = groups.transform("sum") - frame["slow"]
    return ((others > 0) & (2 * stalled > others)).to_numpy(bool)


def periodicity(at: Array, slow: Mask, periods: tuple[float, float]) -> float:
    """How well stalls keep to one phase of some period: Rayleigh's R, 0 to 1.

    What the calls themselves keep to is taken off: in turns with others, an encoder is called in a
    part of each cycle only. 0 where chance would do, over all periods that are tried.

    Args:
        at: When each call began, in calls or seconds.
        slow: Which of them stalled.
        periods: Shortest and longest.
    """
    span = float(at[-1] - at[0])
    if slow.sum() < 5 or span <= 0:
        return 0.0
    fastest = 1 / periods[0]
    # A quarter of the width of a peak; longer periods than a third of the record cannot be seen.
    slowest = max(1 / periods[1], 3 / span)
    frequencies = np.arange(slowest, fastest, 0.25 / span)
    if len(frequencies) == 0:
        return 0.0
    stalled, all_calls = _resultant(at[slow], frequencies), _resultant(at, frequencies)
    scores = np.clip((stalled - all_calls) / np.maximum(1 - all_calls, 1e-9), 0, 1)
    best = float(scores.max())
    chance = len(frequencies) * np.exp(-int(slow.sum()) * best**2)
    return best if chance < CHANCE else 0.0


def _resultant(at: Array, frequencies: Array) -> Array:
    """Length of the mean of the phases at each frequency."""
    pieces = np.array_split(frequencies, 1 + len(frequencies) * len(at) // 1_000_000)
    turns = [np.exp(2j * np.pi * np.outer(piece, at - at[0])).mean(axis=1) for piece in pieces]
    return np.asarray(np.abs(np.concatenate(turns)), dtype=float)


def _flag(values: "pd.Series[int]") -> Mask:
    return values.fillna(0).to_numpy(float) > 0
