"""What a latency is made of: its calls, its stages, and its change over depth.

An absolute figure is drawn with its interval and named with its verdict; hollow marks are latencies
that are not stable. A straight line over depth is drawn only with its residuals and R².
"""

import pandas as pd
from plotly.subplots import make_subplots

from analysis.plots import style
from analysis.plots.drawing import Drawing, numbers
from analysis.statistics import linear_fit
from analysis.study import Study

STAGES = {
    "tokenise_ms": "tokenise",
    "h2d_ms": "copy to the device",
    "forward_ms": "forward",
    "pool_ms": "pool and normalise",
    "d2h_ms": "copy back",
}
WIDE = 4.0
"""Slowest call over the median from which times are drawn on a log axis."""


def latency_distribution(study: Study) -> Drawing:
    """Every call of every architecture, as the share that took no longer."""
    title = "Latency, call by call"
    rows = measured(study)
    rows = rows[rows["quantiles_ms"].notna()]
    if rows.empty:
        return Drawing(title, "Not drawn: no calls were timed.")
    figure = style.new_figure(f"Share of calls within a time{_where(rows)}")
    for index, row in enumerate(rows.to_dict("records")):
        quantiles = row["quantiles_ms"]
        places = [place / (len(quantiles) - 1) for place in range(len(quantiles))]
        figure.add_scatter(
            x=quantiles,
            y=places,
            name=f"{row['variant']} ({row['verdict']})",
            mode="lines",
            line={
                "color": style.category(index),
                "width": 2,
                "shape": "vh",
                "dash": "solid" if row["verdict"] == "stable" else "dot",
            },
            hovertemplate="%{y:.1%} within %{x:.2f} ms<extra></extra>",
        )
    wide = max(one[-1] / one[len(one) // 2] for one in rows["quantiles_ms"]) > WIDE
    figure.update_xaxes(title_text="ms per call", type="log" if wide else "linear")
    figure.update_yaxes(title_text="share of calls", tickformat=".0%", range=[0, 1.02])
    calls = ", ".join(f"{row['variant']} {row['n_calls']:,}" for row in rows.to_dict("records"))
    caption = (
        f"All timed calls over all processes ({calls}), the fastest and the slowest included; none "
        "is dropped. A tail or a second step is what a p50 hides."
    )
    return Drawing(title, caption + _unsteady(rows, "Dotted"), figure)


def latency_stages(study: Study) -> Drawing:
    """Where the time of a call goes."""
    title = "Where the time goes"
    rows = measured(study)
    rows = rows[rows[list(STAGES)].notna().all(axis=1)]
    if rows.empty:
        return Drawing(title, "Not drawn: no call was timed stage by stage.")
    figure = style.new_figure(f"Stages of a call{_where(rows)}")
    for index, (column, name) in enumerate(STAGES.items()):
        figure.add_bar(
            x=rows["variant"],
            y=numbers(rows[column]),
            name=name,
            marker_color=style.category(index),
            hovertemplate="%{y:.3f} ms<extra>" + name + "</extra>",
        )
    figure.add_scatter(
        x=rows["variant"],
        y=numbers(rows["p50_ms"]),
        name="p50 end to end",
        mode="markers",
        marker=_marker(rows, style.INK),
        hovertemplate="%{y:.3f} ms<extra>end to end</extra>",
    )
    if rows["device_busy_ms"].notna().any():
        figure.add_scatter(
            x=rows["variant"],
            y=numbers(rows["device_busy_ms"]),
            name="device busy",
            mode="markers",
            marker={"symbol": "line-ew-open", "size": 26, "color": style.INK},
            hovertemplate="%{y:.3f} ms<extra>device busy</extra>",
        )
    figure.update_layout(barmode="stack")
    figure.update_yaxes(title_text="ms per call", rangemode="tozero")
    caption = (
        "Medians of calls whose borders were marked; the points are p50 of the calls that were not "
        "touched, so a gap is what marking costs."
    )
    if rows["host_bound_ratio"].notna().any():
        ratios = ", ".join(
            f"{row['variant']} {row['host_bound_ratio']:.1f}" for row in rows.to_dict("records")
        )
        caption += (
            f" A call takes so many times as long as the device is busy with it: {ratios}; the "
            "rest is the host's."
        )
    return Drawing(title, caption + _unsteady(rows, "Hollow"), figure)


def latency_by_depth(study: Study) -> Drawing:
    """p50 over depth, with the line that fits it best and what that line leaves."""
    title = "Latency over depth"
    depths = study.trials[["trial", "depth"]]
    rows = measured(study).merge(depths, on="trial").dropna(subset=["depth", "p50_ms"])
    rows = rows.drop_duplicates("depth").sort_values("depth")
    fit = linear_fit(numbers(rows["depth"]), numbers(rows["p50_ms"]))
    if fit.n < 3 or fit.intercept is None or fit.slope is None or fit.max_residual is None:
        return Drawing(title, "Not drawn: fewer than three depths have a p50 latency.")
    figure = style.new_figure(
        f"p50 latency over depth{_where(rows)}",
        make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.72, 0.28]),
    )
    line = [fit.intercept + fit.slope * depth for depth in rows["depth"]]
    r2 = "" if fit.r2 is None else f", R² {fit.r2:.2f}"
    name = f"{fit.intercept:.2f} ms + {fit.slope:.3f} ms a block{r2}"
    dashed = {"color": style.MUTED, "dash": "dash"}
    depth = numbers(rows["depth"])
    figure.add_scatter(x=depth, y=line, name=name, mode="lines", line=dashed, row=1, col=1)
    colour = style.category(0)
    figure.add_scatter(
        x=depth,
        y=numbers(rows["p50_ms"]),
        name="p50",
        mode="markers",
        marker=_marker(rows, colour),
        error_y={
            "type": "data",
            "symmetric": False,
            "array": (rows["p50_hi_ms"] - rows["p50_ms"]).fillna(0).tolist(),
            "arrayminus": (rows["p50_ms"] - rows["p50_lo_ms"]).fillna(0).tolist(),
        },
        customdata=rows["verdict"],
        hovertemplate="%{y:.2f} ms, %{customdata}<extra>depth %{x}</extra>",
        row=1,
        col=1,
    )
    residuals = list(fit.residuals)
    figure.add_bar(
        x=depth, y=residuals, marker_color=colour, showlegend=False, width=0.4, row=2, col=1
    )
    figure.update_yaxes(title_text="p50, ms per call", row=1, col=1)
    figure.update_yaxes(title_text="residual, ms", row=2, col=1)
    figure.update_xaxes(title_text="encoder depth (blocks kept)", tickvals=depth, row=2, col=1)
    caption = (
        f"The least-squares line over {fit.n} depths is {name}; below is what it leaves, at most "
        f"{fit.max_residual:.2f} ms. Whiskers are 95 % intervals over processes, where five were "
        "measured. A line is a description; a cost per block is one reading of it."
    )
    return Drawing(title, caption + _unsteady(rows, "Hollow"), figure)


