"""What every figure shares: a drawing, the words of its axes and captions, the style."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analysis.study import Study


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
    names = study.benchmarks
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def over_benchmarks(study: Study) -> str:
    """The measure and what it is a mean of, for a caption."""
    mean = "mean over " if len(study.benchmarks) > 1 else ""
    return f"{study.headline}, {mean}{all_benchmarks(study)}"


def mean_axis(study: Study) -> str:
    """The measure and what it is a mean of, for an axis."""
    count = len(study.benchmarks)
    over = f"mean over {count} benchmarks" if count > 1 else study.benchmarks[0]
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
