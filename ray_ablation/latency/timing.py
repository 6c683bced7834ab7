"""One timed call: end to end and untouched, or staged with marks at its borders.

End to end is what a user waits for: tokenise, copy to the device, forward, pool and normalise, copy
back, which waits for the device. Nothing is marked inside it. Where the time goes is asked of
separate staged calls; on a GPU their marks are events in its stream, so that no border waits, and a
stage ends when the device has done it.
"""

import gc
import random
import resource
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ray_ablation.latency.device import event
from ray_ablation.latency.samples import STAGES
from ray_ablation.latency.variant import Variant

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
    block: int | None = None
    position: int = 0


class Timer:
    """Calls encoders and keeps every sample."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.idle_s = spec.get("conditions", {}).get("idle_ms", 0.0) / 1e3
        self.samples: list[dict[str, Any]] = []
        self.collections = 0
        self._orders: dict[tuple[int, int], list[int]] = {}
        cuda = spec["device"] == "cuda"
        self._events = [event() for _ in range(6)] if cuda else []
        gc.callbacks.append(self._collected)

    def call(self, variant: Variant, length: int, place: Place, text: int | None = None) -> int:
        """One end-to-end call; its wall time in ns.

        Args:
            text: Which; None takes the next of the present pass.
        """
        sample = self._sample(variant, length, place, text)
        texts = variant.texts[length][sample["text"]]
        if self.idle_s:
            time.sleep(self.idle_s)
        collections, before = self.collections, resource.getrusage(RUSAGE)
        cpu_ns, start_ns = time.process_time_ns(), time.perf_counter_ns()
        embedding = variant.call(texts, length)
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

    def staged(self, variant: Variant, length: int, place: Place) -> None:
        """One call with its borders marked."""
        sample = self._sample(variant, length, place, None)
        texts = variant.texts[length][sample["text"]]
        start_ns = time.perf_counter_ns()
        if self._events:
            embedding = self._through(variant, texts, length, lambda i: self._events[i].record())
            wall_ns = time.perf_counter_ns() - start_ns
            torch.cuda.synchronize()
            times = [round(1e6 * a.elapsed_time(b)) for a, b in pairwise(self._events)]
        else:
            borders = [start_ns] * 6

            def mark(i: int) -> None:
                borders[i] = time.perf_counter_ns()

            embedding = self._through(variant, texts, length, mark)
            wall_ns = borders[-1] - start_ns
            times = [end - begin for begin, end in pairwise(borders)]
        stages = {f"{stage}_ns": ns for stage, ns in zip(STAGES, times, strict=True)}
        finite = bool(torch.isfinite(embedding).all())
        self.samples.append(
            sample | stages | {"start_ns": start_ns, "wall_ns": wall_ns, "finite": finite}
        )

    @staticmethod
    def _through(variant: Variant, texts: list[str], length: int, mark: Any) -> Tensor:
        mark(0)
        features = variant.tokenise(texts, length)
        mark(1)
        features = variant.to_device(features)
        mark(2)
        states = variant.forward(features)
        mark(3)
        embedding = variant.pool(states)
        mark(4)
        copied = embedding.cpu()
        mark(5)
        return copied

    def _sample(
        self, variant: Variant, length: int, place: Place, text: int | None
    ) -> dict[str, Any]:
        turn, index = divmod(place.call, self.spec["texts"])
        if text is None:
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
        if (length, turn) not in self._orders:
            draw = random.Random(f"{self.spec['seed']} {length} {turn}")
            count = self.spec["texts"]
            self._orders[length, turn] = draw.sample(range(count), k=count)
        return self._orders[length, turn]

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.collections += 1
