"""The change between two budgets, benchmark by benchmark: where does more training help or hurt?"""

import pandas as pd
import plotly.graph_objects as go

from analysis.configurations import say
from analysis.limits import unsplit
from analysis.plots import style
from analysis.plots.drawing import Drawing, counts, left_out, numbers
from analysis.study import Study


def change_by_benchmark(study: Study) -> Drawing:
    """The change between two budgets, benchmark by benchmark, at matched seeds."""
    title = "Change between budgets by benchmark"
    found = study.comparison
    if found is None:
        reason = "no two budgets differ in one field only and share a scored seed."
        return Drawing(title, f"Not drawn: {reason}")
    x, names = study.layout.x, study.parts
    rows = found.frame[found.frame["n"] > 0]
    xs = [value for value in study.layout.xs if value in set(rows["x"])]
    seeds = found.matched
    fixed = f" ({found.fixed})" if found.fixed else ""
    figure = style.new_figure(f"Change in {found.measure} {found.change}{fixed}, matched {seeds}")
    for value, colour in zip(xs, style.ordered(len(xs)), strict=True):
        part = rows[rows["x"] == value].set_index("benchmark").reindex(names)
        _draw_changes(figure, part, say(x, value), colour)
    ends = [end for sign in (-1, 1) for end in rows["difference"] + sign * rows["sd"].fillna(0)]
    figure.update_yaxes(title_text=f"change in {found.measure}", tickformat=".3f")
    figure.update_yaxes(range=style.padded([0, *ends], 0.12), zeroline=True)
    figure.update_yaxes(zerolinecolor=style.INK, zerolinewidth=1)
    figure.add_vline(x=len(names) - 1.5, line={"color": style.GRID_LINE, "width": 1.5})
    caption = (
        f"Change in {found.measure} {found.change}{fixed}, after minus before at matched {seeds} "
        f"({counts(rows['n'])} a bar). "
        "Percentages are of the value before. "
        + (
            "Whiskers are ± 1 sd over seeds."
            if rows["n"].max() > 1
            else "Single seeds have no spread, so no bar carries an interval."
        )
    )
    lost = f" {text}" if (text := unsplit(study)) else ""
    return Drawing(title, caption + lost + left_out(study), figure)


def _draw_changes(figure: go.Figure, rows: pd.DataFrame, name: str, colour: str) -> None:
    """Bars of change, one a benchmark, labelled in per cent of the value before."""
    relative = ["" if pd.isna(r) else f"{r:+.0%}".replace("-", "−") for r in rows["relative"]]
    spread = [0.0 if pd.isna(sd) else float(sd) for sd in rows["sd"]]
    figure.add_bar(
        name=name,
        x=rows.index.tolist(),
        y=numbers(rows["difference"]),
        text=relative,
        textposition="outside",
        textfont={"size": 11},
        cliponaxis=False,
        marker={"color": colour},
        # No caps: they would show where there is no spread.
        error_y={"type": "data", "array": spread, "thickness": 1.4, "width": 0},
        customdata=rows[["n", "before", "after"]].to_numpy().tolist(),
        hovertemplate="%{x}: %{customdata[1]:.4f} → %{customdata[2]:.4f}, n = %{customdata[0]}"
        "<extra>" + name + "</extra>",
    )
