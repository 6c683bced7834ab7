"""A study as the analysis sees it: names, frames and what follows from them; no grid, no ledger.

`analysis.readers` makes one, from what the ledger holds of a grid or from rows that
`analysis.import_results` brought in. What makes tables, figures and sentences does not ask which.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from analysis import configurations
from analysis.change import Comparison, compare_budgets
from analysis.configurations import Layout, Values
from ray_ablation import frames
from ray_ablation.claim import Statement
from ray_ablation.problems import UserError


class StudyError(UserError):
    """A study that cannot be read, or lacks what was asked of it; the text says what to do."""


@dataclass(frozen=True)
class Study:
    """Everything a report is made of.

    Attributes:
        name: Of its folder under studies/.
        description: In the words of whoever asked.
        product: What was multiplied, "20 trials = 5 experiment x 4 depth".
        axes: The columns of `trials` in which trials differ.
        common: Fields that are the same for all that are trained, by name.
        benchmarks: Names, in order, without the mean.
        measures: As ir_measures spells them; headlines and figures use the first.
        trials: `frames.trials_frame`.
        results: `frames.results_frame`.
        training: `frames.training_frame`.
        latency: `latency.frame.latency_frame`.
        audit: `frames.audit_frame`.
        references: `frames.references_frame`: what stands beside the trials, BM25 say.
        versions: Trial id -> library -> version, of finished trials.
        claims: The sentences that are held against it, see `ray_ablation.claim`.
        registered: Digest of a claim -> when a run of the study first saw it.
        groups: Benchmark -> the group that counts as one in a mean, for those that have one.
        notes: What readers of a benchmark's numbers must know, a sentence each.
        hours: What the work took by the study's own account, see `published_study`; None mostly.
        ladder: Latencies as published, see `latency_forensics`; None mostly.
        source: Where imported rows come from, in words; "" for a study that was run here.
        load_queries: Reads the per-query scores; None where there are none.
    """

    name: str
    description: str
    product: str
    axes: tuple[str, ...]
    common: dict[str, Any]
    benchmarks: tuple[str, ...]
    measures: tuple[str, ...]
    trials: pd.DataFrame
    results: pd.DataFrame
    training: pd.DataFrame
    latency: pd.DataFrame
    audit: pd.DataFrame
    references: pd.DataFrame
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)
    claims: tuple[Statement, ...] = ()
    registered: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    hours: pd.DataFrame | None = None
    ladder: pd.DataFrame | None = None
    source: str = ""
    load_queries: Callable[[str], pd.DataFrame] | None = None

    @property
    def imported(self) -> bool:
        """Whether its rows were brought in, so that there are no models and no queries."""
        return bool(self.source)

    @property
    def headline(self) -> str:
        """The measure that headlines and figures use: the first."""
        return self.measures[0]

    @property
    def parts(self) -> list[str]:
        """The benchmarks, their groups and their mean, as the column `benchmark` names them."""
        return list(dict.fromkeys([*self.benchmarks, *self.groups.values(), frames.MEAN]))

    @property
    def units(self) -> list[str]:
        """What counts once in the mean: benchmarks, and groups of them."""
        return list(dict.fromkeys(self.groups.get(name, name) for name in self.benchmarks))

    @property
    def weights(self) -> dict[str, float]:
        """The share of each benchmark in the mean; a group's members share that of one."""
        units = [self.groups.get(name, name) for name in self.benchmarks]
        each = 1 / len(set(units))
        return {
            name: each / units.count(unit)
            for name, unit in zip(self.benchmarks, units, strict=True)
        }

    @property
    def fields(self) -> list[str]:
        """The axes in the order in which `trials` has them."""
        return [name for name in self.trials.columns if name in self.axes]

    @cached_property
    def layout(self) -> Layout:
        """How its configurations are arranged."""
        null = "unknown" if self.imported else "none"
        return configurations.layout(self.trials, self.axes, null)

    @cached_property
    def values(self) -> Values:
        """(trial, benchmark, measure) -> value, None when missing."""
        return configurations.cell_values(self.results)

    @cached_property
    def spread(self) -> pd.DataFrame:
        """Mean and spread over seeds, see `configurations.spread`."""
        found = self.layout.configurations
        return configurations.spread(found, self.values, self.parts, self.measures)

    @cached_property
    def means(self) -> pd.DataFrame:
        """The rows of `spread` with the headline measure's mean over benchmarks."""
        rows = self.spread
        chosen = (rows["benchmark"] == frames.MEAN) & (rows["measure"] == self.headline)
        return rows[chosen].reset_index(drop=True)

    @cached_property
    def comparison(self) -> Comparison | None:
        """The change between two budgets, see `change.compare_budgets`."""
        return compare_budgets(self.layout, self.values, self.parts, self.headline)

    def queries(self, measure: str = "") -> pd.DataFrame:
        """Per-query scores of one measure, the headline's unless another is named.

        Columns: trial, benchmark, query_id, value; no rows for an imported study.
        """
        if self.load_queries is None:
            return pd.DataFrame(columns=["trial", "benchmark", "query_id", "value"])
        return self.load_queries(measure or self.headline)

    @property
    def finished(self) -> pd.DataFrame:
        """The trials that can have values: done here, or imported."""
        return self.trials[self.trials["state"].isin(["done", "imported"])]

    def state(self, state: str) -> pd.DataFrame:
        """The trials in a state: done, failed or missing."""
        return self.trials[self.trials["state"] == state]


REFERENCE_TYPES = {
    "reference": "str",
    "benchmark": "str",
    "measure": "str",
    "value": "float64",
    "n_queries": "Int64",
    "source": "str",
}
