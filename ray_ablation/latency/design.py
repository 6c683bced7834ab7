"""Which runs tell many factors apart, and what they say. Pure.

A Plackett-Burman design varies all factors at once, so that every run speaks of every factor: the
effect of each is the mean of half the runs less that of the other half, and the others cancel.
Interactions do not cancel; they are what the leave-one-out and the confirmation are for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from ray_ablation.latency.estimate import Array

# First rows of the cyclic designs of Plackett & Burman 1946, for up to 11 and 19 factors.
ROWS = {12: "++-+++---+-", 20: "++--++++-+-+----++-"}


@dataclass(frozen=True)
class Effect:
    """What the wild level of a factor adds to a response.

    Attributes:
        est: Mean at the wild level less that at the controlled one; None with too few runs.
        lo, hi: Its 95 % interval; None likewise.
    """

    est: float | None
    lo: float | None
    hi: float | None

    @property
    def clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.lo is not None and self.hi is not None and (self.lo > 0 or self.hi < 0)


def plackett_burman(factors: int) -> Array:
    """Rows of -1 (controlled) and 1 (wild), one column a factor; 12 or 20 runs.

    Raises:
        ValueError: More than 19 factors.
    """
    runs = next((runs for runs in ROWS if factors < runs), None)
    if runs is None:
        raise ValueError(f"{factors} factors; a design is known for up to {max(ROWS) - 1}")
    first = np.array([1.0 if sign == "+" else -1.0 for sign in ROWS[runs]])
    cyclic = [np.roll(first, shift) for shift in range(runs - 1)]
    return np.array([*cyclic, -np.ones(runs - 1)])[:, :factors]


def effects(levels: Array, response: Sequence[float | None], seed: int = 0) -> list[Effect]:
    """The effect of every column on a response; runs without one are left out.

    The interval comes from permuting, over processes, what the main effects leave. Where they leave
    nothing, as many effects as runs, it is Lenth's: most effects are taken to be noise.

    Source: Freedman & Lane 1983; Lenth 1989.
    """
    known = np.array([value is not None and math.isfinite(value) for value in response])
    x = levels[known]
    y = np.array([value for value in response if value is not None and math.isfinite(value)])
    count = levels.shape[1]
    if len(y) < 4:
        return [Effect(None, None, None)] * count
    design = np.column_stack([np.ones(len(y)), x])
    fit, *_ = np.linalg.lstsq(design, y, rcond=None)
    found = 2 * fit[1:]
    free = len(y) - np.linalg.matrix_rank(design)
    if free >= count / 2:
        margins = _permuted(design, y - design @ fit, int(free), seed)
    else:
        margins = np.full(count, _lenth(found))
    return [
        Effect(float(est), float(est - margin), float(est + margin))
        for est, margin in zip(found, margins, strict=True)
    ]


def _permuted(design: Array, left: Array, free: int, seed: int) -> Array:
    """Half-widths: what effects of permuted residuals reach in 95 of 100."""
    rng = np.random.default_rng(seed)
    # Residuals of a fit are too small by the freedom that the fit took.
    scaled = left * math.sqrt(len(left) / free)
    drawn = np.array([rng.permutation(scaled) for _ in range(2000)])
    solved = np.linalg.lstsq(design, drawn.T, rcond=None)[0]
    return np.asarray(np.quantile(np.abs(2 * solved[1:]), 0.95, axis=1), dtype=float)


def _lenth(found: Array) -> float:
    """Half-width from the effects themselves, the large ones set aside."""
    sizes = np.abs(found)
    rough = 1.5 * np.median(sizes)
    small = sizes[sizes < 2.5 * rough]
    deviation = 1.5 * np.median(small) if len(small) else rough
    return float(stats.t.ppf(0.975, max(1.0, len(found) / 3)) * deviation)
