"""What a published latency ladder says of itself: stalls, steps, and figures that agree too well.

A ladder gives p50, p95 and mean per encoder and nothing else. Three numbers fix a mixture of two
speeds: the fast one is near p50, the slow one near p95, and the mean says how many calls were slow.
That the two speeds are all there is stays an assumption; what follows from it is arithmetic. The
mixture, rebuilt call by call, is judged by the very rules that our own samples are judged by.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from analysis.statistics import linear_fit
from analysis.study import Study
from analysis.table import Column, Table, digits, signed
from ray_ablation.claim import Linear
from ray_ablation.latency import estimate, shape, verdict
from ray_ablation.latency.estimate import Array

FIGURES = ("p50_ms", "p95_ms", "mean_ms")
CALLS = 500
"""Timed calls of a profile, where its report does not say otherwise."""
JITTER = 0.01
"""Spread given to either speed when calls are rebuilt: that of a quiet machine."""
ALIKE = 0.05
"""Counts and sizes of stalls that differ by less than this are equal at all depths."""


@dataclass(frozen=True)
class Line:
    """A published straight line of p50 over depth."""

    intercept: float
    slope: float


@dataclass(frozen=True)
class Forensics:
    """What a ladder says.

    Attributes:
        sentences: In plain words, each with its figures.
        table: The figures per depth.
    """

    sentences: tuple[str, ...]
    table: Table


def forensics(ladder: pd.DataFrame, calls: int = CALLS, line: Line | None = None) -> Forensics:
    """Examine a ladder.

    Args:
        ladder: One row a depth: depth, p50_ms, p95_ms, mean_ms, and experiments, those that share
            the figures, as in "B and E".
        calls: Timed calls behind each row.
        line: The line that was published with it.
    """
    rows = stalls(ladder, calls)
    fit = linear_fit(rows["depth"].astype(float).tolist(), rows["p50_ms"].tolist())
    if fit.intercept is not None and fit.slope is not None:
        rows["residual_ms"] = rows["p50_ms"] - (fit.intercept + fit.slope * rows["depth"])
    judged = [judge(row, calls) for row in rows.to_dict("records")]
    rows["verdict"] = [one["verdict"] for one in judged]
    rows["reasons"] = [", ".join(reason["code"] for reason in one["reasons"]) for one in judged]
    sentences = [
        _counts(rows, calls),
        _sizes(rows),
        _step(rows),
        _lines(rows, line),
        *_copies(rows, calls),
        _verdicts(rows),
    ]
    return Forensics(tuple(filter(None, sentences)), _table(rows, calls))


def of_study(study: Study) -> Forensics | None:
    """Of the ladder a study was published with, held against its line; None without the figures."""
    if study.ladder is None or not {*FIGURES, "depth"} <= set(study.ladder):
        return None
    lines = [
        Line(claim.intercept, claim.slope)
        for claim in study.claims
        if isinstance(claim, Linear) and (claim.of, claim.axis) == ("p50_ms", "depth")
        if claim.intercept is not None and claim.slope is not None
    ]
    ladder = study.ladder.dropna(subset=list(FIGURES))
    return forensics(ladder, line=lines[0] if lines else None) if len(ladder) > 1 else None


def forensic_sentences(study: Study) -> tuple[str, ...]:
    """What a published ladder says of itself; nothing where there is none."""
    return found.sentences if (found := of_study(study)) else ()


def forensics_table(study: Study) -> Table | None:
    """The figures behind those sentences."""
    return found.table if (found := of_study(study)) else None


def stalls(ladder: pd.DataFrame, calls: int = CALLS) -> pd.DataFrame:
    """The ladder, deepest first, with the two-speed mixture of each row.

    Adds share and n_stalls of slow calls, stall_ms that a stall adds, and what n_stalls would be,
    from that of the shallowest, if stalls came by time: by_running of the encoder, by_wall clock.
    """
    rows = ladder.sort_values("depth", ascending=False).reset_index(drop=True)
    rows["stall_ms"] = rows["p95_ms"] - rows["p50_ms"]
    rows["share"] = (rows["mean_ms"] - rows["p50_ms"]) / rows["stall_ms"]
    rows["n_stalls"] = rows["share"] * calls
    base = rows.iloc[-1]
    rows["by_running"] = base["n_stalls"] * rows["p50_ms"] / base["p50_ms"]
    rows["by_wall"] = base["n_stalls"] * rows["mean_ms"] / base["mean_ms"]
    return rows


def rebuild(p50_ms: float, p95_ms: float, share: float, calls: int = CALLS) -> Array:
    """Calls of a two-speed mixture with given quantiles, fastest first.

    Either speed spreads evenly over the quantiles of a normal distribution `JITTER` wide, placed so
    that the whole has the given p50 and p95.
    """
    slow = round(share * calls)
    fast = calls - slow
    at = [(np.arange(count) + 0.5) / max(1, count) for count in (fast, slow)]
    spread = [1 + JITTER * stats.norm.ppf(places) for places in at]
    both = np.concatenate([p50_ms * spread[0], p95_ms * spread[1]])
    for _ in range(3):  # where a quantile falls within its part moves with the part itself
        both[:fast] *= p50_ms / np.median(both)
        both[fast:] *= p95_ms / np.quantile(both, 0.95)
    return both


def judge(row: dict[Any, Any], calls: int = CALLS) -> dict[str, Any]:
    """The verdict on a row, by the rules that its mixture can answer; order is not known."""
    rebuilt = rebuild(row["p50_ms"], row["p95_ms"], row["share"], calls)
    p95 = estimate.percentile(rebuilt, 0.95)
    values = {
        "n_calls": float(calls),
        "tail": None if p95 is None else p95 / float(np.median(rebuilt)),
        "multimodal": shape.mode_ratio(rebuilt),
    }
    return verdict.judge(values, "cuda")


def chance_of_equal_means(row: dict[Any, Any], calls: int, step_ms: float) -> float:
    """Probability that two independent profiles print one mean, stalls coming at random.

    Each mean varies with how many calls stall, a binomial number; their difference is normal, and
    prints as 0 when it is within half a step.
    """
    deviation = row["stall_ms"] * math.sqrt(2 * row["share"] * (1 - row["share"]) / calls)
    return float(2 * stats.norm.cdf(step_ms / 2 / deviation) - 1)


def _counts(rows: pd.DataFrame, calls: int) -> str:
    low, high = rows["n_stalls"].min(), rows["n_stalls"].max()
    deepest, shallowest = rows.iloc[0], rows.iloc[-1]
    equal = high / low - 1 <= ALIKE
    many = "equally many" if equal else "not equally many"
    found = (
        "As a mixture of two speeds, p50, p95 and mean latency are those of "
        f"{low:.1f} to {high:.1f} stalled calls in {calls}, {many} at all depths."
    )
    if not equal:
        return found
    return (
        f"{found} If they came by the encoder's running time, {shallowest['n_stalls']:.0f} at "
        f"depth {shallowest['depth']} would be {deepest['by_running']:.0f} at depth "
        f"{deepest['depth']}, by the clock {deepest['by_wall']:.0f}: it is the calls, their texts "
        "or shapes, that they follow best."
    )


def _sizes(rows: pd.DataFrame) -> str:
    low, high = rows["stall_ms"].min(), rows["stall_ms"].max()
    equal = high / low - 1 <= ALIKE
    cause = (
        "equally long at all depths, so it is nothing that a block costs"
        if equal
        else "not equally long at all depths"
    )
    return f"A stall adds {low:.0f} to {high:.0f} ms, {cause}."


def _step(rows: pd.DataFrame) -> str:
    """Whether two levels describe p50 better than a line, which has as many free values."""
    if len(rows) < 4:
        return ""
    p50 = rows["p50_ms"].to_numpy(float)
    cuts = {cut: _squares(p50[:cut]) + _squares(p50[cut:]) for cut in range(1, len(p50))}
    cut = min(cuts, key=lambda place: cuts[place])
    whole, line = _squares(p50), float((rows["residual_ms"] ** 2).sum())
    if cuts[cut] >= line:
        return (
            f"A straight line over depth leaves {line / whole:.0%} of the variance of p50, a step "
            f"{cuts[cut] / whole:.0%}: it is a slope."
        )
    upper, lower = rows.iloc[cut - 1], rows.iloc[cut]
    return (
        f"p50 is a step, not a slope: it falls by {upper['p50_ms'] - lower['p50_ms']:.2f} ms from "
        f"depth {upper['depth']} to {lower['depth']}, and two levels leave {cuts[cut] / whole:.1%} "
        f"of its variance where a straight line leaves {line / whole:.0%}. A drift between the "
        "first and the last profiles does that; a cost per block does not."
    )


def _lines(rows: pd.DataFrame, line: Line | None) -> str:
    fit = linear_fit(rows["depth"].astype(float).tolist(), rows["p50_ms"].tolist())
    if fit.intercept is None or fit.slope is None or fit.r2 is None:
        return ""
    found = (
        f"The least-squares line is {fit.intercept:.2f} ms + {fit.slope:.3f} ms a block "
        f"(R² {fit.r2:.2f}, at most {rows['residual_ms'].abs().max():.2f} ms off)."
    )
    if line is None:
        return found
    off = rows["p50_ms"] - (line.intercept + line.slope * rows["depth"])
    r2 = 1 - float((off**2).sum()) / _squares(rows["p50_ms"].to_numpy(float))
    pairs = ((fit.slope, line.slope), (fit.intercept, line.intercept))
    same = all(abs(ours / theirs - 1) <= ALIKE for ours, theirs in pairs)
    return (
        f"{found} The published line, {line.intercept:g} ms + {line.slope:g} ms a block, is "
        f"{'that line' if same else 'another one'} (R² {r2:.2f}, at most {off.abs().max():.2f} ms "
        "off)."
    )


def _copies(rows: pd.DataFrame, calls: int) -> list[str]:
    """Experiments whose figures are the same to the last digit."""
    found = []
    for names in rows["experiments"].unique() if "experiments" in rows else ():
        if " and " not in str(names):
            continue
        own = rows[rows["experiments"] == names]
        step = 10.0 ** -_decimals(own["mean_ms"])
        chances = [chance_of_equal_means(row, calls, step) for row in own.to_dict("records")]
        found.append(
            f"{names} give the same figures to {step:g} ms at {len(own)} depths. Two profiles "
            f"whose stalls come at random print one mean with probability {max(chances):.1g} at a "
            f"depth, {math.prod(chances):.0g} at all: this is no replication. Either one file was "
            "used twice, or the stalls are a function of the list of texts; a second run into an "
            "empty folder tells which."
        )
    return found


def _verdicts(rows: pd.DataFrame) -> str:
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows.to_dict("records"):
        groups.setdefault((row["verdict"], row["reasons"]), []).append(f"L{row['depth']}")
    said = [
        f"{', '.join(names)} {found}{f' ({reasons})' if reasons else ''}"
        for (found, reasons), names in groups.items()
    ]
    return (
        f"By the rules that our own profiles are judged by, and that three figures can answer: "
        f"{'; '.join(said)}."
    )


def _squares(values: Array) -> float:
    return float(((values - values.mean()) ** 2).sum())


def _decimals(values: "pd.Series[float]") -> int:
    """Digits behind the point of the value that has most."""
    return max(len(f"{value:.6f}".rstrip("0").partition(".")[2]) for value in values)


def _table(rows: pd.DataFrame, calls: int) -> Table:
    return Table(
        name="latency-forensics",
        title="What the latency figures hold",
        caption=f"Each row's p50, p95 and mean as a mixture of two speeds over {calls} calls: how "
        "many stall, by how much, and how many would if stalls came by running time or by the "
        "clock, from the count of the shallowest. The residual is that of the least-squares line. "
        "The verdict is on the mixture; it needs no knowledge of the order of calls.",
        frame=rows,
        columns=(
            Column("depth", ("depth",)),
            Column("p50 ms", ("p50_ms",), digits(2)),
            Column("p95 ms", ("p95_ms",), digits(2)),
            Column("mean ms", ("mean_ms",), digits(2)),
            Column("stalls", ("n_stalls",), digits(1)),
            Column("share", ("share",), "{:.1%}".format),
            Column("a stall adds ms", ("stall_ms",), digits(1)),
            Column("stalls by running time", ("by_running",), digits(0)),
            Column("by the clock", ("by_wall",), digits(0)),
            Column("residual ms", ("residual_ms",), signed("{:+.2f}")),
            Column("verdict", ("verdict",), number=False),
            Column("because", ("reasons",), number=False),
        ),
    )
