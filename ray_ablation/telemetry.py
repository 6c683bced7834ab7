"""Gauges for Ray's dashboard and whatever scrapes its metrics.

Ray prefixes a name with `ray_`, so ablation_loss is exported as ray_ablation_loss;
`cluster/grafana.json` draws them all. Each can be set in the driver or in a worker, and does
nothing in a process without Ray.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import ray
from ray.util.metrics import Gauge

PHASES = ("train", "evaluate", "profile")
TRAINING = ("step", "loss", "examples_per_s", "mfu", "peak_bytes")


def phase(name: str | None) -> None:
    """Mark the phase that runs as 1 and the others as 0; None ends the last one."""
    for known in PHASES:
        _set("ablation_phase", float(known == name), phase=known)


def trials(counts: Mapping[str, int]) -> None:
    """How many trials are in each state."""
    for state, count in counts.items():
        _set("ablation_trials", count, state=state)


def training(trial_id: str, row: Mapping[str, Any]) -> None:
    """Step, loss, speed and memory of a trial, those that the row has."""
    for key in TRAINING:
        if row.get(key) is not None:
            _set(f"ablation_{key}", row[key], trial=trial_id)


def documents_per_s(benchmark: str, value: float) -> None:
    """How fast a corpus is being embedded."""
    _set("ablation_documents_per_s", value, benchmark=benchmark)


def _set(name: str, value: float, **tags: str) -> None:
    if ray.is_initialized():
        _gauge(name, tuple(tags)).set(value, tags)


@cache
def _gauge(name: str, tag_keys: tuple[str, ...]) -> Gauge:
    return Gauge(name, description=DESCRIPTIONS[name], tag_keys=tag_keys)


DESCRIPTIONS = {
    "ablation_phase": "1 for the phase that runs",
    "ablation_trials": "Trials by state",
    "ablation_step": "Optimizer steps done",
    "ablation_loss": "Training loss",
    "ablation_examples_per_s": "Queries trained on per second",
    "ablation_mfu": "Model FLOPs utilisation, 0..1",
    "ablation_peak_bytes": "Most memory allocated on the GPU; on a CPU what the process holds",
    "ablation_documents_per_s": "Documents embedded per second",
}
