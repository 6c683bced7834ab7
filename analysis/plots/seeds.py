"""Every seed of the budgets that have several: how far apart do equal trials end?"""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from analysis.configurations import short
from analysis.plots import style
from analysis.plots.drawing import (
    Drawing,
    counts,
    draw_references,
    left_out,
    mean_axis,
    over_benchmarks,
    plain,
    x_title,
)
from analysis.study import Study
from ray_ablation.frames import MEAN


def seeds_by_depth(study: Study) -> Drawing:
    """Every seed of the budgets that have several, along x."""
    x = study.layout.x
    title = f"Seeds by {plain(x)}"
    means = study.means[study.means["trained"] & (study.means["n"] >= 2)]
    if means.empty:
        return Drawing(title, "Not drawn: no configuration has two scored seeds yet.")
    names = [name for name in study.layout.series if name in set(means["series"])]
    xs = [value for value in study.layout.xs if value in set(means["x"])] or [None]
    figure = style.new_figure(f"{study.headline} of each seed by {plain(x)}")
    width = 0.7 / (len(names) + 1)
    marks = Marks([], [], [])
    for index, name in enumerate(names):
        shift = (index - (len(names) - 1) / 2) * width
        _draw_seeds(marks, study, means[means["series"] == name], xs, shift, width)
    figure.add_traces(marks.traces)
    figure.update_layout(shapes=marks.shapes, annotations=marks.texts)
    _draw_legend(figure, study, names)
    texts = ["not stated" if value is None else short(value) for value in xs]
    ticks = {"tickvals": list(range(len(xs))), "ticktext": texts}
    figure.update_xaxes(title_text=x_title(study), range=[-0.6, len(xs) - 0.4], **ticks)
    points = [y for trace in figure.data for y in trace.y if y is not None]
    span = style.padded([*points, *(means["mean"] - means["sd"]), *(means["mean"] + means["sd"])])
    span[1] += 0.05 * (span[1] - span[0])  # a line of text stands there
    figure.update_yaxes(title_text=mean_axis(study), range=span, tickformat=".3f")
    widest = means.sort_values("sd", kind="stable").iloc[-1]
    caption = (
        f"{over_benchmarks(study)}, one point a seed; bars are means over seeds, "
        f"boxes ± 1 sd (ddof 1). Shown: {'; '.join(names)} ({counts(means['n'])}). "
        f"The largest spread is that of {widest['configuration']}: sd {widest['sd']:.4f}."
    )
    caption += draw_references(figure, study)
    return Drawing(title, caption + left_out(study), figure)


@dataclass(frozen=True)
class Marks:
    """What is drawn, collected: plotly copies all there is whenever one is added."""

    traces: list[go.Scatter]
    shapes: list[dict[str, Any]]
    texts: list[dict[str, Any]]


def _draw_seeds(
    marks: Marks, study: Study, rows: pd.DataFrame, xs: list[Any], shift: float, width: float
) -> None:
    """One budget's seeds as points, their mean as a bar and ± 1 sd as a box.

    Args:
        shift: How far right of its x the budget stands, in distances between neighbouring x.
        width: How wide it is, likewise.
    """
    name = rows["series"].iloc[0]
    colour = style.category(study.layout.series.index(name))
    places = {}
    for row in rows.to_dict("records"):
        at, half = xs.index(row["x"]) + shift, 0.4 * width
        places[row["configuration"]] = (at, half)
        span = {"x0": at - half, "x1": at + half}
        low, high = row["mean"] - row["sd"], row["mean"] + row["sd"]
        box = {"fillcolor": style.faint(colour, 0.18), "line": {"width": 0}, "layer": "below"}
        marks.shapes.append({"type": "rect", "y0": low, "y1": high, **span, **box})
        bar = {"type": "line", "line": {"color": colour, "width": 2}}
        marks.shapes.append({"y0": row["mean"], "y1": row["mean"], **span, **bar})
        marks.texts.append(
            {
                "x": at,
                "y": max([high, *_values(study, row["configuration"]).values()]),
                "yshift": 15,
                "showarrow": False,
                "text": f"sd {row['sd']:.4f}",
                "font": {"size": 11, "color": style.MUTED},
            }
        )
    _draw_points(marks, study, places, colour)


def _values(study: Study, label: str) -> dict[int | None, float]:
    """Seed -> value of a configuration."""
    trials = next(c.trials for c in study.layout.configurations if c.label == label)
    found = {s: study.values.get((t, MEAN, study.headline)) for s, t in trials.items()}
    return {seed: value for seed, value in found.items() if value is not None}


def _draw_points(
    marks: Marks, study: Study, places: dict[str, tuple[float, float]], colour: str
) -> None:
    """A trace a seed, with its points at the places of the configurations."""
    order = _all_seeds(study)
    values = {label: _values(study, label) for label in places}
    for index, seed in enumerate(order):
        spot = 0.0 if len(order) == 1 else index / (len(order) - 1) - 0.5
        own = [label for label in places if seed in values[label]]
        if not own:
            continue
        marks.traces.append(
            go.Scatter(
                x=[places[label][0] + places[label][1] * spot for label in own],
                y=[values[label][seed] for label in own],
                mode="markers",
                marker=_seed_marker(index, colour),
                showlegend=False,
                customdata=own,
                hovertemplate="%{y:.4f}<extra>%{customdata}, " + f"{_name(seed)}</extra>",
            )
        )


def _all_seeds(study: Study) -> list[int | None]:
    """Every seed some trained trial has, ascending."""
    trained = [c for c in study.layout.configurations if c.trained]
    return sorted({seed for c in trained for seed in c.trials}, key=str)


def _draw_legend(figure: go.Figure, study: Study, names: list[str]) -> None:
    """Symbols are seeds; colours are budgets, where there are several."""
    for index, seed in enumerate(_all_seeds(study)):
        marker = _seed_marker(index, style.MUTED)
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=_name(seed))
    for name in names if len(names) > 1 else []:
        line = {"color": style.category(study.layout.series.index(name)), "width": 6}
        figure.add_scatter(x=[None], y=[None], mode="lines", line=line, name=name)


def _name(seed: int | None) -> str:
    return "seed unknown" if seed is None else f"seed {seed}"


def _seed_marker(index: int, colour: str) -> dict[str, Any]:
    symbol = style.SYMBOLS[index % len(style.SYMBOLS)]
    return {"size": 10, "symbol": symbol, "color": colour, "line": {"color": "white", "width": 1}}
