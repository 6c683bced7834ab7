"""Which tables a report has, and what stands in them."""

from typing import Any

import pandas as pd

from analysis.configurations import short, words
from analysis.study import Study
from analysis.table import DASH, Column, Table, digits, missing, seeds_cell, signed, whole
from ray_ablation.frames import MEAN
from ray_ablation.trial import Trial


def all_tables(study: Study) -> list[Table]:
    """Every table that has a row, in the order of a report."""
    made = [
        *(seeds_table(study, measure) for measure in study.grid.measures),
        change_table(study),
        trials_table(study),
        *(measure_table(study, measure) for measure in study.grid.measures),
        training_table(study),
        latency_table(study),
        benchmarks_table(study),
        unfinished_table(study),
    ]
    return [table for table in made if table is not None and len(table.frame)]


def measure_table(study: Study, measure: str) -> Table:
    """One measure by trial and benchmark, and its mean over benchmarks."""
    rows = study.results[study.results["measure"] == measure]
    wide = rows.pivot(index="trial", columns="benchmark", values="value")
    names = [*study.benchmarks, MEAN]
    frame = study.trials[["trial", "experiment"]].merge(wide[names].reset_index(), on="trial")
    return Table(
        name=f"trials-{_slug(measure)}",
        title=f"{measure} by trial",
        caption="One encoder a row, one seed each (n = 1). The mean over benchmarks is a dash "
        "when one of them is missing.",
        frame=frame,
        columns=(
            *_trial_columns(frame),
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
            *_data_columns(),
            *(
                Column(name, (f"{name} mean", f"{name} n", f"{name} sd"), seeds_cell, optional=1)
                for name in names
            ),
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
    fields = [name for name in Trial.model_fields if name in study.grid.axes]
    frame = study.trials
    return Table(
        name="trials",
        title="Trials",
        caption="Examples are batch x steps, repeats counted; passes are examples over unique "
        "samples; in-batch negatives are the documents each query is contrasted with.",
        frame=frame,
        columns=(
            *_trial_columns(frame),
            Column("state", ("state",), number=False),
            *(Column(name.replace("_", " "), (name,), _field) for name in fields),
            *_data_columns(),
        ),
    )


def training_table(study: Study) -> Table:
    """Loss and speed of trained trials."""
    frame = study.state("done")
    frame = frame[frame["steps"] > 0]
    return Table(
        name="training",
        title="Training",
        caption="Loss is the last one logged, eval loss is that of held-out rows. "
        "MFU counts the floating-point operations the model needs over the device's bf16 peak; it "
        "is a dash where that peak is not known.",
        frame=frame,
        columns=(
            *_trial_columns(frame),
            Column("loss", ("loss",), digits(4)),
            Column("eval loss", ("eval_loss",), digits(4)),
            Column("lowest eval loss", ("min_eval_loss",), digits(4)),
            Column("seconds", ("seconds",), digits(1)),
            Column("examples/s", ("examples_per_s",), digits(1)),
            Column("tokens/s", ("tokens_per_s",), digits(0)),
            Column("MFU", ("mfu",), "{:.1%}".format),
            Column("peak MiB", ("peak_bytes",), lambda value: f"{value / 2**20:,.0f}"),
            Column("node", ("node",), number=False),
            Column("device", ("device_name",), number=False),
        ),
    )


def latency_table(study: Study) -> Table:
    """What each architecture takes, and what may be said of it."""
    frame = study.latency[study.latency["variant"].notna()]
    frame = frame.drop_duplicates(["variant", "length", "arm"]).copy()
    caption = ""
    if len(frame):
        first = frame.iloc[0]
        frame["said"] = [indicative(verdict) for verdict in frame["verdict"]]
        caption = (
            f"Milliseconds per call, end to end, batch {first['batch']}, {first['inputs']} length, "
            f"{first['dtype']} on {first['processor']}; profile {first['profile']}. "
            f"Ratios are over {first['reference']}, taken inside interleaved cycles, and hold "
            "better than the absolute figures. An interval (95 %) needs five processes."
        )
    return Table(
        name="latency",
        title="Latency",
        caption=caption,
        frame=frame,
        columns=(
            Column("architecture", ("variant",), number=False),
            Column("tokens", ("length",), whole),
            Column("p50 ms", ("p50_ms",), digits(2)),
            Column("95 % interval", ("p50_lo_ms", "p50_hi_ms"), "{:.2f} to {:.2f}".format),
            Column("p95 ms", ("p95_ms",), digits(2)),
            Column("mean ms", ("mean_ms",), digits(2)),
            Column("ratio", ("ratio",), digits(3)),
            Column("processes", ("n_processes",), whole),
            Column("calls", ("n_calls",), whole),
            Column("verdict", ("said",), number=False),
            Column("because", ("reasons",), lambda text: text or DASH, number=False),
        ),
    )


def indicative(verdict: str) -> str:
    """A verdict as a reader should take it."""
    return "indicative (insufficient)" if verdict == "insufficient" else verdict


def benchmarks_table(study: Study) -> Table:
    """What the benchmarks are, and what was done to their texts."""
    rows = []
    for name in study.benchmarks:
        found = study.audit[study.audit["benchmark"] == name]
        if len(found):
            first = found.iloc[0].to_dict()
            ends = {
                f"{column} {end}": getattr(found[column], end)()
                for column in ("truncated_documents", "truncated_queries", "ties_at_cutoff")
                for end in ("min", "max")
            }
            rows.append(first | ends | {"trials": len(found)})
    return Table(
        name="benchmarks",
        title="Benchmarks",
        caption="Every judged query counts; one without a ranking counts as 0. Truncated are texts "
        "longer than max length; ties are queries whose ranking ends between equal scores. A range "
        "is over trials.",
        frame=pd.DataFrame(rows) if rows else study.audit,
        columns=(
            Column("benchmark", ("benchmark",), number=False),
            Column("split", ("split",), number=False),
            Column("documents", ("documents",), whole),
            Column("queries", ("queries",), whole),
            Column("max length", ("max_length",), whole),
            _range_column("truncated documents", "truncated_documents", "{:.1%}"),
            _range_column("truncated queries", "truncated_queries", "{:.1%}"),
            _range_column("ties at the cut-off", "ties_at_cutoff", "{:.0f}"),
            Column("self ids", ("self_ids",), number=False),
            Column("trials", ("trials",), whole),
            Column("content", ("benchmark_sha256",), lambda text: text[:12], number=False),
        ),
    )


def _range_column(title: str, field: str, form: str) -> Column:
    def say(low: float, high: float) -> str:
        ends = list(dict.fromkeys(form.format(value) for value in (low, high)))
        return " to ".join(ends)

    return Column(title, (f"{field} min", f"{field} max"), say)


def unfinished_table(study: Study) -> Table:
    """Trials and cells without a result, with the reason."""
    trials = study.trials[study.trials["state"] != "done"]
    rows = [
        {"what": row["trial"], "state": row["state"], "reason": row["reason"]}
        for row in trials.to_dict("records")
    ]
    done = set(study.state("done")["trial"])
    cells = study.results[study.results["benchmark"] != MEAN].drop_duplicates(
        ["trial", "benchmark"]
    )
    for row in cells.to_dict("records"):
        if row["trial"] in done and missing(row["n_queries"]):
            what = f"{row['trial']} / {row['benchmark']}"
            rows.append({"what": what, "state": "missing", "reason": "not scored yet"})
    return Table(
        name="unfinished",
        title="Missing and failed",
        caption="Run the same command again: what is done is kept, the rest is tried again.",
        frame=pd.DataFrame(rows, columns=["what", "state", "reason"]),
        columns=tuple(Column(name, (name,), number=False) for name in ("what", "state", "reason")),
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


def _trial_columns(frame: pd.DataFrame) -> tuple[Column, ...]:
    """The trial, and its experiment where the grid names them."""
    experiment = (Column("experiment", ("experiment",), number=False),)
    named = experiment if frame["experiment"].notna().any() else ()
    return (Column("trial", ("trial",), number=False), *named)


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
