"""Fresh measured processes for the latency scripts, and what they left."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ray_ablation.atomic import read_frame, read_json
from ray_ablation.latency.cell import Cell
from ray_ablation.latency.lease import Lease
from ray_ablation.latency.plan import ARM, BLOCK
from ray_ablation.latency.samples import BLOCKS, MARKED_SAMPLES, join

LIMIT_S = 300.0
"""For one process, all in all."""


class Bench:
    """Runs processes and keeps their samples.

    Args:
        folder: Scratch.
        folders: Encoder -> where it lies.
        device: cpu or cuda.
        unit: Fields of a unit that all processes share: lengths, calls, warmup_calls, measure_s.
    """

    def __init__(
        self, folder: Path, folders: dict[str, str], device: str, unit: dict[str, Any]
    ) -> None:
        self.folder, self.lease = folder, Lease(device)
        self.unit = {
            "arm": ARM,
            "folders": folders,
            "device": device,
            "threads": 1,
            "dtype": "fp32" if device == "cpu" else "fp16",
            "batch": 1,
            "inputs": "exact",
            "block": BLOCK,
            "text_seed": 0,
            "texts": max(BLOCK, unit["calls"] // 5),
            **unit,
        }
        self.processes: list[dict[str, Any]] = []
        self.samples: list[pd.DataFrame] = []
        self.blocks: list[pd.DataFrame] = []

    def run(self, arm: str, variants: Sequence[str], **changes: Any) -> dict[str, Any]:
        """One process; what it said of itself, with its arm.

        Args:
            changes: To the unit.

        Raises:
            SystemExit: It failed; the text is its last line.
        """
        number = len(self.processes)
        folder = self.folder / str(number)
        about = {"unit": number, "round": number, "seed": number, "variants": list(variants)}
        spec = self.unit | about | changes
        outcome = self.lease.run(str(folder), spec, LIMIT_S, 0.8 * LIMIT_S)
        if outcome.error:
            raise SystemExit(f"{arm}: {outcome.error}")
        said = read_json(folder / "result.json") or {}
        process = {"unit": number, "kind": "paired", **said, "arm": arm}
        if said["failures"]:
            raise SystemExit(f"{arm}: {said['failures']}")
        self.processes.append(process)
        for name, kept in (("samples", self.samples), ("blocks", self.blocks)):
            stored = read_frame(folder / f"{name}.parquet")
            kept += [stored[0]] if stored else []
        return process

    def environment(self) -> dict[str, Any]:
        """What the first process recorded of machine and libraries."""
        return read_json(self.folder / "0" / "environment.json") or {}

    def cell(self, variant: str, arm: str, length: int | None = None) -> Cell:
        """An encoder's calls in the processes of an arm."""
        return self.cell_of(variant, [p for p in self.processes if p["arm"] == arm], length)

    def cell_of(
        self, variant: str, processes: Sequence[dict[str, Any]], length: int | None = None
    ) -> Cell:
        """An encoder's calls in some processes, at the first length unless given."""
        units = [process["unit"] for process in processes]
        samples, blocks = join(self.samples, MARKED_SAMPLES), join(self.blocks, BLOCKS)
        return Cell(
            samples[samples["unit"].isin(units)],
            blocks[blocks["unit"].isin(units)],
            processes,
            variant,
            length or self.unit["lengths"][0],
            ARM,
        )

    @property
    def cores(self) -> int:
        """Of this machine."""
        return os.cpu_count() or 1
