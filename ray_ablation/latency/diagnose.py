"""The root-cause study: which factors move p50, the tail and the stalls, and how?

    python -m ray_ablation.latency.diagnose grids/quickstart.yaml --size small
    python -m ray_ablation.latency.diagnose grids/full.yaml [--size medium] [--confirm]

Three parts: a screen, in which all factors vary at once; leave one out, both ways: the controlled
state with one factor added, and the wild one with one taken away; and with --confirm the three
largest in full, with fixed pairs. Every run is a fresh process that times the grid's deepest and
shallowest encoder in turns, at its first length. Predictions are written before anything is
measured. It measures this machine, without Ray; run it where nothing else runs.

Writes latency/<id>/diagnosis.json and samples.parquet under the storage root; prints the answer,
also whether anything tried shows the published signature: stalls of one length at all depths.
Exit codes: 0 measured, 1 when some processes failed, 2 for bad input.
"""

import argparse
import itertools
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ray_ablation import grid as grids
from ray_ablation.atomic import read_frame, write_frame, write_json
from ray_ablation.grid import Grid
from ray_ablation.latency import diagnosis, plan
from ray_ablation.latency.design import plackett_burman
from ray_ablation.latency.factors import applicable, screened, unit_with
from ray_ablation.latency.lease import Holder, hold
from ray_ablation.latency.samples import MARKED_SAMPLES, join
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError
from ray_ablation.settings import Latency

PAIRS = (("threads", "cotenants"), ("inputs", "sdpa"), ("process", "gc"), ("idle", "loading"))
"""Interactions that are confirmed whatever the screen says."""
CELLS_AT_LEAST = 3
"""Processes per cell of the confirmation."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        calls: Per encoder and process.
        limit_s: Of the measured part of a process.
        replicates: Of the screen, and of a cell that leaves one out.
        top_only: Only the three largest factors are left out one by one.
    """

    calls: int
    warmup_calls: int
    limit_s: float
    replicates: int
    top_only: bool


SIZES = {
    "small": Size(calls=40, warmup_calls=6, limit_s=10.0, replicates=1, top_only=True),
    "medium": Size(calls=200, warmup_calls=30, limit_s=40.0, replicates=2, top_only=False),
    "large": Size(calls=500, warmup_calls=50, limit_s=180.0, replicates=3, top_only=False),
}
CAME_TRUE = {True: "It is so.", False: "It is not so.", None: "Not tested."}
LOAD_S = 60.0
"""To start a process and load the encoders."""


@dataclass
class Bench:
    """Runs cells, one process each, and keeps what they showed."""

    holder: Holder
    unit: dict[str, Any]
    size: Size
    folder: Path
    device: str
    cpus: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    frames: list[pd.DataFrame] = field(default_factory=list)

    def run(self, part: str, cell: str, wild: Sequence[str]) -> dict[str, Any]:
        """One process with these factors at their wild level."""
        number = len(self.runs)
        about = {"unit": number, "round": number, "seed": self.unit["seed"] + number}
        about["measure_s"] = self.size.limit_s
        unit = unit_with(self.unit | about, wild, self.device, self.cpus)
        folder = self.folder / str(number)
        soft_s = self.size.limit_s + LOAD_S
        ended = self.holder.run(str(folder), unit, 2 * soft_s, soft_s)
        stored = read_frame(folder / "samples.parquet")
        samples = stored[0] if stored else join([], MARKED_SAMPLES)
        self.frames.append(samples)
        measured = samples[(samples["phase"] == "measured") & samples["clock_ok"]]
        found = diagnosis.outcome(measured, unit["variants"])
        run = {"part": part, "cell": cell, "wild": list(wild), "error": ended.error, **found}
        self.runs.append(run)
        said = f"p50 {found['p50_ms']:.2f} ms" if found["p50_ms"] else ended.error or "no calls"
        print(f"  {part}, {cell}: {said}, {ended.seconds:.1f} s", flush=True)
        return run

    def cells(self, part: str) -> dict[str, list[dict[str, Any]]]:
        """Cell -> its runs."""
        found: dict[str, list[dict[str, Any]]] = {}
        for run in self.runs:
            if run["part"] == part:
                found.setdefault(run["cell"], []).append(run)
        return found


