"""The measuring loop: warm up, interleave the encoders, time every call, keep every sample.

All encoders of a comparison live in one process. After the warm-up, a cycle visits each of them
once, in an order drawn anew, for a block of five calls; so each pair is compared under the same
machine state, cycle by cycle. One timed call is what a user waits for: tokenise, copy to the
device, forward, pool and normalise, copy back. Nothing is marked inside it; where the time goes is
asked of separate staged calls afterwards. Guards are read between blocks.

Without the time for it, less is measured and the record says how much: the warm-up takes at most a
quarter of a length's time, staged calls the last tenth.
"""

import gc
import math
import random
import resource
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from ray_ablation.latency.estimate import steady_ratio
from ray_ablation.latency.guards import Guards, Reading
from ray_ablation.latency.samples import STAGES
from ray_ablation.latency.variant import Variant, load
from ray_ablation.latency.verdict import RULES

STAGED_CYCLES = 4
WARMUP_LIMIT_S = 60.0
"""A warm-up that is not steady by then is over, and the record says so."""
WARMUP_LEAST = 2
"""Warm-up calls that no lack of time takes away: the first one builds plans and caches."""
# Context switches of the measuring thread alone, where the system tells them apart.
RUSAGE = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


@dataclass(frozen=True)
class Place:
    """Where in the plan a call stands.

    Attributes:
        phase: warmup, measured or staged.
        call: Counts the calls of one encoder at one length in its phase.
        cycle: Counts the visits to all encoders; in the warm-up a visit is one call.
        block: Counts blocks over all encoders; None outside the measured phase.
        position: In the block; the first call after a switch finds colder caches.
    """

    phase: str
    call: int
    cycle: int
    block: int | None
    position: int


