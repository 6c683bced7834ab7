"""A study as the analysis sees it: its grid, and frames of what the ledger holds of it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from analysis import configurations
from analysis.configurations import Comparison, Layout
from ray_ablation import frames
from ray_ablation import grid as grids
from ray_ablation.grid import Grid
from ray_ablation.latency.frame import latency_frame
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError, unknown


class StudyError(UserError):
    """A study that cannot be read; the text says which ones there are."""


@dataclass(frozen=True)
class Study:
    """Everything a report is made of.

    Attributes:
        grid: What was asked for, as stored with the study.
        trials: `frames.trials_frame`.
        results: `frames.results_frame`.
        training: `frames.training_frame`.
        latency: `latency.frame.latency_frame`.
        audit: `frames.audit_frame`.
        versions: Trial id -> library -> version, of finished trials.
    """

    grid: Grid
    trials: pd.DataFrame
    results: pd.DataFrame
    training: pd.DataFrame
    latency: pd.DataFrame
    audit: pd.DataFrame
    versions: dict[str, dict[str, Any]]

    @property
    def headline(self) -> str:
        """The measure that headlines and figures use: the grid's first."""
        return self.grid.measures[0]

    @property
    def benchmarks(self) -> list[str]:
        """Names, in the order of the grid."""
        return [benchmark.name for benchmark in self.grid.benchmarks]

    @cached_property
    def layout(self) -> Layout:
        """How its configurations are arranged."""
        return configurations.layout(self.grid)

    @cached_property
    def spread(self) -> pd.DataFrame:
        """Mean and spread over seeds, see `configurations.spread`."""
        return configurations.spread(self.grid, self.results)

    @cached_property
    def means(self) -> pd.DataFrame:
        """The rows of `spread` with the headline measure's mean over benchmarks."""
        rows = self.spread
        chosen = (rows["benchmark"] == frames.MEAN) & (rows["measure"] == self.headline)
        return rows[chosen].reset_index(drop=True)

    @cached_property
    def comparison(self) -> Comparison | None:
        """The change between two budgets, see `configurations.compare_budgets`."""
        return configurations.compare_budgets(self.grid, self.results)

    def state(self, state: str) -> pd.DataFrame:
        """The trials in a state: done, failed or missing."""
        return self.trials[self.trials["state"] == state]


def read_study(name: str, ledger: Ledger) -> Study:
    """Read a study from the ledger.

    Raises:
        StudyError: There is no study of that name.
        GridError: Its grid.yaml is damaged.
    """
    file = ledger.study_grid(name)
    if not file.is_file():
        raise StudyError(_no_study(name, ledger))
    grid = grids.load(file, here=False)
    records = {trial.id: frames.finished_record(trial, ledger) for trial in grid.trials}
    return Study(
        grid=grid,
        trials=frames.trials_frame(grid, ledger),
        results=frames.results_frame(grid, ledger),
        training=frames.training_frame(grid, ledger),
        latency=latency_frame(grid, ledger),
        audit=frames.audit_frame(grid, ledger),
        versions={id: r["code"].get("versions", {}) for id, r in records.items() if r},
    )


def _no_study(name: str, ledger: Ledger) -> str:
    found = sorted(file.parent.name for file in ledger.root.glob("studies/*/grid.yaml"))
    if found:
        return f"{ledger.root}: {unknown('study', name, found)}"
    return (
        f"{ledger.root} holds no study at all; run one: python -m ray_ablation.run "
        "grids/quickstart.yaml, or say where the results lie: --root FOLDER"
    )
