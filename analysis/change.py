"""The change between two budgets at matched seeds, and which two a study compares best.

A change against the mean of all seeds would mix the change with the luck of the seeds that only one
side has; it stands beside the matched one, so that a reader sees how much the baseline matters.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.configurations import Layout, Values, framed, short, words
from analysis.statistics import matched_change, summarize

BUDGET_FIELDS = ("steps", "batch")
"""The fields whose change a study of training budgets asks about, the first before the others."""


@dataclass(frozen=True)
class Comparison:
    """Two series that differ in one field, compared at matched seeds.

    Attributes:
        before: The series compared from.
        after: The series compared to.
        fixed: What both have in common, in words; "" when nothing else varies.
        change: In words: "from 20k to 80k steps".
        measure: What is compared.
        frame: One row an x and benchmark (and "mean"): x, benchmark, n, seeds, before, after,
            difference, sd, low, high, relative, relative_all (between the means of all seeds,
            matched or not). The others but x and benchmark are null without a match.
    """

    before: str
    after: str
    fixed: str
    change: str
    measure: str
    frame: pd.DataFrame

    @property
    def seeds(self) -> list[int]:
        """Every seed that was matched somewhere."""
        return sorted({seed for seeds in self.frame["seeds"] for seed in seeds})

    @property
    def matched(self) -> str:
        """In words: "seeds 42, 43"."""
        return f"seed{'s' * (len(self.seeds) != 1)} {', '.join(map(str, self.seeds))}"


def compare_budgets(
    arrangement: Layout, values: Values, benchmarks: Sequence[str], measure: str
) -> Comparison | None:
    """The change between the two budgets that a study compares best, None without such a pair.

    Two series qualify when they differ in one field and share a seed somewhere. Steps go before
    batch and batch before other fields; then the pair with most matched cells, then the widest.
    """
    series = {c.series: c.values for c in arrangement.configurations if c.trained}
    scored = _scored_seeds(arrangement, values, benchmarks, measure)
    pairs = [
        (first, second)
        for first, second in itertools.permutations(series, 2)
        if len(_differing(series[first], series[second])) == 1
        and _ordered(series[first], series[second])
    ]
    ranked = [(_rank(*pair, series, scored), pair) for pair in pairs]
    matched = [one for one in ranked if one[0][1] > 0]
    if not matched:
        return None
    before, after = max(matched, key=lambda one: one[0])[1]
    frame = _changes(arrangement, values, benchmarks, measure, before, after)
    field = _differing(series[before], series[after])[0]
    common = words({name: value for name, value in series[before].items() if name != field})
    change = _change_words(field, series[before][field], series[after][field])
    return Comparison(before, after, common, change, measure, frame)


# Series -> (x, seed, benchmark) with a value.
Scored = dict[str, set[tuple[Any, Any, str]]]


def _scored_seeds(
    arrangement: Layout, values: Values, benchmarks: Sequence[str], measure: str
) -> Scored:
    found: Scored = {}
    for one in arrangement.configurations:
        places = found.setdefault(one.series, set()) if one.trained else set()
        places |= {
            (one.x, seed, benchmark)
            for seed, trial in one.trials.items()
            for benchmark in benchmarks
            if seed is not None  # an unknown seed matches none
            if values.get((trial, benchmark, measure)) is not None
        }
    return found


def _differing(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    return [name for name in first if first[name] != second[name]]


def _ordered(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether the change goes upwards; where there is no up, the study's order is taken."""
    a, b = (values[_differing(first, second)[0]] for values in (first, second))
    return bool(a < b) if isinstance(a, int | float) and isinstance(b, int | float) else True


def _rank(before: str, after: str, series: dict[str, Any], scored: Scored) -> tuple[Any, ...]:
    """How well a pair compares: its field, its matched cells, its width."""
    field = _differing(series[before], series[after])[0]
    a, b = series[before][field], series[after][field]
    rank = BUDGET_FIELDS.index(field) if field in BUDGET_FIELDS else len(BUDGET_FIELDS)
    width = b / a if isinstance(a, int | float) and isinstance(b, int | float) and a else 0
    return -rank, len(scored[before] & scored[after]), width


def _change_words(field: str, before: Any, after: Any) -> str:
    unit = "steps" if field == "steps" else ""
    name = "" if unit else f"{field.replace('_', ' ')} "
    return f"from {name}{short(before)} to {short(after)} {unit}".strip()


def _changes(
    arrangement: Layout,
    values: Values,
    benchmarks: Sequence[str],
    measure: str,
    before: str,
    after: str,
) -> pd.DataFrame:
    by_place = {(c.x, c.series): c.trials for c in arrangement.configurations if c.trained}
    rows = []
    for x, benchmark in itertools.product(arrangement.xs, benchmarks):
        first, second = (
            {
                seed: values.get((trial, benchmark, measure))
                for seed, trial in by_place.get((x, series), {}).items()
                if seed is not None
            }
            for series in (before, after)
        )
        found = matched_change(first, second)
        rows.append(
            {
                "x": x,
                "benchmark": benchmark,
                "n": found.difference.n,
                "seeds": found.keys,
                "before": found.before,
                "after": found.after,
                "difference": found.difference.mean,
                "sd": found.difference.sd,
                "low": found.difference.low,
                "high": found.difference.high,
                "relative": found.relative,
                "relative_all": _relative(first.values(), second.values()),
            }
        )
    numbers = ["before", "after", "difference", "sd", "low", "high", "relative", "relative_all"]
    return framed(rows, numbers)


def _relative(before: Iterable[float | None], after: Iterable[float | None]) -> float | None:
    """The change between the means of all seeds, matched or not."""
    first, second = summarize(before).mean, summarize(after).mean
    return second / first - 1 if first and second is not None else None
