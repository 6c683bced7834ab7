"""How fast a trial trains: examples/s, tokens/s, model FLOPs utilisation, peak memory.

Only time spent in training steps counts; evaluation losses and checkpoints are left out, so trials
with different intervals compare. FLOPs are those the model needs, 6 per parameter and token plus
attention (Chowdhery et al. 2022, arXiv:2204.02311, appendix B), on real tokens: padding and
recomputed activations are overhead, not work.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import torch
from torch import nn

from ray_ablation.batches import ChunkPrice

# Dense bf16 peak of the devices studies run on, FLOP/s, from NVIDIA's data sheets (no sparsity).
# The first name found in the device's own wins, so variants stand before their family.
PEAK_FLOPS = {
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
}


# For the price of a chunk, forward and backward: seconds a layer takes whatever is in it (Python,
# launches), FLOP/s that encoders reach, seconds a layer takes per token beside its products, and
# per pair of tokens of a text and head (softmax and its dropout). The CPU's are measured on one
# core with AVX-512; the GPU's launches are those of an eager BERT, its other terms vanish.
LAYER_S = {"cpu": 1.5e-3, "cuda": 0.6e-3}
REACHED_FLOPS = {"cpu": 7e10, "cuda": 3e14}
TOKEN_S = {"cpu": 1e-6, "cuda": 0.0}
PAIR_S = {"cpu": 25e-9, "cuda": 0.0}


def chunk_price(encoder: nn.Module, device: torch.device) -> ChunkPrice:
    """What a chunk of a training step costs, from the encoder's shape alone.

    `fixed` is about 10 tokens for a six-layer MiniLM on a CPU, 1,000 for an encoder of width 16,
    where overhead is all there is, and 4,000 for BERT on a GPU. Nothing measured at run time goes
    in, so a batch is always cut in the same places.
    """
    flops_per_token, _ = _flops(encoder)
    layers, kind = _layers(encoder), device.type
    config: Any = encoder[0].config  # type: ignore[index]
    token_s = flops_per_token / REACHED_FLOPS[kind] + layers * TOKEN_S[kind]
    pair_s = layers * getattr(config, "num_attention_heads", 1) * PAIR_S[kind]
    return ChunkPrice(fixed=layers * LAYER_S[kind] / token_s, per_length=pair_s / token_s)


COUNTS = ("seconds", "examples", "tokens", "padded_tokens", "flops")


class Meter:
    """Counts work between two looks.

    Args:
        encoder: Its parameters and config give FLOPs per token.
        device: Where it trains.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        encoder: nn.Module,
        device: torch.device,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._device, self._clock = device, clock
        self._flops_per_token, self._attention_flops = _flops(encoder)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        self._peak_flops = next((f for key, f in PEAK_FLOPS.items() if key in name), None)
        self.seconds = 0.0
        self.examples = self.tokens = self.padded_tokens = 0
        self.flops = 0.0
        self._last = (0.0, 0, 0, 0.0)

    def counts(self) -> dict[str, float]:
        """All that was counted, for a checkpoint."""
        return {name: getattr(self, name) for name in COUNTS}

    def restore(self, counts: dict[str, float]) -> None:
        """Go on counting from there."""
        for name in COUNTS:
            setattr(self, name, counts[name])
        self._last = (self.seconds, self.examples, self.tokens, self.flops)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Time inside counts as training."""
        started = self._clock()
        yield
        self.seconds += self._clock() - started

    def count(self, examples: int, tokens: int, padded_tokens: int, squares: int) -> None:
        """Add a step's work; `squares` is the sum of squared text lengths."""
        self.examples += examples
        self.tokens += tokens
        self.padded_tokens += padded_tokens
        self.flops += self._flops_per_token * tokens + self._attention_flops * squares

    def rates(self) -> dict[str, Any]:
        """Rates since the last call."""
        now = (self.seconds, self.examples, self.tokens, self.flops)
        seconds, examples, tokens, flops = (a - b for a, b in zip(now, self._last, strict=True))
        self._last = now
        return self._rates(seconds, examples, tokens, flops)

    def total(self) -> dict[str, Any]:
        """Rates over all that was counted."""
        return self._rates(self.seconds, self.examples, self.tokens, self.flops)

    def _rates(
        self, seconds: float, examples: float, tokens: float, flops: float
    ) -> dict[str, Any]:
        known = seconds > 0
        mfu = flops / seconds / self._peak_flops if known and self._peak_flops else None
        return {
            "examples_per_s": examples / seconds if known else None,
            "tokens_per_s": tokens / seconds if known else None,
            "mfu": mfu,
            "peak_bytes": self._peak_bytes(),
        }

    def _peak_bytes(self) -> int:
        """Most memory allocated on the GPU; on a CPU what the process holds now."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return int(psutil.Process().memory_info().rss)


def _flops(encoder: nn.Module) -> tuple[float, float]:
    """Forward and backward FLOPs per token, and per squared text length."""
    embeddings = sum(
        module.weight.numel() for module in encoder.modules() if isinstance(module, nn.Embedding)
    )
    parameters = sum(p.numel() for p in encoder.parameters()) - embeddings
    config: Any = encoder[0].config  # type: ignore[index]
    return 6.0 * parameters, 12.0 * _layers(encoder) * getattr(config, "hidden_size", 0)


def _layers(encoder: nn.Module) -> int:
    config: Any = encoder[0].config  # type: ignore[index]
    return int(getattr(config, "num_hidden_layers", 1))
