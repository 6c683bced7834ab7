"""Spread over seeds, change at matched seeds, Holm, a straight line, the Pareto frontier.

Pure functions of numbers. The standard deviation is of the sample (ddof 1) and says how far seeds
lie apart. It is not the uncertainty of their mean: that is the t interval. Neither exists for one
seed, so both are None there, never 0. A value that is None or NaN is left out, and n counts what is
left.

Differences that are all equal have no t test: t divides by their spread. Such a test is None with a
reason, neither 0 nor 1, because two trials that shared a file by mistake look just the same. Only
`scipy.special` is imported, so that a report starts fast.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from ray_ablation.problems import UserError

# Below this share of the numbers they come from, differences are equal up to rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Summary:
    """Numbers that differ only in their seed.

    Attributes:
        n: How many there are.
        mean: None when there are none.
        sd: Spread, ddof 1; None for fewer than two.
        low: Lower end of the t interval of the mean; None for fewer than two.
        high: Its upper end.
    """

    n: int
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Change:
    """What happens to a number from one setting to another, over the keys both have.

    Attributes:
        keys: The matched keys (seeds), sorted.
        before: Mean over them of the first setting; None without a match.
        after: Mean of the second.
        difference: Summary of the differences, one a key.
    """

    keys: tuple[Any, ...]
    before: float | None
    after: float | None
    difference: Summary

    @property
    def relative(self) -> float | None:
        """The mean difference over the mean before; None without a match or from zero."""
        if self.difference.mean is None or not self.before:
            return None
        return self.difference.mean / self.before


@dataclass(frozen=True)
class Paired:
    """A paired t test: does a number change from one setting to another, all else equal?

    Attributes:
        keys: The matched keys (a seed, or a seed and everything else), sorted.
        differences: After minus before, one a key.
        mean: Mean difference; None without a match.
        sd: Spread of the differences, ddof 1; None for fewer than two.
        low: Lower end of the t interval of the mean; None where p is.
        high: Its upper end.
        p: Two-sided; None for fewer than two and for differences that are all equal.
        reason: Why p is None; None when it is not.
    """

    keys: tuple[Any, ...]
    differences: tuple[float, ...]
    mean: float | None
    sd: float | None
    low: float | None
    high: float | None
    p: float | None
    reason: str | None

    @property
    def n(self) -> int:
        """How many keys match."""
        return len(self.keys)


@dataclass(frozen=True)
class Fit:
    """A least-squares line, y = intercept + slope * x.

    Attributes:
        n: Points with both parts.
        intercept: None, as the slope is, when no one line is best: fewer than two different x.
        slope: Change of y per x.
        r2: Share of the variance of y that the line carries; None when y does not vary.
        residuals: y minus the line, one a point given; None where a part is missing.
        max_residual: The largest absolute one.
    """

    n: int
    intercept: float | None
    slope: float | None
    r2: float | None
    residuals: tuple[float | None, ...]
    max_residual: float | None


def present(values: Iterable[float | None]) -> list[float]:
    """The values that are numbers."""
    return [float(value) for value in values if value is not None and not math.isnan(value)]


def summarize(values: Iterable[float | None], confidence: float = 0.95) -> Summary:
    """Mean, spread and the t interval of the mean of what is present."""
    found = present(values)
    if not found:
        return Summary(0, None, None, None, None)
    mean = statistics.fmean(found)
    if len(found) == 1:
        return Summary(1, mean, None, None, None)
    sd = statistics.stdev(found)
    t = float(stdtrit(len(found) - 1, 0.5 + confidence / 2))
    half = t * sd / math.sqrt(len(found))
    return Summary(len(found), mean, sd, mean - half, mean + half)


def matched_keys(
    before: Mapping[Any, float | None], after: Mapping[Any, float | None]
) -> list[Any]:
    """The keys that have a number in both, sorted by their spelling."""
    found = (key for key in before if present([before[key]]) and present([after.get(key)]))
    return sorted(found, key=repr)


def matched_change(before: Mapping[Any, float | None], after: Mapping[Any, float | None]) -> Change:
    """The change over the keys that have a number in both."""
    keys = matched_keys(before, after)
    first = summarize(before[key] for key in keys).mean
    second = summarize(after[key] for key in keys).mean
    differences = summarize(_number(after[key]) - _number(before[key]) for key in keys)
    return Change(tuple(keys), first, second, differences)


def paired(
    before: Mapping[Any, float | None],
    after: Mapping[Any, float | None],
    confidence: float = 0.95,
) -> Paired:
    """The differences, after minus before, over the keys that have a number in both."""
    keys = tuple(matched_keys(before, after))
    differences = tuple(_number(after[key]) - _number(before[key]) for key in keys)
    found = summarize(differences, confidence)
    scale = max((abs(_number(side[key])) for key in keys for side in (before, after)), default=0.0)
    reason = no_t_test(found, scale)
    if reason or found.mean is None or found.sd is None:
        return Paired(keys, differences, found.mean, found.sd, None, None, None, reason)
    t = found.mean * math.sqrt(found.n) / found.sd
    p = 2 * float(stdtr(found.n - 1, -abs(t)))
    return Paired(keys, differences, found.mean, found.sd, found.low, found.high, p, None)


def no_t_test(found: Summary, scale: float) -> str | None:
    """Why these differences have no t test, or None when they have one.

    Args:
        found: Their summary.
        scale: The largest absolute number they were made from; decides what is rounding.
    """
    if found.sd is None:
        return f"n = {found.n}; a test takes at least two matched seeds"
    if found.sd <= ROUNDING * scale:
        return f"all {found.n} differences are equal, so a t test is undefined"
    return None


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down p-values, in the order given.

    A missing p is no test: it stays None and is not counted. The size of the family is
    `len(present(ps))`, and every table that shows a corrected p shows it too.

    Raises:
        UserError: A p outside 0..1.

    Source: Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70.
    """
    found = np.array([_number(p) for p in ps], dtype=float)
    if np.any((found < 0) | (found > 1)):
        raise UserError(f"p-values must lie in 0..1; found {np.nanmin(found)}..{np.nanmax(found)}")
    order = np.argsort(found)[: np.isfinite(found).sum()]  # NaN sorts last
    steps = found[order] * np.arange(len(order), 0, -1)
    found[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return [None if math.isnan(p) else float(p) for p in found]


def linear_fit(x: Sequence[float | None], y: Sequence[float | None]) -> Fit:
    """The least-squares line through the points that have both parts.

    Raises:
        UserError: x and y differ in length.
    """
    if len(x) != len(y):
        raise UserError(f"a line takes one y for each x; found {len(x)} x and {len(y)} y")
    x_N, y_N = (np.array([_number(v) for v in values], dtype=float) for values in (x, y))
    whole = np.isfinite(x_N) & np.isfinite(y_N)
    n = int(whole.sum())
    if len(set(x_N[whole])) < 2:
        return Fit(n, None, None, None, (None,) * len(x), None)
    dx, dy = (values[whole] - values[whole].mean() for values in (x_N, y_N))
    slope = float(dx @ dy / (dx @ dx))
    intercept = float(y_N[whole].mean() - slope * x_N[whole].mean())
    left = y_N - (intercept + slope * x_N)
    total = float(dy @ dy)
    varies = total > n * (ROUNDING * float(np.abs(y_N[whole]).max())) ** 2
    r2 = 1 - float(left[whole] @ left[whole]) / total if varies else None
    residuals = tuple(float(r) if ok else None for r, ok in zip(left, whole, strict=True))
    return Fit(n, intercept, slope, r2, residuals, float(np.abs(left[whole]).max()))


def pareto(costs: Sequence[float | None], values: Sequence[float | None]) -> list[int]:
    """Positions of the points that no other point beats, cheapest first.

    A point is beaten by one that costs no more and is worth no less, and differs in one of the
    two. Equal points stand together. A point with a part missing is never on the frontier.
    """
    points = [
        (float(cost), float(value), index)
        for index, (cost, value) in enumerate(zip(costs, values, strict=True))
        if len(present([cost, value])) == 2 and cost is not None and value is not None
    ]
    frontier = [
        (cost, value, index)
        for cost, value, index in points
        if not any(c <= cost and v >= value and (c, v) != (cost, value) for c, v, _ in points)
    ]
    return [index for _, _, index in sorted(frontier)]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
