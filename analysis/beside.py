"""What a study's values are shown beside: references it scored itself, and published anchors.

A reference is never part of a mean, a spread or a test. One that was scored here saw the same texts
and queries; a published one did not, so its source stands with it wherever it is shown.
"""

from collections.abc import Iterator

import pandas as pd

from analysis.anchors import anchors
from analysis.study import Study
from ray_ablation.frames import MEAN

COLUMNS = ["reference", "benchmark", "measure", "value", "source"]


def beside(study: Study) -> pd.DataFrame:
    """A row a reference, benchmark (the mean as well) and measure: `COLUMNS`, values present."""
    own = study.references.assign(
        reference=[f"{name} ({source})" for name, source in _both(study.references)]
    )
    found = pd.concat([own[COLUMNS], _published(study)], ignore_index=True)
    known = found["benchmark"].isin(study.parts) & found["measure"].isin(study.measures)
    return found[known & found["value"].notna()].reset_index(drop=True)


def _both(frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    return zip(frame["reference"], frame["source"], strict=True)


def _published(study: Study) -> pd.DataFrame:
    """The anchors, with their mean where every benchmark of the study has one."""
    units, found = study.units, anchors()
    rows = found[found["benchmark"].isin(units)]
    means = [
        {"benchmark": MEAN, "measure": measure, "value": part["value"].mean(), "source": source}
        for (measure, source), part in rows.groupby(["measure", "source"], sort=False)
        if set(units) <= set(part["benchmark"])
    ]
    rows = pd.concat([rows, pd.DataFrame(means)], ignore_index=True)
    return rows.assign(reference=[f"{s.partition(',')[0]} (published)" for s in rows["source"]])


def sources(rows: pd.DataFrame) -> str:
    """Where references come from, for the end of a caption; "" without any."""
    named = dict.fromkeys(_both(rows[["reference", "source"]].drop_duplicates()))
    told = [f"{name}: {source}" for name, source in named if source not in name]
    return f" Beside them, in no mean or test: {'; '.join(told)}." if told else ""


def below(study: Study) -> Iterator[str]:
    """Where fine-tuned encoders lie below a reference in the headline measure, in sentences."""
    spread = study.spread
    trained = spread[spread["trained"] & (spread["measure"] == study.headline) & (spread["n"] > 0)]
    rows = beside(study)
    rows = rows[(rows["measure"] == study.headline) & (rows["benchmark"] != MEAN)]
    for reference, part in rows.groupby("reference", sort=False):
        places = []
        for row in part.to_dict("records"):
            means = trained.loc[trained["benchmark"] == row["benchmark"], "mean"]
            if count := int((means < row["value"]).sum()):
                places.append(f"{row['benchmark']} ({count} of {len(means)}, {row['value']:.4f})")
        if places:
            yield (
                f"Warning: fine-tuned configurations lie below {reference} in {study.headline} "
                f"on {len(places)} of {len(part)} benchmarks: {', '.join(places)}."
            )
