"""Tidy pandas frames of a study, read from the ledger: what tables, figures and notebooks share.

Every frame has the rows the grid asks for, computed or not: a missing value is null, never 0.0,
and a mean over benchmarks is null when one of them is missing. Lists (`keep`, `negative_systems`)
are text here, so that every column can be grouped by and stored in parquet.
"""

import itertools
import typing
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ray_ablation.atomic import read_frame
from ray_ablation.data.beir import Benchmark
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Bm25
from ray_ablation.trial import Trial

# Scores, a row a query, and what was scored how.
Found = tuple[pd.DataFrame, dict[str, Any]]

MEAN = "mean"
"""Stands in the column `benchmark` for the mean over all of the grid's benchmarks."""

# What a finished trial's record adds to its row: (where in the record, dtype of the column).
RECORDED = {
    "parameters": ("result", "Int64"),
    "loss": ("result", "float64"),
    "eval_loss": ("result", "float64"),
    "min_eval_loss": ("result", "float64"),
    "seconds": ("result", "float64"),
    "examples_per_s": ("result", "float64"),
    "tokens_per_s": ("result", "float64"),
    "mfu": ("result", "float64"),
    "peak_bytes": ("result", "Int64"),
    "encoder_sha256": ("result", "str"),
    "weights_sha256": ("data", "str"),
    "sample_sha256": ("data", "str"),
    "device": ("execution", "str"),
    "device_name": ("execution", "str"),
    "gpu_uuid": ("execution", "str"),
    "node": ("execution", "str"),
    "threads": ("execution", "Int64"),
    "git_commit": ("code", "str"),
    "code_sha256": ("code", "str"),
    "finished_at": ("record", "str"),
}

# What a score file says of itself.
AUDIT_TYPES = {
    "trial": "str",
    "benchmark": "str",
    "benchmark_sha256": "str",
    "split": "str",
    "self_ids": "str",
    "note": "str",
    "max_length": "Int64",
    "documents": "Int64",
    "queries": "Int64",
    "truncated_documents": "float64",
    "truncated_queries": "float64",
    "ties_at_cutoff": "Int64",
    "self_ids_dropped": "Int64",
    "docs_per_s": "float64",
}


def finished_record(trial: Trial, ledger: Ledger) -> dict[str, Any] | None:
    """The record of a trial that is done, None when it is missing, damaged or of another trial.

    Model files are not looked at: a report needs none of them.
    """
    record = ledger.read_trial(trial.id)
    return record if record and record["trial"] == trial.model_dump(mode="json") else None


def trials_frame(grid: Grid, ledger: Ledger) -> pd.DataFrame:
    """One row a trial: id, experiment, state, every field, and what its record says.

    `state` is done, failed or missing; `reason` says why a trial is one of the latter two.
    """
    rows = [_trial_row(grid, trial, ledger) for trial in grid.trials]
    added = {"examples": "Int64", "passes": "float64", "in_batch_negatives": "Int64"}
    recorded = {name: dtype for name, (_, dtype) in RECORDED.items()}
    head = dict.fromkeys(("trial", "experiment", "state", "reason"), "str")
    return typed(rows, head | FIELD_TYPES | added | recorded)


def results_frame(grid: Grid, ledger: Ledger) -> pd.DataFrame:
    """One row a trial, benchmark and measure, with every field of the trial.

    The rows of a group and of benchmark "mean" hold means over benchmarks; they have no n_queries.
    """
    rows = []
    for trial in grid.trials:
        head = {"trial": trial.id, "experiment": grid.experiments[trial.id] or None}
        found = {b.name: scored(grid, trial, b, ledger) for b in grid.benchmarks}
        rows += [head | row | _fields(trial) for row in _value_rows(grid, found)]
    types = dict.fromkeys(("trial", "experiment", "benchmark", "measure"), "str")
    return typed(rows, types | {"value": "float64", "n_queries": "Int64"} | FIELD_TYPES)


