"""Configurations: trials equal in all but the seed; what they are called, and how they differ.

Everything a report says of a study goes through `spread` and `compare_budgets`, so its tables,
figures and sentences agree. A study is laid out along one field, x (depth when it varies, else the
first field that does), and the other fields that vary make its series, one line each in a figure.
Untrained references are a series of their own kind.
"""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.statistics import matched_change, summarize
from ray_ablation.frames import MEAN, plain
from ray_ablation.grid import Grid
from ray_ablation.trial import Trial

BUDGET_FIELDS = ("steps", "batch")
"""The fields whose change a study of training budgets asks about, the first before the others."""


@dataclass(frozen=True)
class Configuration:
    """Trials that differ in nothing but their seed.

    Attributes:
        label: All that tells it from the grid's other configurations.
        x: Its value of the layout's x; None for a reference without that field.
        series: Its other varying fields, in words; the line it belongs to.
        values: The same as a mapping, field -> value.
        trained: False for an untrained reference.
        trials: Seed -> trial id; the seed of a reference is None.
    """

    label: str
    x: Any
    series: str
    values: dict[str, Any]
    trained: bool
    trials: dict[int | None, str]


@dataclass(frozen=True)
class Layout:
    """How a grid's configurations are arranged.

    Attributes:
        x: The field along a figure's horizontal axis.
        varies: Whether x has several values.
        configurations: In the order of the grid.
    """

    x: str
    varies: bool
    configurations: tuple[Configuration, ...]

    @property
    def xs(self) -> list[Any]:
        """The values of x, ascending where they are numbers, else in the order of the grid."""
        found = list(dict.fromkeys(c.x for c in self.configurations if c.x is not None))
        return sorted(found) if all(isinstance(x, int | float) for x in found) else found

    @property
    def series(self) -> list[str]:
        """The series of trained configurations, in the order of the grid."""
        return list(dict.fromkeys(c.series for c in self.configurations if c.trained))


def layout(grid: Grid) -> Layout:
    """Group a grid's trials by all but their seed."""
    fields = [name for name in grid.axes if name != "seed"]
    x = "depth" if "depth" in fields or not fields else fields[0]
    others = [name for name in Trial.model_fields if name in fields and name != x]
    groups: dict[str, Configuration] = {}
    for trial in grid.trials:
        values = {name: plain(value) for name, value in trial.fields().items()}
        if trial.steps:  # a null that has an effect is a value
            values = {name: "none" if v is None else v for name, v in values.items()}
        place, rest = words({x: values[x]}), words({name: values[name] for name in others})
        label = ", ".join(part for part in (place, rest) if part)
        if x == "steps" and not trial.steps:
            rest = ", ".join(part for part in ("untrained", rest) if part)
        found = groups.setdefault(
            label,
            Configuration(
                label=label,
                x=None if trial.steps == 0 and x == "steps" else values[x],
                series=rest or "all trials",
                values={name: values[name] for name in others},
                trained=trial.steps > 0,
                trials={},
            ),
        )
        found.trials[values["seed"]] = trial.id
    return Layout(x, x in grid.axes, tuple(groups.values()))


def words(values: dict[str, Any]) -> str:
    """Fields and values as a person says them: "batch 32, 20k steps"; nulls are left out."""
    return ", ".join(say(name, value) for name, value in values.items() if value is not None)


def say(field: str, value: Any) -> str:
    """One field and its value: "depth 6", "20k steps", "untrained"."""
    if field == "steps":
        return f"{short(value)} steps" if value else "untrained"
    return f"{field.replace('_', ' ')} {short(value)}"


def short(value: Any) -> str:
    """A value as a label: 20000 is 20k, 2e-05 is 2e-05."""
    if isinstance(value, int) and value >= 1000 and value % 1000 == 0:
        return f"{value // 1000}k"
    exact = isinstance(value, float) and float(f"{value:g}") == value
    return f"{value:g}" if exact else str(value)


