"""What claims may speak of, be it a grid before it ran or a table that somebody published.

Claims are held against their world before anything is computed, so a misspelt axis is an error at
the door and not an empty answer.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray_ablation import problems
from ray_ablation.claim import Changes, Correlates, Linear, Monotone, Statement, TopK
from ray_ablation.trial import UNTRAINED_FIELDS, Trial

DERIVED = ("examples", "passes", "in_batch_negatives")
"""Numbers that follow from a trial's fields; a claim may correlate with them."""

RECORDED = (
    *("seconds", "gpu_hours", "examples_per_s", "tokens_per_s", "mfu", "peak_bytes"),
    *("parameters", "loss", "eval_loss", "min_eval_loss"),
)
"""Columns a trained trial has."""

PROFILED = ("p50_ms", "p95_ms", "mean_ms", "ratio")
"""Columns a profiled architecture has."""


@dataclass(frozen=True)
class World:
    """What claims may speak of.

    Attributes:
        trials: A mapping a trial, field -> value; None where the field has no effect on it.
        columns: What can be claimed about.
        benchmarks: Where measures are taken; "mean" and "each" are known besides.
    """

    trials: Sequence[Mapping[str, Any]]
    columns: Sequence[str]
    benchmarks: Sequence[str]

    def levels(self, field: str) -> list[Any]:
        """The values that trials have, ascending where they are numbers."""
        found = dict.fromkeys(trial.get(field) for trial in self.trials)
        known = [value for value in found if value is not None]
        return sorted(known) if all(_number(value) for value in known) else known

    @property
    def fields(self) -> list[str]:
        """The fields of trials, as an axis or in `where`."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial))


def planned(
    trials: Sequence[Trial], measures: Sequence[str], benchmarks: Iterable[Any], lengths: Any
) -> World:
    """What claims may speak of before there is a result.

    Args:
        trials: Of a grid.
        measures: As ir_measures spells them.
        benchmarks: Each with a name, and a group where several are shown as one.
        lengths: Tokens per text that are profiled; none when nothing is.
    """
    rows = [spelt(trial.fields()) for trial in trials]
    if lengths:
        rows = [row | {"length": length} for row in rows for length in lengths]
    names = [name for one in benchmarks for name in (one.name, getattr(one, "group", None)) if name]
    columns = [*measures, *RECORDED, *(PROFILED if lengths else ())]
    return World(rows, columns, list(dict.fromkeys(names)))


def check(claims: Iterable[Statement], world: World) -> Iterator[str]:
    """What is wrong with claims about such a world, one line a problem, with dotted paths."""
    names: list[str] = []
    for index, claim in enumerate(claims):
        if claim.name in names:
            yield f"claims[{index}].name: {claim.name!r} stands there twice"
        names.append(claim.name)
        yield from (f"claims[{index}].{line}" for line in _problems(claim, world))


def _problems(claim: Statement, world: World) -> Iterator[str]:
    yield from _column(claim, world)
    where = list(_where(claim, world))
    yield from where
    derived = DERIVED if isinstance(claim, Correlates) else ()
    if claim.axis in derived:
        return
    if claim.axis not in world.fields or claim.axis == "seed":
        allowed = [name for name in world.fields if name != "seed"]
        yield f"axis: {problems.unknown('axis', claim.axis, [*allowed, *derived])}"
    elif not where:
        yield from _levels(claim, world)


def _column(claim: Statement, world: World) -> Iterator[str]:
    if claim.of not in world.columns:
        yield f"of: {problems.unknown('column', claim.of, world.columns)}"
    elif claim.on is not None and claim.benchmark is None:
        yield f"on: {claim.of} is not measured on benchmarks; leave `on` out"
    elif (claim.on or "mean") not in (known := [*world.benchmarks, "mean", "each"]):
        yield f"on: {problems.unknown('benchmark', str(claim.on), known)}"


def _where(claim: Statement, world: World) -> Iterator[str]:
    good = True
    for name, values in claim.where.items():
        if name not in world.fields:
            good = False
            yield f"where.{name}: {problems.unknown('field', name, world.fields)}"
            continue
        for value in values:
            if world.levels(name) and value not in world.levels(name):  # no level: not known yet
                good = False
                yield f"where.{name}: {_no_level(name, value, world.levels(name))}"
    if good and not any(speaks_of(claim.where, trial) for trial in world.trials):
        asked = ", ".join(f"{k}: {' or '.join(map(str, v))}" for k, v in claim.where.items())
        yield f"where: it speaks of nothing; no trial has {asked}"


def spelt(values: Mapping[str, Any], null: str = "none") -> dict[str, Any]:
    """A trial's fields as claims spell them: a list is its items, a null with effect is a value.

    The fields without effect on an untrained reference (zero steps) stay None.
    """
    applies = UNTRAINED_FIELDS if values.get("steps") == 0 else values
    found = {
        name: " ".join(map(str, value)) or "all" if isinstance(value, list) else value
        for name, value in values.items()
    }
    return {n: null if value is None and n in applies else value for n, value in found.items()}


def speaks_of(where: Mapping[str, Sequence[Any]], trial: Mapping[str, Any]) -> bool:
    """Whether a trial has the values; a field without effect on it has every value."""
    return all(trial[name] is None or trial[name] in values for name, values in where.items())


def _levels(claim: Statement, world: World) -> Iterator[str]:
    known = world.levels(claim.axis)
    if len(known) < 2:
        yield f"axis: {claim.axis} is {_listed(known)} throughout; a comparison needs two levels"
        return
    named = list(claim.levels_named())
    for place, level in named:
        if level not in known:
            yield f"{place}: {_no_level(claim.axis, level, known)}"
        elif level in [other for _, other in named[: named.index((place, level))]]:
            yield f"{place}: {level!r} is named twice; a comparison needs two levels"
    if isinstance(claim, Linear | Correlates) and not all(map(_number, known)):
        yield f"axis: {claim.axis} is no number: {_listed(known)}"
    if isinstance(claim, Monotone) and not claim.levels and not all(map(_number, known)):
        order = f"{claim.axis} has no order of its own ({_listed(known)})"
        yield f"levels: missing; {order}; name the levels in the order that is meant"
    if isinstance(claim, TopK) and claim.k >= len(known):
        yield f"k: {claim.k}; {claim.axis} has {len(known)} levels, so it must be under that"
    if isinstance(claim, Changes) and claim.most_at is not None:
        ((field, level),) = claim.most_at.items()
        if field not in world.fields or field in (claim.axis, "seed"):
            allowed = [name for name in world.fields if name not in (claim.axis, "seed")]
            yield f"most_at: {problems.unknown('field', field, allowed)}"
        elif level not in world.levels(field):
            yield f"most_at.{field}: {_no_level(field, level, world.levels(field))}"


def _no_level(field: str, level: Any, known: Sequence[Any]) -> str:
    if isinstance(level, str) and any(isinstance(value, str) for value in known):
        return problems.unknown(field, level, map(str, known))
    return f"no trial has {field} {level!r}; there are {_listed(known)}"


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values)) or "none"


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