def measured(study: Study) -> pd.DataFrame:
    """One row an architecture, at the first length and arm that was profiled."""
    rows = study.latency[study.latency["variant"].notna() & study.latency["p50_ms"].notna()]
    for name in ("length", "arm"):
        if rows[name].notna().any():
            rows = rows[rows[name] == rows[name].iloc[0]]
    return rows.drop_duplicates("variant").reset_index(drop=True)


def _where(rows: pd.DataFrame) -> str:
    """The length and what was timed on, as a title goes on."""
    if rows.empty or pd.isna(rows["length"].iloc[0]):
        return ""
    first = rows.iloc[0]
    return f", {first['length']} tokens, batch {first['batch']}, {first['device']}"


def _marker(rows: pd.DataFrame, colour: str) -> dict[str, object]:
    steady = [verdict == "stable" for verdict in rows["verdict"]]
    return {
        "size": 11,
        "color": [colour if known else "white" for known in steady],
        "line": {"color": colour, "width": 2},
    }


def _unsteady(rows: pd.DataFrame, marked: str) -> str:
    """What the marks of latencies that are not stable mean, for the end of a caption."""
    found = sorted(set(rows["verdict"].dropna()) - {"stable"})
    if not found:
        return ""
    names = rows.loc[rows["verdict"] != "stable", "variant"].drop_duplicates()
    return f" {marked}: {', '.join(names)}, {' or '.join(found)}; such a time is indicative."
