"""What a claim speaks of: the numbers it compares, and what they have in common.

A stratum holds the numbers that are equal in all but the claim's axis and the seed; a claim speaks
of every stratum that its `where` leaves open. Levels are compared at matched seeds. A number that
no seed touches (an untrained reference, a latency) is compared with each seed of the other level.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.configurations import say, words
from analysis.facts import Facts
from ray_ablation.claim import Changes, Correlates, Difference, Linear, Statement
from ray_ablation.claim_world import speaks_of
from ray_ablation.frames import MEAN
from ray_ablation.problems import UserError

Row = dict[str, Any]

DETERMINES = {
    "examples": ("batch", "steps"),
    "passes": ("batch", "steps", "samples"),
    "in_batch_negatives": ("batch", "negatives"),
}
"""Derived axis -> the fields it is computed from, which vary with it and make no strata."""


@dataclass(frozen=True)
class Stratum:
    """Numbers equal in all but the axis and the seed.

    Attributes:
        values: The fields they share.
        benchmark: Where they are measured; None for columns that have none.
        place: Both in words, to follow a level: " at depth 6, batch 32 on fiqa"; what does not
            vary in the study is left out.
        levels: Level of the axis -> seed -> its row; levels ascending where they are numbers.
    """

    values: dict[str, Any]
    benchmark: str | None
    place: str
    levels: dict[Any, dict[Any, Row]]

    def matched(self, a: Any, b: Any) -> list[tuple[Row, Row]]:
        """The rows of two levels at the seeds that both were asked at."""
        first, second = self.levels.get(a, {}), self.levels.get(b, {})
        seeds = dict.fromkeys(seed for seed in [*first, *second] if seed is not None)
        if seeds and None in first:
            first = dict.fromkeys(seeds, first[None])
        if seeds and None in second:
            second = dict.fromkeys(seeds, second[None])
        return [(first[seed], second[seed]) for seed in first if seed in second]

    def rows(self, levels: Iterable[Any]) -> list[Row]:
        """All rows of these levels."""
        return [row for level in levels for row in self.levels.get(level, {}).values()]

    def numbers(self, level: Any) -> list[float]:
        """The values of a level, of which none is missing."""
        return [row["value"] for row in self.levels[level].values()]


def selected(claim: Statement, facts: Facts) -> list[Row]:
    """The rows that a claim speaks of, missing ones among them."""
    benchmark = claim.benchmark
    wanted = facts.each if benchmark == "each" else [benchmark]
    only = _only_levels(claim)
    return [
        row
        for row in facts.rows
        if row["column"] == claim.of
        and row["benchmark"] in wanted
        and speaks_of(claim.where, row)
        and (only is None or row[claim.axis] in only)
    ]


def _only_levels(claim: Statement) -> list[Any] | None:
    """The levels it speaks of; None where it speaks of all."""
    some = getattr(claim, "over", None) or getattr(claim, "levels", None)
    if some is None and not isinstance(claim, Difference | Changes):
        return None
    return [level for _, level in claim.levels_named()]


def strata(claim: Statement, facts: Facts) -> list[Stratum]:
    """The strata a claim speaks of, in the order of the study.

    Raises:
        UserError: Two numbers of one place.
    """
    return [
        Stratum(values, benchmark, place, _levels(rows, claim))
        for values, benchmark, place, rows in _places(claim, facts, selected(claim, facts))
    ]


def trials_by_place(claim: Correlates, facts: Facts) -> list[tuple[str, list[Row]]]:
    """The trials among which a number may correlate: each place in words, with its rows.

    A place has several values of the axis. Untrained references beside trained trials are left out,
    unless the claim is about steps or asks for some: not to train is no degree of training.
    """
    rows = [row for row in selected(claim, facts) if row[claim.axis] is not None]
    trained = [row for row in rows if row.get("steps") != 0]
    if trained and claim.axis != "steps" and "steps" not in claim.where:
        rows = trained
    places = [(place, here) for _, _, place, here in _places(claim, facts, rows)]
    return [(place, here) for place, here in places if len({row[claim.axis] for row in here}) > 1]


def _places(
    claim: Statement, facts: Facts, rows: Sequence[Row]
) -> Iterator[tuple[dict[str, Any], str | None, str, list[Row]]]:
    """The fields that rows share, the benchmark, both in words, and the rows."""
    own = (claim.axis, "seed", *DETERMINES.get(claim.axis, ()))
    others = [name for name in facts.fields if name not in own]
    others = [name for name in others if any(row[name] is not None for row in rows)]
    firm = [row for row in rows if all(row[name] is not None for name in claim.where)] or rows
    keys = list(dict.fromkeys(tuple(row[name] for name in others) for row in firm))
    whole = [key for key in keys if None not in key]
    keys = [key for key in keys if key in whole or not any(_agree(key, one) for one in whole)]
    shown = [name for name in others if name in facts.varying]
    for benchmark in dict.fromkeys(row["benchmark"] for row in rows):
        there = [row for row in rows if row["benchmark"] == benchmark]
        for key in keys:
            here = [row for row in there if _agree([row[name] for name in others], key)]
            values = dict(zip(others, key, strict=True))
            fields = words({name: values[name] for name in shown})
            place = (f" at {fields}" if fields else "") + on(benchmark)
            yield values, benchmark, place, here


def on(benchmark: str | None) -> str:
    """The benchmark in words; nothing for the mean over all."""
    return f" on {benchmark}" if benchmark not in (None, MEAN) else ""


def _agree(values: Sequence[Any], key: Sequence[Any]) -> bool:
    """Whether a number stands in a stratum; a field without effect on it is no obstacle."""
    return all(value in (None, other) for value, other in zip(values, key, strict=True))


def _levels(rows: Iterable[Row], claim: Statement) -> dict[Any, dict[Any, Row]]:
    levels: dict[Any, dict[Any, Row]] = {}
    for row in rows:
        seeds = levels.setdefault(row[claim.axis], {})
        if row["seed"] in seeds:
            first, second = seeds[row["seed"]]["trial"], row["trial"]
            raise UserError(
                f"claim {claim.name!r}: {first} and {second} differ in no field that is known, so "
                f"{claim.of} has two values there; add the column in which they differ"
            )
        seeds[row["seed"]] = row
    levels.pop(None, None)
    numbers = all(isinstance(level, int | float) for level in levels)
    return dict(sorted(levels.items())) if numbers else levels


def would_answer(claim: Statement, facts: Facts) -> tuple[str, ...]:
    """What would answer a claim whose levels no trials share: the fields of such trials."""
    shared = {name: " or ".join(map(str, values)) for name, values in claim.where.items()}
    levels = [level for _, level in claim.levels_named()]
    had = (
        {row[claim.axis] for row in selected(claim, facts)} if claim.axis in facts.fields else set()
    )
    absent = [level for level in levels if level not in had]
    if absent:
        return tuple(words({claim.axis: level} | shared) for level in absent)
    return (", ".join(filter(None, [_in_common(claim, facts, levels), words(shared)])),)


def _in_common(claim: Statement, facts: Facts, levels: Sequence[Any]) -> str:
    """What there must be besides the levels of a claim, which are there."""
    axis = claim.axis.replace("_", " ")
    if isinstance(claim, Correlates):
        return f"trials of different {axis} and all else equal"
    places = [place for place in strata(claim, facts) if len(place.levels) > 1]
    if places and isinstance(claim, Linear):
        return f"a third level of {axis}, as two points always lie on a line"
    named = " and ".join(say(claim.axis, level) for level in levels) or f"several levels of {axis}"
    if not places:
        return f"{named} with all else equal"
    pairs = ((place, pair) for place in places for pair in itertools.combinations(place.levels, 2))
    if any(place.matched(*pair) for place, pair in pairs):
        return f"{named} beside more that could be compared"
    return f"{named} at the same seed, as they have no seed in common"