def references_frame(grid: Grid, ledger: Ledger) -> pd.DataFrame:
    """One row a reference, benchmark and measure, with the means that `results_frame` has."""
    rows = []
    for reference in grid.references:
        head = {"reference": reference.label, "source": "scored here"}
        found = {b.name: _reference_scored(grid, reference, b, ledger) for b in grid.benchmarks}
        rows += [head | row for row in _value_rows(grid, found)]
    types = dict.fromkeys(("reference", "benchmark", "measure"), "str")
    return typed(rows, types | {"value": "float64", "n_queries": "Int64", "source": "str"})


def queries_frame(grid: Grid, ledger: Ledger) -> pd.DataFrame:
    """One row a trial, benchmark, query and measure, of what has been scored."""
    frames = []
    for trial, benchmark in _cells(grid):
        if found := scored(grid, trial, benchmark, ledger):
            measures = [name for name in grid.measures if name in found[0]]
            long = found[0].melt("query_id", measures, var_name="measure", value_name="value")
            long.insert(0, "benchmark", benchmark.name)
            long.insert(0, "trial", trial.id)
            frames.append(long)
    head = dict.fromkeys(("trial", "benchmark", "query_id", "measure"), "str")
    return _concatenated(frames, head | {"value": "float64"})


def training_frame(grid: Grid, ledger: Ledger) -> pd.DataFrame:
    """One row a trial and logged step: trial, then the columns of its train.parquet."""
    frames = []
    for trial in grid.trials:
        found = read_frame(ledger.train_parquet(trial.id))
        if finished_record(trial, ledger) and found and len(found[0]):
            frames.append(found[0].assign(trial=trial.id))
    types = {"trial": "str", "step": "Int64", "loss": "float64", "eval_loss": "float64"}
    return _concatenated(frames, types)


def audit_frame(grid: Grid, ledger: Ledger) -> pd.DataFrame:
    """One row a trial and benchmark that was scored: what was scored, and how."""
    rows = []
    for trial, benchmark in _cells(grid):
        if found := scored(grid, trial, benchmark, ledger):
            about = found[1]["what"] | found[1]
            head = {"trial": trial.id, "benchmark": benchmark.name, "note": benchmark.note or None}
            rows.append(head | about)
    return typed(rows, AUDIT_TYPES)


def scored(grid: Grid, trial: Trial, benchmark: Benchmark, ledger: Ledger) -> Found | None:
    """Per-query scores of a finished trial, and what was scored how.

    None when there are none, or those there are of another encoder or other settings than the
    grid's now.
    """
    record = finished_record(trial, ledger)
    if record is None:
        return None
    asked = {
        "encoder_sha256": record["result"]["encoder_sha256"],
        "max_length": grid.evaluation.max_length or trial.max_length,
        "dtype": grid.evaluation.dtype,
    }
    file = ledger.scores_parquet(trial.id, benchmark.name)
    return _as_asked(grid, benchmark, ledger, file, asked)


def _reference_scored(
    grid: Grid, reference: Bm25, benchmark: Benchmark, ledger: Ledger
) -> Found | None:
    # Its id, a part of the file's name, is the hash of its settings.
    file = ledger.reference_scores_parquet(reference.id, benchmark.name)
    return _as_asked(grid, benchmark, ledger, file, {})


def _as_asked(
    grid: Grid, benchmark: Benchmark, ledger: Ledger, file: Path, asked: dict[str, Any]
) -> Found | None:
    """A score file, None when it is missing, damaged, or not of what the grid asks now."""
    found = ledger.read_frame(file)
    asked = asked | {
        "split": benchmark.split,
        "self_ids": benchmark.self_ids,
        "k": grid.evaluation.k,
    }
    # Another study may have scored other contents under the same name.
    if contents := ledger.study_benchmarks(grid.name).get(benchmark.name):
        asked["benchmark_sha256"] = contents
    return found if found and asked.items() <= found[1]["what"].items() else None


def _cells(grid: Grid) -> Iterator[tuple[Trial, Benchmark]]:
    return itertools.product(grid.trials, grid.benchmarks)


