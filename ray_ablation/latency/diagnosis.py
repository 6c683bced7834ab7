"""What the runs of a root-cause study say, in figures and in words. Pure.

Three responses: p50, the tail p95/p50, and the share of calls that stall. p95 is taken from fewer
calls than a profile asks for; here it is the outcome of an experiment, compared between runs, never
a figure of an encoder.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from ray_ablation.latency.design import Effect, effects
from ray_ablation.latency.estimate import Array
from ray_ablation.latency.factors import FACTORS
from ray_ablation.latency.gaps import median
from ray_ablation.latency.stalls import stalls_of

SIGNATURE = {"p95_over_p50": (15.0, 30.0), "stall_share": (0.08, 0.16), "stall_spread": (1.0, 1.02)}
"""What the published ladder showed: the ranges of a run that reproduces it. `stall_spread` is the
longest stall over the shortest, over encoders of different depth."""
SIGNS = {
    "p95_over_p50": "p95 over p50",
    "stall_share": "share of calls that stall",
    "stall_spread": "length of a stall, deepest over shallowest encoder",
}
RESPONSES = {"p50": "log_p50", "the tail, p95/p50": "log_tail", "the stall share": "stall_share"}
"""In words -> the column of a run."""


@dataclass(frozen=True)
class Prediction:
    """Written down before anything is measured.

    Attributes:
        says: What is expected.
        cuda: It speaks of a GPU only.
    """

    says: str
    cuda: bool = False


def outcome(samples: pd.DataFrame, variants: Sequence[str]) -> dict[str, Any]:
    """What one process showed.

    Args:
        samples: Of the process, measured calls.
        variants: Deepest first; the responses are of the first.

    Returns:
        p50_ms, p95_over_p50, log_p50, log_tail, stall_share, stall_ms, cause, ratio (shallowest
        over deepest), stall_spread; None where there is nothing.
    """
    found = {name: _one(samples[samples["variant"] == name]) for name in variants}
    first, last = found[variants[0]], found[variants[-1]]
    stalls_ms = [one["stall_ms"] for one in found.values()]
    known = [ms for ms in stalls_ms if ms is not None]
    both = len(known) == len(variants) > 1
    p50s = (first["p50_ms"], last["p50_ms"])
    return {
        **first,
        "ratio": p50s[1] / p50s[0] if all(p50s) and len(variants) > 1 else None,
        "stall_spread": max(known) / min(known) if both else None,
    }


def _one(calls: pd.DataFrame) -> dict[str, Any]:
    calls = calls.assign(wall_ms=calls["wall_ns"] / 1e6).reset_index(drop=True)
    if calls.empty:
        empty = ("p50_ms", "p95_over_p50", "log_p50", "log_tail", "stall_share", "stall_ms")
        return dict.fromkeys((*empty, "cause"))
    p50, p95 = np.quantile(calls["wall_ms"], [0.5, 0.95])
    stalls = stalls_of(calls)
    return {
        "p50_ms": float(p50),
        "p95_over_p50": float(p95 / p50),
        "log_p50": math.log(p50),
        "log_tail": math.log(p95 / p50),
        "stall_share": stalls.share,
        "stall_ms": stalls.median_ms,
        "cause": stalls.cause,
    }


def screen_effects(
    levels: Array, runs: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, Effect]]:
    """Response in words -> factor -> effect, the largest first."""
    found = {}
    for words, column in RESPONSES.items():
        by_name = dict(zip(names, effects(levels, [run[column] for run in runs]), strict=True))
        order = sorted(by_name, key=lambda name: -abs(by_name[name].est or 0.0))
        found[words] = {name: by_name[name] for name in order}
    return found


def top(found: Mapping[str, Mapping[str, Effect]], count: int = 3) -> list[str]:
    """The factors with the largest effects, in turn by each response."""
    ranked = [list(by_name) for by_name in found.values()]
    turns = [name for row in zip(*ranked, strict=True) for name in row]
    return list(dict.fromkeys(turns))[:count]


def moved(words: str, by_name: Mapping[str, Effect]) -> str:
    """A sentence: which factors move a response, and how far."""
    clear = {name: effect for name, effect in by_name.items() if effect.clear}
    rest = ", ".join(name for name in by_name if name not in clear)
    if not clear:
        largest = [f"{n} ({_size(words, e)})" for n, e in by_name.items() if e.lo is not None][:3]
        beyond = f" beyond chance; the largest: {', '.join(largest)}" if largest else ""
        return f"No factor is seen to move {words}{beyond}."
    said = [f"{name} ({_size(words, effect)})" for name, effect in clear.items()]
    return f"What moves {words}: {', '.join(said)}. Not seen to move it: {rest or 'none'}."


def _size(words: str, effect: Effect) -> str:
    est, low, high = (value or 0.0 for value in (effect.est, effect.lo, effect.hi))
    if RESPONSES[words].startswith("log_"):
        ends = [math.exp(value) for value in (est, low, high)]
        return "×{:.2f}, 95 % interval {:.2f} to {:.2f}".format(*ends)
    return f"{100 * est:+.1f} points, {100 * low:+.1f} to {100 * high:+.1f}"


def reproduction(cells: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Each cell against the published signature: criteria with value, range and whether met."""
    found = []
    for cell, runs in cells.items():
        values = {name: median(run.get(name) for run in runs) for name in SIGNATURE}
        criteria = [
            {"code": name, "value": values[name], "range": list(ends), "met": _within(value, ends)}
            for name, ends in SIGNATURE.items()
            for value in [values[name]]
        ]
        met = [one["met"] for one in criteria]
        found.append({"cell": cell, "criteria": criteria, "reproduced": all(met)})
    return found


