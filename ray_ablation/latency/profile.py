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

Rounds themselves are run in rounds.py; lease.py is about where they run.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ray_ablation.atomic import read_json, write_frame, write_json
from ray_ablation.grid import Grid
from ray_ablation.latency import plan, summary
from ray_ablation.latency.lease import HOLD_LIMIT_S, LeaseError, hold
from ray_ablation.latency.plan import CANARIES, Architecture
from ray_ablation.latency.record import complete, enter, others, stored
from ray_ablation.latency.rounds import Budget, Job, Measured, measure, unit_folder
from ray_ablation.ledger import Ledger
from ray_ablation.problems import Failure
from ray_ablation.settings import Latency
from ray_ablation.trial import Trial


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
    ledger = replace(ledger, root=ledger.root.resolve())  # workers have other folders
    found = plan.architectures(trials, ledger)
    if grid.latency is None or not found or stored(grid, trials, ledger) is not None:
        return []
    budget = Budget(grid.latency.budget_s)
    try:
        with hold(
            grid.execution.device,
            local,
            budget.share(HOLD_LIMIT_S),
            grid.latency.node,
            grid.latency.exclusive,
            ledger,
        ) as holder:
            job = _job(grid.latency, found, ledger, holder.node(), budget)
            earlier = complete(job.identifier, ledger)
            measured = None if earlier else measure(job, holder)
    except LeaseError as error:
        return [Failure("latency", str(error))]
    if measured is not None:
        failures = _write(job, measured, others(job.identifier, ledger))
    else:
        failures = []
        enter(found, job.identifier, ledger)
    write_json(ledger.profile_json(grid.name), {"profile_id": job.identifier})
    ledger.publish(ledger.profile_json(grid.name))
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
        folder=ledger.latency_dir(identifier),
        node=node,
        what=what,
        dtype="fp32" if node["device"] == "cpu" else latency.dtype,
        latency=latency,
        found=found,
        folders={one.name: str(ledger.model_dir(one.trial)) for one in found},
        budget=budget,
        ledger=ledger,
    )


def _write(
    job: Job, measured: Measured, earlier: Sequence[summary.Fingerprint] = ()
) -> list[Failure]:
    """Write the profile, latency.json last; what failed."""
    failures = _failures(job, measured)
    about = {"profile_id": job.identifier}
    write_frame(job.folder / "samples.parquet", measured.samples, about)
    write_frame(job.folder / "blocks.parquet", measured.blocks, about)
    if measured.processes:
        first = unit_folder(job, measured.processes[0])
        write_json(job.folder / "environment.json", read_json(first / "environment.json") or {})
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
            measured.units,
            job.found,
            job.what["latency"],
            job.node["device"],
            earlier,
        ),
        "units": measured.units,
        "failures": [asdict(failure) for failure in failures],
        "budget_s": job.budget.seconds,
        "seconds": round(job.budget.spent, 3),
    }
    write_json(job.folder / "latency.json", record)
    job.ledger.publish(job.folder, skip=("units",))
    for process in measured.processes:
        job.ledger.withdraw(unit_folder(job, process))
    return failures


def _failures(job: Job, measured: Measured) -> list[Failure]:
    trials = {one.name: one.trial for one in job.found} | dict.fromkeys(CANARIES, "canary")
    encoders = {
        f"{trials[name]} / latency": reason
        for process in measured.processes
        for name, reason in process["failures"].items()
    }
    rounds = {
        f"latency / round {unit['round'] + 1}, {unit['kind']}": unit["error"]
        for unit in measured.units
        if unit["error"] is not None
    }
    return [Failure(what, reason) for what, reason in {**encoders, **rounds}.items()]
