"""All differences between the levels of one axis, everything else equal, in one corrected table.

A comparison lies within one context: the value of every other field. So the number of tests grows
with the pairs of one axis, never with the pairs of all trials. All tests of one call are one
family: whoever shows a table corrects for all of it. A row without a p (one seed, no match) is no
test and is not counted; its `reason` says why.

A difference is always level_a minus level_b, levels in the order given (or met).

Shapes: Q queries, E encoders, P pairs, N rows.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from analysis.resampling import Floats, sign_flip_ps
from analysis.statistics import holm, paired, present
from ray_ablation.problems import UserError, unknown

COLUMNS = [
    *("level_a", "level_b", "context", "benchmark", "n", "n_seeds", "difference", "sd"),
    *("low", "high", "p", "p_holm", "family", "method", "reason"),
]
NUMBERS = ["difference", "sd", "low", "high", "p", "p_holm"]
COUNTS = ["n", "n_seeds", "family"]
MOST_ROWS = 20_000  # beyond it nobody reads the table, and Holm leaves nothing standing

Row = dict[str, Any]


def compare(
    frame: pd.DataFrame,
    *,
    levels: Sequence[Hashable] | None = None,
    against: Hashable | None = None,
    family_by_context: bool = False,
) -> pd.DataFrame:
    """Paired t tests over seeds between all levels, within each context.

    Args:
        frame: A row a configuration and seed: columns level, context (everything else equal, any
            hashable), seed, value; null where not measured. An unknown seed is null and matches
            none. A column `measure`, if there is one, holds one measure.
        levels: Which, in this order; all that are met when None.
        against: Compare only with this level.
        family_by_context: Correct within each context instead of over the table.

    Returns:
        COLUMNS. n counts matched seeds, as n_seeds does; sd is the spread of the differences;
        a number that does not exist is null; benchmark is null.

    Raises:
        UserError: A column lacks, two values for one seed, two measures, an unknown level, too
            many pairs.
    """
    _check(frame, ["level", "context", "seed", "value"], holes=("seed", "value"))
    chosen = _chosen(frame, levels, against)
    rows: list[Row] = []
    for context, part in frame.groupby("context", sort=False, observed=True):
        by_level: dict[Hashable, dict[Hashable, float]] = {}
        for level, group in part.groupby("level", sort=False, observed=True):
            by_level[level] = _by_seed(f"{context}: {level}", group)
        for a, b in _pairs([level for level in chosen if level in by_level], against):
            found = paired(by_level[b], by_level[a])
            rows.append(
                {"level_a": a, "level_b": b, "context": context, "n": found.n}
                | {"n_seeds": found.n, "difference": found.mean, "sd": found.sd}
                | {"low": found.low, "high": found.high, "p": found.p, "reason": found.reason}
            )
        _limit(len(rows))
    return _table(rows, "paired t test over seeds", family_by_context)


def compare_queries(
    frame: pd.DataFrame,
    *,
    levels: Sequence[Hashable] | None = None,
    against: Hashable | None = None,
    seed: int = 0,
    resamples: int = 10_000,
    family_by_context: bool = False,
) -> pd.DataFrame:
    """Paired permutation tests over queries between all levels, within context and benchmark.

    A query's difference is its mean over the matched seeds. So the answer is about these encoders
    on such queries; a small p does not say that training again would repeat it.

    Args:
        frame: A row a query: columns level, context, seed, benchmark, query_id, value. A column
            `measure`, if there is one, holds one measure.
        levels: Which, in this order; all that are met when None.
        against: Compare only with this level.
        seed: Of the permutations.
        resamples: How many; all there are for few queries.
        family_by_context: Correct within each context instead of over the table.

    Returns:
        COLUMNS. n counts queries; sd and the 95 % t interval are of the differences over queries.

    Raises:
        UserError: As `compare`, and encoders scored on different queries of one benchmark.
    """
    _check(frame, ["level", "context", "seed", "benchmark", "query_id", "value"])
    chosen = _chosen(frame, levels, against)
    kept = frame[frame["level"].isin(chosen)]
    rows: list[Row] = []
    for benchmark, part in kept.groupby("benchmark", sort=False, observed=True):
        values_QE, columns = _matrix(str(benchmark), part)
        found, differences = _matched(values_QE, columns, chosen, against)
        _limit(len(rows) + len(found))
        numbers = iter(_over_queries(differences, seed, resamples))
        for row in found:
            more = next(numbers) if row["n_seeds"] else {"reason": "no seed in common"}
            rows.append(row | {"benchmark": benchmark, "n": len(values_QE)} | more)
    return _table(rows, "permutation test over queries", family_by_context)


def _matrix(
    benchmark: str, part: pd.DataFrame
) -> tuple[Floats, dict[Hashable, dict[Hashable, dict[Hashable, int]]]]:
    """(Q, E) values of all encoders, and the column of each: by context, by level, by seed."""
    keys = ["context", "level", "seed"]
    query_N, queries = pd.factorize(part["query_id"])
    encoder_N = part.groupby(keys, sort=False, observed=True).ngroup().to_numpy()
    encoders = list(part[keys].drop_duplicates().itertuples(index=False, name=None))
    if np.bincount(query_N * len(encoders) + encoder_N).max() > 1:
        raise UserError(
            f"{benchmark}: a query has two values for one level, context and seed; name all that "
            "differs in context, and keep one row a query"
        )
    values_QE = np.full((len(queries), len(encoders)), np.nan)
    values_QE[query_N, encoder_N] = part["value"].to_numpy(dtype=float)
    _same_queries(benchmark, values_QE, encoders, list(queries))
    columns: dict[Hashable, dict[Hashable, dict[Hashable, int]]] = {}
    for column, (context, level, seed) in enumerate(encoders):
        columns.setdefault(context, {}).setdefault(level, {})[seed] = column
    return values_QE, columns


def _same_queries(
    benchmark: str, values_QE: Floats, encoders: list[Any], queries: list[Any]
) -> None:
    """Refuse encoders that were scored on different queries; name two of them and a query."""
    scored_QE = np.isfinite(values_QE)
    if scored_QE.all():
        return
    query, lacking = (int(found[0]) for found in np.nonzero(~scored_QE))
    if not scored_QE[query].any():
        raise UserError(f"{benchmark}: query {queries[query]!r} has no value for any encoder")
    other = int(scored_QE[query].argmax())
    names = [f"{level} seed {seed} ({context})" for context, level, seed in encoders]
    raise UserError(
        f"{benchmark}: {names[lacking]} has {scored_QE[:, lacking].sum()} queries and "
        f"{names[other]} has {scored_QE[:, other].sum()}; query {queries[query]!r} lacks in the "
        "first. A comparison takes the same queries of all: score them again, or leave one out"
    )


def _matched(
    values_QE: Floats,
    columns: dict[Hashable, dict[Hashable, dict[Hashable, int]]],
    chosen: Sequence[Hashable],
    against: Hashable | None,
) -> tuple[list[Row], list[Floats]]:
    """A row a pair, and for those with a seed in common the (Q,) differences, meaned over seeds."""
    rows: list[Row] = []
    differences = []
    for context, by_level in columns.items():
        for a, b in _pairs([level for level in chosen if level in by_level], against):
            seeds = [seed for seed in by_level[a] if seed in by_level[b]]
            rows.append({"level_a": a, "level_b": b, "context": context, "n_seeds": len(seeds)})
            if seeds:
                a_E, b_E = ([by_level[side][seed] for seed in seeds] for side in (a, b))
                differences.append((values_QE[:, a_E] - values_QE[:, b_E]).mean(1))
    return rows, differences


def _over_queries(differences: Sequence[Floats], seed: int, resamples: int) -> list[Row]:
    """What one benchmark's queries say of each pair."""
    if not differences:
        return []
    d_QP = np.column_stack(differences)
    n = len(d_QP)
    found = {"difference": d_QP.mean(0), "p": sign_flip_ps(d_QP, seed, resamples)[0]}
    if n > 1:
        found["sd"] = d_QP.std(0, ddof=1)
        half_P = float(stdtrit(n - 1, 0.975)) * found["sd"] / math.sqrt(n)
        found |= {"low": found["difference"] - half_P, "high": found["difference"] + half_P}
    columns = [values.tolist() for values in found.values()]
    return [dict(zip(found, row, strict=True)) for row in zip(*columns, strict=True)]


