"""Results that came from elsewhere, as rows that a study can be made of; no file is touched here.

A row is a cell: what was trained (any fields of a trial, and an experiment), benchmark, measure,
value. What is not stated stays unknown: a default of `Trial` is this project's recipe and would be
a guess about someone else's. Every problem of a table is reported at once, by row.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
from pydantic import ValidationError

from analysis.imported_means import wrong_means
from analysis.table import missing
from ray_ablation.data.benchmarks import BENCHMARKS, GROUPS
from ray_ablation.frames import FIELD_TYPES, MEAN
from ray_ablation.problems import GridError, from_pydantic, unknown
from ray_ablation.settings import canonical_measure
from ray_ablation.trial import MOST, UNTRAINED_FIELDS, Trial

CELL = ("benchmark", "measure")
# Numbers of a trial, not of a cell.
EXTRAS = {
    "parameters": "Int64",
    "loss": "float64",
    "eval_loss": "float64",
    "seconds": "float64",
    "examples_per_s": "float64",
    "tokens_per_s": "float64",
    "peak_bytes": "Int64",
    "gpu_hours": "float64",
    "p50_ms": "float64",
    "p95_ms": "float64",
    "mean_ms": "float64",
}
KNOWN = ("experiment", *FIELD_TYPES, *CELL, "value", "n_queries", *EXTRAS)

MEANS = re.compile(r"(macro[ _-]?)?(mean|average|avg\.?)$")


class RowsError(GridError):
    """All problems of one table of results."""


def tidy(
    frame: pd.DataFrame, source: str, measure: str | None = None, own: Sequence[str] = ()
) -> pd.DataFrame:
    """One row a cell, checked, with the columns of `KNOWN` that the table states.

    Args:
        frame: Tidy (a column `value`) or wide (a column a measure; with `measure`, a benchmark).
        source: What errors call it.
        measure: What the values are, for a table with a column a benchmark.
        own: Benchmarks that are no public ones, which may be columns too.

    Raises:
        RowsError: Every problem of the table.
    """
    if frame.empty:
        raise RowsError(
            source, ["holds no row; a row is a cell: fields, benchmark, measure, value"]
        )
    frame = frame.rename(columns=lambda name: _canonical(str(name).strip()))
    named = frame.columns.tolist()
    twice = [f"column {name!r} stands there twice" for name in named if named.count(name) > 1]
    if found := list(dict.fromkeys(twice)) or list(_misfit_columns(named, measure, own)):
        raise RowsError(source, found)
    rows = _long(frame, measure, own)
    if found := [*_misfit_cells(rows), *_misspelt(rows)]:
        raise RowsError(source, found)
    rows = _typed(rows)
    if found := [*_duplicates(rows), *_disagreements(rows), *wrong_means(rows, _keys(rows))]:
        raise RowsError(source, found)
    return rows.drop(columns="row")


def _canonical(name: str) -> str:
    try:
        return canonical_measure(name)
    except ValueError:
        return name


def _wide(columns: Sequence[str], measure: str | None, own: Sequence[str]) -> list[str]:
    """The columns that hold values, one a measure or benchmark; none for a tidy table."""
    if measure is None:
        return [name for name in columns if "@" in name]
    return [name for name in columns if name in {*BENCHMARKS, *GROUPS, *own, MEAN}]


def _misfit_columns(
    columns: Sequence[str], measure: str | None, own: Sequence[str]
) -> Iterator[str]:
    wide = _wide(columns, measure, own)
    values = {*BENCHMARKS, *GROUPS, *own, MEAN} if measure else {"nDCG@10"}
    for name in sorted({*own} & {*KNOWN}):
        yield f"--benchmarks {name}: a column of that name is a field; rename the benchmark"
    for name in columns:
        if name not in KNOWN and name not in wide:
            hint = "; a benchmark of your own: --benchmarks NAME" if measure else ""
            yield f"column {name!r}: {unknown('column', name, {*KNOWN, *values})}{hint}"
    needed = {"benchmark"} if not measure else set()
    if not wide:
        needed |= {"benchmark", "measure", "value"} - ({"measure"} if measure else set())
    elif "value" in columns:
        yield f"both a column 'value' and columns of values ({', '.join(wide)}); keep one form"
    for name in sorted(needed - set(columns)):
        ways = "a tidy table has benchmark, measure, value; a wide one a column a measure"
        yield f"column {name!r} is missing; {ways} (nDCG@10), or with --measure a benchmark"
    if measure and "measure" in columns:
        yield f"--measure {measure} and a column 'measure'; keep one of the two"


def _long(frame: pd.DataFrame, measure: str | None, own: Sequence[str]) -> pd.DataFrame:
    """One row a cell; `row` is the number of its row in the table, the first one 1."""
    rows = frame.astype(object).map(_stripped).assign(row=range(1, len(frame) + 1))
    wide = _wide(frame.columns.tolist(), measure, own)
    if wide:
        kept = [name for name in rows.columns if name not in wide]
        name = "benchmark" if measure else "measure"
        rows = rows.melt(kept, wide, var_name=name, value_name="value")
        rows = rows.sort_values("row", kind="stable", ignore_index=True)
    return rows if measure is None else rows.assign(measure=measure)


def _stripped(value: Any) -> Any:
    return value.strip() or None if isinstance(value, str) else value


def _misfit_cells(rows: pd.DataFrame) -> Iterator[str]:
    """What is wrong with single cells of the table; each problem once."""
    found: dict[str, int] = {}
    for row in rows.to_dict("records"):
        for text in _misfit(row):
            found.setdefault(text, row["row"])
    yield from (f"row {row}: {text}" for text, row in found.items())


def _misfit(row: dict[Any, Any]) -> Iterator[str]:
    yield from (f"{name} is empty" for name in CELL if missing(row[name]) or not str(row[name]))
    if not missing(row["measure"]):
        try:
            canonical_measure(row["measure"])
        except ValueError as error:
            yield f"measure {row['measure']!r}; {error}"
    value = _number(row["value"])
    if not missing(row["value"]) and (value is None or not 0 <= value <= 1):
        yield f"value {row['value']!r}; expected a number in 0..1, or nothing for a missing cell"
    for name in ("n_queries", *EXTRAS):
        if not missing(row.get(name)) and (text := _extra(name, row[name])):
            yield text
    stated = {n: _field(n, row[n]) for n in FIELD_TYPES if n in row and not missing(row[n])}
    try:
        Trial(**{"depth": 1} | stated)
    except ValidationError as error:
        yield from from_pydantic(error, Trial)


def _misspelt(rows: pd.DataFrame) -> Iterator[str]:
    """Benchmarks that would count twice, or the mean as one of them."""
    known = {name.casefold(): name for name in (*BENCHMARKS, *GROUPS)}
    met = rows.dropna(subset="benchmark").drop_duplicates("benchmark")
    for name, row in zip(met["benchmark"].map(str), met["row"], strict=True):
        if name != MEAN and MEANS.match(name.casefold()):
            yield f"row {row}: benchmark {name!r}; the mean over benchmarks is spelt {MEAN!r}"
        elif (other := known.setdefault(name.casefold(), name)) != name:
            yield f"row {row}: benchmark {name!r} differs from {other!r} in case only; spell it so"


def _extra(name: str, value: Any) -> str | None:
    """What is wrong with a number that is no field of a trial; None for nothing."""
    number, whole = _number(value), (EXTRAS | {"n_queries": "Int64"})[name] == "Int64"
    lowest = -math.inf if name in ("loss", "eval_loss") else 0
    counted = number is not None and (not whole or (number.is_integer() and number < MOST))
    if number is not None and counted and math.isfinite(number) and number >= lowest:
        return None
    kind = "a whole number" if whole else "a number"
    at_least = "" if lowest else " of at least 0"
    return f"{name} {value!r}; expected {kind}{at_least}, or nothing where it is not known"


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or "_" in (text := str(value)) or not text.isascii():
        return None  # float would take them, pandas does not
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _field(name: str, value: Any) -> Any:
    """A field's value as `Trial` takes it; pandas reads a column with a gap as floats."""
    number = _number(value)
    if FIELD_TYPES[name] == "Int64" and number is not None and number.is_integer():
        return int(number)
    if FIELD_TYPES[name] == "float64" and number is not None:
        return number
    words = str(value).split()
    if name == "keep" and all(word.isdigit() for word in words):
        return tuple(int(word) for word in words)
    return tuple(words) if name == "negative_systems" else value


