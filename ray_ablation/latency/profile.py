"""The last phase: when nothing else runs, time one encoder per architecture and write the record.

    latency/<profile id>/plan.json            what was to be done, in which order, from which seeds
                         samples.parquet      one row a call
                         blocks.parquet       one row a block: the guards' counters
                         environment.json     machine and libraries, of the first process
                         latency.json         the figures; the done mark, written last
                         units/<n>/           log of a process that failed
    studies/<name>/profile.json               {profile_id}: the profile of a study

A study keeps the profile it points to as long as that is of the same architectures and settings,
wherever its report is made again: a laptop must not replace the figures of the machine they are
of. Remove `profile.json` to measure anew.

Separate from lease.py because this is about what is measured, and that about where.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ray_ablation.atomic import read_frame, read_json, write_frame, write_json
from ray_ablation.grid import Grid
from ray_ablation.latency import plan, summary
from ray_ablation.latency.lease import HOLD_LIMIT_S, Holder, LeaseError, hold
from ray_ablation.latency.plan import CANARY, Architecture
from ray_ablation.latency.record import complete, enter, stored
from ray_ablation.latency.samples import BLOCKS, MARKED_SAMPLES, join
from ray_ablation.ledger import Ledger
from ray_ablation.problems import Failure
from ray_ablation.settings import Latency
from ray_ablation.trial import Trial

UNIT_LIMIT_S = 1800.0
"""For one process; less where the grid sets a budget."""
GATE_LIMIT_S = 60.0
"""To wait for a quiet host; then measuring starts all the same, and the record says so."""
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


@dataclass(frozen=True)
class Measured:
    """What the processes left.

    Attributes:
        units: Per unit: unit, round, error or None, seconds.
        processes: What each that finished said of itself, with its unit.
    """

    gates: dict[str, Any]
    units: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    samples: pd.DataFrame
    blocks: pd.DataFrame


def profile(
    grid: Grid, trials: Sequence[Trial], ledger: Ledger, *, local: bool = False
) -> list[Failure]:
    """Profile the trained encoders of a study, unless its profile is there.

    Args:
        grid: Its latency fields and device are read; latency null profiles nothing.
        trials: Those that are not trained are left out.
        ledger: Every node must see its root.
        local: Measure on this machine without Ray; else Ray must be connected.

    Returns:
        Encoders and processes that failed; the others are in the record.
    """
    found = plan.architectures(trials, ledger)
    if grid.latency is None or not found or stored(grid, trials, ledger) is not None:
        return []
    budget = Budget(grid.latency.budget_s)
    try:
        with hold(grid.execution.device, local, budget.share(HOLD_LIMIT_S)) as holder:
            job = _job(grid.latency, found, ledger, holder.node(), budget)
            earlier = complete(job.identifier, ledger)
            measured = None if earlier else _measure(job, holder)
    except LeaseError as error:
        return [Failure("latency", str(error))]
    if measured is not None:
        failures = _write(job, measured)
    else:
        failures = []
        enter(found, job.identifier, ledger)
    write_json(ledger.profile_json(grid.name), {"profile_id": job.identifier})
    return failures


def _job(
    latency: Latency,
    found: list[Architecture],
    ledger: Ledger,
    node: dict[str, Any],
    budget: Budget,
) -> Job:
    what = plan.what(found, latency)
    identifier = plan.profile_id(what, node)
    return Job(
        identifier=identifier,
        folder=ledger.latency_dir(identifier).resolve(),
        node=node,
        what=what,
        dtype="fp32" if node["device"] == "cpu" else latency.dtype,
        latency=latency,
        found=found,
        folders={one.name: str(ledger.model_dir(one.trial).resolve()) for one in found},
        budget=budget,
    )


def _measure(job: Job, holder: Holder) -> Measured:
    """Run the units one after the other; one that fails leaves no samples and the others go on."""
    shutil.rmtree(job.folder / "units", ignore_errors=True)
    gates = holder.wait_quiet(job.budget.share(GATE_LIMIT_S, 0.1))
    units = plan.units(job.identifier, job.found, job.latency, job.dtype, job.node["device"])
    head = {"format": 1, "profile_id": job.identifier, "what": job.what, "node": job.node}
    write_json(job.folder / "plan.json", head | {"units": units})
    ended, processes = [], []
    for number, unit in enumerate(units):
        limit_s = job.budget.share(UNIT_LIMIT_S, 1 / (len(units) - number))
        ended.append(_run(job, holder, unit, limit_s))
        if ended[-1]["error"] is None:
            result = read_json(_unit_folder(job, unit) / "result.json") or {}
            processes.append({"unit": unit["unit"]} | result)
    return Measured(
        gates=gates,
        units=ended,
        processes=processes,
        samples=join(_frames(job, processes, "samples.parquet"), MARKED_SAMPLES),
        blocks=join(_frames(job, processes, "blocks.parquet"), BLOCKS),
    )


def _run(job: Job, holder: Holder, unit: dict[str, Any], limit_s: float) -> dict[str, Any]:
    soft_s = limit_s - max(WRITE_S, 0.1 * limit_s)
    try:
        if soft_s <= 0:
            raise LeaseError(f"not started: {job.latency.budget_s} s of budget are over")
        folder = str(_unit_folder(job, unit))
        outcome = holder.run(folder, unit | {"folders": job.folders}, limit_s, soft_s)
        ended = asdict(outcome)
    except LeaseError as error:
        ended = {"error": str(error), "seconds": None}
    return {"unit": unit["unit"], "round": unit["round"]} | ended


def _unit_folder(job: Job, unit: dict[str, Any]) -> Path:
    return job.folder / "units" / str(unit["unit"])


def _frames(job: Job, processes: Sequence[dict[str, Any]], name: str) -> list[pd.DataFrame]:
    found = [read_frame(_unit_folder(job, process) / name) for process in processes]
    return [frame for frame, _ in filter(None, found)]


def _write(job: Job, measured: Measured) -> list[Failure]:
    """Write the profile, latency.json last; what failed."""
    failures = _failures(job, measured)
    about = {"profile_id": job.identifier}
    write_frame(job.folder / "samples.parquet", measured.samples, about)
    write_frame(job.folder / "blocks.parquet", measured.blocks, about)
    if measured.processes:
        first = _unit_folder(job, measured.processes[0])
        write_json(job.folder / "environment.json", read_json(first / "environment.json") or {})
    for process in measured.processes:
        shutil.rmtree(_unit_folder(job, process))
    asked = job.what["latency"]
    record = {
        "format": 1,
        "profile_id": job.identifier,
        "what": job.what,
        "node": job.node,
        "device": job.node["device"],
        "dtype_asked": job.latency.dtype,
        "dtype": job.dtype,
        "threads": plan.THREADS,
        "batch": job.latency.batch,
        "inputs": job.latency.inputs,
        **summary.summarise(
            measured.samples,
            measured.blocks,
            measured.processes,
            job.found,
            asked,
            job.node["device"],
        ),
        "gates": measured.gates,
        "units": measured.units,
        "failures": [asdict(failure) for failure in failures],
        "budget_s": job.budget.seconds,
        "seconds": round(job.budget.spent, 3),
    }
    write_json(job.folder / "latency.json", record)
    return failures


def _failures(job: Job, measured: Measured) -> list[Failure]:
    trials = {one.name: one.trial for one in job.found} | {CANARY: CANARY}
    encoders = {
        f"{trials[name]} / latency": reason
        for process in measured.processes
        for name, reason in process["failures"].items()
    }
    rounds = {
        f"latency / round {unit['round'] + 1}": unit["error"]
        for unit in measured.units
        if unit["error"] is not None
    }
    return [Failure(what, reason) for what, reason in {**encoders, **rounds}.items()]
