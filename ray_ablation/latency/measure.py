"""The measuring loop: warm up, interleave the encoders, time every call, keep every sample.

All encoders of a comparison live in one process. After the warm-up, a cycle visits each of them
once, in an order drawn anew, for a block of five calls; so each pair is compared under the same
machine state, cycle by cycle. An encoder alone in its process goes through the same cycles. Staged
calls follow the measured ones, so that their marks touch none of those. Guards are read between
blocks.

Without the time for it, less is measured and the record says how much: the warm-up takes at most a
quarter of a length's time, staged calls the last tenth.
"""

import math
import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from ray_ablation.latency import device
from ray_ablation.latency.conditions import Conditions
from ray_ablation.latency.estimate import steady_ratio
from ray_ablation.latency.guards import Guards, Reading
from ray_ablation.latency.timing import Place, Timer
from ray_ablation.latency.variant import Variant, load
from ray_ablation.latency.verdict import RULES

STAGED_CYCLES = 6
WARMUP_LIMIT_S = 60.0
"""A warm-up that is not steady by then is over, and the record says so."""
WARMUP_S = 2.0
"""A clock needs this long to rise; fewer where four times the warm-up calls take less."""
WARMUP_LEAST = 2
"""Warm-up calls that no lack of time takes away: the first one builds plans and caches."""
GROWING = ("own_cpu_ns", "host_busy_ns", "steal_ns", "nr_throttled", "throttled_us")


