"""Means over benchmarks that a table states, held against the parts that it states.

A mean may be known where its parts are not, so what is stated stands. But it stands beside means
over all benchmarks, so one that its parts contradict, or that is a mean of fewer, is refused. Half
of the last digit stated may be lost on either side; 0.5 is read as 0.50, as CSV keeps no zeros.
"""

from collections.abc import Iterator, Sequence

import pandas as pd

from ray_ablation.data.benchmarks import BENCHMARKS
from ray_ablation.frames import MEAN


def wrong_means(rows: pd.DataFrame, keys: Sequence[str]) -> Iterator[str]:
    """Stated means that are not those of all benchmarks, beyond what rounding explains.

    Args:
        rows: As `imported.tidy` gives them, with the number of each row as `row`.
        keys: The columns that say which trial a row is of.
    """
    names = rows.loc[rows["benchmark"] != MEAN, "benchmark"].unique()
    if {group_of(name) for name in names} & {*names}:
        return  # a group and its members: which of them count is not stated
    units = {name: group_of(name) or name for name in names}
    count = len(set(units.values()))
    means = rows["benchmark"] == MEAN
    slack = _half_step(rows.loc[means, "value"]) + _half_step(rows.loc[~means, "value"]) + 1e-9
    for _, group in rows.dropna(subset="value").groupby(
        [*keys, "measure"], dropna=False, sort=False
    ):
        stated, parts = group[group["benchmark"] == MEAN], group[group["benchmark"] != MEAN]
        if stated.empty or parts.empty:
            continue
        value, start = stated["value"].iloc[0], f"row {stated['row'].iloc[0]}: the mean is stated"
        known = parts.groupby(parts["benchmark"].map(units))["value"].mean()
        lacking = [name for name in names if name not in set(parts["benchmark"])]
        if not lacking and abs(value - known.mean()) > slack:
            yield f"{start} as {value:g}, that of its {count} benchmarks is {known.mean():.4g}"
        elif lacking and (why := _no_whole_mean(value, known, count, slack)):
            yield (
                f"{start} as {value:g}, {why}, and {', '.join(lacking)} is missing; state what is "
                "missing, or leave this mean empty"
            )


def _no_whole_mean(value: float, known: "pd.Series[float]", count: int, slack: float) -> str:
    """Why a mean is not over all of `count` benchmarks of which some are known; "" if it can be."""
    if abs(value - known.mean()) <= slack:
        return f"which is that of {', '.join(known.index)} alone"
    rest = value * count - known.sum()
    if len(known) < count and not -slack * count <= rest <= count - len(known) + slack * count:
        return (
            f"which no value gives beside {', '.join(known.index)} at a mean of {known.mean():.4g}"
        )
    return ""


def _half_step(values: "pd.Series[float]") -> float:
    """Half of the last digit that is stated, two at least: 0.5 may have been 0.50."""
    stated = (len(f"{v:.6f}".rstrip("0").partition(".")[2]) for v in values.dropna())
    return 0.5 * 10.0 ** -max([2, *stated])


def group_of(benchmark: str) -> str | None:
    """The group that a public benchmark counts with in a mean, None for most."""
    known = BENCHMARKS.get(benchmark)
    return known.group if known else None
