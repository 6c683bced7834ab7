"""One encoder at one length: its calls in each process, and what is said of them.

The absolute figure comes from processes in which the encoder was alone, where there are such; the
ratio from those in which it took turns with the reference. Rules of the verdict that look into a
process are applied to the worst one, so that a single bad process is seen among good ones.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from ray_ablation.latency import estimate, shape, verdict
from ray_ablation.latency.estimate import Array, Estimate
from ray_ablation.latency.gaps import drift, highest, median, other_busy, total, worst
from ray_ablation.latency.samples import STAGES
from ray_ablation.latency.stalls import Stalls, stalls_of

QUANTILES = np.linspace(0, 1, 201)
"""Of `quantiles_ms`: the distribution as a report draws it, its extremes included."""
MIN_STAGED = 20
"""Staged calls below which their cost is not judged."""


class Cell:
    """Samples of one (variant, seq, arm).

    Args:
        samples: Of all processes, with `clock_ok`.
        blocks: Of all processes.
        processes: What each process said of itself: unit, kind, variants, failures, warmups. One in
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
        self.clock_errors = int((~measured["clock_ok"]).sum())
        self.not_finite = int((~measured["finite"]).sum())
        # Of all encoders: counters step by 10 ms, too coarse for the blocks of one alone.
        self.all_blocks = blocks[(blocks["seq"] == seq) & (blocks["arm"] == arm)]
        good = _in_ms(measured[measured["clock_ok"]], self.all_blocks)
        calls = {int(str(unit)): frame for unit, frame in good.groupby("unit")}
        solo = [process["unit"] for process in processes if process.get("kind") == "solo"]
        self.paired = {unit: frame for unit, frame in calls.items() if unit not in solo}
        self.solo = {unit: frame for unit, frame in calls.items() if unit in solo}
        self.calls = self.solo or self.paired
        self.blocks = self.all_blocks[self.all_blocks["unit"].isin(self.calls)]
        staged = mine[(mine["phase"] == "staged") & mine["clock_ok"]]
        self.staged = staged[staged["unit"].isin(self.calls)]
        self.processes = [process for process in processes if process["unit"] in self.calls]

    @property
    def fewest_calls(self) -> int:
        """Calls in the process that has fewest, 0 without a process."""
        return min((len(frame) for frame in self.calls.values()), default=0)

    def walls_ms(self) -> list[Array]:
        """Wall times in order, one array a process."""
        return [_walls(frame) for frame in self.calls.values()]

    def p50_ms(self) -> Estimate:
        """Median over processes of their medians."""
        return estimate.over_processes([float(np.median(calls)) for calls in self.walls_ms()])

    def result(self, device: str, inputs: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Its entry in latency.json, all but the model's digest.

        Args:
            device: cpu or cuda.
            inputs: exact, padded or natural.
            given: Values of rules that are not of this cell alone, e.g. aa_bias.
        """
        walls = self.walls_ms()
        p50s = [float(np.median(calls)) for calls in walls]
        p50, p95 = self.p50_ms(), self._percentile(0.95)
        busy = median(self._said("device_busy_ms"))
        found = [stalls_of(frame) for frame in self.calls.values()]
        return {
            "variant": self.variant,
            "seq": self.seq,
            "arm": self.arm,
            "measured": "solo" if self.solo else "paired",
            "n_processes": len(walls),
            "n_calls": sum(map(len, walls)),
            "p50_ms": asdict(p50),
            "p90_ms": self._percentile(0.9),
            "p95_ms": p95,
            "p99_ms": self._percentile(0.99),
            "mean_ms": median(float(np.mean(calls)) for calls in walls),
            "min_ms": min((float(np.min(calls)) for calls in walls), default=None),
            "cpu_p50_ms": median(float(frame["cpu_ms"].median()) for frame in self.calls.values()),
            "p95_over_p50": p95 / p50.est if p95 is not None and p50.est else None,
            "process_p50_ms": p50s,
            "process_intervals_ms": [_ends(estimate.median_of_calls(calls)) for calls in walls],
            "quantiles_ms": _quantiles(walls),
            "outliers": estimate.outliers(np.concatenate(walls) if walls else np.array([])),
            "between_max_over_min": estimate.spread(p50s),
            "var_split": estimate.variance_split(walls),
            "needed_processes_1pct": estimate.needed_processes(p50s),
            "paired_p50_ms": median(float(np.median(_walls(f))) for f in self.paired.values()),
            "stages_ms": self._stages(),
            "device_busy_ms": busy,
            "host_bound_ratio": p50.est / busy if p50.est and busy else None,
            "stall": _summary(found),
            "n_clock_errors": self.clock_errors,
            "n_not_finite": self.not_finite,
            **verdict.judge({**self._judged(p50s, inputs, found), **given}, device),
            "texts_sha256": self._texts_sha256(),
            "samples_sha256": self.samples_sha256(),
        }

    def ratio(self, reference: "Cell") -> dict[str, Any]:
        """Its latency over the reference's, from the cycles that visited both."""
        process = [
            estimate.cycle_ratio(
                estimate.block_medians(frame), estimate.block_medians(reference.paired[unit])
            )
            for unit, frame in self.paired.items()
            if unit in reference.paired
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

    def samples_sha256(self) -> str | None:
        """Of its wall times; None without any."""
        if not self.calls:
            return None
        digest = hashlib.sha256()
        for frame in self.calls.values():
            digest.update(frame["wall_ns"].to_numpy("<i8").tobytes())
        return digest.hexdigest()

    def _judged(
        self, p50s: list[float], inputs: str, found: Sequence[Stalls]
    ) -> dict[str, float | None]:
        """The values that rules of the verdict are about."""
        walls, frames = self.walls_ms(), list(self.calls.values())
        tails = [
            p95 / float(np.median(calls))
            for calls in walls
            if (p95 := estimate.percentile(calls, 0.95)) is not None
        ]
        steady, natural = self.warmup("steady_ratio"), inputs == "natural"
        timer_ns = worst(process.get("timer_ns") for process in self.processes)
        return {
            "n_processes": len(walls),
            "n_calls": self.fewest_calls,
            "host_busy": self._worst_unit(other_busy),
            "preempted": worst(
                frame["wall_ms"].sum() / cpu if (cpu := frame["cpu_ms"].sum()) > 0 else None
                for frame in frames
            ),
            "preempted_per_call": worst(float(frame["nivcsw"].mean()) for frame in frames),
            "cpu_throttled": self._worst_unit(lambda blocks: total(blocks["nr_throttled"])),
            "foreign_gpu_process": self._worst_unit(
                lambda blocks: highest(blocks["gpu_processes"] - 1)
            ),
            "gpu_throttle": self._worst_unit(lambda blocks: total(blocks["gpu_throttled"])),
            "gpu_clock_drift": self._worst_unit(lambda blocks: drift(blocks["sm_clock_mhz"])),
            "no_steady_state": None if None in steady else worst(steady),
            "level_shift": worst(shape.level_shift(calls) for calls in walls),
            # Natural lengths differ, and so do their latencies, whatever the machine does.
            "multimodal": None if natural else worst(map(shape.mode_ratio, walls)),
            "tail": None if natural else worst(tails),
            "stall_unexplained": worst(stalls.unexplained for stalls in found),
            "between_process": estimate.spread(p50s),
            "solo_vs_paired": self._solo_vs_paired(),
            "stage_overhead": self._stage_overhead(),
            "timer_resolution": timer_ns / 1e6 / min(p50s) if timer_ns and p50s else None,
        }

    def _percentile(self, q: float) -> float | None:
        return estimate.over_processes(
            [estimate.percentile(calls, q) for calls in self.walls_ms()]
        ).est

    def _said(self, name: str) -> list[float | None]:
        """What each process recorded of this cell under a name."""
        return [
            process.get(name, {}).get(self.variant, {}).get(str(self.seq))
            for process in self.processes
        ]

    def _stages(self) -> dict[str, float | None]:
        medians = {stage: self.staged[f"{stage}_ns"].dropna() for stage in STAGES}
        return {
            stage: float(times.median()) / 1e6 if len(times) else None
            for stage, times in medians.items()
        }

    def _stage_overhead(self) -> float | None:
        """Median over processes of staged over untouched calls, less 1, without its sign."""
        ratios = [
            float(staged["wall_ns"].median())
            / 1e6
            / float(np.median(_walls(self.calls[int(str(unit))])))
            for unit, staged in self.staged.groupby("unit")
            if len(staged) >= MIN_STAGED
        ]
        middle = median(ratios)
        return None if middle is None else abs(middle - 1)

    def _solo_vs_paired(self) -> float | None:
        alone, among = (
            median(float(np.median(_walls(frame))) for frame in frames.values())
            for frames in (self.solo, self.paired)
        )
        return abs(alone / among - 1) if alone and among else None

    def _worst_unit(self, value: Callable[[pd.DataFrame], float | None]) -> float | None:
        return worst(value(blocks) for _, blocks in self.blocks.groupby("unit"))

    def _texts_sha256(self) -> str | None:
        for process in self.processes:
            digests = process["variants"].get(self.variant, {}).get("texts_sha256", {})
            if str(self.seq) in digests:
                return str(digests[str(self.seq)])
        return None


def _in_ms(calls: pd.DataFrame, blocks: pd.DataFrame) -> pd.DataFrame:
    """Calls with times in ms and what the guards saw of their block."""
    place = ["unit", "block"]
    seen = blocks[[*place, "nr_throttled", "sm_clock_mhz"]].drop_duplicates(place)
    frame = calls.merge(seen, on=place, how="left")
    usual = frame.groupby("unit")["sm_clock_mhz"].transform("median")
    return frame.assign(
        wall_ms=frame["wall_ns"] / 1e6,
        cpu_ms=frame["cpu_ns"].astype(float) / 1e6,
        throttled=frame["nr_throttled"],
        clock_moved=((frame["sm_clock_mhz"] / usual - 1).abs() > 0.02).fillna(False),
    )


def _walls(frame: pd.DataFrame) -> Array:
    return frame["wall_ms"].to_numpy(float)


def _summary(found: Sequence[Stalls]) -> dict[str, Any]:
    """Of all processes; the cause and its scores are those of the one that stalls most."""
    most = max(found, key=lambda stalls: stalls.share or 0.0, default=Stalls(None))
    return {
        "share": median(stalls.share for stalls in found),
        "median_ms": median(stalls.median_ms for stalls in found),
        "attribution": most.cause,
        "scores": dict(most.scores) if most.scores else None,
        "unexplained": worst(stalls.unexplained for stalls in found),
    }


def _quantiles(walls: Sequence[Array]) -> list[float] | None:
    if not walls:
        return None
    return [round(float(value), 4) for value in np.quantile(np.concatenate(walls), QUANTILES)]


def _ends(found: Estimate) -> list[float | None]:
    return [found.lo, found.hi]
