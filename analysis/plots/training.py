"""Training loss and evaluation loss by step."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from analysis.plots import style
from analysis.plots.drawing import Drawing, numbers, plain
from analysis.study import Study

DASHES = ("solid", "dot", "dash", "dashdot")


def training_curves(study: Study) -> Drawing:
    """Training loss and evaluation loss of every trained trial."""
    title = "Training curves"
    rows = study.training[study.training["loss"].notna()] if len(study.training) else None
    if rows is None or rows.empty:
        return Drawing(title, "Not drawn: no trained encoder has logged a loss yet.")
    panels = make_subplots(
        cols=2, subplot_titles=("training loss", "evaluation loss, held-out rows")
    )
    figure = style.new_figure("Loss by step", panels)
    arrangement = study.layout
    xs, colours = arrangement.xs, style.ordered(len(arrangement.xs))
    by_trial = dict(iter(rows.groupby("trial", sort=False)))
    for configuration in arrangement.configurations:
        if not configuration.trained:
            continue
        dash = DASHES[arrangement.series.index(configuration.series) % len(DASHES)]
        line = {"color": colours[xs.index(configuration.x)], "dash": dash, "width": 1.6}
        first = True
        for seed, trial in configuration.trials.items():
            if trial in by_trial:
                _draw_loss(figure, by_trial[trial], configuration.label, seed, line, first)
                first = False
    longest = int(rows["step"].max())
    figure.update_xaxes(title_text="optimizer step", range=[0, 1.02 * longest])
    figure.update_annotations(font_size=13)
    figure.update_yaxes(title_text="loss (nats)", col=1)
    figure.update_layout(legend={"y": -0.2, "yanchor": "top"}, margin={"b": 130, "t": 84})
    caption = (
        f"Trained encoders: {rows['trial'].nunique()}; shades are values of "
        f"{plain(arrangement.x)}, line styles budgets; one line a seed. The evaluation loss has "
        "all held-out documents as candidates, so it compares between encoders, not with the "
        "training loss."
    )
    return Drawing(title, caption, figure)


def _draw_loss(
    figure: go.Figure,
    rows: pd.DataFrame,
    label: str,
    seed: int | None,
    line: dict[str, Any],
    first: bool,
) -> None:
    """One trial's training loss on the left and evaluation loss on the right.

    Args:
        first: Whether it stands for its configuration in the legend.
    """
    shared = {
        "mode": "lines",
        "line": line,
        "legendgroup": label,
        "name": label,
        "hovertemplate": "step %{x}: %{y:.4f}<extra>" + f"{label}, seed {seed}</extra>",
    }
    own = rows[rows["loss"].notna()]
    figure.add_scatter(
        x=own["step"].tolist(), y=numbers(own["loss"]), showlegend=first, row=1, col=1, **shared
    )
    held_out = rows[rows["eval_loss"].notna()]
    shared |= {"mode": "lines+markers", "marker": {"size": 4}}
    figure.add_scatter(
        x=held_out["step"].tolist(),
        y=numbers(held_out["eval_loss"]),
        showlegend=False,
        row=1,
        col=2,
        **shared,
    )
