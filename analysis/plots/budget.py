"""The headline measure along x, one line a budget: does depth matter, beyond seeds and steps?"""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.configurations import short
from analysis.plots import style
from analysis.plots.drawing import (
    SQUEEZED,
    Drawing,
    all_benchmarks,
    draw_references,
    left_out,
    mean_axis,
    numbers,
    over_benchmarks,
    plain,
    x_title,
)
from analysis.statistics import present
from analysis.study import Study


def depth_by_budget(study: Study) -> Drawing:
    """The headline measure along x, one line a budget, with the seeds' spread as a band."""
    x = study.layout.x
    title = f"{plain(x).capitalize()} × training budget"
    if not study.layout.varies:
        return Drawing(title, "Not drawn: every trial has the same " + plain(x) + ".")
    means = study.means[study.means["n"] > 0]
    trained, references = means[means["trained"]], means[~means["trained"]]
    if trained.empty:
        everywhere = all_benchmarks(study)
        return Drawing(title, f"Not drawn: no trained encoder is scored on {everywhere} yet.")
    below = _squeezes(trained, references)
    figure = style.new_figure(f"{study.headline} by {plain(x)} and training budget", _panels(below))
    for index, name in enumerate(study.layout.series):
        _draw_series(figure, study, trained[trained["series"] == name], index)
    for name in references["series"].unique():
        _draw_reference(figure, study, references[references["series"] == name], below)
    _x_axis(figure, study)
    figure.update_yaxes(title_text=mean_axis(study), tickformat=".3f", row=1, col=1)
    banded = trained["n"].max() >= 2
    caption = f"{over_benchmarks(study)}, by {plain(x)}. " + (
        "Lines are means over seeds, bands ± 2 sd of the seeds (ddof 1; spread, not the "
        "uncertainty of the mean); dashed lines and hollow points are single seeds (n = 1)."
        if banded
        else "Every point is a single seed (n = 1), so no spread is known."
    )
    if len(references):
        caption += " Dotted: the untrained reference" + (", on its own scale." if below else ".")
    caption += draw_references(figure, study)
    return Drawing(title, caption + left_out(study), figure)


def _squeezes(trained: pd.DataFrame, references: pd.DataFrame) -> bool:
    """Whether the untrained on the same axis would flatten the trained values."""
    own, others = present(trained["mean"]), present(references["mean"])
    if not others:
        return False
    span = max(own) - min(own)
    return span < SQUEEZED * (max([*own, *others]) - min([*own, *others]))


def _panels(below: bool) -> go.Figure:
    """One panel, or two over one x axis, the lower one for the reference."""
    if not below:
        return make_subplots()
    return make_subplots(rows=2, shared_xaxes=True, row_heights=[0.76, 0.24], vertical_spacing=0.06)


def _draw_series(figure: go.Figure, study: Study, rows: pd.DataFrame, index: int) -> None:
    """A budget's line over x, its band where there are several seeds."""
    rows = _by_x(study, rows)
    if rows.empty:
        return
    colour, several = style.category(index), rows["n"].max() >= 2
    place = {"row": 1, "col": 1}
    for run in _runs(rows["n"] >= 2):
        _band(figure, study, rows.loc[run], colour)
    low, high = int(rows["n"].min()), int(rows["n"].max())
    count = f"n = {low}" if low == high else f"n = {low}–{high}"
    figure.add_scatter(
        x=_places(study, rows),
        y=numbers(rows["mean"]),
        name=f"{rows['series'].iloc[0]} ({count})",
        mode="lines+markers",
        line={"color": colour, "width": 2.2, "dash": "solid" if several else "dash"},
        marker={
            "size": 9,
            "symbol": style.SYMBOLS[index % len(style.SYMBOLS)],
            "color": [colour if n >= 2 else "white" for n in rows["n"]],
            "line": {"color": colour, "width": 2},
        },
        customdata=[[c, n, _sd(sd)] for c, n, sd in rows[["configuration", "n", "sd"]].to_numpy()],
        hovertemplate="%{y:.4f}, sd %{customdata[2]}, n = %{customdata[1]}"
        "<extra>%{customdata[0]}</extra>",
        **place,
    )


def _draw_reference(figure: go.Figure, study: Study, rows: pd.DataFrame, below: bool) -> None:
    """An untrained reference, dotted: along x where it depends on x, else a level line."""
    place = {"row": 2 if below else 1, "col": 1}
    name = rows["series"].iloc[0]
    along = _by_x(study, rows[rows["x"].notna()])
    level = along.empty
    xs = _places(study, study.means if level else along)
    ys = [float(rows["mean"].iloc[0])] * len(xs) if level else numbers(along["mean"])
    figure.add_scatter(
        x=xs,
        y=ys,
        name=name,
        mode="lines" if level else "lines+markers",
        line={"color": style.REFERENCE, "width": 1.8, "dash": "dot"},
        marker={"size": 6, "color": style.REFERENCE},
        hovertemplate="%{y:.4f}<extra>" + name + "</extra>",
        **place,
    )
    if below:
        figure.update_yaxes(title_text="untrained", nticks=4, tickformat=".3f", **place)


def _x_axis(figure: go.Figure, study: Study) -> None:
    """Title and ticks of a figure along the layout's x, under its lowest panel."""
    xs = study.layout.xs
    if all(isinstance(x, int | float) for x in xs):
        figure.update_xaxes(**style.number_axis(xs), ticktext=[short(x) for x in xs])
    figure.update_xaxes(title_text=x_title(study), selector=-1)


def _band(figure: go.Figure, study: Study, rows: pd.DataFrame, colour: str) -> None:
    xs = _places(study, rows)
    upper = numbers(rows["mean"] + 2 * rows["sd"])
    lower = numbers(rows["mean"] - 2 * rows["sd"])
    figure.add_scatter(
        x=[*xs, *reversed(xs)],
        y=[*upper, *reversed(lower)],
        fill="toself",
        fillcolor=style.faint(colour),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        row=1,
        col=1,
    )


def _by_x(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows in the order of the axis, numbered from 0."""
    order = {x: index for index, x in enumerate(study.layout.xs)}
    return rows.assign(at=[order[x] for x in rows["x"]]).sort_values("at").reset_index(drop=True)


def _places(study: Study, rows: pd.DataFrame) -> list[Any]:
    """Their places on the axis: numbers, or names."""
    found = set(rows["x"])
    xs = [x for x in study.layout.xs if x in found]
    return xs if all(isinstance(x, int | float) for x in xs) else [str(x) for x in xs]


def _runs(chosen: "pd.Series[bool]") -> list[list[int]]:
    """Stretches of neighbouring positions that are chosen."""
    found: list[list[int]] = []
    for position, wanted in enumerate(chosen):
        if wanted and found and found[-1][-1] == position - 1:
            found[-1].append(position)
        elif wanted:
            found.append([position])
    return found


def _sd(value: float) -> str:
    return "–" if pd.isna(value) else f"{value:.4f}"