def reproduced_words(found: Sequence[Mapping[str, Any]]) -> str:
    """Does anything that was tried show the published signature?"""
    cells = [one["cell"] for one in found if one["reproduced"]]
    if cells:
        return f"The published signature is reproduced by: {'; '.join(cells)}."
    if not found:
        return "Nothing was measured that could reproduce the published signature."
    closest = max(found, key=lambda one: sum(bool(c["met"]) for c in one["criteria"]))
    said = [
        f"{SIGNS[c['code']]} {'not seen' if c['value'] is None else format(c['value'], '.3g')} "
        f"(published {c['range'][0]:g} to {c['range'][1]:g})"
        for c in closest["criteria"]
    ]
    return (
        "The published signature is not reproduced by anything tried here; the closest is "
        f"{closest['cell']}: {', '.join(said)}."
    )


def _within(value: float | None, ends: tuple[float, float]) -> bool:
    return value is not None and ends[0] <= value <= ends[1]


def one_at_a_time(
    base: Sequence[Mapping[str, Any]], changed: Sequence[Mapping[str, Any]]
) -> dict[str, float | None]:
    """A cell against its base: p50 and tail as ratios, stall share as a difference."""

    def of(runs: Sequence[Mapping[str, Any]], name: str) -> float | None:
        return median(run.get(name) for run in runs)

    def ratio(name: str) -> float | None:
        over, under = of(changed, name), of(base, name)
        return over / under if over and under else None

    shares = of(changed, "stall_share"), of(base, "stall_share")
    known = shares[0] is not None and shares[1] is not None
    return {
        "p50_ratio": ratio("p50_ms"),
        "tail_ratio": ratio("p95_over_p50"),
        "stall_share_change": (shares[0] or 0.0) - (shares[1] or 0.0) if known else None,
    }


def interaction(cells: Mapping[tuple[bool, bool], Sequence[Mapping[str, Any]]]) -> float | None:
    """Of two factors on p50: both over what either alone would multiply to; 1 for none."""
    p50 = {key: median(run.get("p50_ms") for run in runs) for key, runs in cells.items()}
    none, first, second, both = (
        p50.get(key) for key in ((False, False), (True, False), (False, True), (True, True))
    )
    if not (none and first and second and both):
        return None
    return both * none / (first * second)


def check_predictions(
    device: str,
    variants: Sequence[str],
    alone: Mapping[str, Mapping[str, float | None]],
    cells: Mapping[str, Any],
) -> list[dict[str, Any]]:
    """Each prediction with whether it came true; None where it was not tested.

    Args:
        variants: Deepest and shallowest encoder.
        alone: Factor -> what it does when it alone is added to the controlled base.
        cells: Cell -> its runs.
    """

    def p50(name: str) -> float | None:
        return alone.get(name, {}).get("p50_ratio")

    def small(*names: str) -> bool | None:
        known = [value for name in names if (value := p50(name)) is not None]
        return all(abs(value - 1) < 0.05 for value in known) if known else None

    def above(name: str, limit: float) -> bool | None:
        value = p50(name)
        return None if value is None else value > limit

    def of(cell: str, name: str) -> float | None:
        return median(run.get(name) for run in cells.get(cell, []))

    quiet, wild = (
        of(cell, "stall_share") for cell in ("controlled", "controlled + warmup + inputs + sdpa")
    )
    bare, wrapped = (of(cell, "ratio") for cell in ("controlled", "controlled + path"))
    ladder = list(variants) == ["L12", "L3"]
    answers = {
        "shapes": None if quiet is None or wild is None else quiet < 0.005 and wild > 0.005,
        "leftovers": small("gc", "process"),
        "cotenants": above("cotenants", 1.3),
        "wrapper": 2.3 <= 1 / bare <= 3.3 and 1.5 <= 1 / wrapped <= 2.3
        if bare and wrapped and ladder
        else None,
    }
    return [
        {"code": code, **asdict(one), "true": answers.get(code)}
        for code, one in PREDICTIONS.items()
        if device == "cuda" or not one.cuda
    ]


def factor_words(device: str, names: Sequence[str]) -> str:
    """Which factors do not exist here."""
    left = [f"{name} ({factor.says})" for name, factor in FACTORS.items() if name not in names]
    return f"Not applicable on {device}: {'; '.join(left)}." if left else "Every factor applies."


PREDICTIONS = {
    "shapes": Prediction(
        "Texts as they come, a fixed warm-up and cuDNN attention stall once per length that is "
        "first seen, alike at all depths; without them fewer than 0.5 % of the calls stall.",
        cuda=True,
    ),
    "leftovers": Prediction(
        "A used process and a heap under garbage collection each move p50 by less than 5 %."
    ),
    "cotenants": Prediction("As many busy processes as cores move p50 by more than 1.3 times."),
    "wrapper": Prediction(
        "Eager, twelve blocks take 2.3 to 3.3 times as long as three on the bare stages, and 1.5 "
        "to 2.3 times in encode.",
        cuda=True,
    ),
    "length": Prediction(
        "Eager, p50 at 512 tokens is at most 1.2 times that at 128, and more than 1.3 times when "
        "replayed as a CUDA graph. A profile with both lengths tells; it is not measured here.",
        cuda=True,
    ),
}
