"""A claim: what the author of a study means to say of it, written before the data can answer.

An entry of `claims:` names a kind of statement, the column it is about and the trials it speaks of;
the analysis answers it (`analysis/claims.py`). A claim holds everywhere it speaks of: in each
combination of the fields that `where` leaves open, seeds excepted, which are the repetitions.

A claim is known by the digest of its content: one that was changed is another claim, and was
registered when it was changed.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ray_ablation.settings import MEASURE, canonical_measure
from ray_ablation.trial import Strict

LESS_IS_BETTER = ("_ms", "_hours", "_bytes", "seconds", "parameters", "loss", "ratio")
"""Endings of the columns of which less is better."""


def _as_text(value: Any) -> Any:
    """A list of layer indices as frames spell it: "0 5 11"."""
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _as_spelt(value: Any) -> Any:
    """A measure as ir_measures spells it; any other column as it is."""
    if not isinstance(value, str) or "@" not in value:
        return value
    return canonical_measure(value)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


Level = Annotated[int | float | str, BeforeValidator(_as_text, json_schema_input_type=Any)]
Levels = Annotated[list[Level], Field(min_length=1)]
Chosen = Annotated[Levels, BeforeValidator(_as_list, json_schema_input_type=Level | Levels)]
Column = Annotated[str, BeforeValidator(_as_spelt)]


class Statement(Strict):
    """What every claim says."""

    name: Annotated[str, Field(min_length=1)]
    """A short name, unique in the study."""
    says: str = ""
    """The sentence as the author would write it."""
    of: Column
    """A measure, or a column of trials or latencies: examples_per_s, gpu_hours, p50_ms, ..."""
    on: str | None = None
    """A benchmark, "mean", or "each" for every benchmark on its own (a group counts once).
    null is the mean of a measure ("each" for dominates), and nothing for other columns."""
    axis: str
    """The field whose levels are compared; all else but the seed is kept equal."""
    where: dict[str, Chosen] = {}
    """Field -> the value, or values, of the trials it speaks of. What is left open must hold at
    each of its values."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Of the answer, after Holm's correction over the claims of a report."""

    @property
    def digest(self) -> str:
        """Hex sha256 of all it says."""
        text = json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def benchmark(self) -> str | None:
        """Where it is measured: a benchmark, "mean" or "each"; None for other columns."""
        return (self.on or "mean") if MEASURE.match(self.of) else None

    def levels_named(self) -> Iterator[tuple[str, Any]]:
        """The levels of its axis that it names, each with the field that names it."""
        for name in ("a", "b", "level", "before", "after"):
            if hasattr(self, name):
                yield name, getattr(self, name)
        for name in ("over", "levels"):
            for index, level in enumerate(getattr(self, name, None) or []):
                yield f"{name}[{index}]", level


class Ranked(Statement):
    """A claim that one level is better than others."""

    level: Level
    """The level that is said to be better."""
    better: Literal["higher", "lower"] | None = None
    """Which values are better; null takes lower for times, sizes and losses, else higher."""

    @property
    def sign(self) -> int:
        """+1 where higher values are better, -1 where lower ones are."""
        lower = self.of.endswith(LESS_IS_BETTER) if self.better is None else self.better == "lower"
        return -1 if lower else 1


class Difference(Statement):
    """Level a lies above level b, or below it."""

    kind: Literal["difference"]
    a: Level
    """The level that is said to differ."""
    b: Level
    """The level it is compared with."""
    direction: Literal["above", "below"] = "above"
    """Where a lies, seen from b."""
    by: Annotated[float, Field(ge=0)] = 0.0
    """By more than this."""


class Equivalent(Statement):
    """All levels lie within a margin of each other (two one-sided tests of every pair)."""

    kind: Literal["equivalent"]
    margin: Annotated[float, Field(gt=0)]
    """The largest difference that does not matter, in units of the column."""
    levels: Annotated[list[Level], Field(min_length=2)] | None = None
    """Which levels; null takes all."""


class Best(Ranked):
    """A level is better than each of the others."""

    kind: Literal["best"]


class TopK(Ranked):
    """A level is among the k best: better than all but k - 1 of the others."""

    kind: Literal["top_k"]
    k: Annotated[int, Field(ge=1)]
    """How many share the honour."""


class Dominates(Ranked):
    """A level is better than others on every benchmark, each on its own."""

    kind: Literal["dominates"]
    over: Levels | None = None
    """The levels it is better than; null takes all others."""

    @property
    def benchmark(self) -> str | None:
        """Every benchmark, unless it names one."""
        return "each" if self.on is None and super().benchmark else super().benchmark


class Changes(Statement):
    """The column falls, or rises, from one level to another, wherever both were tried."""

    kind: Literal["decreases", "increases"]
    before: Level
    """The level it starts from."""
    after: Level
    """The level it goes to."""
    by: Annotated[float, Field(ge=0)] = 0.0
    """By more than this."""
    most_at: Annotated[dict[str, Level], Field(min_length=1, max_length=1)] | None = None
    """Field: level where the change is largest, by the numbers there are: {depth: 12}."""


class SpreadRatio(Statement):
    """The standard deviation over seeds of one level over that of each other (F tests)."""

    kind: Literal["spread_ratio"]
    level: Level
    """The level whose spread is divided."""
    over: Levels | None = None
    """The levels whose spread it is divided by; null takes all others."""
    at_least: Annotated[float, Field(gt=0)] = 1.0
    """The ratio is larger than this."""
    at_most: Annotated[float, Field(gt=0)] | None = None
    """The ratio is smaller than this."""

    @model_validator(mode="after")
    def _ordered(self) -> "SpreadRatio":
        if self.at_most is not None and self.at_most <= self.at_least:
            raise ValueError(f"at_most must be larger than at_least {self.at_least:g}")
        return self


class Linear(Statement):
    """The means of the levels lie on a line, by the numbers there are. Without a stated line two
    levels say nothing, as two points always lie on one.
    """

    kind: Literal["linear"]
    within: Annotated[float, Field(gt=0)]
    """The largest distance from the line, in units of the column."""
    intercept: float | None = None
    """Of the line; null, with slope null, takes the line of least squares."""
    slope: float | None = None
    """Of the line, per unit of the axis."""

    @model_validator(mode="after")
    def _both(self) -> "Linear":
        if (self.intercept is None) != (self.slope is None):
            raise ValueError("intercept and slope go together; give both or neither")
        return self

    @property
    def stated(self) -> bool:
        """Whether the claim gives the line; least squares needs three levels to be wrong about."""
        return self.slope is not None


class Monotone(Statement):
    """Each level lies beyond the one before it, from the lowest level to the highest."""

    kind: Literal["monotone"]
    direction: Literal["falls", "rises"]
    """What the column does as the axis rises."""
    levels: Annotated[list[Level], Field(min_length=2)] | None = None
    """Which levels, in order; null takes all, ascending, which only numbers can be."""


class Correlates(Statement):
    """The column rises, or falls, with a number (Kendall's tau over trials, one for each benchmark
    and each combination of the open fields other than those that the axis is computed from).
    Untrained references count where the axis is steps or `where` names steps.
    """

    kind: Literal["correlates"]
    direction: Literal["falls", "rises"]
    """What the column does as the axis rises. The axis may also be examples, passes or
    in_batch_negatives."""


Claim = Annotated[
    Difference
    | Equivalent
    | Best
    | TopK
    | Dominates
    | Changes
    | SpreadRatio
    | Linear
    | Monotone
    | Correlates,
    Field(discriminator="kind"),
]
