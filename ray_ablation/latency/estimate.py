"""Estimators of latency from raw samples. Pure: arrays in, numbers out, None for not measured.

The process is the unit of replication (Georges et al. 2007): calls within a process share its
luck with memory layout and machine state, so a figure is the median over processes of what each
process measured, and an interval comes from resampling processes. Within one process, calls depend
on their neighbours, so its interval resamples blocks of calls. Ratios are taken inside cycles,
where both encoders met the same machine.

No sample is dropped: a stall is part of the latency. Times are milliseconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]

MIN_PROCESSES = 5
"""Below it no interval over processes is given: its ends would be the extremes themselves."""

MIN_CALLS = {0.5: 1, 0.9: 64, 0.95: 500, 0.99: 1500}
"""Calls a percentile needs. 64 is MLPerf's for p90 (early stopping at 99 % confidence); at 500 the
95 % interval of p95 spans the quantiles 0.930 to 0.970."""

TIGHT = 0.02
"""Half-width of an interval over its figure at which no more processes are added."""


@dataclass(frozen=True)
class Estimate:
    """A figure with the ends of its 95 % interval; None where not measured."""

    est: float | None
    lo: float | None = None
    hi: float | None = None

    @property
    def half_width(self) -> float | None:
        """Of the interval, as a share of the figure; None without an interval."""
        if not self.est or self.lo is None or self.hi is None:
            return None
        return (self.hi - self.lo) / 2 / self.est


def percentile(values: Array, q: float) -> float | None:
    """The q-quantile, linear between order statistics; None below `MIN_CALLS[q]` values."""
    return float(np.quantile(values, q)) if len(values) >= MIN_CALLS[q] else None


def over_processes(values: Sequence[float | None], seed: int = 0) -> Estimate:
    """Median over the processes that measured, with a percentile-bootstrap interval.

    Args:
        values: One per process; None where the process has too few calls.
        seed: Of the resampling.

    Source: Efron & Tibshirani 1993, chapter 13; 2,000 resamples of the processes.
    """
    found = np.array([value for value in values if value is not None])
    if len(found) == 0:
        return Estimate(None)
    median = float(np.median(found))
    if len(found) < MIN_PROCESSES:
        return Estimate(median)
    drawn = np.random.default_rng(seed).choice(found, size=(2000, len(found)))
    lo, hi = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return Estimate(median, float(lo), float(hi))


def median_of_calls(values: Array, seed: int = 0) -> Estimate:
    """Median of one process's calls in order, with a circular block-bootstrap interval.

    Blocks are twice the cube root of n long (Lahiri 2003, section 7: n^(1/3) is the right order for
    an interval), so that neighbours that share the machine's mood stay together; resampling single
    calls gives an interval that is too narrow.

    Source: Politis & Romano 1992.
    """
    count = len(values)
    if count == 0:
        return Estimate(None)
    length = min(count, math.ceil(2 * count ** (1 / 3)))
    starts = np.random.default_rng(seed).integers(count, size=(1000, math.ceil(count / length)))
    index = (starts[:, :, None] + np.arange(length)) % count
    medians = np.median(values[index.reshape(1000, -1)[:, :count]], axis=1)
    lo, hi = np.quantile(medians, [0.025, 0.975])
    return Estimate(float(np.median(values)), float(lo), float(hi))


def cycle_ratio(a: pd.Series, b: pd.Series) -> float | None:
    """Median over cycles of block median a / block median b, both indexed by cycle.

    A machine that changes its speed between cycles changes both blocks of a cycle alike, so it
    cancels. The ratio of the two medians over all calls has no such protection: each may fall on
    another side of the change.
    """
    ratios = (a / b).dropna()
    return float(ratios.median()) if len(ratios) else None


def block_medians(samples: pd.DataFrame) -> pd.Series:
    """Median `wall_ms` per cycle of one encoder in one process (it has one block a cycle)."""
    medians: pd.Series = samples.groupby("cycle")["wall_ms"].median()
    return medians


def steady_ratio(values: Array, window: int) -> float | None:
    """max / min of the medians of the last three windows; None when there are fewer.

    Source: Triton perf_analyzer calls a measurement stable when its last three windows agree.
    """
    if len(values) < 3 * window:
        return None
    medians = np.median(values[-3 * window :].reshape(3, window), axis=1)
    return float(medians.max() / medians.min())


def outliers(values: Array) -> dict[str, int]:
    """Calls beyond Tukey's fences, 1.5 and 3 quartile ranges out; counted, never dropped."""
    if len(values) == 0:
        return {"mild": 0, "severe": 0}
    q1, q3 = np.quantile(values, [0.25, 0.75])
    out = np.maximum(q1 - values, values - q3)
    severe = int((out > 3 * (q3 - q1)).sum())
    return {"mild": int((out > 1.5 * (q3 - q1)).sum()) - severe, "severe": severe}


def spread(values: Sequence[float]) -> float | None:
    """Largest over smallest; None below two."""
    return max(values) / min(values) if len(values) > 1 else None


def needed_processes(medians: Sequence[float], width: float = 0.01) -> int | None:
    """Processes for a 95 % interval of the mean that is `width` of it wide; None below two.

    Source: pyperf's n = 4 Z^2 sigma^2 / W^2.
    """
    if len(medians) < 2:
        return None
    deviation = float(np.std(medians, ddof=1) / np.mean(medians))
    return max(1, math.ceil(4 * 1.96**2 * deviation**2 / width**2))


def variance_split(processes: Sequence[Array]) -> dict[str, float] | None:
    """Variance in ms^2 between processes and between the calls of one; None below two.

    The variance of process means holds within / n of the calls' own, which is taken off.

    Source: Kalibera & Jones 2013, two levels.
    """
    if len(processes) < 2 or min(len(calls) for calls in processes) < 2:
        return None
    within = float(np.mean([np.var(calls, ddof=1) for calls in processes]))
    share = float(np.mean([np.var(calls, ddof=1) / len(calls) for calls in processes]))
    means = float(np.var([np.mean(calls) for calls in processes], ddof=1))
    return {"between": max(0.0, means - share), "within": within}


def clock_ok(start_ns: NDArray[np.int64], wall_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which calls, in order, took positive time and began no earlier than the one before ended."""
    ends = start_ns + wall_ns
    after = np.ones(len(start_ns), dtype=bool)
    after[1:] = start_ns[1:] >= ends[:-1]
    return (wall_ns > 0) & after
