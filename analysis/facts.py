"""Facts: every number of a study in one tidy frame, which is all that claims are held against.

One row a number: whose it is (trial, its fields), what it is (benchmark, column) and the value. A
number that was asked for and is missing is a row with a null value, so that an answer can say which
trial would give it.

A field that has no effect on a number is null in its row. A latency belongs to an architecture, not
to the trials that share it: it has one row, with the fields of training null, or twenty trials
would look like twenty measurements.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.imported_means import group_of
from analysis.table import missing
from ray_ablation.claim_world import DERIVED, PROFILED, RECORDED, World, spelt
from ray_ablation.frames import MEAN
from ray_ablation.problems import UserError
from ray_ablation.trial import Trial

ARCHITECTURE = ("backbone", "backbone_revision", "depth", "pooling")
"""The fields that a latency depends on."""

GPU_DEVICES = ("cuda",)


@dataclass(frozen=True)
class Facts:
    """What a study knows.

    Attributes:
        observations: Columns trial, the fields, those of `claim_world.DERIVED`, benchmark (null for
            columns that have none), column, value (null when missing), finished_at (null for
            imported trials).
        fields: The columns in which observations may differ, "seed" among them, and "length" of
            what was profiled.
        imported: Whether the trials were run elsewhere, so that nobody knows when.
        groups: Benchmark -> its group, besides those of the public benchmarks.
    """

    observations: pd.DataFrame
    fields: tuple[str, ...]
    imported: bool = False
    groups: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The observations as plain values, None where null."""
        rows: list[dict[Any, Any]] = self.observations.to_dict("records")
        return [{k: None if missing(v) else v for k, v in row.items()} for row in rows]

    @cached_property
    def benchmarks(self) -> list[str]:
        """Their names, without the mean."""
        found = dict.fromkeys(row["benchmark"] for row in self.rows)
        return [name for name in found if name not in (None, MEAN)]

    @cached_property
    def each(self) -> list[str]:
        """What a claim about each benchmark speaks of: a group counts once, its parts do not."""
        return [name for name in self.benchmarks if self._group(name) not in self.benchmarks]

    def _group(self, benchmark: str) -> str | None:
        return self.groups.get(benchmark) or group_of(benchmark)

    @cached_property
    def varying(self) -> list[str]:
        """The fields with more than one value, in order."""
        known = {name: {row[name] for row in self.rows} - {None} for name in self.fields}
        return [name for name in self.fields if len(known[name]) > 1]

    def world(self) -> World:
        """What claims may speak of."""
        trials = {
            tuple(row[name] for name in self.fields): {name: row[name] for name in self.fields}
            for row in self.rows
        }
        columns = dict.fromkeys(row["column"] for row in self.rows)
        # Of a column that nobody recorded a claim is unanswered, not misspelt.
        columns |= dict.fromkeys([*RECORDED, *PROFILED])
        return World(list(trials.values()), list(columns), self.benchmarks)


def facts(
    trials: pd.DataFrame,
    results: pd.DataFrame,
    latency: pd.DataFrame,
    axes: Sequence[str] = (),
    *,
    imported: bool = False,
    groups: Mapping[str, str] | None = None,
) -> Facts:
    """Collect the numbers of a study's frames.

    Args:
        trials: `frames.trials_frame`.
        results: `frames.results_frame`.
        latency: `latency.frame.latency_frame`.
        axes: Columns of `trials` in which trials differ, besides the fields of a trial.
        imported: Whether the trials were run elsewhere.
        groups: Benchmark -> its group, besides those of the public benchmarks.
    """
    fields = list(dict.fromkeys([*(n for n in Trial.model_fields if n in trials), *axes]))
    null = "unknown" if imported else "none"
    heads = {row["trial"]: _head(row, fields, null) for row in _records(trials)}
    rows = [*_scores(results, heads), *_recorded(trials, heads)]
    rows += _latencies(latency, heads)
    fields.append("length")
    names = ["trial", *fields, *DERIVED, "benchmark", "column", "value", "finished_at"]
    observations = pd.DataFrame(rows, columns=names, dtype=object)
    return Facts(observations, tuple(fields), imported, groups or {})


def _head(row: dict[str, Any], fields: Sequence[str], null: str) -> dict[str, Any]:
    """What all numbers of a trial share."""
    rest = {name: row.get(name) for name in ("trial", *DERIVED, "finished_at")}
    return rest | spelt({name: row[name] for name in fields}, null)


def _scores(results: pd.DataFrame, heads: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in _records(results):
        cell = {"benchmark": row["benchmark"], "column": row["measure"], "value": row["value"]}
        yield heads[row["trial"]] | cell


def _recorded(trials: pd.DataFrame, heads: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What was recorded of training; a finished trial without a number has none to give."""
    for row in _records(trials):
        if row.get("gpu_hours") is None and row.get("device") in GPU_DEVICES:
            row["gpu_hours"] = row["seconds"] / 3600 if row.get("seconds") is not None else None
        for column in RECORDED:
            value = row.get(column)
            if value is not None or row["state"] in ("missing", "failed"):
                yield heads[row["trial"]] | {"column": column, "value": value}


def _latencies(latency: pd.DataFrame, heads: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row an architecture; one a trial where trials of one architecture differ, as imported
    ones may that were each profiled on their own.
    """
    places: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in _records(latency):
        own = {name: heads[row["trial"]].get(name) for name in ARCHITECTURE}
        places.setdefault((*own.values(), row["length"]), []).append(row | own)
    for rows in places.values():
        shared = len({tuple(row[column] for column in PROFILED) for row in rows}) == 1
        for row in rows[:1] if shared else rows:
            head = heads[row["trial"]]
            kept = ("trial", "finished_at", *ARCHITECTURE) if shared else head
            own = {name: head[name] for name in kept if name in head} | {"length": row["length"]}
            for column in PROFILED:
                yield own | {"column": column, "value": row[column]}


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with None for what is missing, numbers that are none included.

    Raises:
        UserError: A number is infinite.
    """
    rows: list[dict[Any, Any]] = frame.to_dict("records")
    for row in rows:
        for name, value in row.items():
            if isinstance(value, float) and math.isinf(value):
                raise UserError(f"trial {row['trial']}: {name} is {value}; a number is needed")
    return [{k: None if missing(v) else v for k, v in row.items()} for row in rows]
