"""A profile's record in the ledger: is it there, is it what the grid asks, whose figures are they?

Profiles are shared between studies: one record holds the trials of all of them that have its
architectures.
"""

from collections.abc import Sequence
from typing import Any

from ray_ablation.atomic import read_json, write_json
from ray_ablation.grid import Grid
from ray_ablation.latency import plan
from ray_ablation.latency.plan import Architecture
from ray_ablation.latency.summary import Fingerprint, fingerprint
from ray_ablation.ledger import Ledger
from ray_ablation.trial import Trial


def stored(grid: Grid, trials: Sequence[Trial], ledger: Ledger) -> dict[str, Any] | None:
    """The latency.json that a study points to, None when it has to be measured.

    Trials added since then, of an architecture that was timed, are entered into it.
    """
    record = ledger.study_profile(grid.name)
    if grid.latency is None or record is None or record["failures"]:
        return None
    found = plan.architectures(trials, ledger)
    if record["what"] != plan.what(found, grid.latency):
        return None
    if grid.execution.device not in ("auto", record["device"]):
        return None
    return enter(found, record["profile_id"], ledger)


def complete(identifier: str, ledger: Ledger) -> dict[str, Any] | None:
    """The record of a profile in which nothing failed, None when there is none."""
    record = read_json(ledger.latency_json(identifier))
    return record if record is not None and not record["failures"] else None


def others(identifier: str, ledger: Ledger) -> list[Fingerprint]:
    """What every other profile of the ledger measured, by digest."""
    found = []
    for file in sorted(ledger.latency_dir(identifier).parent.glob("*/latency.json")):
        record = read_json(file) if file.parent.name != identifier else None
        found += [fingerprint(result) for result in (record or {}).get("results", [])]
    return found


def enter(found: Sequence[Architecture], identifier: str, ledger: Ledger) -> dict[str, Any] | None:
    """Add trials to the record of a profile; the record."""
    record = read_json(ledger.latency_json(identifier))
    if record is None:
        return None
    added = False
    for architecture in found:
        listed = record["variants"][architecture.name]["trials"]
        new = [trial for trial in architecture.trials if trial not in listed]
        listed += new
        added = added or bool(new)
    if added:
        write_json(ledger.latency_json(identifier), record)
    return record