def screen(bench: Bench) -> dict[str, dict[str, Any]]:
    """All factors at once, in an order drawn anew."""
    names = screened(bench.device)
    levels = np.tile(plackett_burman(len(names)), (bench.size.replicates, 1))
    runs: dict[int, dict[str, Any]] = {}
    order = list(range(len(levels)))
    random.Random(bench.unit["seed"]).shuffle(order)
    for row in order:
        wild = [name for name, level in zip(names, levels[row], strict=True) if level > 0]
        runs[row] = bench.run("screen", f"run {row + 1} of {len(levels)}", wild)
    return dict(diagnosis.screen_effects(levels, [runs[row] for row in sorted(runs)], names))


def leave_one_out(bench: Bench, names: Sequence[str]) -> None:
    """The controlled state with one factor added, the wild one with one taken away."""
    wild = screened(bench.device)
    cells: dict[str, list[str]] = {"controlled": [], "wild": wild}
    cells |= {f"controlled + {name}": [name] for name in names}
    cells |= {
        f"wild - {name}": [other for other in wild if other != name]
        for name in names
        if name in wild
    }
    if bench.device == "cuda":
        suspects = ["warmup", "inputs", "sdpa"]
        cells[f"controlled + {' + '.join(suspects)}"] = suspects
    order = [cell for cell in cells for _ in range(bench.size.replicates)]
    random.Random(bench.unit["seed"] + 1).shuffle(order)
    for cell in order:
        bench.run("leave one out", cell, cells[cell])


def confirm(bench: Bench, top: Sequence[str]) -> list[dict[str, Any]]:
    """The top factors in full, and the fixed pairs; what interacts on p50."""
    pairs = [*itertools.combinations(top, 2), *PAIRS]
    known = applicable(bench.device)
    sets = [
        list(wild) for count in range(len(top) + 1) for wild in itertools.combinations(top, count)
    ]
    for a, b in PAIRS:
        sets += [[a], [b], [a, b]] if a in known and b in known else []
    distinct = {" + ".join(sorted(wild)) or "controlled": wild for wild in sets}
    repeats = max(CELLS_AT_LEAST, bench.size.replicates)
    order = [cell for cell in distinct for _ in range(repeats)]
    random.Random(bench.unit["seed"] + 2).shuffle(order)
    for cell in order:
        bench.run("confirm", cell, distinct[cell])
    cells = bench.cells("confirm")
    found = []
    for a, b in dict.fromkeys(pairs):
        both = {
            (False, False): cells.get("controlled", []),
            (True, False): cells.get(a, []),
            (False, True): cells.get(b, []),
            (True, True): cells.get(" + ".join(sorted((a, b))), []),
        }
        found.append({"factors": [a, b], "p50_factor": diagnosis.interaction(both)})
    return found


def diagnose(grid: Grid, ledger: Ledger, size: Size, full: bool) -> tuple[dict[str, Any], int]:
    """Run the study; its record, and how many processes failed."""
    with hold(grid.execution.device, local=True) as holder, tempfile.TemporaryDirectory() as name:
        node = holder.node()
        names, folders = _encoders(grid, ledger, Path(name) / "encoders")
        unit = _unit(grid.latency or Latency(), names, size, node) | {"folders": folders}
        what = {"diagnose": asdict(size), "variants": names, "confirm": full}
        identifier = plan.profile_id(what, node)
        folder = ledger.latency_dir(identifier)
        bench = Bench(holder, unit, size, Path(name), node["device"], node["cpus"])
        predicted = diagnosis.check_predictions(node["device"], names, {}, {})
        record: dict[str, Any] = {"what": what, "node": node, "predictions": predicted}
        write_json(folder / "diagnosis.json", record)
        print("\n".join(f"Predicted: {one['says']}" for one in predicted), flush=True)
        found = screen(bench)
        top = diagnosis.top(found)
        leave_one_out(bench, top if size.top_only else applicable(node["device"]))
        interactions = confirm(bench, top) if full else []
    cells = bench.cells("leave one out")
    record |= _conclude(bench, found, cells) | {
        "interactions": interactions,
        "runs": bench.runs,
        "diagnosis_id": identifier,
    }
    write_frame(folder / "samples.parquet", join(bench.frames, MARKED_SAMPLES), {"id": identifier})
    write_json(folder / "diagnosis.json", record)
    return record, sum(run["error"] is not None for run in bench.runs)


