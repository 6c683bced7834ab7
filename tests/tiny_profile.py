"""A study as far as profiling reads it: trained encoders of two depths, made tiny."""

from dataclasses import replace
from pathlib import Path

from ray_ablation import encoder
from ray_ablation.atomic import write_json
from ray_ablation.grid import Grid, load
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Latency
from ray_ablation.trial import Trial
from tiny import tiny_bert

LATENCY = Latency(lengths=(8, 16), rounds=1, solo=False, calls=10, warmup_calls=3, budget_s=90.0)


def make_grid(folder: Path) -> Grid:
    """Depths 2 and 1, each as a reference and as two seeds."""
    (folder / "mine").mkdir(exist_ok=True)
    file = folder / "grid.yaml"
    file.write_text(
        f"name: tiny\naxes: {{depth: [2, 1]}}\n"
        "experiments: {base: {steps: 0}, s1: {steps: 9, seed: 1}, s2: {steps: 9, seed: 2}}\n"
        f"fixed: {{backbone: {tiny_bert(folder / 'bert', layers=2)}}}\n"
        f"benchmarks: [mine]\npaths: {{mine: {folder / 'mine'}}}\n"
        "execution: {device: cpu}\n"
    )
    return replace(load(file), latency=LATENCY)


def add_trained(trial: Trial, ledger: Ledger) -> None:
    """A done trial as far as profiling reads it; its weights are the backbone's own."""
    built = encoder.build(trial)
    encoder.save(built, ledger.model_dir(trial.id))
    result = {
        "parameters": encoder.parameter_count(built),
        "encoder_sha256": encoder.weights_sha256(built),
    }
    write_json(ledger.trial_json(trial.id), {"id": trial.id, "result": result})


def depth(grid: Grid, wanted: int, seed: int | None = None) -> Trial:
    return next(
        trial
        for trial in grid.trials
        if trial.depth == wanted
        and (trial.steps == 0 if seed is None else trial.seed == seed)
        and (seed is None or trial.steps)
    )


def make_study(folder: Path) -> tuple[Grid, Ledger]:
    """A grid and a ledger in which the references and the first seed are trained."""
    grid, ledger = make_grid(folder), Ledger(folder / "results")
    for trial in (depth(grid, 2), depth(grid, 1), depth(grid, 2, 1), depth(grid, 1, 1)):
        add_trained(trial, ledger)
    return grid, ledger
