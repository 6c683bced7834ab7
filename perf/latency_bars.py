"""The bars of acceptance of `latency_repeatability`, and the table of its arms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perf.latency_bench import Bench
from ray_ablation.latency import estimate
from ray_ablation.latency.cell import Cell
from ray_ablation.latency.gaps import median, worst

DEEP, SHALLOW, TWIN, SLOWER = "L6", "L3", "L6-twin", "L6-slower"
SPINNERS = 2
LOADS = {"quiet": 0, "2 spinners": SPINNERS}
QUIET, LOADED, NAIVE_LOADED = "paired, quiet", "paired, 2 spinners", "naive, 2 spinners"


@dataclass(frozen=True)
class Bar:
    """One bar of acceptance.

    Attributes:
        figure: None where it could not be measured.
        limit: It must be at most this, or at least where `least`.
    """

    number: int
    says: str
    figure: float | None
    limit: float
    least: bool = False

    def line(self) -> str:
        """As printed: number, words, figure, limit, met or not."""
        if self.figure is None:
            return f"{self.number}. {self.says}: not measured"
        met = self.figure >= self.limit if self.least else self.figure <= self.limit
        side = "at least" if self.least else "at most"
        verdict = "met" if met else "NOT met"
        figure = f"measured {self.figure:.3f}, {side} {self.limit:g}"
        return f"{self.number}. {self.says}: {figure}: {verdict}"


def table(bench: Bench, arms: Sequence[str]) -> pd.DataFrame:
    """Each arm and load: p50 over processes and its spread, tail, and the ratio's."""
    rows = []
    for load in LOADS:
        for arm in arms:
            where = arm_name(arm, load)
            deep, shallow = (bench.cell(name, where) for name in (DEEP, SHALLOW))
            ratios = _ratios(bench, where)
            rows.append(
                {
                    "load": load,
                    "arm": arm,
                    f"{DEEP} p50 ms": _range(_p50s(deep)),
                    "max/min": _spread(_p50s(deep)),
                    "p95/p50": _range(_tails(deep)),
                    f"{SHALLOW} p50 ms": _range(_p50s(shallow)),
                    f"{DEEP}/{SHALLOW}": _range(ratios, 3),
                    "ratio max/min": _spread(ratios),
                    "CPU ratio": _range(_cpu_ratios(bench, where), 3),
                    "verdicts": _verdicts(deep),
                }
            )
    return pd.DataFrame(rows)


def bars(bench: Bench, oracle: float | None) -> list[Bar]:
    """The bars of this machine, in order.

    Args:
        oracle: Our median over that of torch's own timer.
    """
    twins = [abs(ratio - 1) for ratio in _pair(bench, TWIN, DEEP, QUIET)]
    quiet, loaded, naive = (_ratios(bench, arm) for arm in (QUIET, LOADED, NAIVE_LOADED))
    cpu = _cpu_ratios(bench, QUIET)
    p50s = [median(_p50s(bench.cell(DEEP, arm))) for arm in (QUIET, LOADED)]
    slower = [float(ratio > 1) for ratio in _pair(bench, SLOWER, DEEP, QUIET)]
    judged = _judged(bench)
    seen = [float(bool({"host_busy", "preempted"} & codes)) for _, codes in judged]
    passed = [float(verdict == "stable") for verdict, _ in judged]
    spreads = _over(_log_spread(loaded), _log_spread(naive))
    return [
        Bar(1, "A/A, median |ratio - 1|", median(twins), 0.015),
        Bar(1, "A/A, worst process", worst(twins), 0.05),
        Bar(2, "ratio over processes, max/min", estimate.spread(quiet), 1.06),
        Bar(2, "CPU-time ratio over processes, max/min", estimate.spread(cpu), 1.05),
        Bar(3, "log spread of the ratio under load, paired / naive", spreads, 1 / 3),
        Bar(4, "ratio under load / quiet, off from 1", _off(median(loaded), median(quiet)), 0.05),
        Bar(4, "p50 under load / quiet (was it a load?)", _over(p50s[1], p50s[0]), 1.5, least=True),
        Bar(5, "share of loaded processes that are seen", _mean(seen), 1.0, least=True),
        Bar(5, "share of loaded processes that pass for stable", _mean(passed), 0.0),
        Bar(8, "our median / torch.utils.benchmark's, off from 1", _off(oracle, 1.0), 0.05),
        Bar(9, "share of processes that rank the slower one", _mean(slower), 1.0, least=True),
    ]


def arm_name(arm: str, load: str) -> str:
    """An arm under a load."""
    return f"{arm}, {load}"


def _ratios(bench: Bench, arm: str) -> list[float]:
    """Deep over shallow, per round; by cycles where they share a process (naive has one cycle)."""
    if not arm.startswith("solo"):
        return _pair(bench, DEEP, SHALLOW, arm)
    both = [_p50s(bench.cell(name, arm)) for name in (DEEP, SHALLOW)]
    return [deep / shallow for deep, shallow in zip(*both, strict=True)]


def _pair(bench: Bench, a: str, b: str, arm: str) -> list[float]:
    process = bench.cell(a, arm).ratio(bench.cell(b, arm))["process"]
    return [ratio for ratio in process if ratio is not None]


def _cpu_ratios(bench: Bench, arm: str) -> list[float]:
    both = [
        [float(frame["cpu_ms"].median()) for frame in bench.cell(name, arm).calls.values()]
        for name in (DEEP, SHALLOW)
    ]
    return [deep / shallow for deep, shallow in zip(*both, strict=True)]


def _p50s(cell: Cell) -> list[float]:
    return [float(np.median(calls)) for calls in cell.walls_ms()]


def _tails(cell: Cell) -> list[float]:
    """Exploratory with fewer calls than a p95 takes in a profile."""
    return [float(np.quantile(calls, 0.95) / np.median(calls)) for calls in cell.walls_ms()]


def _judged(bench: Bench) -> list[tuple[str, set[str]]]:
    """Every loaded process of the paired arm by itself: verdict and codes of its reasons."""
    found = []
    for process in bench.cell(DEEP, LOADED).processes:
        one = bench.cell_of(DEEP, [process])
        # How much was measured is not the question here.
        said = one.result("cpu", "exact", {"n_processes": None, "n_calls": None})
        found.append((said["verdict"], {reason["code"] for reason in said["reasons"]}))
    return found


def _verdicts(cell: Cell) -> str:
    result = cell.result("cpu", "exact", {})
    return f"{result['verdict']} ({', '.join(r['code'] for r in result['reasons'])})"


def _log_spread(ratios: Sequence[float]) -> float | None:
    spread = estimate.spread(ratios)
    return None if spread is None else math.log(spread)


def _over(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _off(value: float | None, base: float | None) -> float | None:
    ratio = _over(value, base)
    return None if ratio is None else abs(ratio - 1)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _spread(values: Sequence[float]) -> str:
    spread = estimate.spread(values)
    return "-" if spread is None else f"{spread:.3f}"


def _range(values: Sequence[float], digits: int = 1) -> str:
    return f"{min(values):.{digits}f}..{max(values):.{digits}f}" if values else "-"
