"""The shape of one process's calls: has its speed levels, has its distribution modes? Pure.

A machine that changes its speed (clock, hyper-thread, neighbour) leaves no trace in the counters a
guest can read; what it leaves is a level in the order of the calls, or two humps in their
distribution. Both make a median depend on how long each state happened to last.
"""

import diptest
import numpy as np
import ruptures

from ray_ablation.latency.estimate import Array

LEVEL_BLOCK = 10
"""Calls per block median when levels are compared."""
DIP_P = 0.01
"""Below it one mode is not believed."""


def level_shift(values: Array) -> float | None:
    """p90 / p10 of the medians of ten calls each, in order; None below five such blocks.

    1.0 unless a change-point confirms it: noise alone also spreads medians. The ratio of the speeds
    when there are two. A median of ten calls is blind to single stalls, which `tail` sees.
    """
    blocks = len(values) // LEVEL_BLOCK
    if blocks < 5:
        return None
    medians = np.median(values[: blocks * LEVEL_BLOCK].reshape(blocks, LEVEL_BLOCK), axis=1)
    if not change_points(np.log(medians)):
        return 1.0
    p10, p90 = np.quantile(medians, [0.1, 0.9])
    return float(p90 / p10)


def change_points(signal: Array) -> list[int]:
    """Indices at which the mean of a signal with independent noise changes.

    The penalty is twice BIC's; the noise is that of first differences, which levels do not widen.

    Source: Killick et al. 2012 (PELT), in ruptures.
    """
    steps = np.diff(signal)
    noise = 1.4826 * float(np.median(np.abs(steps - np.median(steps)))) / np.sqrt(2)
    penalty = max(4 * np.log(len(signal)) * noise**2, 1e-8)
    found = ruptures.Pelt(model="l2", min_size=2, jump=1).fit_predict(signal, pen=penalty)
    return [int(index) for index in found[:-1]]


def mode_ratio(values: Array) -> float | None:
    """The upper mode over the lower; 1.0 where one mode suffices; None below ten calls.

    Source: the dip test, Hartigan & Hartigan 1985; the modes are the medians of the two groups that
    divide the logarithms with the least variance.
    """
    if len(values) < 10:
        return None
    ordered = np.sort(values)
    if ordered[0] == ordered[-1] or diptest.diptest(ordered)[1] >= DIP_P:
        return 1.0
    cut = _split(np.log(ordered))
    return float(np.median(ordered[cut:]) / np.median(ordered[:cut]))


def _split(ordered: Array) -> int:
    """How many of the sorted values are in the lower of two groups: Otsu 1979, exact."""
    count = len(ordered)
    lower = np.arange(1, count)
    sums = np.cumsum(ordered)[:-1]
    apart = sums / lower - (ordered.sum() - sums) / (count - lower)
    return int(np.argmax(lower * (count - lower) * apart**2)) + 1
