"""A study that somebody published, read from its figures: a folder of CSVs and a study.yaml.

The folder holds what was published, as it was published; study.yaml says what the files are, and
claims.yaml what was concluded from them. Means and values per benchmark may cover different trials,
as they do where a report prints one table of each. Everything else follows from the numbers.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from analysis.import_results import read_table
from analysis.imported import tidy
from analysis.imported_study import study_of
from analysis.study import Study, StudyError
from ray_ablation.atomic import digest_of, sha256_file
from ray_ablation.frames import MEAN
from ray_ablation.grid_file import read_claims
from ray_ablation.problems import GridError, from_pydantic, from_yaml, unknown
from ray_ablation.trial import Strict

FOLDER = Path(__file__).parent / "published"


class Values(Strict):
    """A file of values, and which column holds them."""

    file: str
    value: str


class Stated(Strict):
    """A cost that was stated, and the trials it is of."""

    quantity: str
    of: tuple[str, ...] = ()
    like: str | None = None
    seeds: tuple[int, ...] = ()


class Hours(Strict):
    """What one trial of each experiment took, and what was said of the whole."""

    file: str
    each: dict[str, str]
    stated: tuple[Stated, ...] = ()


class Description(Strict):
    """study.yaml."""

    name: str
    description: str
    source: str
    measure: str
    benchmarks: tuple[str, ...]
    fixed: dict[str, Any] = {}
    means: Values
    parts: Values | None = None
    latency: str | None = None
    hours: Hours | None = None


def find_published(name: str) -> Path:
    """The folder of a published study: one that is part of the project, or a path.

    Raises:
        StudyError: There is none.
    """
    for folder in (FOLDER / name, Path(name)):
        if (folder / "study.yaml").is_file():
            return folder
    known = [file.parent.name for file in FOLDER.glob("*/study.yaml")]
    raise StudyError(f"{unknown('published study', name, known)} Or name a folder with study.yaml")


def read_published(folder: Path) -> Study:
    """The study of a folder, with its claims.

    Raises:
        GridError: study.yaml or claims.yaml does not fit its schema.
        RowsError: A file has problems.
    """
    about = _description(folder / "study.yaml")
    rows = _rows(folder, about)
    files = sorted(folder.glob("*.csv"))
    digest = digest_of({file.name: sha256_file(file) for file in files})
    hours = _hours(folder, about.hours, rows) if about.hours else None
    if hours is not None:
        each = hours.dropna(subset=["experiment"]).set_index("experiment")["each"]
        rows["gpu_hours"] = rows["experiment"].map(each)
    claims = folder / "claims.yaml"
    study = study_of(
        tidy(rows, str(folder)),
        name=about.name,
        description=about.description,
        source=f"{about.source} ({len(files)} files, sha256 {digest[:12]})",
        claims=read_claims(claims) if claims.is_file() else (),
        benchmarks=about.benchmarks,
        hours=hours,
    )
    return replace(study, ladder=read_table(folder / about.latency) if about.latency else None)


def _description(file: Path) -> Description:
    try:
        raw = YAML(typ="safe", pure=True).load(file.read_text(encoding="utf-8"))
        return Description.model_validate(raw, strict=False)
    except YAMLError as error:
        raise GridError(str(file), [from_yaml(error)]) from None
    except ValidationError as error:
        raise GridError(str(file), from_pydantic(error, Description)) from None


def _rows(folder: Path, about: Description) -> pd.DataFrame:
    """A row a cell: means, then parts with the fields of their trial, then latencies joined."""
    means = read_table(folder / about.means.file).rename(columns={about.means.value: "value"})
    rows = means.assign(benchmark=MEAN)
    if about.parts:
        parts = read_table(folder / about.parts.file).rename(columns={about.parts.value: "value"})
        keys = [name for name in parts.columns if name in means and name != "value"]
        fields = means.drop(columns="value")
        rows = pd.concat([rows, parts.merge(fields, on=keys, how="left")], ignore_index=True)
    if about.latency:
        rows = _with_latency(rows, read_table(folder / about.latency))
    return rows.assign(measure=about.measure, **about.fixed)


def _with_latency(rows: pd.DataFrame, latency: pd.DataFrame) -> pd.DataFrame:
    """The times of the experiments that a row of latencies names ("B and E")."""
    named = latency.assign(experiment=latency["experiments"].str.split(" and ", regex=False))
    named = named.explode("experiment").drop(columns="experiments")
    return rows.merge(named, on=["experiment", "depth"], how="left")


def _hours(folder: Path, about: Hours, rows: pd.DataFrame) -> pd.DataFrame:
    """A row an experiment, then a row a stated cost: what, experiment, trials, each, hours, stated.

    `hours` of a stated cost are those that its trials add up to by the hours of single trials.
    """
    file = read_table(folder / about.file)
    known = dict(zip(file["quantity"], file["hours"].astype(float), strict=True))
    trials = rows[rows["benchmark"] == MEAN].groupby("experiment", sort=False).size().to_dict()
    each = {name: known[_quantity(known, text, about)] for name, text in about.each.items()}
    made = [
        {"what": f"experiment {name}", "experiment": name, "trials": trials[name], "each": hours}
        for name, hours in each.items()
    ]
    for one in about.stated:
        names = one.of or (one.like or "",) * len(one.seeds)
        made.append(
            {
                "what": one.quantity.removeprefix("stated "),
                "trials": sum(trials[name] for name in names),
                "hours": sum(trials[name] * each[name] for name in names),
                "stated": known[_quantity(known, one.quantity, about)],
            }
        )
    columns = ["what", "experiment", "trials", "each", "hours", "stated"]
    frame = pd.DataFrame(made, columns=columns)
    return frame.assign(hours=frame["hours"].fillna(frame["trials"] * frame["each"]))


def _quantity(known: dict[str, float], name: str, about: Hours) -> str:
    if name not in known:
        raise StudyError(f"{about.file}: {unknown('quantity', name, known)}")
    return name
