"""A latency summary as a mixture of two speeds, rebuilt call by call.

p50, p95 and mean fix it: the fast speed is near p50, the slow one near p95, and the mean says how
many calls were slow. That the two are all there is stays an assumption.
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from ray_ablation.latency import estimate, shape, verdict
from ray_ablation.latency.estimate import Array

CALLS = 500
"""Timed calls of a profile, where its report does not say otherwise."""
JITTER = 0.01
"""Spread given to either speed when calls are rebuilt: that of a quiet machine."""


def stalls(ladder: pd.DataFrame, calls: int = CALLS) -> pd.DataFrame:
    """The ladder, deepest first, with the two-speed mixture of each row.

    Adds share and n_stalls of slow calls, stall_ms that a stall adds, and what n_stalls would be,
    from that of the shallowest, if stalls came by time: by_running of the encoder, by_wall clock.
    """
    rows = ladder.sort_values("depth", ascending=False).reset_index(drop=True)
    rows["stall_ms"] = rows["p95_ms"] - rows["p50_ms"]
    rows["share"] = (rows["mean_ms"] - rows["p50_ms"]) / rows["stall_ms"]
    rows["n_stalls"] = rows["share"] * calls
    base = rows.iloc[-1]
    rows["by_running"] = base["n_stalls"] * rows["p50_ms"] / base["p50_ms"]
    rows["by_wall"] = base["n_stalls"] * rows["mean_ms"] / base["mean_ms"]
    return rows


def rebuild(p50_ms: float, p95_ms: float, share: float, calls: int = CALLS) -> Array:
    """Calls of a two-speed mixture with given quantiles, fastest first.

    Either speed spreads evenly over the quantiles of a normal distribution `JITTER` wide, placed so
    that the whole has the given p50 and p95.
    """
    slow = round(share * calls)
    fast = calls - slow
    at = [(np.arange(count) + 0.5) / max(1, count) for count in (fast, slow)]
    spread = [1 + JITTER * stats.norm.ppf(places) for places in at]
    both = np.concatenate([p50_ms * spread[0], p95_ms * spread[1]])
    for _ in range(3):  # where a quantile falls within its part moves with the part itself
        both[:fast] *= p50_ms / np.median(both)
        both[fast:] *= p95_ms / np.quantile(both, 0.95)
    return both


def judge(row: dict[Any, Any], calls: int = CALLS) -> dict[str, Any]:
    """The verdict on a row, by the rules that its mixture can answer; order is not known."""
    rebuilt = rebuild(row["p50_ms"], row["p95_ms"], row["share"], calls)
    p95 = estimate.percentile(rebuilt, 0.95)
    values = {
        "n_calls": float(calls),
        "tail": None if p95 is None else p95 / float(np.median(rebuilt)),
        "multimodal": shape.mode_ratio(rebuilt),
    }
    return verdict.judge(values, "cuda")


def chance_of_equal_means(row: dict[Any, Any], calls: int, step_ms: float) -> float:
    """Probability that two independent profiles print one mean, stalls coming at random.

    Each mean varies with how many calls stall, a binomial number; their difference is normal, and
    prints as 0 when it is within half a step.
    """
    deviation = row["stall_ms"] * math.sqrt(2 * row["share"] * (1 - row["share"]) / calls)
    return float(2 * stats.norm.cdf(step_ms / 2 / deviation) - 1)