def _table(rows: list[Row], method: str, family_by_context: bool) -> pd.DataFrame:
    """The rows with their corrected p, the size of the family and the method."""
    table = pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(NUMBERS, "float64"))
    families = [group.index for _, group in table.groupby("context", sort=False)]
    for index in families if family_by_context else [table.index]:
        ps = table.loc[index, "p"].tolist()
        table.loc[index, "p_holm"] = np.array(holm(ps), dtype=float)
        table.loc[index, "family"] = len(present(ps))
    return table.assign(method=method).astype(dict.fromkeys(COUNTS, "int64"))


def _pairs(
    levels: Sequence[Hashable], against: Hashable | None
) -> Iterable[tuple[Hashable, Hashable]]:
    if against is None:
        return itertools.combinations(levels, 2)
    return [(level, against) for level in levels if level != against and against in levels]


def _chosen(
    frame: pd.DataFrame, levels: Sequence[Hashable] | None, against: Hashable | None
) -> list[Hashable]:
    """The levels to compare, each known to the frame."""
    known = list(frame["level"].dropna().unique())
    named = [*(levels or ()), *([] if against is None else [against])]
    for level in named:
        if level not in known:
            raise UserError(unknown("level", str(level), map(str, known)))
    return list(dict.fromkeys(known if levels is None else named))


def _by_seed(name: str, group: pd.DataFrame) -> dict[Hashable, float]:
    group = group[group["seed"].notna()]
    found = dict(zip(group["seed"], group["value"], strict=True))
    if len(found) < len(group):
        raise UserError(
            f"{name}: {len(group)} values for {len(found)} seeds; name all that differs in "
            "context, and keep one row a seed"
        )
    return found


def _check(frame: pd.DataFrame, columns: Sequence[str], holes: Sequence[str] = ("value",)) -> None:
    """The columns are there and whole, but for those that may have holes; one measure."""
    if lacking := [name for name in columns if name not in frame]:
        raise UserError(
            f"a comparison takes the columns {', '.join(columns)}; {', '.join(lacking)} lacks "
            f"among {', '.join(map(str, frame.columns))}"
        )
    for name in columns:
        if name not in holes and (count := int(frame[name].isna().sum())):
            raise UserError(f"{count} of {len(frame)} rows have no {name}; name it or drop them")
    if "measure" in frame and len(found := frame["measure"].unique()) > 1:
        raise UserError(
            f"one comparison takes one measure; found {', '.join(sorted(map(str, found)))}: "
            "select one first"
        )


def _limit(count: int) -> None:
    if count > MOST_ROWS:
        raise UserError(
            f"more than {MOST_ROWS:,} comparisons; name fewer levels, or one level to compare "
            "against"
        )
