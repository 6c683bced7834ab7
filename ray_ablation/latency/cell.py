"""One encoder at one length: its calls in each process, and what is said of them.

Rules of the verdict that look into a process are applied to the worst one, so that a single bad
process is seen among good ones.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from ray_ablation.latency import estimate, verdict
from ray_ablation.latency.estimate import Array
from ray_ablation.latency.samples import STAGES


class Cell:
    """Samples of one (variant, seq, arm).

    Args:
        samples: Of all processes, with `clock_ok`.
        blocks: Of all processes.
        processes: What each process said of itself: unit, variants, failures, warmups. One in
            which the encoder failed counts as not measured.
    """

    def __init__(
        self,
        samples: pd.DataFrame,
        blocks: pd.DataFrame,
        processes: Sequence[dict[str, Any]],
        variant: str,
        seq: int,
        arm: str,
    ) -> None:
        self.variant, self.seq, self.arm = variant, seq, arm
        here = (samples["seq"] == seq) & (samples["arm"] == arm) & (samples["variant"] == variant)
        failed = [process["unit"] for process in processes if variant in process["failures"]]
        mine = samples[here & ~samples["unit"].isin(failed)]
        measured = mine[mine["phase"] == "measured"]
        good = measured[measured["clock_ok"]]
        good = good.assign(wall_ms=good["wall_ns"] / 1e6, cpu_ms=good["cpu_ns"].astype(float) / 1e6)
        self.calls = {int(str(unit)): frame for unit, frame in good.groupby("unit")}
        self.staged = mine[(mine["phase"] == "staged") & mine["clock_ok"]]
        self.clock_errors = int((~measured["clock_ok"]).sum())
        self.not_finite = int((~measured["finite"]).sum())
        # Of all encoders: counters step by 10 ms, too coarse for the blocks of one alone.
        self.blocks = blocks[(blocks["seq"] == seq) & (blocks["arm"] == arm)]
        self.processes = processes

    @property
    def fewest_calls(self) -> int:
        """Calls in the process that has fewest, 0 without a process."""
        return min((len(frame) for frame in self.calls.values()), default=0)

    def walls_ms(self) -> list[Array]:
        """Wall times in order, one array a process."""
        return [frame["wall_ms"].to_numpy() for frame in self.calls.values()]

    def result(self, device: str, inputs: str) -> dict[str, Any]:
        """Its entry in latency.json, all but the model's digest."""
        walls = self.walls_ms()
        p50s = [float(np.median(calls)) for calls in walls]
        p50, p95 = estimate.over_processes(p50s), self._percentile(0.95)
        share, stall_ms = self._stalls()
        return {
            "variant": self.variant,
            "seq": self.seq,
            "arm": self.arm,
            "n_processes": len(walls),
            "n_calls": sum(map(len, walls)),
            "p50_ms": asdict(p50),
            "p90_ms": self._percentile(0.9),
            "p95_ms": p95,
            "p99_ms": self._percentile(0.99),
            "mean_ms": _median(float(np.mean(calls)) for calls in walls),
            "min_ms": min((float(np.min(calls)) for calls in walls), default=None),
            "cpu_p50_ms": _median(float(frame["cpu_ms"].median()) for frame in self.calls.values()),
            "p95_over_p50": p95 / p50.est if p95 is not None and p50.est else None,
            "process_p50_ms": p50s,
            "between_max_over_min": estimate.spread(p50s),
            "var_split": estimate.variance_split(walls),
            "needed_processes_1pct": estimate.needed_processes(p50s),
            "stages_ms": self._stages(),
            "device_busy_ms": None,
            "host_bound_ratio": None,
            "stall": {
                "share": share,
                "median_ms": stall_ms,
                "attribution": None,
                "scores": None,
            },
            "n_clock_errors": self.clock_errors,
            "n_not_finite": self.not_finite,
            **verdict.judge(self._judged(p50s, inputs), device),
            "texts_sha256": self._texts_sha256(),
            "samples_sha256": self._samples_sha256(),
        }

    def ratio(self, reference: "Cell") -> dict[str, Any]:
        """Its latency over the reference's, from the cycles that visited both."""
        process = [
            estimate.cycle_ratio(
                estimate.block_medians(frame), estimate.block_medians(reference.calls[unit])
            )
            for unit, frame in self.calls.items()
            if unit in reference.calls
        ]
        names = {"a": self.variant, "b": reference.variant, "seq": self.seq, "arm": self.arm}
        return names | asdict(estimate.over_processes(process)) | {"process": process}

    def warmup(self, name: str) -> list[Any]:
        """`calls` or `steady_ratio` of its warm-up, one per process."""
        return [
            entry[name]
            for process in self.processes
            for entry in process["warmups"]
            if (entry["variant"], entry["seq"]) == (self.variant, self.seq)
        ]

    def _judged(self, p50s: list[float], inputs: str) -> dict[str, float | None]:
        """The values that rules of the verdict are about."""
        walls = self.walls_ms()
        tails = [
            p95 / float(np.median(calls))
            for calls in walls
            if (p95 := estimate.percentile(calls, 0.95)) is not None
        ]
        steady = self.warmup("steady_ratio")
        return {
            "n_processes": len(walls),
            "n_calls": self.fewest_calls,
            "host_busy": self._worst_unit(_other_busy),
            "preempted": _worst(
                frame["wall_ms"].sum() / cpu if (cpu := frame["cpu_ms"].sum()) > 0 else None
                for frame in self.calls.values()
            ),
            "preempted_per_call": _worst(
                float(frame["nivcsw"].mean()) for frame in self.calls.values()
            ),
            "cpu_throttled": self._worst_unit(lambda blocks: _sum(blocks["nr_throttled"])),
            "foreign_gpu_process": self._worst_unit(
                lambda blocks: _max(blocks["gpu_processes"] - 1)
            ),
            "gpu_clock_drift": self._worst_unit(lambda blocks: _drift(blocks["sm_clock_mhz"])),
            "no_steady_state": None if None in steady else _worst(steady),
            "level_shift": _worst(estimate.level_shift(calls) for calls in walls),
            "tail": _worst(tails) if inputs == "exact" else None,
            "between_process": estimate.spread(p50s),
        }

    def _percentile(self, q: float) -> float | None:
        return estimate.over_processes(
            [estimate.percentile(calls, q) for calls in self.walls_ms()]
        ).est

    def _stalls(self) -> tuple[float | None, float | None]:
        found = [estimate.stalls(calls) for calls in self.walls_ms()]
        return _median(share for share, _ in found), _median(length for _, length in found)

    def _stages(self) -> dict[str, float | None]:
        medians = {stage: self.staged[f"{stage}_ns"].dropna() for stage in STAGES}
        return {
            stage: float(times.median()) / 1e6 if len(times) else None
            for stage, times in medians.items()
        }

    def _worst_unit(self, value: Callable[[pd.DataFrame], float | None]) -> float | None:
        return _worst(value(blocks) for _, blocks in self.blocks.groupby("unit"))

    def _texts_sha256(self) -> str | None:
        for process in self.processes:
            digests = process["variants"].get(self.variant, {}).get("texts_sha256", {})
            if str(self.seq) in digests:
                return str(digests[str(self.seq)])
        return None

    def _samples_sha256(self) -> str | None:
        if not self.calls:
            return None
        digest = hashlib.sha256()
        for frame in self.calls.values():
            digest.update(frame["wall_ns"].to_numpy("<i8").tobytes())
        return digest.hexdigest()


def _other_busy(blocks: pd.DataFrame) -> float | None:
    """Cores others kept busy, over the blocks of one process."""
    others = blocks["host_busy_ns"].sum() - blocks["own_cpu_ns"].sum()
    wall = blocks["wall_ns"].sum()
    return max(0.0, float(others / wall)) if wall > 0 else None


def _drift(clocks: "pd.Series[Any]") -> float | None:
    known = clocks.dropna().to_numpy(float)
    if len(known) == 0:
        return None
    p10, p90 = np.quantile(known, [0.1, 0.9])
    return float(p90 / p10)


def _sum(values: "pd.Series[Any]") -> float | None:
    known = values.dropna()
    return float(known.sum()) if len(known) else None


def _max(values: "pd.Series[Any]") -> float | None:
    known = values.dropna()
    return float(known.max()) if len(known) else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _worst(values: Iterable[float | None]) -> float | None:
    """The largest; every rule about single processes has a limit from above."""
    return max((float(value) for value in values if value is not None), default=None)
