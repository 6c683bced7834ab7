"""What every figure shares: a drawing, the words of its axes and captions, the style."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analysis.beside import beside, sources
from analysis.plots import style
from analysis.study import Study
from ray_ablation.frames import MEAN


@dataclass(frozen=True)
class Drawing:
    """A figure and what a reader needs beside it.

    Attributes:
        title: What it shows, in a few words.
        caption: How to read it, with n; or why there is no figure.
        figure: None when the data cannot support it.
    """

    title: str
    caption: str
    figure: go.Figure | None = None


def plain(field: str) -> str:
    """A field's name in a sentence."""
    return "encoder depth" if field == "depth" else field.replace("_", " ")


def x_title(study: Study) -> str:
    """The layout's x with its unit, for an axis."""
    field = study.layout.x
    return "encoder depth (blocks kept)" if field == "depth" else field.replace("_", " ")


def all_benchmarks(study: Study) -> str:
    """Their names as a sentence lists them."""
    names = study.units
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def over_benchmarks(study: Study) -> str:
    """The measure and what it is a mean of, for a caption."""
    mean = "mean over " if len(study.units) > 1 else ""
    return f"{study.headline}, {mean}{all_benchmarks(study)}"


def mean_axis(study: Study) -> str:
    """The measure and what it is a mean of, for an axis."""
    count = len(study.units)
    over = f"mean over {count} benchmarks" if count > 1 else study.units[0]
    return f"{study.headline}, {over}"


def counts(n: "pd.Series[int]") -> str:
    """n = 3, or n = 1 to 3."""
    low, high = int(n.min()), int(n.max())
    return f"n = {low}" if low == high else f"n = {low} to {high}"


def left_out(study: Study) -> str:
    """What the reader does not see, for the end of a caption; "" when that is nothing."""
    lost = int((study.means["asked"] - study.means["n"]).sum())
    if not lost:
        return ""
    are = "trial is" if lost == 1 else "trials are"
    return f" {lost} of {len(study.trials)} {are} not scored on every benchmark and left out."


def numbers(values: "pd.Series[Any]") -> list[float | None]:
    """Floats, None where missing, as JSON wants them."""
    return [None if pd.isna(value) else float(value) for value in values]


def draw_references(figure: go.Figure, study: Study) -> str:
    """Dashed level lines of what the mean is shown beside; what a caption says of them.

    A reference that would flatten the values to less than `SQUEEZED` of the axis stands at its
    edge, with its value and an arrow.
    """
    rows = beside(study)
    rows = rows[(rows["benchmark"] == MEAN) & (rows["measure"] == study.headline)]
    if rows.empty:
        return ""
    span = list(figure.layout.yaxis.range or _span(figure))
    for index, row in enumerate(rows.to_dict("records")):
        value = float(row["value"])
        wide = [min(span[0], value), max(span[1], value)]
        near = span[1] - span[0] >= SQUEEZED * (wide[1] - wide[0])
        span = wide if near else span
        above = value > span[1]
        text = f"{row['reference']} {value:.4f}" + ("" if near else " ↑" if above else " ↓")
        figure.add_shape(
            type="line",
            x0=0,
            x1=1,
            xref="x domain",
            y0=value if near else float(above),
            y1=value if near else float(above),
            yref="y" if near else "y domain",
            line={"color": style.MUTED, "width": 1.4, "dash": "dash"},
        )
        figure.add_annotation(
            text=text,
            x=1,
            xref="x domain",
            xanchor="right",
            y=value if near else float(above),
            yref="y" if near else "y domain",
            yanchor="top" if above and not near else "bottom",
            yshift=-14 * index if above and not near else 0,
            showarrow=False,
            font={"size": 11, "color": style.MUTED},
        )
    figure.update_layout(yaxis_range=style.padded(span))
    told = "References are level dashed lines; one beyond the axis stands at its edge."
    return f"{sources(rows)} {told}"


SQUEEZED = 0.4


def _span(figure: go.Figure) -> list[float]:
    """The lowest and highest value of the first panel, error bars included."""
    ends: list[float] = []
    for trace in figure.data:
        if trace.yaxis not in (None, "y") or trace.y is None:
            continue
        errors = getattr(trace.error_y, "array", None)
        arms = [0.0] * len(trace.y) if errors is None else list(errors)
        known = [(y, arm) for y, arm in zip(trace.y, arms, strict=True) if y is not None]
        ends += [y + sign * arm for y, arm in known for sign in (-1, 1)]
    return [min(ends), max(ends)]