def spread(grid: Grid, results: pd.DataFrame) -> pd.DataFrame:
    """Mean and spread over seeds, one row a configuration, benchmark (and "mean") and measure.

    Columns: configuration, x, series, trained, benchmark, measure, n (seeds with a value), asked
    (seeds in the grid), mean, sd (ddof 1, null at n = 1), low and high (t interval of the mean).
    """
    values = cell_values(results)
    rows = []
    for configuration in layout(grid).configurations:
        for benchmark in [*(one.name for one in grid.benchmarks), MEAN]:
            for measure in grid.measures:
                found = summarize(
                    values.get((trial, benchmark, measure))
                    for trial in configuration.trials.values()
                )
                rows.append(
                    {
                        "configuration": configuration.label,
                        "x": configuration.x,
                        "series": configuration.series,
                        "trained": configuration.trained,
                        "benchmark": benchmark,
                        "measure": measure,
                        "asked": len(configuration.trials),
                        **vars(found),
                    }
                )
    return _framed(rows, ["mean", "sd", "low", "high"])


def cell_values(results: pd.DataFrame) -> dict[tuple[str, str, str], float | None]:
    """(trial, benchmark, measure) -> value, None when missing."""
    columns = (results[name] for name in ("trial", "benchmark", "measure", "value"))
    return {
        (trial, benchmark, measure): None if math.isnan(value) else float(value)
        for trial, benchmark, measure, value in zip(*columns, strict=True)
    }


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
            difference, sd, low, high, relative. All but x and benchmark null without a match.
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


def compare_budgets(grid: Grid, results: pd.DataFrame) -> Comparison | None:
    """The change between the two budgets that a study compares best, None without such a pair.

    Two series qualify when they differ in one field and share a seed somewhere. Steps go before
    batch and batch before other fields; then the pair with most matched cells, then the widest.
    """
    pairs = [
        _compare(grid, results, first, second)
        for first in _series(grid).items()
        for second in _series(grid).items()
        if len(_differing(first[1], second[1])) == 1 and _ordered(first[1], second[1])
    ]
    matched = [pair for pair in pairs if pair[1].frame["n"].sum() > 0]
    return max(matched, key=lambda pair: pair[0])[1] if matched else None


def _series(grid: Grid) -> dict[str, dict[str, Any]]:
    return {c.series: c.values for c in layout(grid).configurations if c.trained}


def _differing(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    return [name for name in first if first[name] != second[name]]


def _ordered(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether the change goes upwards; where there is no up, the grid's order is taken."""
    a, b = (values[_differing(first, second)[0]] for values in (first, second))
    return bool(a < b) if isinstance(a, int | float) and isinstance(b, int | float) else True


def _compare(
    grid: Grid,
    results: pd.DataFrame,
    first: tuple[str, dict[str, Any]],
    second: tuple[str, dict[str, Any]],
) -> tuple[tuple[Any, ...], Comparison]:
    """How well a pair compares, and the comparison."""
    (before, a), (after, b) = first, second
    field = _differing(a, b)[0]
    frame = _changes(grid, results, before, after)
    common = words({name: value for name, value in a.items() if name != field})
    rank = BUDGET_FIELDS.index(field) if field in BUDGET_FIELDS else len(BUDGET_FIELDS)
    numbers = isinstance(a[field], int | float) and isinstance(b[field], int | float)
    width = b[field] / a[field] if numbers and a[field] else 0
    unit = "steps" if field == "steps" else ""
    name = "" if unit else f"{field.replace('_', ' ')} "
    change = f"from {name}{short(a[field])} to {short(b[field])} {unit}".strip()
    comparison = Comparison(before, after, common, change, grid.measures[0], frame)
    return (-rank, int(frame["n"].sum()), width), comparison


def _changes(grid: Grid, results: pd.DataFrame, before: str, after: str) -> pd.DataFrame:
    arrangement, values, measure = layout(grid), cell_values(results), grid.measures[0]
    by_place = {(c.x, c.series): c.trials for c in arrangement.configurations if c.trained}
    rows = []
    for x in arrangement.xs:
        for benchmark in [*(one.name for one in grid.benchmarks), MEAN]:
            first, second = (
                {
                    seed: values.get((trial, benchmark, measure))
                    for seed, trial in by_place.get((x, series), {}).items()
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
                }
            )
    return _framed(rows, ["before", "after", "difference", "sd", "low", "high", "relative"])


def _framed(rows: list[dict[str, Any]], numbers: list[str]) -> pd.DataFrame:
    """Rows as a frame; x keeps its Python values, which a float column would change."""
    frame = pd.DataFrame(rows).astype(dict.fromkeys(numbers, "float64"))
    return frame.assign(x=pd.Series([row["x"] for row in rows], dtype=object))
