"""Which tables a report has, and what stands in them."""

from typing import Any

import pandas as pd

from analysis.beside import beside, sources
from analysis.claims import claims_table
from analysis.configurations import short, words
from analysis.difference_tables import difference_tables
from analysis.differences import separated
from analysis.latency_forensics import forensics_tables
from analysis.limits import unsplit
from analysis.record_tables import (
    benchmarks_table,
    latency_table,
    provenance_table,
    training_table,
    trial_columns,
    unfinished_table,
)
from analysis.study import Study
from analysis.summary_tables import budgets_table, hours_table, latency_line_table, means_table
from analysis.table import Column, Table, digits, missing, seeds_cell, signed, whole
from analysis.tested import Tested, tested


def all_tables(study: Study, found: Tested | None = None) -> list[Table]:
    """Every table that has a row, in the order of a report."""
    found = found or tested(study)
    first, *others = study.measures
    made = [
        claims_table(found.answers),
        seeds_table(study, first),
        means_table(study),
        *difference_tables(study, found),
        change_table(study),
        budgets_table(study),
        unfinished_table(study),
        latency_table(study),
        latency_line_table(study),
        *forensics_tables(study),
        hours_table(study),
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
    names, fields = study.parts, study.fields
    trials = study.trials[list(dict.fromkeys(["trial", "experiment", *fields]))]
    frame = trials.merge(wide[names].reset_index(), on="trial")
    return Table(
        name=f"trials-{_slug(measure)}",
        title=f"{measure} by trial",
        caption="One encoder a row, one seed each (n = 1). The mean over benchmarks is a dash "
        "when one of them is missing.",
        frame=frame,
        columns=(
            *trial_columns(frame),
            *(Column(n.replace("_", " "), (n,), _field) for n in fields if n != "experiment"),
            *(Column(name, (name,), digits(4)) for name in names),
        ),
    )


def seeds_table(study: Study, measure: str) -> Table:
    """One measure's mean and spread over seeds, by configuration and benchmark."""
    rows = study.spread[study.spread["measure"] == measure]
    names = study.parts
    frame = _configurations_frame(study)
    for name in names:
        part = rows.loc[rows["benchmark"] == name, ["configuration", "mean", "n", "sd"]]
        parts = {field: f"{name} {field}" for field in ("mean", "n", "sd")}
        frame = frame.merge(part.rename(columns=parts), on="configuration")
        best = separated(study, measure, name)
        frame[f"{name} best"] = [label == best for label in frame["configuration"]]
    shown = beside(study)
    shown = shown[shown["measure"] == measure]
    headline = " (the headline measure)" if measure == study.headline else ""
    return Table(
        name=f"seeds-{_slug(measure)}",
        title=f"{measure} over seeds",
        caption=f"{measure}{headline} of configurations equal in all but the seed: mean ± sd (n). "
        "The sd is the spread of seeds (ddof 1), not the uncertainty of the mean; it is a dash "
        "for a single seed, n = 1. Bold is a value that a paired t test over seeds, Holm over its "
        f"column, separates from all others of its column{_bold(frame)}.{sources(shown)}",
        frame=_with_references(frame, shown, names),
        columns=(
            Column("configuration", ("configuration",), number=False),
            *(
                Column(
                    name,
                    (f"{name} mean", f"{name} n", f"{name} sd"),
                    seeds_cell,
                    optional=2,
                    bold=f"{name} best",
                )
                for name in names
            ),
            *_data_columns(frame),
        ),
    )


def _bold(frame: pd.DataFrame) -> str:
    marks = [name for name in frame if str(name).endswith(" best")]
    return "" if frame[marks].to_numpy().any() else "; here is none"


def _with_references(frame: pd.DataFrame, shown: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Below the configurations, a row a reference, with values only."""
    rows = [
        {"configuration": reference}
        | {f"{b} mean": v for b, v in zip(part["benchmark"], part["value"], strict=True)}
        | {f"{name} best": False for name in names}
        for reference, part in shown.groupby("reference", sort=False)
    ]
    if not rows:
        return frame
    wide = pd.DataFrame(rows, columns=frame.columns, dtype=object)
    return pd.concat([frame.astype(object), wide], ignore_index=True)


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
        "both are a dash at n = 1. The last column is the change between the means of all seeds, "
        f"matched or not. {unsplit(study)}".strip(),
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
            Column("all seeds", ("relative_all",), signed("{:+.1%}")),
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
            *(
                Column(name.replace("_", " "), (name,), _field)
                for name in study.fields
                if name != "experiment"
            ),
            *_data_columns(frame),
        ),
    )


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


def _data_columns(frame: pd.DataFrame) -> tuple[Column, ...]:
    """What trials have seen, as far as it is known of any."""
    columns = (
        Column("examples", ("examples",), whole),
        Column("passes", ("passes",), digits(2)),
        Column("in-batch negatives", ("in_batch_negatives",), whole),
        Column("parameters", ("parameters",), whole),
    )
    return tuple(column for column in columns if frame[column.fields[0]].notna().any())


def _field(value: Any) -> str:
    return short(int(value) if isinstance(value, int) else value)


def _slug(measure: str) -> str:
    return measure.replace("@", "-")