def _typed(rows: pd.DataFrame) -> pd.DataFrame:
    """With the dtypes of a study's frames; an untrained reference has no training fields."""
    types = {"experiment": "str", "benchmark": "str", "measure": "str"} | FIELD_TYPES
    types |= {"value": "float64", "n_queries": "Int64"} | EXTRAS | {"row": "int64"}
    stated = {name: dtype for name, dtype in types.items() if name in rows}
    numbers = [name for name, dtype in stated.items() if dtype != "str"]
    rows = rows[list(stated)].copy()
    rows[numbers] = rows[numbers].apply(pd.to_numeric)
    rows["measure"] = [canonical_measure(text) for text in rows["measure"]]
    rows = rows.astype(stated)
    if "steps" in rows:
        training = [n for n in FIELD_TYPES if n in rows and n not in UNTRAINED_FIELDS]
        rows.loc[rows["steps"] == 0, training] = None
    return rows


def _keys(rows: pd.DataFrame) -> list[str]:
    """The columns that say which trial a row is of."""
    return [name for name in ("experiment", *FIELD_TYPES) if name in rows]


def _duplicates(rows: pd.DataFrame) -> Iterator[str]:
    for _, same in rows.groupby([*_keys(rows), *CELL], dropna=False, sort=False)["row"]:
        if len(same) > 1:
            numbers = " and ".join(map(str, same))
            yield f"rows {numbers} are the same cell; state the field in which they differ"


def _disagreements(rows: pd.DataFrame) -> Iterator[str]:
    """A number of a trial that differs between its rows; query sets that do not compare."""
    grouped = {name: _keys(rows) for name in EXTRAS if name in rows}
    if "n_queries" in rows:
        grouped["n_queries"] = ["benchmark"]
    for name, by in grouped.items():
        known = rows[rows[name].notna()]
        groups = known.groupby(by, dropna=False, sort=False) if by else [((), known)]
        for _, group in groups:
            if group[name].nunique() > 1:
                other = group[group[name] != group[name].iloc[0]].iloc[0]
                what = "benchmark" if name == "n_queries" else "trial"
                where = f" ({other['benchmark']})" if name == "n_queries" else ""
                yield (
                    f"rows {group['row'].iloc[0]} and {other['row']} are of one {what}{where} but "
                    f"have {name} {group[name].iloc[0]} and {other[name]}; they do not compare"
                )
