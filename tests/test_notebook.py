"""The notebook runs from top to bottom on a study that Tune trained."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import synthetic
from ray_ablation import cluster, tune
from ray_ablation import grid as grids
from ray_ablation.atomic import write_frame
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Execution

REPOSITORY = Path(__file__).resolve().parents[1]
NOTEBOOK = REPOSITORY / "analysis" / "notebooks" / "experiment_analysis.ipynb"

GRID = """\
name: noted
axes: {depth: [2, 1]}
experiments:
  untrained: {steps: 0}
  B: {batch: 4, steps: 8, seed: 42}
  C: {batch: 4, steps: 8, seed: 43}
fixed: {backbone: bert-base-uncased, train_set: docstrings}
benchmarks: [mine, yours]
measures: [nDCG@10]
paths: {mine: ./mine, yours: ./yours}
execution: {device: cpu}
"""


def execute(notebook: Path, root: Path, study: str, timeout_s: int = 120) -> nbformat.NotebookNode:
    """Run a notebook on a study; raises CellExecutionError with the cell's traceback."""
    client = NotebookClient(
        nbformat.read(notebook, as_version=4),
        timeout=timeout_s,
        resources={"metadata": {"path": str(REPOSITORY)}},
    )
    environment = os.environ | {
        "STUDY": study,
        "ROOT": str(root),
        "PYTHONPATH": str(REPOSITORY),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    return client.execute(env=environment)


def text_of(notebook: nbformat.NotebookNode) -> str:
    """All that its cells printed or returned."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> tuple[Path, str]:
    """ROOT and STUDY of the environment, else a small study with a real Tune session."""
    if "STUDY" in os.environ and "ROOT" in os.environ:
        return Path(os.environ["ROOT"]).resolve(), os.environ["STUDY"]
    root = tmp_path_factory.mktemp("noted")
    file = root / "grid.yaml"
    file.write_text(GRID)
    grid, ledger = grids.load(file), Ledger(root / "results")
    ledger.open_study(grid)
    made = {trial.id: synthetic.made_up(trial) for trial in grid.trials}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setattr(cluster, "usable_cpus", lambda: 2)
        with cluster.start_ray(Execution(cpus_per_trial=1)):
            failures = tune.train(grid, grid.trials, ledger, train_trial=recorder(made))
    assert failures == []
    for trial in grid.trials:
        for benchmark in grid.benchmarks:
            synthetic.write_scores(ledger, grid, trial, benchmark.name)
    return ledger.root, grid.name


def recorder(made):
    """A trial function that writes records made beforehand; workers cannot import this file."""

    def train_trial(trial, sources, ledger, execution, report, where):
        record, curve = made[trial.id]
        for row in curve.to_dict("records"):
            report({"step": row["step"], "steps": trial.steps, "loss": row["loss"]})
        model = ledger.model_dir(trial.id)
        model.mkdir(parents=True, exist_ok=True)
        (model / "config.json").write_text("{}")
        write_frame(ledger.train_parquet(trial.id), curve, {"id": trial.id})
        return ledger.finish_trial(trial, record)

    return train_trial


def test_it_runs_and_joins_tune_with_the_ledger(study):
    root, name = study
    notebook = execute(NOTEBOOK, root, name)
    text = text_of(notebook)
    assert "trials = " in text
    assert "config/trial/depth" in text
    assert any("application/vnd.plotly.v1+json" in str(cell) for cell in notebook.cells)


def test_it_is_committed_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not c.get("outputs") and not c.get("execution_count") for c in notebook.cells)
