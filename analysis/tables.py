"""Which tables a report has, and what stands in them."""

from typing import Any

import pandas as pd

from analysis.configurations import short, words
from analysis.record_tables import (
    benchmarks_table,
    latency_table,
    provenance_table,
    training_table,
    trial_columns,
    unfinished_table,
)
from analysis.study import Study
from analysis.table import Column, Table, digits, missing, seeds_cell, signed, whole
from ray_ablation.frames import MEAN
from ray_ablation.trial import Trial


def all_tables(study: Study) -> list[Table]:
    """Every table that has a row, in the order of a report."""
    first, *others = study.grid.measures
    made = [
        seeds_table(study, first),
        change_table(study),
        unfinished_table(study),
        latency_table(study),
        measure_table(study, first),
        trials_table(study),
        training_table(study),
        benchmarks_table(study),
        *(make(study, measure) for measure in others for make in (seeds_table, measure_table)),
        provenance_table(study),
    ]
    return [table for table in made if table is not None and len(table.frame)]


def measure_table(study: Study, measure: str) -> Table:
    """One measure by trial and benchmark, and its mean over benchmarks."""
    rows = study.results[study.results["measure"] == measure]
    wide = rows.pivot(index="trial", columns="benchmark", values="value")
    names = [*study.benchmarks, MEAN]
    fields = _varied(study)
    trials = study.trials[["trial", "experiment", *fields]]
    frame = trials.merge(wide[names].reset_index(), on="trial")
    return Table(
        name=f"trials-{_slug(measure)}",
        title=f"{measure} by trial",
        caption="One encoder a row, one seed each (n = 1). The mean over benchmarks is a dash "
        "when one of them is missing.",
        frame=frame,
        columns=(
            *trial_columns(frame),
            *(Column(name.replace("_", " "), (name,), _field) for name in fields),
            *(Column(name, (name,), digits(4)) for name in names),
        ),
    )


def seeds_table(study: Study, measure: str) -> Table:
    """One measure's mean and spread over seeds, by configuration and benchmark."""
    rows = study.spread[study.spread["measure"] == measure]
    names = [*study.benchmarks, MEAN]
    frame = _configurations_frame(study)
    for name in names:
        part = rows.loc[rows["benchmark"] == name, ["configuration", "mean", "n", "sd"]]
        parts = {field: f"{name} {field}" for field in ("mean", "n", "sd")}
        frame = frame.merge(part.rename(columns=parts), on="configuration")
    headline = " (the headline measure)" if measure == study.headline else ""
    return Table(
        name=f"seeds-{_slug(measure)}",
        title=f"{measure} over seeds",
        caption=f"{measure}{headline} of configurations equal in all but the seed: mean ± sd (n). "
        "The sd is the spread of seeds (ddof 1), not the uncertainty of the mean; it is a dash "
        "for a single seed, n = 1.",
        frame=frame,
        columns=(
            Column("configuration", ("configuration",), number=False),
            *(
                Column(name, (f"{name} mean", f"{name} n", f"{name} sd"), seeds_cell, optional=1)
                for name in names
            ),
            *_data_columns(),
        ),
    )


def change_table(study: Study) -> Table | None:
    """The headline measure's change between two budgets, at matched seeds."""
    found = study.comparison
    if found is None:
        return None
    frame = found.frame[found.frame["n"] > 0].copy()
    x = study.layout.x
    frame["place"] = [words({x: value}) for value in frame["x"]]
    frame["matched"] = [", ".join(map(str, seeds)) for seeds in frame["seeds"]]
    fixed = f" ({found.fixed})" if found.fixed else ""
    return Table(
        name="change",
        title=f"{found.measure} {found.change}{fixed}",
        caption="Differences at matched seeds: a seed's value after minus the same seed's before. "
        "sd is their spread over seeds (ddof 1), the interval the 95 % t interval of their mean; "
        "both are a dash at n = 1.",
        frame=frame,
        columns=(
            Column(x.replace("_", " "), ("place",), number=False),
            Column("benchmark", ("benchmark",), number=False),
            Column("before", ("before",), digits(4)),
            Column("after", ("after",), digits(4)),
            Column("change", ("difference",), signed("{:+.4f}")),
            Column("relative", ("relative",), signed("{:+.1%}")),
            Column("sd", ("sd",), digits(4)),
            Column("95 % interval", ("low", "high"), signed("{:+.4f} to {:+.4f}")),
            Column("n", ("n",), whole),
            Column("seeds", ("matched",), number=False),
        ),
    )


def trials_table(study: Study) -> Table:
    """What each trial is and what it has seen."""
    frame = study.trials
    return Table(
        name="trials",
        title="Trials",
        caption="Examples are batch x steps, repeats counted; passes are examples over unique "
        "samples; in-batch negatives are the documents each query is contrasted with.",
        frame=frame,
        columns=(
            *trial_columns(frame),
            Column("state", ("state",), number=False),
            *(Column(name.replace("_", " "), (name,), _field) for name in _varied(study)),
            *_data_columns(),
        ),
    )


def _varied(study: Study) -> list[str]:
    """The fields that differ between trials."""
    return [name for name in Trial.model_fields if name in study.grid.axes]


def _configurations_frame(study: Study) -> pd.DataFrame:
    """A row a configuration with what its trials have seen, equal over seeds."""
    rows = []
    for configuration in study.layout.configurations:
        ids = list(configuration.trials.values())
        found = study.trials[study.trials["trial"].isin(ids)]
        seen = {
            name: next((value for value in found[name] if not missing(value)), None)
            for name in ("examples", "passes", "in_batch_negatives", "parameters")
        }
        rows.append({"configuration": configuration.label, **seen})
    return pd.DataFrame(rows)


def _data_columns() -> tuple[Column, ...]:
    return (
        Column("examples", ("examples",), whole),
        Column("passes", ("passes",), digits(2)),
        Column("in-batch negatives", ("in_batch_negatives",), whole),
        Column("parameters", ("parameters",), whole),
    )


def _field(value: Any) -> str:
    return short(int(value) if isinstance(value, int) else value)


def _slug(measure: str) -> str:
    return measure.replace("@", "-")
