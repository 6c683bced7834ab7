"""A study made of imported rows: the frames that the ledger gives for a grid, of what is stated.

Trials are told apart by the fields that are stated. Their state is "imported": there is no encoder,
no per-query score and no record of how they came about, and whatever needs one says so.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.configurations import short
from analysis.imported import CELL
from analysis.imported_means import group_of
from analysis.study import REFERENCE_TYPES, Study
from analysis.table import missing
from ray_ablation.atomic import digest_of
from ray_ablation.claim import Statement
from ray_ablation.frames import AUDIT_TYPES, FIELD_TYPES, MEAN, RECORDED, typed
from ray_ablation.latency.frame import LATENCY_TYPES
from ray_ablation.trial import Trial

LABELS = {"depth": "L{}", "batch": "b{}", "steps": "{}", "seed": "s{}"}
IMPORTED = "imported"


def study_of(
    rows: pd.DataFrame,
    *,
    name: str,
    description: str,
    source: str,
    claims: Sequence[Statement] = (),
    benchmarks: Sequence[str] = (),
    hours: pd.DataFrame | None = None,
) -> Study:
    """A study of tidy rows.

    Args:
        rows: What `imported.tidy` gives.
        name: The study's name.
        description: What it asks.
        source: Where the rows come from, in words.
        claims: The sentences that are held against it.
        benchmarks: In their order; that of the rows unless given.
        hours: What the work took by its own account.
    """
    rows = rows.assign(trial=_trial_ids(rows))
    met = [name for name in rows["benchmark"].unique() if name != MEAN]
    benchmarks = tuple(dict.fromkeys([*(b for b in benchmarks if b in met), *met]))
    measures = tuple(rows["measure"].unique())
    grouped = {name: group for name in benchmarks if (group := group_of(name))}
    groups = {name: group for name, group in grouped.items() if group not in benchmarks}
    trials = _trials(rows)
    axes = _axes(trials)
    trained = trials[trials["steps"].isna() | (trials["steps"] > 0)]
    same = {name: trained[name].dropna().unique().tolist() for name in FIELD_TYPES}
    return Study(
        name=name,
        description=description,
        product=f"{len(trials)} trials, imported as {len(rows)} rows",
        axes=axes,
        common={n: v[0] for n, v in same.items() if n not in axes and len(v) == 1},
        benchmarks=benchmarks or (MEAN,),
        measures=measures,
        trials=trials,
        results=_results(rows, trials, (*benchmarks, MEAN), groups, measures),
        training=typed([], {"trial": "str", "step": "Int64", "loss": "float64"}),
        latency=_latency(trials, rows),
        audit=typed([], AUDIT_TYPES),
        references=typed([], REFERENCE_TYPES),
        claims=tuple(claims),
        groups=groups,
        notes=_notes(rows, benchmarks),
        source=source,
        hours=hours,
    )


def _notes(rows: pd.DataFrame, benchmarks: Sequence[str]) -> tuple[str, ...]:
    """That some stated means stand beside a part of their parts only."""
    known = rows[rows["value"].notna()].groupby(["trial", "measure"])["benchmark"].agg(set)
    partly = [names for names in known if MEAN in names and 1 < len(names) <= len(benchmarks)]
    if not partly:
        return ()
    means = "One mean is" if len(partly) == 1 else f"{len(partly)} means are"
    return (f"{means} as stated; not every benchmark behind is known.",)


def _trial_ids(rows: pd.DataFrame) -> list[str]:
    """What tells trials apart, in the form of an id: E-L12-80k.

    Texts may read as fields do (experiment "E-b16"): ids that meet get a digest of their fields.
    """
    stated = [name for name in ("experiment", *FIELD_TYPES) if name in rows]
    varying = [name for name in stated if rows[name].nunique(dropna=False) > 1] or stated[:1]
    columns = [rows[name].tolist() for name in varying]
    labels = [LABELS.get(name, "{}" if name == "experiment" else name + "={}") for name in varying]
    fields = [
        tuple(None if missing(value) else value for value in values)
        for values in zip(*columns, strict=True)
    ] or [()] * len(rows)
    ids = {
        values: "-".join(
            label.format(short(value))
            for label, value in zip(labels, values, strict=True)
            if value is not None
        )
        or "trial"
        for values in dict.fromkeys(fields)
    }
    used = Counter(ids.values())
    return [
        ids[values] if used[ids[values]] == 1 else f"{ids[values]}-{digest_of(values)[:8]}"
        for values in fields
    ]


def _trials(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a trial, in the order in which they come."""
    known = rows.groupby("trial", sort=False).first()  # the first value that is not missing
    found = [
        {"trial": trial, "state": IMPORTED, **row, **_derived(row)}
        for trial, row in zip(known.index, _records(known), strict=True)
    ]
    head = dict.fromkeys(("trial", "experiment", "state", "reason"), "str")
    derived = {"examples": "Int64", "passes": "float64", "in_batch_negatives": "Int64"}
    recorded = {name: dtype for name, (_, dtype) in RECORDED.items()}
    return typed(found, head | FIELD_TYPES | derived | recorded | {"gpu_hours": "float64"})


