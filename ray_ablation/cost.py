"""What the trials still to train come to: hours of GPU, makespan, money.

A trial's price is `Trial.cost`, layers x tokens at full length, so one speed in layer-tokens per
second turns trials of any depth, batch and number of steps into hours. The speed is measured where
the ledger has finished trials of the same backbone and device, else assumed, and the line that
prints the estimate says which. The steps alone are counted: loading, evaluation losses and
checkpoints come on top, texts shorter than the longest are already in a measured speed.

The makespan is that of list scheduling, longest first, which is what `tune` does. No order can beat
max(longest trial, sum / slots); Graham (1969) bounds the order at 4/3 of the best there is.
"""

import heapq
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ray_ablation.settings import Execution
from ray_ablation.trial import Trial

# Where nothing is measured: bf16 BERT-base of width 768 on an H100 at a tenth of its dense peak of
# 989 TFLOP/s (NVIDIA's data sheet), or float32 on one CPU core. 6 FLOPs a parameter and token,
# 12 x 768^2 parameters a layer.
ASSUMED_FLOPS = {"cuda": 1e14, "cpu": 5e10}
FLOPS_PER_LAYER_TOKEN = 6.0 * 12 * 768**2


@dataclass(frozen=True)
class Speed:
    """Layer-tokens per second of a slot, and where the figure comes from."""

    per_s: float
    basis: str


@dataclass(frozen=True)
class Estimate:
    """What training takes.

    Attributes:
        trials: To train, untrained references left out.
        slots: Trials at a time.
        slot_hours: Sum over the trials.
        gpu_hours: The same times the share of a GPU that a trial holds; None on CPUs.
        makespan_hours: Longest first on the slots.
        bound_hours: What no order can beat.
        price: None where no price is given.
        basis: Where the speed comes from.
    """

    trials: int
    slots: int
    slot_hours: float
    gpu_hours: float | None
    makespan_hours: float
    bound_hours: float
    price: float | None
    basis: str

    def __str__(self) -> str:
        work = f"{_hours(self.slot_hours)} of CPU slots"
        place = f"{self.slots} at a time"
        if self.gpu_hours is not None:
            work, place = f"{self.gpu_hours:.3g} GPU-hours", f"{place}, one a GPU"
        money = "" if self.price is None else f"; {self.price:,.2f} at the price per GPU-hour"
        return (
            f"estimate: {self.trials} trials with steps to do, {work}; {place}: "
            f"{_hours(self.makespan_hours)}, at least {_hours(self.bound_hours)}{money} "
            f"({self.basis})"
        )


def estimate(
    pending: Sequence[Trial],
    finished: Iterable[Mapping[str, Any]],
    execution: Execution,
    slots: int,
) -> Estimate | None:
    """What the pending trials come to; None when none of them trains.

    Args:
        pending: Trials without a sound record.
        finished: Records of finished trials to measure by.
        execution: Gives device, share of a GPU, price.
        slots: Trials at a time.
    """
    costs = sorted((trial.cost for trial in pending if trial.steps), reverse=True)
    if not costs:
        return None
    device = "cpu" if execution.device == "cpu" else "cuda"
    backbones = {trial.backbone for trial in pending}
    speed = measured(finished, backbones, device) or assumed(device, execution)
    hours = [cost / speed.per_s / 3600 for cost in costs]
    gpu_hours = sum(hours) * execution.gpus_per_trial if device == "cuda" else None
    price = execution.price_per_gpu_hour
    return Estimate(
        trials=len(hours),
        slots=slots,
        slot_hours=sum(hours),
        gpu_hours=gpu_hours,
        makespan_hours=makespan(hours, slots),
        bound_hours=lower_bound(hours, slots),
        price=None if price is None or gpu_hours is None else price * gpu_hours,
        basis=speed.basis,
    )


def measured(
    finished: Iterable[Mapping[str, Any]], backbones: set[str], device: str
) -> Speed | None:
    """The median speed of finished trials of these backbones on this kind of device."""
    speeds, names = [], set()
    for record in finished:
        trial = Trial.model_validate_json(json.dumps(record["trial"]))
        seconds = record["result"].get("training_seconds")
        place = record["execution"]
        if seconds and trial.backbone in backbones and place.get("device") == device:
            speeds.append(trial.cost / seconds)
            names.add(str(place.get("device_name")))
    if not speeds:
        return None
    median = statistics.median(speeds)
    where = " and ".join(sorted(names))
    count = f"{len(speeds)} trial{'s' * (len(speeds) != 1)}"
    return Speed(median, f"measured: {median:.3g} layer-tokens/s, {count} on {where}")


def assumed(device: str, execution: Execution) -> Speed:
    """A rough speed for a kind of device."""
    threads = execution.cpus_per_trial if device == "cpu" else 1
    flops = ASSUMED_FLOPS[device] * threads
    unit = "an H100" if device == "cuda" else f"{threads} CPUs"
    return Speed(
        flops / FLOPS_PER_LAYER_TOKEN,
        f"assumed, as no finished trial tells: {flops:.0e} FLOP/s on {unit}, layers of width 768, "
        "all texts at full length",
    )


def makespan(lengths: Iterable[float], slots: int) -> float:
    """When the last ends if each slot takes the next in this order as it falls free.

    >>> makespan([4, 3, 3], 2)
    6.0
    """
    free = [0.0] * slots
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def lower_bound(lengths: Sequence[float], slots: int) -> float:
    """max(longest, sum / slots).

    >>> lower_bound([4, 3, 3], 2)
    5.0
    """
    return max(*lengths, sum(lengths) / slots)


def _hours(hours: float) -> str:
    for unit, size in (("hours", 1.0), ("minutes", 1 / 60)):
        if hours >= size:
            return f"{hours / size:.3g} {unit}"
    return f"{hours * 3600:.2g} seconds"