class Session:
    """One process's measurement; `timer.samples` and `blocks` fill as `run` goes on.

    Args:
        spec: The unit, as `plan` made it and `lease` completed it.
        guards: Counters of this machine.
    """

    def __init__(self, spec: dict[str, Any], guards: Guards) -> None:
        self.spec = spec
        self.conditions = Conditions(**spec.get("conditions", {}))
        self.device: str = spec["device"]
        self.block: int = spec["block"]
        self.deadline: float = spec["deadline_s"]
        self.draw = random.Random(spec["seed"])
        self.timer, self.guards = Timer(spec), guards
        self.blocks: list[dict[str, Any]] = []
        self.warmups: list[dict[str, Any]] = []
        self.failures: dict[str, str] = {}
        self.busy_ms: dict[str, dict[str, float]] = {}
        self.not_captured: dict[str, str] = {}
        self.variants: list[Variant] = []
        for name in spec["variants"]:
            try:
                self.variants.append(load(name, spec, self.conditions))
            except Exception as error:  # recorded by name, and the others go on
                self._fail(name, error)

    def run(self) -> None:
        """Measure every length, in an order drawn anew, each within its share of the time."""
        lengths = self.draw.sample(self.spec["lengths"], k=len(self.spec["lengths"]))
        if "measure_s" in self.spec:
            # The measured part alone is limited: loading does not count, and one cycle is
            # measured in any case.
            self.deadline = time.monotonic() + self.spec["measure_s"]
        with torch.inference_mode():
            for index, length in enumerate(lengths):
                now = time.monotonic()
                share = (self.deadline - now) / (len(lengths) - index)
                if not self.variants or share <= 0:
                    return
                cycle_s = self._warm_up(length, now + 0.25 * share)
                self._interleave(length, now + 0.9 * share, cycle_s)
                self._staged(length, now + share)
                if self.device == "cuda" and self.spec["inputs"] == "exact":
                    self._device_busy(length)

    def describe(self) -> dict[str, Any]:
        """What was loaded, what failed, how the warm-up went."""
        first = self.spec["lengths"][0]
        return {
            "variants": {variant.name: variant.describe() for variant in self.variants},
            "failures": self.failures,
            "warmups": self.warmups,
            "collections": self.timer.collections,
            "timer_ns": _clock_step_ns(),
            "p50_ms": self._p50s_ms(),
            "device_busy_ms": self.busy_ms,
            "not_captured": self.not_captured,
            "attention": {v.name: device.attention_kernels(v, first) for v in self.variants},
            "compiled_graphs": int(torch._dynamo.utils.counters["stats"]["unique_graphs"])
            if self.conditions.compile
            else None,
        }

    # phases

    def _warm_up(self, length: int, until: float) -> float:
        """Each shape twice, then calls in turn until all encoders are steady.

        `warmup_calls` to four times as many; a fixed number where conditions say so.

        Returns:
            Seconds that a cycle will take, by the medians seen.
        """
        least = self.spec["warmup_calls"]
        started = time.monotonic()
        limit = min(until, started + WARMUP_LIMIT_S)
        window = max(3, least // 2)
        walls: dict[str, list[int]] = {variant.name: [] for variant in self.variants}
        if self.conditions.steady:
            self._see_shapes_twice(length, limit)
        for turn in range(4 * least if self.conditions.steady else least):
            if turn >= WARMUP_LEAST and time.monotonic() >= limit:
                break
            long_enough = turn >= least and time.monotonic() >= started + WARMUP_S
            if long_enough and self._steady(walls, window):
                break
            for variant in self._shuffled():
                if (wall_ns := self._try(variant, length, Place("warmup", turn, turn))) is not None:
                    walls[variant.name].append(wall_ns)
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

    def _see_shapes_twice(self, length: int, limit: float) -> None:
        for variant in self._shuffled():
            for text in 2 * variant.one_of_each_shape(length):
                if time.monotonic() < limit and variant in self.variants:
                    self._try(variant, length, Place("warmup", 0, 0), text)

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
        if "measure_s" in self.spec:
            cycle_s = 0.0
        for cycle in range(math.ceil(self.spec["calls"] / self.block)):
            started = time.monotonic()
            if not self.variants or (cycle_s and started + cycle_s > until):
                return
            before = self.guards.read()
            for variant in self._shuffled():
                for position in range(self.block):
                    call = cycle * self.block + position
                    self._try(variant, length, Place("measured", call, cycle, block, position))
                after = self.guards.read()
                self._note_block(variant, length, (cycle, block), before, after)
                before, block = after, block + 1
            cycle_s = time.monotonic() - started

    def _staged(self, length: int, until: float) -> None:
        for cycle in range(STAGED_CYCLES):
            for variant in self._shuffled():
                for position in range(self.block):
                    if time.monotonic() >= until:
                        return
                    place = Place("staged", cycle * self.block + position, cycle, None, position)
                    self._guarded(variant, self.timer.staged, variant, length, place)

    def _device_busy(self, length: int) -> None:
        for variant in list(self.variants):
            features = variant.to_device(variant.tokenise(variant.texts[length][0], length))
            try:
                busy_ms = device.Graphs(variant).busy_ms(features)
            except (RuntimeError, ValueError) as error:  # no such number then
                self.not_captured[variant.name] = str(error).splitlines()[0]
                continue
            self.busy_ms.setdefault(variant.name, {})[str(length)] = busy_ms

    # calls

    def _try(self, variant: Variant, length: int, place: Place, text: int | None = None) -> Any:
        """The wall time of a call in ns; None when it failed, and the encoder is out then."""
        return self._guarded(variant, self.timer.call, variant, length, place, text)

    def _guarded(self, variant: Variant, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Exception as error:  # recorded by name, and the others go on
            self._fail(variant.name, error)
            return None

    def _note_block(
        self,
        variant: Variant,
        length: int,
        place: tuple[int, int],
        before: Reading,
        after: Reading,
    ) -> None:
        grown = {
            name: None if start is None else getattr(after, name) - start
            for name in GROWING
            for start in [getattr(before, name)]
        }
        self.blocks.append(
            {
                **{name: self.spec[name] for name in ("unit", "round", "arm")},
                "variant": variant.name,
                "seq": length,
                "cycle": place[0],
                "block": place[1],
                "start_ns": before.time_ns,
                "wall_ns": after.time_ns - before.time_ns,
                **grown,
                "load1": after.load1,
                "gpu_processes": after.gpu.processes,
                "gpu_throttled": after.gpu.throttled,
                "sm_clock_mhz": after.gpu.sm_clock_mhz,
                "mem_clock_mhz": after.gpu.mem_clock_mhz,
                "gpu_temperature_c": after.gpu.temperature_c,
                "gpu_power_w": after.gpu.power_w,
            }
        )

    def _p50s_ms(self) -> dict[str, dict[str, float]]:
        """Variant -> length -> median of its measured calls, by which a profile knows its end."""
        walls: dict[tuple[str, str], list[int]] = {}
        for sample in self.timer.samples:
            if sample["phase"] == "measured":
                walls.setdefault((sample["variant"], str(sample["seq"])), []).append(
                    sample["wall_ns"]
                )
        found: dict[str, dict[str, float]] = {}
        for (name, length), times in walls.items():
            found.setdefault(name, {})[length] = float(np.median(times)) / 1e6
        return found

    def _shuffled(self) -> list[Variant]:
        return self.draw.sample(self.variants, k=len(self.variants))

    def _fail(self, name: str, error: Exception) -> None:
        reason = str(error).strip().splitlines()
        self.failures[name] = f"{type(error).__name__}: {reason[0] if reason else ''}"
        self.variants = [variant for variant in self.variants if variant.name != name]


def _clock_step_ns() -> int:
    """The smallest step of the clock that times calls, as seen."""
    reads = [time.perf_counter_ns() for _ in range(1000)]
    steps = [later - earlier for earlier, later in pairwise(reads)]
    return min((step for step in steps if step > 0), default=0)
