"""What the device itself does in a forward pass: how long it is busy, and with which kernels.

A CUDA graph replays the kernels of a forward pass without Python, dispatcher and launches, so its
time is the device's own. End to end over that is how far a call is bound by the host; at batch 1 it
is most of it. Everything here happens outside the timed calls.
"""

import statistics
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from ray_ablation.latency.variant import Features, Variant

REPLAYS = 30
SIGNS = ("attention", "flash", "fmha", "sdpa", "cudnn")
"""Parts of the names of kernels and operators that compute attention."""


class Graphs:
    """The forward pass of one encoder as CUDA graphs, one for each shape of input.

    Without an attention mask: building one looks into its data, which a graph cannot. So only
    inputs without padding can be given.
    """

    def __init__(self, variant: "Variant") -> None:
        transformer: Any = variant.encoder[0]
        self._model: Any = transformer.auto_model
        self._made: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Features, Tensor]] = {}

    def forward(self, features: "Features") -> "Features":
        """States of a call, in memory that the next call overwrites."""
        shape = tuple(features["input_ids"].shape)
        if shape not in self._made:
            self._made[shape] = self._capture(features)
        graph, inputs, output = self._made[shape]
        for name, tensor in inputs.items():
            tensor.copy_(features[name])
        graph.replay()
        return features | {"token_embeddings": output}

    def busy_ms(self, features: "Features") -> float:
        """Median time of a replay, by events on the device."""
        self.forward(features)
        graph, _, _ = self._made[tuple(features["input_ids"].shape)]
        times: list[float] = []
        for _ in range(REPLAYS):
            start, end = event(), event()
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
        return statistics.median(times)

    def _capture(self, features: "Features") -> "tuple[torch.cuda.CUDAGraph, Features, Tensor]":
        if not bool(features["attention_mask"].all()):
            raise ValueError("a CUDA graph takes no padded input")
        inputs = {k: v.clone() for k, v in features.items() if k != "attention_mask"}
        side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries make their plans before the capture
            for _ in range(3):
                self._model(**inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output: Tensor = self._model(**inputs).last_hidden_state
        return graph, inputs, output


def event() -> Any:
    """A mark in the device's stream that tells the time."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def attention_kernels(variant: "Variant", length: int) -> list[str]:
    """Names of what computed attention in one call, longest time first; [] without a profiler."""
    activities = [ProfilerActivity.CPU]
    if variant.device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    try:
        with torch.inference_mode(), profile(activities=activities) as profiler:
            variant.embed(variant.texts[length][0], length)
    except RuntimeError:
        return []
    events = sorted(profiler.key_averages(), key=lambda e: -(e.device_time or e.cpu_time))
    names = [event.key for event in events if any(sign in event.key.lower() for sign in SIGNS)]
    return names[:8]
