"""Tables that hold the numbers of the report's sentences: means, budgets, latency, hours."""

from typing import Any

import pandas as pd

from analysis.statistics import linear_fit
from analysis.study import Study
from analysis.table import Column, Table, digits, signed, whole


def means_table(study: Study) -> Table:
    """The headline's mean of each configuration, its interval, and the way from the reference."""
    frame = study.means[study.means["n"] > 0].copy()
    frame["half"] = (frame["high"] - frame["low"]) / 2
    frame["gain"] = gains(study)
    gained = frame["gain"].notna().any()
    over = f"the untrained reference of the same {study.layout.x.replace('_', ' ')}"
    return Table(
        name="means",
        title=f"{study.headline}, mean over benchmarks",
        caption="n seeds a row. The sd is the spread of seeds (ddof 1); ± is the half-width of the "
        "95 % t interval of their mean. Both are a dash for a single seed."
        + (f" The gain is over {over}." if gained else ""),
        frame=frame,
        columns=(
            Column("configuration", ("configuration",), number=False),
            Column("mean", ("mean",), digits(4)),
            Column("sd", ("sd",), digits(4)),
            Column("±", ("half",), digits(4)),
            INTERVAL,
            Column("n", ("n",), whole),
            Column("seeds asked", ("asked",), whole),
            *(
                (Column("gain", ("gain",), signed("{:+.4f}")),)
                if frame["gain"].notna().any()
                else ()
            ),
        ),
    )


INTERVAL = Column("95 % interval", ("low", "high"), "{:.4f} to {:.4f}".format)


def gains(study: Study) -> list[float | None]:
    """What fine-tuning adds to the untrained reference of its x, for rows of `means` with n."""
    means = study.means[study.means["n"] > 0]
    references = means[~means["trained"]].drop_duplicates("x").set_index("x")["mean"].to_dict()
    return [
        row["mean"] - references[row["x"]] if row["trained"] and row["x"] in references else None
        for row in means.to_dict("records")
    ]


def budgets(study: Study) -> pd.DataFrame:
    """A row a series: named, experiments, passes, in_batch_negatives, examples, n, mean, ...

    `mean`, `lowest` and `highest` are of its configurations' means; `complete` says whether it has
    all that others have, without which its mean does not compare.
    """
    means = study.means[study.means["trained"] & (study.means["n"] > 0)]
    trials = study.trials.set_index("trial")
    first = {c.series: c for c in study.layout.configurations if c.trained}
    rows = []
    for series, part in means.groupby("series", sort=False):
        ids = [
            t for c in study.layout.configurations if c.series == series for t in c.trials.values()
        ]
        seen = trials.loc[ids]
        names = list(seen["experiment"].dropna().unique())
        rows.append(
            {
                "series": series,
                "experiments": ", ".join(names) or None,
                "named": f"{series} ({', '.join(names)})" if 0 < len(names) < 6 else series,
                **{n: _one(seen[n]) for n in ("examples", "passes", "in_batch_negatives")},
                **{name: part["mean"].agg(how) for name, how in ENDS.items()},
                "configurations": len(part),
                "complete": set(part["x"]) == set(means["x"]) and series in first,
            }
        )
    return pd.DataFrame(rows)


ENDS = {"mean": "mean", "lowest": "min", "highest": "max"}


def _one(values: "pd.Series[Any]") -> Any:
    """The value that all have, None when they differ or there is none."""
    known = values.dropna().unique().tolist()
    return known[0] if len(known) == 1 else None


def budgets_table(study: Study) -> Table | None:
    """What each series saw in training and where its means lie; None for a single series."""
    frame = budgets(study)
    if len(frame) < 2:
        return None
    return Table(
        name="budgets",
        title="What each series saw",
        caption=f"{study.headline}: mean, lowest and highest of the means of its configurations. "
        "Passes are examples over unique samples; in-batch negatives are the documents each query "
        "is contrasted with.",
        frame=frame,
        columns=(
            Column("series", ("series",), number=False),
            Column("experiments", ("experiments",), number=False),
            Column("examples", ("examples",), whole),
            Column("passes", ("passes",), digits(2)),
            Column("in-batch negatives", ("in_batch_negatives",), whole),
            Column("mean", ("mean",), digits(4)),
            Column("lowest", ("lowest",), digits(4)),
            Column("highest", ("highest",), digits(4)),
            Column("configurations", ("configurations",), whole),
        ),
    )


def latency_line(study: Study) -> dict[str, float] | None:
    """The least-squares line of p50 over depth, None for fewer than three depths."""
    rows = study.latency.merge(study.trials[["trial", "depth"]], on="trial")
    rows = rows[rows["p50_ms"].notna() & rows["depth"].notna()]
    if rows.empty:
        return None
    place = [name for name in ("length", "arm") if rows[name].notna().any()]
    if place:
        rows = rows[(rows[place] == rows[place].iloc[0]).all(axis=1)]
    rows = rows.drop_duplicates("depth")
    found = linear_fit([float(v) for v in rows["depth"]], [float(v) for v in rows["p50_ms"]])
    if found.n < 3 or found.intercept is None:
        return None
    names = ("intercept", "slope", "r2", "max_residual", "n")
    return {name: getattr(found, name) for name in names}


def latency_line_table(study: Study) -> Table | None:
    """The line of `latency_line`."""
    line = latency_line(study)
    if line is None:
        return None
    return Table(
        name="latency-line",
        title="Latency as a line over depth",
        caption="Least squares of p50 over the number of blocks kept: a fixed cost, a cost a "
        "block, the share of the variance it carries (R²) and how far off it is at most.",
        frame=pd.DataFrame([line]),
        columns=(
            Column("fixed ms", ("intercept",), digits(2)),
            Column("ms a block", ("slope",), digits(4)),
            Column("R²", ("r2",), digits(2)),
            Column("farthest ms", ("max_residual",), digits(3)),
            Column("depths", ("n",), whole),
        ),
    )


def hours_table(study: Study) -> Table | None:
    """What the work took by its own figures, beside what was stated."""
    if study.hours is None:
        return None
    return Table(
        name="hours",
        title="GPU-hours",
        caption="Hours of one trial as published, times the trials; beside it what was stated.",
        frame=study.hours,
        columns=(
            Column("what", ("what",), number=False),
            Column("trials", ("trials",), whole),
            Column("hours a trial", ("each",), "{:g}".format),
            Column("adds up to", ("hours",), "{:g}".format),
            Column("stated", ("stated",), "{:g}".format),
        ),
    )
