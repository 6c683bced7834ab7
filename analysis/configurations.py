"""Configurations: trials equal in all but the seed; what they are called, and how they differ.

Everything a report says of a study goes through `spread` and `change.compare_budgets`, so its
tables, figures and sentences agree. A study is laid out along one field, x (depth when it varies,
else the first field that does), and the other fields that vary make its series, one line each in a
figure. Untrained references are a series of their own kind.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.statistics import summarize
from analysis.table import missing

# (trial, benchmark, measure) -> value, None when missing.
Values = dict[tuple[str, str, str], float | None]


@dataclass(frozen=True)
class Configuration:
    """Trials that differ in nothing but their seed.

    Attributes:
        label: All that tells it from the study's other configurations.
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
    """How a study's configurations are arranged.

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
        """The values of x, ascending where they are numbers, else in the order of the study."""
        found = list(dict.fromkeys(c.x for c in self.configurations if c.x is not None))
        return sorted(found) if all(isinstance(x, int | float) for x in found) else found

    @property
    def series(self) -> list[str]:
        """The series of trained configurations, in the order of the study."""
        return list(dict.fromkeys(c.series for c in self.configurations if c.trained))


def layout(trials: pd.DataFrame, axes: Sequence[str], null: str = "none") -> Layout:
    """Group trials by all but their seed.

    Args:
        trials: `frames.trials_frame`, in the order of the study.
        axes: The columns in which trials differ.
        null: What a field without a value is called where trained trials differ in it.
    """
    fields = [name for name in axes if name != "seed"]
    x = "depth" if "depth" in fields or not fields else fields[0]
    others = [name for name in trials.columns if name in fields and name != x]
    groups: dict[str, Configuration] = {}
    columns = dict.fromkeys(["trial", "seed", "steps", x, *others])
    for row in _records(trials[list(columns)]):
        trained = row["steps"] != 0
        if trained:  # a null that has an effect is a value
            row |= {name: null for name in fields if row[name] is None}
        place, rest = words({x: row[x]}), words({name: row[name] for name in others})
        label = ", ".join(part for part in (place, rest) if part) or "all trials"
        if x == "steps" and not trained:
            rest = ", ".join(part for part in ("untrained", rest) if part)
        found = groups.setdefault(
            label,
            Configuration(
                label=label,
                x=None if x == "steps" and not trained else row[x],
                series=rest or "all trials",
                values={name: row[name] for name in others},
                trained=trained,
                trials={},
            ),
        )
        found.trials[row["seed"]] = row["trial"]
    return Layout(x, x in axes, tuple(groups.values()))


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with None for what is missing."""
    rows: list[dict[Any, Any]] = frame.to_dict("records")
    return [{k: None if missing(v) else v for k, v in row.items()} for row in rows]


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


def spread(
    configurations: Sequence[Configuration],
    values: Values,
    benchmarks: Sequence[str],
    measures: Sequence[str],
) -> pd.DataFrame:
    """Mean and spread over seeds, one row a configuration, benchmark and measure.

    Columns: configuration, x, series, trained, benchmark, measure, n (seeds with a value), asked
    (seeds in the study), mean, sd (ddof 1, null at n = 1), low and high (t interval of the mean).
    """
    rows = [
        {
            "configuration": one.label,
            "x": one.x,
            "series": one.series,
            "trained": one.trained,
            "benchmark": benchmark,
            "measure": measure,
            "asked": len(one.trials),
            **vars(summarize(values.get((t, benchmark, measure)) for t in one.trials.values())),
        }
        for one in configurations
        for benchmark in benchmarks
        for measure in measures
    ]
    return framed(rows, ["mean", "sd", "low", "high"])


def cell_values(results: pd.DataFrame) -> Values:
    """What every cell of `frames.results_frame` holds."""
    columns = (results[name] for name in ("trial", "benchmark", "measure", "value"))
    return {
        (trial, benchmark, measure): None if math.isnan(value) else float(value)
        for trial, benchmark, measure, value in zip(*columns, strict=True)
    }


def framed(rows: list[dict[str, Any]], numbers: list[str]) -> pd.DataFrame:
    """Rows as a frame; x keeps its Python values, which a float column would change."""
    frame = pd.DataFrame(rows).astype(dict.fromkeys(numbers, "float64"))
    return frame.assign(x=pd.Series([row["x"] for row in rows], dtype=object))
