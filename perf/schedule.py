"""Makespan of a study's twenty trials on eight GPUs that are only pretended, the order ours or not.

    python -m perf.schedule [--unit-s 3]

The trials sleep in the proportions of the study's own hours a trial (runtime_hours.csv under
analysis/published): 1 unit for A, 4 for B, C and D, 16 for E, each at four depths, listed as
`grids/full.yaml` lists its experiments. Both arms run in turn on one Ray of two
nodes with four GPUs each, through `tune.train`: longest first with a canary, and in the order of
the file. Columns:

    makespan  from the start of the first trial to the end of the last, against the lower bound
              max(longest, sum / GPUs); `no overhead` is what the same order comes to if starting
              costs nothing
    gap       median seconds between two trials on a GPU: end seen, next one placed, a fresh
              process started (without torch, which a real trial imports on top)
    before    seconds from the call to the start of the first trial

It takes two minutes and a half, most of it asleep; starting eight workers at once on few cores is
what the makespan is above the bound.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd
from ray.cluster_utils import Cluster

from ray_ablation import cluster, cost, tune
from ray_ablation.atomic import write_frame
from ray_ablation.grid import Grid, load
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial

UNITS = {"A": 1, "B": 4, "C": 4, "D": 4, "E": 16}
STEPS = 1000
NODES, GPUS_PER_NODE = 2, 4
GRID = """
name: schedule
axes: {{depth: [12, 9, 6, 3]}}
experiments: {experiments}
fixed: {{backbone: bert-base-uncased, train_set: docstrings}}
benchmarks: [docstrings-numpy]
execution: {{device: cuda}}
"""


def main() -> None:
    """Run both arms and print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--unit-s", type=float, default=3.0, help="seconds a unit sleeps")
    unit_s = parser.parse_args().unit_s
    head = {"num_cpus": 1, "num_gpus": 0, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(NODES):
        nodes.add_node(num_cpus=GPUS_PER_NODE, num_gpus=GPUS_PER_NODE)
    try:
        with cluster.start_ray(Execution(), address=nodes.address):
            print(f"{'order':14}  {'makespan':>9}  of bound  no overhead     gap  before")
            for name, order in {"longest first": tune.order, "as listed": listed}.items():
                with tempfile.TemporaryDirectory() as folder, patch.object(tune, "order", order):
                    print(f"{name:14}  {run(Path(folder), order, unit_s)}", flush=True)
    finally:
        nodes.shutdown()


def listed(pending: Sequence[Trial], slots: int, canary: bool) -> list[Trial]:
    """The order of the file."""
    return list(pending)


def run(folder: Path, order: Callable[..., list[Trial]], unit_s: float) -> str:
    """Train all in one order; a row of the table."""
    grid = make_grid(folder)
    gpus = NODES * GPUS_PER_NODE
    lengths = [trial.steps / STEPS for trial in order(grid.trials, gpus, True)]
    bound_s = cost.lower_bound(lengths, gpus) * unit_s
    ideal_s = cost.makespan(lengths, gpus) * unit_s
    called = time.time()
    sleep = sleeping(folder / "notes", unit_s)
    failures = tune.train(grid, grid.trials, Ledger(folder / "results"), train_trial=sleep)
    assert not failures, failures
    notes = [json.loads(file.read_text()) for file in (folder / "notes").iterdir()]
    began = min(note["began"] for note in notes)
    makespan_s = max(note["ended"] for note in notes) - began
    return (
        f"{makespan_s:7.1f} s  {makespan_s / bound_s:8.3f}  {ideal_s / bound_s:11.3f}  "
        f"{statistics.median(gaps(notes)):4.2f} s  {began - called:4.1f} s"
    )


def make_grid(folder: Path) -> Grid:
    """The study's experiments, as long as their units."""
    experiments = {
        name: {"steps": units * STEPS, "seed": seed}
        for seed, (name, units) in enumerate(UNITS.items())
    }
    file = folder / "grid.yaml"
    file.write_text(GRID.format(experiments=json.dumps(experiments)))
    return load(file)


def sleeping(notes: Path, unit_s: float) -> Callable[..., dict[str, Any]]:
    """A trial that sleeps and notes when and where."""
    notes.mkdir()

    def train_trial(
        trial: Trial, sources: Any, ledger: Ledger, execution: Any, report: Any, where: Any
    ) -> dict[str, Any]:
        began = time.time()
        time.sleep(trial.steps / STEPS * unit_s)
        ledger.model_dir(trial.id).mkdir(parents=True)
        write_frame(ledger.train_parquet(trial.id), pd.DataFrame({"step": [1]}), {})
        note = {"began": began, "ended": time.time(), "gpu": where["node_id"] + where["gpu_ids"][0]}
        (notes / trial.id).write_text(json.dumps(note))
        return ledger.finish_trial(trial, {"result": {}, "execution": where})

    return train_trial


def gaps(notes: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds between one trial and the next, over all GPUs."""
    by_gpu = defaultdict(list)
    for note in sorted(notes, key=lambda note: note["began"]):
        by_gpu[note["gpu"]].append(note)
    return [
        later["began"] - sooner["ended"]
        for held in by_gpu.values()
        for sooner, later in pairwise(held)
    ]


if __name__ == "__main__":
    main()
