"""What a study varied together, and so cannot tell apart.

A change of the batch changes the examples seen, the passes over the sample and the in-batch
negatives as well, and two experiments that differ in batch and steps say nothing of either alone.
Seeds are repetitions and confound nothing.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.configurations import words
from analysis.table import capital, missing

DERIVED = ("passes", "in_batch_negatives")
Row = dict[str, Any]


@dataclass(frozen=True)
class Confound:
    """Two quantities that a study does not tell apart.

    Attributes:
        kind: "together" (neither ever changes alone), "uncrossed" (each does, but not every
            combination was tried) or "carried" (the first never changes while the second stays).
        first: A field, or a quantity that follows from fields.
        second: Another one.
        combinations: The values of both that were tried, distinct.
    """

    kind: str
    first: str
    second: str
    combinations: tuple[tuple[Any, Any], ...]


def confounds(trials: pd.DataFrame, axes: Sequence[str]) -> list[Confound]:
    """Every pair of varying quantities that trained trials do not separate."""
    fields = [name for name in axes if name not in ("seed", "experiment")]
    trained = trials[trials["steps"].isna() | (trials["steps"] > 0)]
    columns = [*fields, *DERIVED]
    rows = [_known(row) for row in trained[columns].drop_duplicates().to_dict("records")]
    found = []
    for first, second in itertools.combinations(fields, 2):
        if kind := _of_fields(rows, fields, first, second):
            found.append(Confound(kind, first, second, _combinations(rows, first, second)))
    found += [
        Confound("carried", first, second, _combinations(rows, first, second))
        for first, second in itertools.permutations(DERIVED, 2)
        if _carried(rows, first, second)
    ]
    return found


def _known(row: dict[Any, Any]) -> Row:
    return {str(name): None if missing(value) else value for name, value in row.items()}


def _combinations(rows: Sequence[Row], first: str, second: str) -> tuple[tuple[Any, Any], ...]:
    return tuple(dict.fromkeys((row[first], row[second]) for row in rows))


def _of_fields(rows: Sequence[Row], fields: Sequence[str], first: str, second: str) -> str | None:
    firsts, seconds = ({row[name] for row in rows} for name in (first, second))
    if min(len(firsts), len(seconds)) < 2:
        return None
    alone = [_changes_alone(rows, fields, name) for name in (first, second)]
    if not any(alone):
        return "together"
    tried = len(_combinations(rows, first, second))
    return "uncrossed" if tried < len(firsts) * len(seconds) else None


def _changes_alone(rows: Sequence[Row], fields: Sequence[str], name: str) -> bool:
    """Whether two configurations differ in this field only."""
    values: dict[tuple[Any, ...], set[Any]] = {}
    for row in rows:
        rest = tuple(row[other] for other in fields if other != name)
        values.setdefault(rest, set()).add(row[name])
    return any(len(found) > 1 for found in values.values())


def _carried(rows: Sequence[Row], first: str, second: str) -> bool:
    """Whether both vary and the first never changes while the second stays."""
    values: dict[Any, set[Any]] = {}
    for row in rows:
        if row[first] is not None and row[second] is not None:
            values.setdefault(row[second], set()).add(row[first])
    distinct = set().union(*values.values()) if values else set()
    return len(values) > 1 and len(distinct) > 1 and all(len(one) == 1 for one in values.values())


def sentences(trials: pd.DataFrame, axes: Sequence[str]) -> Iterator[str]:
    """The confounds in words."""
    for one in confounds(trials, axes):
        a, b = (NAMES.get(name, name.replace("_", " ")) for name in (one.first, one.second))
        if one.kind == "together":
            yield (
                f"{capital(a)} and {b} are confounded: no two configurations differ in one of them "
                "alone, so no effect belongs to either."
            )
        elif one.kind == "uncrossed":
            between = " and ".join(words({one.first: v, one.second: w}) for v, w in _apart(one))
            where = f"between {between}, which" if between else "where configurations"
            yield (
                f"{capital(a)} and {b} are confounded {where} differ in both: not every "
                "combination was tried, so what separates such configurations belongs to neither "
                "alone."
            )
        else:
            yield (
                f"Effects of {a} are not separated from those of {b}: no two configurations with "
                f"equal {b} differ in {a}."
            )


def _apart(one: Confound) -> Sequence[tuple[Any, Any]]:
    """The two combinations that differ in both, when they are the only such two."""
    found = [
        (first, second)
        for first, second in itertools.combinations(one.combinations, 2)
        if first[0] != second[0] and first[1] != second[1]
    ]
    return found[0] if len(found) == 1 else ()


NAMES = {"in_batch_negatives": "in-batch negatives"}