class Session:
    """One process's measurement; `samples` and `blocks` fill as `run` goes on."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.device: str = spec["device"]
        self.block: int = spec["block"]
        self.deadline: float = spec["deadline_s"]
        self.draw = random.Random(spec["seed"])
        self.samples: list[dict[str, Any]] = []
        self.blocks: list[dict[str, Any]] = []
        self.warmups: list[dict[str, Any]] = []
        self.failures: dict[str, str] = {}
        self.collections = 0
        gc.callbacks.append(self._collected)
        self.variants: list[Variant] = []
        self._load()
        uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}" if self.device == "cuda" else None
        self.guards = Guards(uuid)
        self.orders: dict[tuple[int, int], list[int]] = {}

    def run(self) -> None:
        """Measure every length, in an order drawn anew, each within its share of the time."""
        lengths = self.draw.sample(self.spec["lengths"], k=len(self.spec["lengths"]))
        with torch.inference_mode():
            for index, length in enumerate(lengths):
                now = time.monotonic()
                share = (self.deadline - now) / (len(lengths) - index)
                if not self.variants or share <= 0:
                    return
                cycle_s = self._warm_up(length, now + 0.25 * share)
                self._interleave(length, now + 0.9 * share, cycle_s)
                self._staged(length, now + share)

    def describe(self) -> dict[str, Any]:
        """What was loaded, what failed, how the warm-up went."""
        return {
            "variants": {variant.name: variant.describe() for variant in self.variants},
            "failures": self.failures,
            "warmups": self.warmups,
            "collections": self.collections,
        }

    # phases

    def _load(self) -> None:
        for name in self.spec["variants"]:
            try:
                self.variants.append(load(name, self.spec))
            except Exception as error:  # recorded by name, and the others go on
                self._fail(name, error)

    def _warm_up(self, length: int, until: float) -> float:
        """Calls in turn until all encoders are steady, `warmup_calls` to four times as many.

        Returns:
            Seconds that a cycle will take, by the medians seen.
        """
        least = self.spec["warmup_calls"]
        limit = min(until, time.monotonic() + WARMUP_LIMIT_S)
        window = max(3, least // 2)
        walls: dict[str, list[int]] = {variant.name: [] for variant in self.variants}
        for turn in range(4 * least):
            if turn >= WARMUP_LEAST and time.monotonic() >= limit:
                break
            if turn >= least and self._steady(walls, window):
                break
            for variant in self._shuffled():
                wall_ns = self._timed(variant, length, Place("warmup", turn, turn, None, 0))
                walls[variant.name] += [] if wall_ns is None else [wall_ns]
        self.warmups += [
            {
                "variant": name,
                "seq": length,
                "calls": len(found),
                "steady_ratio": steady_ratio(np.array(found, dtype=float), window),
            }
            for name, found in walls.items()
        ]
        return self.block * sum(float(np.median(found)) for found in walls.values() if found) / 1e9

    def _steady(self, walls: dict[str, list[int]], window: int) -> bool:
        limit = RULES["no_steady_state"].limit(self.device)
        ratios = [
            steady_ratio(np.array(walls[variant.name], dtype=float), window)
            for variant in self.variants
        ]
        return all(ratio is not None and limit is not None and ratio <= limit for ratio in ratios)

    def _interleave(self, length: int, until: float, cycle_s: float) -> None:
        """Cycles until every encoder has its calls, as long as one more fits the time."""
        block = len(self.blocks)
        for cycle in range(math.ceil(self.spec["calls"] / self.block)):
            started = time.monotonic()
            if not self.variants or started + cycle_s > until:
                return
            before = self.guards.read()
            for variant in self._shuffled():
                for position in range(self.block):
                    call = cycle * self.block + position
                    self._timed(variant, length, Place("measured", call, cycle, block, position))
                after = self.guards.read()
                self._note_block(variant, length, cycle, block, before, after)
                before, block = after, block + 1
            cycle_s = time.monotonic() - started

    def _staged(self, length: int, until: float) -> None:
        for cycle in range(STAGED_CYCLES):
            for variant in self._shuffled():
                for position in range(self.block):
                    if time.monotonic() >= until:
                        return
                    call = cycle * self.block + position
                    self._timed_stages(
                        variant, length, Place("staged", call, cycle, None, position)
                    )

    # calls

    def _timed(self, variant: Variant, length: int, place: Place) -> int | None:
        """One end-to-end call; its wall time in ns, None when it failed."""
        sample = self._sample(variant, length, place)
        texts = variant.texts[length][sample["text"]]
        collections, before = self.collections, resource.getrusage(RUSAGE)
        cpu_ns, start_ns = time.process_time_ns(), time.perf_counter_ns()
        try:
            embedding = variant.embed(texts, length)
        except Exception as error:  # recorded by name, and the others go on
            self._fail(variant.name, error)
            return None
        wall_ns = time.perf_counter_ns() - start_ns
        cpu_ns = time.process_time_ns() - cpu_ns
        after = resource.getrusage(RUSAGE)
        sample |= {
            "start_ns": start_ns,
            "wall_ns": wall_ns,
            "cpu_ns": cpu_ns,
            "nivcsw": after.ru_nivcsw - before.ru_nivcsw,
            "nvcsw": after.ru_nvcsw - before.ru_nvcsw,
            "gc": self.collections > collections,
            "finite": bool(torch.isfinite(embedding).all()),
        }
        self.samples.append(sample)
        return wall_ns

    def _timed_stages(self, variant: Variant, length: int, place: Place) -> None:
        """One call with the clock read at the borders; on CUDA each border waits for the device."""
        sample = self._sample(variant, length, place)
        borders = [time.perf_counter_ns()]

        def border(value: Any) -> Any:
            if self.device == "cuda":
                torch.cuda.synchronize()
            borders.append(time.perf_counter_ns())
            return value

        features = border(variant.tokenise(variant.texts[length][sample["text"]], length))
        states = border(variant.forward(border(variant.to_device(features))))
        embedding = border(border(variant.pool(states)).cpu())
        sample |= {"start_ns": borders[0], "wall_ns": borders[-1] - borders[0]}
        sample |= {
            f"{stage}_ns": end - begin
            for stage, begin, end in zip(STAGES, borders[:-1], borders[1:], strict=True)
        }
        sample["finite"] = bool(torch.isfinite(embedding).all())
        self.samples.append(sample)

    def _sample(self, variant: Variant, length: int, place: Place) -> dict[str, Any]:
        turn, index = divmod(place.call, self.spec["texts"])
        text = self._order(length, turn)[index]
        return {
            "unit": self.spec["unit"],
            "round": self.spec["round"],
            "arm": self.spec["arm"],
            "variant": variant.name,
            "seq": length,
            **asdict(place),
            "pass": turn,
            "text": text,
            "tokens": variant.shapes[length][text][1],
            "first_shape": variant.first_sight(length, text),
        }

    def _order(self, length: int, turn: int) -> list[int]:
        """Texts of a pass, permuted; the same for all encoders, so that they stay comparable."""
        if (length, turn) not in self.orders:
            count = self.spec["texts"]
            self.orders[length, turn] = self.draw.sample(range(count), k=count)
        return self.orders[length, turn]

    def _note_block(
        self,
        variant: Variant,
        length: int,
        cycle: int,
        block: int,
        before: Reading,
        after: Reading,
    ) -> None:
        grown = {
            name: None if start is None else getattr(after, name) - start
            for name in ("own_cpu_ns", "host_busy_ns", "steal_ns", "nr_throttled", "throttled_us")
            for start in [getattr(before, name)]
        }
        self.blocks.append(
            {
                "unit": self.spec["unit"],
                "round": self.spec["round"],
                "arm": self.spec["arm"],
                "variant": variant.name,
                "seq": length,
                "cycle": cycle,
                "block": block,
                "start_ns": before.time_ns,
                "wall_ns": after.time_ns - before.time_ns,
                **grown,
                "load1": after.load1,
                "gpu_processes": after.gpu_processes,
                "sm_clock_mhz": after.sm_clock_mhz,
            }
        )

    def _shuffled(self) -> list[Variant]:
        return self.draw.sample(self.variants, k=len(self.variants))

    def _fail(self, name: str, error: Exception) -> None:
        reason = str(error).strip().splitlines()
        self.failures[name] = f"{type(error).__name__}: {reason[0] if reason else ''}"
        self.variants = [variant for variant in self.variants if variant.name != name]

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.collections += 1
