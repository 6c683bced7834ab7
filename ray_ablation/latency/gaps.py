"""Numbers from records with gaps: None, never 0, where nothing is known. Pure."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd


def total(values: "pd.Series[Any]") -> float | None:
    """Sum of those that are known."""
    known = values.dropna()
    return float(known.sum()) if len(known) else None


def highest(values: "pd.Series[Any]") -> float | None:
    """Largest of those that are known."""
    known = values.dropna()
    return float(known.max()) if len(known) else None


def median(values: Iterable[float | None]) -> float | None:
    """Median of those that are known."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def worst(values: Iterable[float | None]) -> float | None:
    """The largest known; every rule about single processes has a limit from above."""
    return max((float(value) for value in values if value is not None), default=None)


def drift(clocks: "pd.Series[Any]") -> float | None:
    """p90 over p10 of clock readings."""
    known = clocks.dropna().to_numpy(float)
    if len(known) == 0:
        return None
    p10, p90 = np.quantile(known, [0.1, 0.9])
    return float(p90 / p10)


def other_busy(blocks: pd.DataFrame) -> float | None:
    """Cores that others kept busy over the blocks of one process."""
    others = blocks["host_busy_ns"].sum() - blocks["own_cpu_ns"].sum()
    wall = blocks["wall_ns"].sum()
    return max(0.0, float(others / wall)) if wall > 0 else None
