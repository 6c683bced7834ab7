"""A study's latency as a frame: each trial with the figures of its architecture."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from ray_ablation.frames import typed
from ray_ablation.grid import Grid
from ray_ablation.latency.samples import STAGES
from ray_ablation.ledger import Ledger
from ray_ablation.trial import Trial

LATENCY_TYPES = {
    "trial": "str",
    "profile": "str",
    "device": "str",
    "processor": "str",
    "dtype": "str",
    "batch": "Int64",
    "inputs": "str",
    "variant": "str",
    "length": "Int64",
    "arm": "str",
    "measured": "str",
    "n_processes": "Int64",
    "n_calls": "Int64",
    "p50_ms": "float64",
    "p50_lo_ms": "float64",
    "p50_hi_ms": "float64",
    "p90_ms": "float64",
    "p95_ms": "float64",
    "p99_ms": "float64",
    "mean_ms": "float64",
    "min_ms": "float64",
    **{f"{stage}_ms": "float64" for stage in STAGES},
    "device_busy_ms": "float64",
    "host_bound_ratio": "float64",
    "stall_share": "float64",
    "stall_ms": "float64",
    "stall_cause": "str",
    "quantiles_ms": "object",
    "process_p50_ms": "object",
    "ratio": "float64",
    "ratio_lo": "float64",
    "ratio_hi": "float64",
    "reference": "str",
    "verdict": "str",
    "reasons": "str",
}


_TAKEN = (
    "variant",
    "arm",
    "measured",
    "n_processes",
    "n_calls",
    "p90_ms",
    "p95_ms",
    "p99_ms",
    "mean_ms",
    "min_ms",
    "device_busy_ms",
    "host_bound_ratio",
    "quantiles_ms",
    "process_p50_ms",
    "verdict",
)
"""Columns that a result of latency.json has under the same name."""


def latency_frame(grid: Grid, ledger: Ledger) -> pd.DataFrame:
    """One row a trial, length and arm of the study's profile; one with nulls where there is none.

    Trials of one architecture share a measurement. `ratio` is over the profile's reference;
    `quantiles_ms` and `process_p50_ms` are lists. What an older profile lacks is null.
    """
    profile = ledger.study_profile(grid.name) or {}
    rows = [row for trial in grid.trials for row in _latency_rows(trial, profile)]
    return typed(rows, LATENCY_TYPES)


def _latency_rows(trial: Trial, profile: dict[str, Any]) -> Iterator[dict[str, Any]]:
    variant = _variant(trial, profile)
    results = [one for one in profile.get("results", []) if one["variant"] == variant]
    if not results:
        yield {"trial": trial.id}
    node = profile.get("node", {})
    for result in results:
        ratio, stall = _ratio(result, profile), result.get("stall") or {}
        yield {
            **{name: profile.get(name) for name in ("device", "dtype", "batch", "inputs")},
            "trial": trial.id,
            "profile": profile.get("profile_id"),
            "processor": node.get("gpu") or node.get("cpu"),
            "reference": profile.get("reference"),
            "length": result["seq"],
            "p50_ms": result["p50_ms"]["est"],
            "p50_lo_ms": result["p50_ms"]["lo"],
            "p50_hi_ms": result["p50_ms"]["hi"],
            "ratio": ratio.get("est"),
            "ratio_lo": ratio.get("lo"),
            "ratio_hi": ratio.get("hi"),
            "reasons": ", ".join(reason["code"] for reason in result["reasons"]),
            **{f"{stage}_ms": ms for stage, ms in (result.get("stages_ms") or {}).items()},
            "stall_share": stall.get("share"),
            "stall_ms": stall.get("median_ms"),
            "stall_cause": stall.get("attribution"),
            **{name: result.get(name) for name in _TAKEN},
        }


def _variant(trial: Trial, profile: dict[str, Any]) -> str | None:
    """The name of a trial's architecture in a profile."""
    fields = ("backbone", "backbone_revision", "depth", "pooling")
    own = [getattr(trial, name) for name in fields]
    variants = profile.get("variants", {}).items()
    return next((name for name, one in variants if [one[f] for f in fields] == own), None)


def _ratio(result: dict[str, Any], profile: dict[str, Any]) -> dict[str, Any]:
    """A result over the reference; 1 without an interval for the reference itself."""
    place = (result["variant"], result["seq"], result["arm"])
    if result["variant"] == profile["reference"]:
        return {"est": 1.0} if result["p50_ms"]["est"] is not None else {}
    ratios = profile.get("ratios", [])
    return next((one for one in ratios if (one["a"], one["seq"], one["arm"]) == place), {})
