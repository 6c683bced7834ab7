"""How figures look: one template, colour-blind safe colours, one size."""

from collections.abc import Sequence

import plotly.graph_objects as go

WIDTH, HEIGHT = 900, 520
FONT = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', sans-serif"
INK, MUTED, GRID_LINE = "#1f2933", "#697586", "#e6e9ee"

# Okabe & Ito 2008: told apart with any of the common kinds of colour vision.
CATEGORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Light to dark, for fields with an order; samples of cividis without its palest end.
ORDERED = ("#d9c667", "#b3a772", "#8f8a76", "#6c6e72", "#4a546c", "#243f6f", "#00285f")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star")
REFERENCE = "#697586"


def category(index: int) -> str:
    """The colour of the index-th category, again from the first after the last."""
    return CATEGORIES[index % len(CATEGORIES)]


def ordered(count: int) -> list[str]:
    """So many colours from light to dark."""
    if count == 1:
        return [ORDERED[-1]]
    last = len(ORDERED) - 1
    return [ORDERED[round(index * last / (count - 1))] for index in range(count)]


def faint(colour: str, opacity: float = 0.16) -> str:
    """A colour as rgba, for bands."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def new_figure(title: str, base: go.Figure | None = None) -> go.Figure:
    """An empty figure in the house's style."""
    figure = base or go.Figure()
    figure.update_layout(template=TEMPLATE, width=WIDTH, height=HEIGHT, title_text=title)
    return figure


def number_axis(values: Sequence[float]) -> dict[str, object]:
    """Ticks at the values themselves; a log axis when they span a factor of eight or more."""
    lowest, highest = min(values), max(values)
    wide = lowest > 0 and highest / lowest >= 8
    span = {} if wide else {"range": padded(values)}
    return {"type": "log" if wide else "linear", "tickvals": list(values), **span}


def padded(values: Sequence[float], margin: float = 0.08) -> list[float]:
    """The ends of an axis around values, with room to both sides."""
    lowest, highest = min(values), max(values)
    room = (highest - lowest) * margin or 1
    return [lowest - room, highest + room]


_AXIS = {
    "gridcolor": GRID_LINE,
    "linecolor": "#9aa5b1",
    "linewidth": 1,
    "showline": True,
    "ticks": "outside",
    "ticklen": 5,
    "tickcolor": "#9aa5b1",
    "zeroline": False,
    "automargin": True,
    "title": {"font": {"size": 14}, "standoff": 12},
}
TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": list(CATEGORIES),
        "title": {
            "font": {"size": 17, "weight": 600},
            "x": 0,
            "xref": "container",
            "xanchor": "left",
            "pad": {"l": 16},
            "y": 0.965,
            "yanchor": "top",
        },
        "margin": {"l": 72, "r": 24, "t": 96, "b": 64},
        "xaxis": _AXIS | {"showgrid": False},
        "yaxis": _AXIS,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 12.5},
        },
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "bargap": 0.28,
        "bargroupgap": 0.06,
    }
)