def _trial_row(grid: Grid, trial: Trial, ledger: Ledger) -> dict[str, Any]:
    record = finished_record(trial, ledger)
    state, reason = ("done", None) if record else _unfinished(trial, ledger)
    parts = record or {}
    return {
        "trial": trial.id,
        "experiment": grid.experiments[trial.id] or None,
        "state": state,
        "reason": reason,
        **_fields(trial),
        "examples": trial.examples if trial.steps else None,
        "passes": trial.passes,
        "in_batch_negatives": trial.in_batch_negatives,
        **{name: parts.get(part, {}).get(name) for name, (part, _) in RECORDED.items()},
        "node": parts.get("execution", {}).get("node") or parts.get("execution", {}).get("host"),
        "code_sha256": parts.get("code", {}).get("sha256"),
        "finished_at": parts.get("finished_at"),
    }


def _unfinished(trial: Trial, ledger: Ledger) -> tuple[str, str]:
    if failure := ledger.failure(trial.id):
        return "failed", str(failure["reason"])
    if ledger.trial_json(trial.id).exists():
        return "missing", "its trial.json is damaged, or of another trial"
    return "missing", "not trained yet"


def _value_rows(grid: Grid, by_benchmark: dict[str, Found | None]) -> Iterator[dict[str, Any]]:
    """Means over queries by benchmark and measure, then over groups, then over benchmarks.

    A group counts once in the mean over benchmarks.
    """
    values: dict[tuple[str, str], float | None] = {}
    for (benchmark, found), measure in itertools.product(by_benchmark.items(), grid.measures):
        known = found is not None and measure in found[0]
        value = float(found[0][measure].mean(skipna=False)) if known and found else None
        values[benchmark, measure] = value
        n = len(found[0]) if found else None
        yield {"benchmark": benchmark, "measure": measure, "value": value, "n_queries": n}
    groups: dict[str, list[str]] = {}
    for one in grid.benchmarks:
        if one.group:
            groups.setdefault(one.group, []).append(one.name)
    counted = list(dict.fromkeys(one.group or one.name for one in grid.benchmarks))
    for name, members in [*groups.items(), (MEAN, counted)]:
        for measure in grid.measures:
            value = values[name, measure] = _mean([values[part, measure] for part in members])
            yield {"benchmark": name, "measure": measure, "value": value, "n_queries": None}


def _mean(parts: list[float | None]) -> float | None:
    """The mean, None when a part is missing."""
    known = [part for part in parts if part is not None]
    return sum(known) / len(parts) if len(known) == len(parts) else None


def _fields(trial: Trial) -> dict[str, Any]:
    return {name: plain(value) for name, value in trial.fields().items()}


def plain(value: Any) -> Any:
    """A field's value as a table can hold it: a list becomes its items, "all" when empty."""
    return (" ".join(map(str, value)) or "all") if isinstance(value, list) else value


def typed(rows: list[dict[str, Any]], types: dict[str, str]) -> pd.DataFrame:
    """Rows as a frame with these columns and dtypes; what a row lacks is null."""
    frame = pd.DataFrame(rows, columns=list(types), dtype=object)
    return frame.astype(types)


def _concatenated(frames: list[pd.DataFrame], types: dict[str, str]) -> pd.DataFrame:
    if not frames:
        return typed([], types)
    frame = pd.concat(frames, ignore_index=True)
    known = {name: dtype for name, dtype in types.items() if name in frame}
    return frame[[*known, *(name for name in frame if name not in known)]].astype(known)


def _dtype(annotation: Any) -> str:
    """The dtype of a field of `Trial`: nulls stay nulls and whole numbers whole."""
    kinds = set(_leaves(annotation))
    if float in kinds:
        return "float64"
    return "Int64" if int in kinds and not kinds & {str, tuple} else "str"


def _leaves(annotation: Any) -> Iterable[Any]:
    if typing.get_origin(annotation) in (tuple, typing.Literal):
        return [typing.get_origin(annotation)]
    parts = typing.get_args(annotation)
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [annotation]


FIELD_TYPES = {name: _dtype(info.annotation) for name, info in Trial.model_fields.items()}
