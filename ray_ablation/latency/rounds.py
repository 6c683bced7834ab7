"""Rounds of a profile: unit after unit in fresh processes, until the figures are tight.

A round measures every encoder once more. After the asked number, more are added as long as the
interval of some p50 over processes is wide, a budget leaves room, and there is a round left.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ray_ablation.atomic import read_frame, read_json, write_json
from ray_ablation.latency import estimate, plan
from ray_ablation.latency.lease import Holder, LeaseError
from ray_ablation.latency.plan import CANARIES, Architecture
from ray_ablation.latency.samples import BLOCKS, MARKED_SAMPLES, join
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Latency

UNIT_LIMIT_S = 1800.0
"""For one process; less where the grid sets a budget."""
GATE_LIMIT_S = 60.0
"""To wait for a quiet machine, all processes together; then they start all the same, and the record
says so."""
END_S = 2.0
"""Kept of a budget for the figures themselves."""
WRITE_S = 2.0
"""Kept of a process's time for its samples; a tenth where that is more."""


@dataclass(frozen=True)
class Budget:
    """Seconds of wall time for a whole profile, None for no limit."""

    seconds: float | None
    started: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def share(self, most: float, part: float = 1.0) -> float:
        """`most`, or if that is less, a part of what is left."""
        if self.seconds is None:
            return most
        return max(0.0, min(most, part * (self.seconds - END_S - self.spent)))


@dataclass(frozen=True)
class Job:
    """A profile to be measured.

    Attributes:
        folder: Where it is written, absolute.
        what: What its id says besides the node.
        dtype: As measured; a CPU profiles fp32.
        folders: Where each encoder lies on the nodes; kept out of plan.json.
    """

    identifier: str
    folder: Path
    node: dict[str, Any]
    what: dict[str, Any]
    dtype: str
    latency: Latency
    found: list[Architecture]
    folders: dict[str, str]
    budget: Budget
    ledger: Ledger


@dataclass(frozen=True)
class Measured:
    """What the processes left.

    Attributes:
        units: Per unit: unit, round, kind, gate, error or None, seconds.
        processes: What each that finished said of itself, with its unit and kind.
    """

    units: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    samples: pd.DataFrame
    blocks: pd.DataFrame


def measure(job: Job, holder: Holder) -> Measured:
    """Run rounds until the figures are tight; a unit that fails leaves no samples, others go on."""
    shutil.rmtree(job.folder / "units", ignore_errors=True)
    rounds = plan.units(job.identifier, job.found, job.latency, job.dtype, job.node["device"])
    head = {"format": 1, "profile_id": job.identifier, "what": job.what, "node": job.node}
    write_json(job.folder / "plan.json", head | {"rounds": rounds})
    ended: list[dict[str, Any]] = []
    processes: list[dict[str, Any]] = []
    for number, units in enumerate(rounds):
        needed = [unit for units in rounds[number : job.latency.rounds] for unit in units]
        if not needed and (is_tight(processes) or not _fits(job, ended, len(units))):
            break
        for index, unit in enumerate(units):
            ended.append(_run(job, holder, unit, needed[index:] or units[index:], ended))
            if ended[-1]["error"] is None:
                result = read_json(unit_folder(job, unit) / "result.json") or {}
                processes.append({"unit": unit["unit"], "kind": unit["kind"]} | result)
    return Measured(
        units=ended,
        processes=processes,
        samples=join(_frames(job, processes, "samples.parquet"), MARKED_SAMPLES),
        blocks=join(_frames(job, processes, "blocks.parquet"), BLOCKS),
    )


def is_tight(processes: Sequence[dict[str, Any]]) -> bool:
    """Whether the interval of every p50 over processes is within `estimate.TIGHT` of it.

    The canaries do not count, and where encoders were measured alone, only that does.
    """
    alone = [process for process in processes if process["kind"] == "solo"]
    p50s: dict[tuple[str, str], list[float]] = {}
    for process in alone or processes:
        for name, by_length in process["p50_ms"].items():
            for length, p50 in by_length.items():
                p50s.setdefault((name, length), []).append(p50)
    widths = [
        estimate.over_processes(values).half_width
        for (name, _), values in p50s.items()
        if name not in CANARIES
    ]
    return all(width is not None and width <= estimate.TIGHT for width in widths)


def _weight(unit: dict[str, Any]) -> int:
    """What a unit takes beside others; to start a process takes about as long as two encoders."""
    return 2 + len(unit["variants"])


def _fits(job: Job, ended: Sequence[dict[str, Any]], units: int) -> bool:
    """Whether the budget has room for one more round of so many units."""
    took = sum(unit["seconds"] or 0.0 for unit in ended[-units:])
    return job.budget.share(took) >= took


def _run(
    job: Job,
    holder: Holder,
    unit: dict[str, Any],
    to_come: Sequence[dict[str, Any]],
    ended: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Wait for a quiet machine and run a unit within its share of what the budget leaves."""
    gate, waited_s = None, sum(one["gate"]["waited_s"] for one in ended if one["gate"])
    try:
        patience_s = max(0.0, GATE_LIMIT_S - waited_s)
        gate = holder.wait_quiet(job.budget.share(patience_s, 0.1 / len(to_come)))
        weight = _weight(unit) / sum(map(_weight, to_come))
        limit_s = job.budget.share(UNIT_LIMIT_S, weight)
        soft_s = limit_s - max(WRITE_S, 0.1 * limit_s)
        if soft_s <= 0:
            raise LeaseError(f"not started: {job.latency.budget_s} s of budget are over")
        folder = str(unit_folder(job, unit))
        outcome = asdict(holder.run(folder, unit | {"folders": job.folders}, limit_s, soft_s))
        job.ledger.fetch(unit_folder(job, unit))
    except LeaseError as error:
        outcome = {"error": str(error), "seconds": None}
    about = {name: unit[name] for name in ("unit", "round", "kind")}
    return about | {"gate": gate} | outcome


def unit_folder(job: Job, unit: dict[str, Any]) -> Path:
    """Where a unit's files are until they are joined."""
    return job.folder / "units" / str(unit["unit"])


def _frames(job: Job, processes: Sequence[dict[str, Any]], name: str) -> list[pd.DataFrame]:
    found = [read_frame(unit_folder(job, process) / name) for process in processes]
    return [frame for frame, _ in filter(None, found)]
