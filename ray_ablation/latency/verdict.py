"""What may be said of a figure: stable, unstable, contaminated or insufficient, and why.

Every rule compares one measured value with one limit; all of them are recorded, those that fail
are the reasons. A value that was not measured is None, and its rule says nothing. Limits are
tighter on a GPU than on a CPU, where 2 to 5 % between processes is what a quiet machine gives.

Precedence: too little was measured; an outside cause was seen; the figure spreads without one.
The first is never hidden by the others, all reasons are listed.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ray_ablation.latency.estimate import MIN_PROCESSES

MIN_CALLS = 200
"""Per encoder and process."""


@dataclass(frozen=True)
class Rule:
    """A limit on one value.

    Attributes:
        verdict: What a figure is called when the rule fails.
        cpu, cuda: The limit on either device; None where the rule does not apply.
        least: The value must be at least the limit; else at most.
    """

    verdict: str
    cpu: float | None
    cuda: float | None
    least: bool = False

    def limit(self, device: str) -> float | None:
        """The limit on a device, cpu or cuda."""
        return self.cuda if device == "cuda" else self.cpu


@dataclass(frozen=True)
class Check:
    """One rule applied. `passed` is None when the value was not measured."""

    code: str
    value: float | None
    limit: float
    passed: bool | None


def judge(values: Mapping[str, float | None], device: str) -> dict[str, Any]:
    """Apply `RULES` to measured values.

    Args:
        values: By the names in RULES; a name left out was not measured.
        device: cpu or cuda.

    Returns:
        verdict; reasons [{code, value, limit}] of the rules that failed; checks, all of them with
        `passed` true, false or null.
    """
    checks = [
        _check(code, values.get(code), limit, rule.least)
        for code, rule in RULES.items()
        if (limit := rule.limit(device)) is not None
    ]
    failed = [check for check in checks if check.passed is False]
    found = {RULES[check.code].verdict for check in failed}
    verdict = next((name for name in PRECEDENCE if name in found), "stable")
    reasons = [{"code": c.code, "value": c.value, "limit": c.limit} for c in failed]
    return {"verdict": verdict, "reasons": reasons, "checks": [asdict(check) for check in checks]}


def _check(code: str, value: float | None, limit: float, least: bool) -> Check:
    if value is None:
        return Check(code, None, limit, None)
    return Check(code, value, limit, value >= limit if least else value <= limit)


PRECEDENCE = ("insufficient", "contaminated", "unstable")

RULES = {
    # Fresh processes measured, and calls in the one that has fewest.
    "n_processes": Rule("insufficient", MIN_PROCESSES, MIN_PROCESSES, least=True),
    "n_calls": Rule("insufficient", MIN_CALLS, MIN_CALLS, least=True),
    # Other encoders with the very same samples: a file was used twice, nothing was measured.
    "duplicate_result": Rule("insufficient", 0, 0),
    # Cores that others kept busy while this encoder was timed.
    "host_busy": Rule("contaminated", 0.2, 0.2),
    # Wall over CPU time of one thread; a GPU process waits by design, so its switches are counted.
    "preempted": Rule("contaminated", 1.03, None),
    "preempted_per_call": Rule("contaminated", None, 1.0),
    # Periods in which the container's CPU quota ran out.
    "cpu_throttled": Rule("contaminated", 0, 0),
    # Processes started although others were still on the GPU when waiting for it ended.
    "device_not_free": Rule("contaminated", None, 0),
    # Processes on the GPU besides the measured one.
    "foreign_gpu_process": Rule("contaminated", None, 0),
    # Readings with a power cap or a slowdown in force.
    "gpu_throttle": Rule("contaminated", None, 0),
    # SM clock, p90 over p10.
    "gpu_clock_drift": Rule("contaminated", None, 1.02),
    # The last three windows of the warm-up, slowest over fastest.
    "no_steady_state": Rule("unstable", 1.05, 1.02),
    # Medians of ten calls, p90 over p10, where a change-point confirms it.
    "level_shift": Rule("unstable", 1.05, 1.05),
    # The upper mode of the calls over the lower, where the dip test finds two.
    "multimodal": Rule("unstable", 1.05, 1.05),
    # p95 over p50 with inputs of one exact length.
    "tail": Rule("unstable", 1.25, 1.15),
    # Share of calls that stall without a cause that the record shows.
    "stall_unexplained": Rule("unstable", 0.005, 0.005),
    # p50 of the slowest process over that of the fastest.
    "between_process": Rule("unstable", 1.05, 1.03),
    # Two equal encoders timed against each other: how far from 1 their ratio is.
    "aa_bias": Rule("unstable", 0.03, 0.01),
    # p50 alone in a process over p50 among the others: how far from 1.
    "solo_vs_paired": Rule("unstable", 0.03, 0.03),
    # Staged calls, whose borders wait for the device, over untouched ones: how far from 1.
    "stage_overhead": Rule("unstable", 0.05, 0.05),
    # The clock's step over p50.
    "timer_resolution": Rule("unstable", 0.01, 0.01),
}