def _derived(row: dict[str, Any]) -> dict[str, Any]:
    """What follows from the fields by `Trial`'s own rules, where all of them are stated."""

    def of(what: str, *fields: str) -> Any:
        stated = {name: row.get(name) for name in fields}
        if None in stated.values() or row.get("steps") == 0:
            return None
        return getattr(Trial.model_validate({"depth": 1} | stated), what)

    return {
        "examples": of("examples", "batch", "steps"),
        "passes": of("passes", "batch", "steps", "samples"),
        "in_batch_negatives": of("in_batch_negatives", "batch", "negatives"),
    }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[Any, Any]] = frame.to_dict("records")
    return [{k: None if missing(v) else v for k, v in row.items()} for row in rows]


def _axes(trials: pd.DataFrame) -> tuple[str, ...]:
    """The fields that differ, and the experiment where they do not tell all trials apart."""
    trained = trials["steps"].isna() | (trials["steps"] > 0)
    varying = [
        name
        for name in FIELD_TYPES
        if trials[name].nunique() > 1 or trials.loc[trained, name].nunique(dropna=False) > 1
    ]
    unknown = trials.loc[trained, "seed"].isna().any()  # then a seed tells nothing apart
    telling = [name for name in varying if name != "seed" or not unknown]
    kinds = trials.drop_duplicates([*telling, "experiment"])
    told_apart = not kinds.duplicated(telling).any() if telling else len(kinds) < 2
    return tuple(varying) if told_apart else (*varying, "experiment")


def _results(
    rows: pd.DataFrame,
    trials: pd.DataFrame,
    names: Sequence[str],
    groups: dict[str, str],
    measures: Sequence[str],
) -> pd.DataFrame:
    """A row a trial, benchmark (groups and the mean as well) and measure, stated or not."""
    keys = [tuple(key) for key in rows[["trial", *CELL]].to_numpy().tolist()]
    values: dict[Any, Any] = dict(zip(keys, rows["value"].tolist(), strict=True))
    counts = rows["n_queries"].tolist() if "n_queries" in rows else [None] * len(rows)
    queries: dict[Any, Any] = dict(zip(keys, counts, strict=True))
    parts = {group: [b for b in groups if groups[b] == group] for group in groups.values()}
    parts[MEAN] = list(dict.fromkeys(groups.get(b, b) for b in names if b != MEAN))
    made = []
    for trial in _records(trials[["trial", "experiment", *FIELD_TYPES]]):
        for benchmark, measure in itertools.product(dict.fromkeys([*names[:-1], *parts]), measures):
            place = (trial["trial"], benchmark, measure)
            if benchmark in parts and missing(values.get(place)):
                values[place] = _mean(
                    [values.get((trial["trial"], b, measure)) for b in parts[benchmark]]
                )
            cell = {"benchmark": benchmark, "measure": measure, "value": values.get(place)}
            made.append(trial | cell | {"n_queries": queries.get(place)})
    head = dict.fromkeys(("trial", "experiment", "benchmark", "measure"), "str")
    return typed(made, head | {"value": "float64", "n_queries": "Int64"} | FIELD_TYPES)


def _mean(parts: list[Any]) -> float | None:
    """The mean, None when a part is missing or there is none."""
    if not parts or any(missing(part) for part in parts):
        return None
    return math.fsum(parts) / len(parts)


def _latency(trials: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The stated times; trials of one depth share theirs unless times of a depth differ."""
    times = [name for name in ("p50_ms", "p95_ms", "mean_ms") if name in rows]
    stated = rows.groupby("trial", sort=False)[times].first().reset_index()
    known = trials[["trial", "depth"]].merge(stated, on="trial")
    distinct = known.dropna(subset=times, how="all").drop_duplicates(["depth", *times])
    shared = bool(times) and distinct["depth"].notna().all() and distinct["depth"].is_unique
    if shared:
        known[times] = known.groupby("depth")[times].transform("first")
    made = []
    for row in _records(known):
        variant = f"L{row['depth']}" if shared else row["trial"]
        about = {"variant": variant, "verdict": IMPORTED, "reasons": "no raw samples"}
        made.append(row | (about if any(row[name] is not None for name in times) else {}))
    return typed(made, LATENCY_TYPES)
