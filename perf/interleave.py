"""Two arms that do the same work, timed in turns in one process.

The arms alternate, and so does which of them goes first: a machine that throttles or is shared
slows both, and the ratio taken within each block hardly moves. What is judged is the median of
those ratios; the smallest and the largest stand beside it.
"""

import argparse
import gc
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import sentence_transformers
import torch
import transformers


@dataclass(frozen=True)
class Timed:
    """One arm's part of a block.

    Attributes:
        seconds: Wall clock.
        work: Steps or documents done in them.
        padded_tokens: Tokens per step or document that went through the encoder, padding included.
    """

    seconds: float
    work: int
    padded_tokens: float

    @property
    def ms_per_step(self) -> float:
        """Milliseconds per unit of work."""
        return 1e3 * self.seconds / self.work

    @property
    def docs_per_s(self) -> float:
        """Units of work per second."""
        return self.work / self.seconds


@dataclass(frozen=True)
class Bar:
    """What is compared, and what the ratio ours / stock must reach.

    Attributes:
        value: Name of a property of `Timed`.
        limit: The ratio.
        lower_is_better: The ratio must be at most the limit, not at least.
    """

    value: str
    limit: float
    lower_is_better: bool

    def verdict(self, ratios: list[float]) -> str:
        """One sentence on the median ratio."""
        median = statistics.median(ratios)
        met = median <= self.limit if self.lower_is_better else median >= self.limit
        better, side = ("lower", "at most") if self.lower_is_better else ("higher", "at least")
        return (
            f"The bar is {'met' if met else 'NOT met'}: {self.value} of ours / stock is "
            f"{median:.3f} (median of {len(ratios)}; {min(ratios):.3f} to {max(ratios):.3f}), "
            f"{better} is better, and {side} {self.limit} is asked."
        )


class PaddedTokens:
    """Counts the tokens that go through an encoder, padding included."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        self.count = 0
        first: Any = next(iter(encoder.children()))
        first.register_forward_pre_hook(self._add)

    def _add(self, module: torch.nn.Module, inputs: tuple[dict[str, torch.Tensor], ...]) -> None:
        self.count += inputs[0]["input_ids"].numel()


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all comparisons share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="FOLDER")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=5)
    return parser


def set_threads(threads: int) -> None:
    """Let torch and the tokenizers compute with this many; call it before either has begun."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # the tokenizers' pool, made at first use
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    torch.set_num_threads(threads)


def compare(
    title: str,
    ours: Callable[[int], Timed],
    stock: Callable[[int], Timed],
    bar: Bar,
    blocks: int,
) -> None:
    """Time both arms in turns, and print a table and the verdict.

    Args:
        title: What both arms do.
        ours: Does the work of the block whose number it is given.
        stock: The same work in the library.
        bar: What to compare and when it is good enough.
        blocks: How many pairs.
    """
    pairs = [_pair(block, ours, stock) for block in range(blocks)]
    print(f"\n{title}\n{_machine()}\n")
    print(_table(pairs, bar).to_string(float_format="{:.3f}".format))
    print("\n" + bar.verdict([_ratio(pair, bar) for pair in pairs]), flush=True)


Pair = tuple[Timed, Timed]


def _pair(block: int, ours: Callable[[int], Timed], stock: Callable[[int], Timed]) -> Pair:
    timed = {}
    for arm in (ours, stock) if block % 2 == 0 else (stock, ours):
        gc.collect()  # no arm pays for what the other one left
        timed[arm] = arm(block)
    return timed[ours], timed[stock]


def _ratio(pair: Pair, bar: Bar) -> float:
    ours, stock = (float(getattr(timed, bar.value)) for timed in pair)
    return ours / stock


def _table(pairs: list[Pair], bar: Bar) -> pd.DataFrame:
    columns: dict[tuple[str, str], list[float]] = {}
    for name in ("seconds", bar.value, "padded_tokens"):
        for i, arm in enumerate(("ours", "stock")):
            columns[name, arm] = [float(getattr(pair[i], name)) for pair in pairs]
    columns["ours / stock", bar.value] = [_ratio(pair, bar) for pair in pairs]
    frame = pd.DataFrame(columns, index=[f"block {i}" for i in range(1, len(pairs) + 1)])
    return pd.concat([frame, frame.agg(["median", "min", "max"])])


def _machine() -> str:
    versions = ", ".join(
        f"{module.__name__} {module.__version__}"
        for module in (torch, transformers, sentence_transformers)
    )
    load = os.getloadavg()[0]
    return f"{torch.get_num_threads()} threads of {os.cpu_count()}, load {load:.1f}; {versions}"
