"""Which differences of a study a test separates: over seeds, and over queries where there are any.

The levels of the layout's x are compared within each series, so all else but the seed is equal. The
tables, the bold cells and the sentences of a report all come from the frames made here.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparisons import compare, compare_queries
from analysis.configurations import Configuration, say
from analysis.resampling import Bootstrap, hierarchical_bootstrap
from analysis.study import Study
from ray_ablation.frames import MEAN
from ray_ablation.problems import UserError

ALPHA = 0.05
DRAWS = 0
"""Seed of the permutations and of the bootstrap, so that a report is the same every time."""
FEWEST, MOST, DRAWN = 1_000, 10_000, 100_000_000
"""Resamples of a bootstrap: as many as draw so many queries in all, which takes some seconds."""


def pairs(study: Study) -> pd.DataFrame:
    """Paired t tests over seeds of the headline's mean; `comparisons.COLUMNS`, one family."""
    rows = [
        {"level": _level(study, one), "context": one.series, "seed": seed, "value": value}
        for one in _trained(study)
        for seed, trial in one.trials.items()
        if (value := study.values.get((trial, MEAN, study.headline))) is not None
    ]
    frame = pd.DataFrame(rows, columns=["level", "context", "seed", "value"])
    present = set(frame["level"])
    return compare(frame, levels=[level for level in _levels(study) if level in present])


def separated(study: Study, measure: str, benchmark: str) -> str | None:
    """The trained configuration that the corrected test separates from all others of its column.

    Tests are paired by seed, best against each other one, Holm over them. None where there is no
    such one, which any configuration with a single seed sees to.
    """
    values = study.values
    rows = [
        {"level": one.label, "context": "", "seed": seed, "value": value}
        for one in _trained(study)
        for seed, trial in one.trials.items()
        if (value := values.get((trial, benchmark, measure))) is not None
    ]
    frame = pd.DataFrame(rows, columns=["level", "context", "seed", "value"])
    counts = frame.groupby("level", sort=False)["value"].agg(["mean", "count"])
    if len(counts) < 2 or counts["count"].min() < 2:
        return None
    best = str(counts["mean"].idxmax())
    found = compare(frame, against=best)
    held = (found["p_holm"] < ALPHA) & (found["difference"] < 0)
    return best if held.all() else None


@dataclass(frozen=True)
class OverQueries:
    """What per-query scores say.

    Attributes:
        tests: `comparisons.COLUMNS`, a row a pair, series and benchmark.
        means: A row a pair of one series: level_a, level_b, context, n_seeds, estimate, low, high,
            p, reason, resamples; the bootstrap of the mean over benchmarks.
        reason: Why there is neither; "" when there is.
    """

    tests: pd.DataFrame
    means: pd.DataFrame
    reason: str = ""


def over_queries(study: Study) -> OverQueries:
    """Permutation tests over queries, and the hierarchical bootstrap of the mean."""
    empty = pd.DataFrame()
    if study.load_queries is None:
        return OverQueries(empty, empty, "no per-query scores: these results were imported")
    found = study.queries()
    frame = _by_level(study, found)
    if frame["level"].nunique() < 2:
        return OverQueries(empty, empty, "no two levels have per-query scores yet")
    levels = [level for level in _levels(study) if level in set(frame["level"])]
    try:
        tests = compare_queries(frame, levels=levels, seed=DRAWS)
    except UserError as error:
        return OverQueries(empty, empty, str(error))
    return OverQueries(tests, _bootstraps(study, frame, levels))


def _by_level(study: Study, queries: pd.DataFrame) -> pd.DataFrame:
    """Per-query scores of trained trials with the level, series and seed of each."""
    places = {
        trial: (_level(study, one), one.series, seed)
        for one in _trained(study)
        for seed, trial in one.trials.items()
    }
    kept = queries[queries["trial"].isin(list(places))]
    trials = kept["trial"].astype("category").cat.remove_unused_categories()
    known = [places[trial] for trial in trials.cat.categories]
    columns = {
        name: pd.Categorical([place[index] for place in known])
        for index, name in enumerate(("level", "context", "seed"))
    }
    codes = trials.cat.codes.to_numpy()
    taken = {name: column.take(codes) for name, column in columns.items()}
    return kept[["benchmark", "query_id", "value"]].assign(**taken)


def _bootstraps(study: Study, frame: pd.DataFrame, levels: list[Any]) -> pd.DataFrame:
    """The mean over benchmarks in the series with the most seeds; drawing takes long for all."""
    queries = int(frame.groupby("benchmark", observed=True)["query_id"].nunique().sum())
    pairs_count = len(levels) * (len(levels) - 1) // 2
    resamples = max(FEWEST, min(MOST, DRAWN // max(1, queries * pairs_count)))
    seeds = frame.groupby("context", observed=True)["seed"].nunique()
    order = {name: -index for index, name in enumerate(study.layout.series)}
    series = max(seeds.index, key=lambda name: (seeds[name], order[name]))
    tables = _tables(study, frame[frame["context"] == series])
    head = {"context": series, "resamples": resamples}
    rows = []
    for first, a in enumerate(levels):
        for b in levels[first + 1 :]:
            found = _bootstrap(study, tables.get(a, {}), tables.get(b, {}), resamples)
            if found is not None:
                rows.append(head | {"level_a": a, "level_b": b} | vars(found))
    return pd.DataFrame(rows)


Tables = dict[Hashable, dict[Hashable, dict[str, Any]]]


def _tables(study: Study, frame: pd.DataFrame) -> Tables:
    """Level -> seed -> benchmark -> values in the order of the query ids."""
    found: Tables = {}
    ordered = frame.sort_values("query_id", kind="stable")
    for (level, seed, benchmark), part in ordered.groupby(
        ["level", "seed", "benchmark"], observed=True, sort=False
    ):
        by_seed = found.setdefault(level, {}).setdefault(seed, {})
        by_seed[str(benchmark)] = part["value"].to_numpy()
    return found


def _bootstrap(
    study: Study,
    a: dict[Hashable, dict[str, Any]],
    b: dict[Hashable, dict[str, Any]],
    resamples: int,
) -> Bootstrap | None:
    """None where no seed has every benchmark on both sides."""
    whole = [
        seed
        for seed in a
        if all(name in a[seed] and name in b.get(seed, {}) for name in study.benchmarks)
    ]
    if not whole:
        return None
    differences = {
        name: np.stack([a[seed][name] - b[seed][name] for seed in whole])
        for name in study.benchmarks
    }
    return hierarchical_bootstrap(differences, DRAWS, resamples, weights=study.weights)


def _trained(study: Study) -> list[Configuration]:
    return [one for one in study.layout.configurations if one.trained]


def _level(study: Study, one: Configuration) -> str:
    return say(study.layout.x, one.x)


def _levels(study: Study) -> list[str]:
    return [say(study.layout.x, x) for x in study.layout.xs]
