"""Spread over seeds, change at matched seeds, and the Pareto frontier; pure functions of numbers.

The standard deviation is of the sample (ddof 1) and says how far seeds lie apart. It is not the
uncertainty of their mean: that is the t interval. Neither exists for one seed, so both are None
there, never 0. A value that is None or NaN is left out, and n counts what is left.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import stdtrit


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


def matched_change(before: Mapping[Any, float | None], after: Mapping[Any, float | None]) -> Change:
    """The change over the keys that have a number in both."""
    keys = sorted(
        (key for key in before if present([before[key]]) and present([after.get(key)])), key=repr
    )
    first = summarize(before[key] for key in keys).mean
    second = summarize(after[key] for key in keys).mean
    differences = summarize(_number(after[key]) - _number(before[key]) for key in keys)
    return Change(tuple(keys), first, second, differences)


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
