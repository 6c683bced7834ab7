"""The headline measure against p50 latency: what does a faster encoder cost?"""

from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analysis.configurations import short
from analysis.plots import style
from analysis.plots.drawing import (
    Drawing,
    draw_references,
    left_out,
    mean_axis,
    numbers,
    over_benchmarks,
)
from analysis.statistics import pareto
from analysis.study import Study


def accuracy_by_latency(study: Study) -> Drawing:
    """The headline measure against p50 latency, with the Pareto frontier."""
    title = "Accuracy against latency"
    points = latency_points(study)
    if points["p50_ms"].isna().all():
        return Drawing(title, "Not drawn: no encoder has a p50 latency.")
    points = points[points["p50_ms"].notna() & points["mean"].notna()]
    if points.empty:
        return Drawing(title, "Not drawn: no profiled encoder is scored on all benchmarks yet.")
    points = points.reset_index(drop=True)
    points["top"] = points["mean"] == points.groupby("p50_ms")["mean"].transform("max")
    best = points.iloc[pareto(points["p50_ms"].tolist(), points["mean"].tolist())]
    figure = style.new_figure(f"{study.headline} against p50 latency")
    _draw_frontier(figure, best)
    for index, name in enumerate(study.layout.series):
        _draw_points(figure, study, points[points["series"] == name], name, index)
    length = points["length"].iloc[0]
    call = "call" if pd.isna(length) else f"call of {length} tokens"
    figure.update_xaxes(title_text=f"p50 latency, ms per {call} (faster ←)")
    figure.update_yaxes(title_text=mean_axis(study), tickformat=".3f")
    unsteady = sorted(set(points["verdict"]) - {"stable"})
    caption = (
        f"{over_benchmarks(study)} (whiskers ± 2 sd over seeds where n ≥ 2), "
        f"against p50 latency; up and to the left is better. The line is the Pareto frontier: "
        f"{'; '.join(best['configuration'])}."
    )
    if unsteady:
        caption += (
            f" Hollow points have a latency that is {' or '.join(unsteady)}: it is indicative, and "
            "so is the frontier."
        )
    caption += draw_references(figure, study)
    return Drawing(title, caption + left_out(study), figure)


def latency_points(study: Study) -> pd.DataFrame:
    """Trained configurations with their p50: the shortest way from accuracy to latency.

    Seeds share an architecture, so they share its latency; of several lengths and arms the first
    profiled one is taken.
    """
    means = study.means[study.means["trained"]].copy()
    first = {c.label: next(iter(c.trials.values())) for c in study.layout.configurations}
    means["trial"] = [first[label] for label in means["configuration"]]
    columns = ["trial", "length", "p50_ms", "p50_lo_ms", "p50_hi_ms", "verdict"]
    return means.merge(study.latency[columns].drop_duplicates("trial"), on="trial", how="left")


def _draw_frontier(figure: go.Figure, rows: pd.DataFrame) -> None:
    """The Pareto frontier as steps: what a given latency buys."""
    figure.add_scatter(
        x=numbers(rows["p50_ms"]),
        y=numbers(rows["mean"]),
        name="Pareto frontier",
        mode="lines",
        line={"color": style.MUTED, "width": 1.5, "shape": "hv"},
        hoverinfo="skip",
    )


def _draw_points(
    figure: go.Figure, study: Study, rows: pd.DataFrame, name: str, index: int
) -> None:
    """A budget's configurations at their latency; hollow where that is not stable."""
    if rows.empty:
        return
    colour = style.category(index)
    steady = [verdict == "stable" for verdict in rows["verdict"]]
    figure.add_scatter(
        x=numbers(rows["p50_ms"]),
        y=numbers(rows["mean"]),
        name=name,
        mode="markers+text",
        text=[_label(study, x) if top else "" for x, top in rows[["x", "top"]].to_numpy()],
        textposition="top right",
        textfont={"size": 11, "color": style.MUTED},
        error_y={
            "type": "data",
            "array": [2 * sd if sd == sd else 0 for sd in rows["sd"]],
            "thickness": 1.2,
            "width": 4,
            "color": colour,
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": _gap(rows["p50_hi_ms"], rows["p50_ms"]),
            "arrayminus": _gap(rows["p50_ms"], rows["p50_lo_ms"]),
            "thickness": 1.2,
            "width": 4,
            "color": colour,
        },
        marker={
            "size": 11,
            "symbol": style.SYMBOLS[index % len(style.SYMBOLS)],
            "color": [colour if known else "white" for known in steady],
            "line": {"color": colour, "width": 2},
        },
        customdata=rows[["configuration", "verdict", "n"]].to_numpy().tolist(),
        hovertemplate="%{y:.4f} (n = %{customdata[2]}) at %{x:.2f} ms, %{customdata[1]}"
        "<extra>%{customdata[0]}</extra>",
    )


def _label(study: Study, x: Any) -> str:
    """What stands beside the highest of the points that share a latency."""
    return f"L{x}" if study.layout.x == "depth" else short(x)


def _gap(upper: "pd.Series[Any]", lower: "pd.Series[Any]") -> list[float]:
    return [0.0 if pd.isna(gap) else float(gap) for gap in upper - lower]
