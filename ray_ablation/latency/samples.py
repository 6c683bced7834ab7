"""The raw material: one row a call in samples.parquet, one row a block in blocks.parquet.

Nothing is dropped and nothing is rounded; times are integers of nanoseconds on the clock of the
measured process. `phase` tells warm-up, measured and staged calls apart; stages are null outside
staged calls, and what a machine does not count is null.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ray_ablation.latency.estimate import clock_ok

STAGES = ("tokenise", "h2d", "forward", "pool", "d2h")

_PLACE = {
    "unit": "int64",
    "round": "int64",
    "arm": "str",
    "variant": "str",
    "seq": "int64",
}
SAMPLES = {
    **_PLACE,
    "phase": "str",
    "call": "int64",
    "cycle": "int64",
    "block": "Int64",
    "position": "int64",
    "pass": "int64",
    "text": "int64",
    "tokens": "int64",
    "first_shape": "bool",
    "start_ns": "int64",
    "wall_ns": "int64",
    "cpu_ns": "Int64",
    "nivcsw": "Int64",
    "nvcsw": "Int64",
    "gc": "boolean",
    "finite": "bool",
    **{f"{stage}_ns": "Int64" for stage in STAGES},
}
MARKED_SAMPLES = {**SAMPLES, "clock_ok": "bool"}
BLOCKS = {
    **_PLACE,
    "cycle": "int64",
    "block": "int64",
    "start_ns": "int64",
    "wall_ns": "int64",
    "own_cpu_ns": "int64",
    "host_busy_ns": "int64",
    "steal_ns": "Int64",
    "nr_throttled": "Int64",
    "throttled_us": "Int64",
    "load1": "float64",
    "gpu_processes": "Int64",
    "gpu_throttled": "Int64",
    "sm_clock_mhz": "Int64",
    "mem_clock_mhz": "Int64",
    "gpu_temperature_c": "Int64",
    "gpu_power_w": "float64",
}


def typed(rows: Sequence[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    """Rows as a frame of the given columns; a key that a row lacks is null."""
    return pd.DataFrame(list(rows), columns=list(columns)).astype(columns)


def join(frames: Sequence[pd.DataFrame], columns: dict[str, str]) -> pd.DataFrame:
    """The frames of all processes, one after the other."""
    return pd.concat(frames, ignore_index=True) if frames else typed([], columns)


def mark_clock(samples: pd.DataFrame) -> pd.DataFrame:
    """One process's samples in the order they were taken, with the column `clock_ok`.

    False for a call that took no time, or began before the one ahead of it ended: the clock ran
    backwards there, and the call's time means nothing.
    """
    good = clock_ok(samples["start_ns"].to_numpy(), samples["wall_ns"].to_numpy())
    return samples.assign(clock_ok=good)