def _conclude(
    bench: Bench, found: dict[str, dict[str, Any]], cells: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    changes = {
        cell: diagnosis.one_at_a_time(cells.get(cell.split(" ")[0], []), runs)
        for cell, runs in cells.items()
        if " " in cell
    }
    alone = {
        cell.removeprefix("controlled + "): change
        for cell, change in changes.items()
        if cell.startswith("controlled + ")
    }
    screen_runs = bench.cells("screen")
    reproduced = diagnosis.reproduction(cells | screen_runs)
    causes = sorted({run["cause"] for run in bench.runs if run["cause"]})
    answer = [diagnosis.moved(words, by_name) for words, by_name in found.items()]
    answer.append(diagnosis.reproduced_words(reproduced))
    answer.append(f"Stalls followed: {', '.join(causes) or 'nothing, there were none'}.")
    answer.append(diagnosis.factor_words(bench.device, applicable(bench.device)))
    return {
        "effects": {w: {n: asdict(e) for n, e in by.items()} for w, by in found.items()},
        "leave_one_out": changes,
        "reproduction": reproduced,
        "predictions": diagnosis.check_predictions(
            bench.device, bench.unit["variants"], alone, cells
        ),
        "answer": answer,
    }


def _unit(
    latency: Latency, names: Sequence[str], size: Size, node: dict[str, Any]
) -> dict[str, Any]:
    asked = latency.model_copy(
        update={
            "calls": size.calls,
            "warmup_calls": size.warmup_calls,
            "lengths": latency.lengths[:1],
            "inputs": "exact",
        }
    )
    dtype = "fp32" if node["device"] == "cpu" else latency.dtype
    return plan.unit("diagnose", 0, 0, names, asked, dtype, node["device"])


def _encoders(grid: Grid, ledger: Ledger, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The deepest and the shallowest encoder: a trained one, or one built from the backbone."""
    from ray_ablation import encoder

    by_depth = sorted(grid.trials, key=lambda trial: -trial.depth)
    chosen = {f"L{trial.depth}": trial for trial in (by_depth[0], by_depth[-1])}
    folders = {}
    for name, trial in chosen.items():
        if ledger.read_trial(trial.id) is not None:
            folders[name] = str(ledger.model_dir(trial.id).resolve())
        else:
            folders[name] = str(folder / name)
            encoder.save(encoder.build(trial, grid.path(trial.backbone)), folder / name)
    return list(chosen), folders


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ray_ablation.latency.diagnose",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("grid", type=Path)
    parser.add_argument("--size", choices=list(SIZES), default="medium")
    parser.add_argument("--confirm", action="store_true", help="the three largest in full, pairs")
    parser.add_argument("--storage", type=Path, help="root of the ledger, else the grid's")
    options = parser.parse_args(arguments)
    try:
        grid = grids.load(options.grid)
        ledger = Ledger(options.storage or Path(grid.execution.storage))
        record, failed = diagnose(grid, ledger, SIZES[options.size], options.confirm)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(["", *record["answer"]]))
    for one in record["predictions"]:
        print(f"Predicted: {one['says']} {CAME_TRUE[one['true']]}")
    print(ledger.latency_dir(record["diagnosis_id"]) / "diagnosis.json")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
