"""What a published latency ladder says of itself: stalls, steps, and figures that agree too well.

A ladder gives p50, p95 and mean per encoder and nothing else. Taken as a mixture of two speeds
(`mixture.py`) it says how many calls stalled and by how much; that is arithmetic. The mixture is
judged by the very rules that our own samples are judged by.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from analysis.mixture import CALLS, chance_of_equal_means, judge, stalls
from analysis.statistics import linear_fit
from analysis.study import Study
from analysis.table import Column, Table, digits, signed
from ray_ablation.claim import Linear
from ray_ablation.latency.estimate import Array

FIGURES = ("p50_ms", "p95_ms", "mean_ms")
ALIKE = 0.05
"""Counts and sizes of stalls that differ by less than this are equal at all depths."""


@dataclass(frozen=True)
class Line:
    """A published straight line of p50 over depth."""

    intercept: float
    slope: float


class Said(NamedTuple):
    """A sentence, and by name the figures in it that are of the whole ladder, not of a depth."""

    sentence: str
    figures: dict[str, str] = {}


@dataclass(frozen=True)
class Forensics:
    """What a ladder says.

    Attributes:
        sentences: In plain words, each with its figures.
        table: The figures per depth.
        sums: The figures of all depths together.
    """

    sentences: tuple[str, ...]
    table: Table
    sums: Table


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
    said = [
        Said(_counts(rows, calls)),
        Said(_sizes(rows)),
        _step(rows),
        _lines(rows, line),
        *_copies(rows, calls),
        Said(_verdicts(rows)),
    ]
    figures = {name: value for one in said for name, value in one.figures.items()}
    sentences = tuple(one.sentence for one in said if one.sentence)
    return Forensics(sentences, _table(rows, calls), _sums(figures))


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


def forensics_tables(study: Study) -> list[Table]:
    """The figures behind those sentences: by depth, and of all depths together."""
    return [found.table, found.sums] if (found := of_study(study)) else []


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


def _step(rows: pd.DataFrame) -> Said:
    """Whether two levels describe p50 better than a line, which has as many free values."""
    if len(rows) < 4:
        return Said("")
    p50 = rows["p50_ms"].to_numpy(float)
    cuts = {cut: _squares(p50[:cut]) + _squares(p50[cut:]) for cut in range(1, len(p50))}
    cut = min(cuts, key=lambda place: cuts[place])
    whole, line = _squares(p50), float((rows["residual_ms"] ** 2).sum())
    steps, slope = f"{cuts[cut] / whole:.1%}", f"{line / whole:.0%}"
    left = "variance of p50 left by"
    figures = {f"{left} two levels": steps, f"{left} the least-squares line": slope}
    if cuts[cut] >= line:
        said = f"A straight line over depth leaves {slope} of the variance of p50, a step {steps}"
        return Said(f"{said}: it is a slope.", figures)
    upper, lower = rows.iloc[cut - 1], rows.iloc[cut]
    fall = f"{upper['p50_ms'] - lower['p50_ms']:.2f}"
    between = f"from depth {upper['depth']} to {lower['depth']}"
    return Said(
        f"p50 is a step, not a slope: it falls by {fall} ms {between}, and two levels leave "
        f"{steps} of its variance where a straight line leaves {slope}. A drift between the first "
        "and the last profiles does that; a cost per block does not.",
        figures | {f"p50 falls {between}, ms": fall},
    )


def _lines(rows: pd.DataFrame, line: Line | None) -> Said:
    fit = linear_fit(rows["depth"].astype(float).tolist(), rows["p50_ms"].tolist())
    if fit.intercept is None or fit.slope is None or fit.r2 is None:
        return Said("")
    own = f"{fit.intercept:.2f} ms + {fit.slope:.3f} ms a block"
    quality = f"R² {fit.r2:.2f}, at most {rows['residual_ms'].abs().max():.2f} ms off"
    found = f"The least-squares line is {own} ({quality})."
    figures = {"least-squares line of p50": f"{own}; {quality}"}
    if line is None:
        return Said(found, figures)
    off = rows["p50_ms"] - (line.intercept + line.slope * rows["depth"])
    r2 = 1 - float((off**2).sum()) / _squares(rows["p50_ms"].to_numpy(float))
    pairs = ((fit.slope, line.slope), (fit.intercept, line.intercept))
    same = all(abs(ours / theirs - 1) <= ALIKE for ours, theirs in pairs)
    published = f"{line.intercept:g} ms + {line.slope:g} ms a block"
    quality = f"R² {r2:.2f}, at most {off.abs().max():.2f} ms off"
    return Said(
        f"{found} The published line, {published}, is {'that line' if same else 'another one'} "
        f"({quality}).",
        figures | {"published line of p50": f"{published}; {quality}"},
    )


def _copies(rows: pd.DataFrame, calls: int) -> list[Said]:
    """Experiments whose figures are the same to the last digit."""
    found = []
    for names in rows["experiments"].unique() if "experiments" in rows else ():
        if " and " not in str(names):
            continue
        own = rows[rows["experiments"] == names]
        step = 10.0 ** -_decimals(own["mean_ms"])
        chances = [chance_of_equal_means(row, calls, step) for row in own.to_dict("records")]
        once, always = f"{max(chances):.1g}", f"{math.prod(chances):.0g}"
        chance = f"probability that {names} print one mean to {step:g} ms by chance"
        text = (
            f"{names} give the same figures to {step:g} ms at {len(own)} depths. Two profiles "
            f"whose stalls come at random print one mean with probability {once} at a depth, "
            f"{always} at all: this is no replication. Either one file was used twice, or the "
            "stalls are a function of the list of texts; a second run into an empty folder tells "
            "which."
        )
        found.append(Said(text, {f"{chance}, at a depth": once, f"{chance}, at all": always}))
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


def _sums(figures: dict[str, str]) -> Table:
    return Table(
        name="latency-forensics-sums",
        title="What they come to together",
        caption="Figures of all depths, from the table above.",
        frame=pd.DataFrame({"what": list(figures), "value": list(figures.values())}),
        columns=(
            Column("what", ("what",), number=False),
            Column("value", ("value",), number=False),
        ),
    )


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
