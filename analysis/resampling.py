"""Tests and intervals that shuffle or redraw what was measured instead of trusting a formula.

What is redrawn decides what is claimed. Redrawing queries asks whether *these* encoders differ on
such queries; redrawing seeds asks whether *training again* would. Hundreds of queries make the
first answer sure long before three seeds allow the second, so a small p over queries says nothing
of retraining. A seed is one trained encoder: it is drawn whole, with all of its benchmarks.

Few seeds make bootstrap intervals too short, twice. n draws out of n spread less than the truth, so
n - 1 are drawn (Rao and Wu 1988). And percentiles know no t distribution: for three seeds they end
at the smallest and the largest, which holds the truth three times in four. So the drawn means of
seeds are stretched about their centre by t / z, 2.2-fold for three seeds, 1.2-fold for ten. Where
queries outweigh seeds that is too wide rather than too short; `tests/test_resampling.py` states the
coverage. Every random draw is seeded by an argument.

Shapes: Q queries, S seeds, P pairs, R resamples.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from analysis.statistics import ROUNDING
from ray_ablation.problems import UserError, unknown

Floats = npt.NDArray[np.float64]
CHUNK_NUMBERS = 4_000_000  # 32 MB: what one step of a resampling holds


@dataclass(frozen=True)
class Permutation:
    """A paired permutation test over queries.

    Attributes:
        n: Queries.
        difference: Mean of a minus mean of b.
        p: Two-sided. Exact, or (1 + found) / (1 + resamples), which is never 0.
        resamples: Sign patterns looked at; all 2^n there are when exact.
        exact: Whether that is all of them.
    """

    n: int
    difference: float
    p: float
    resamples: int
    exact: bool


@dataclass(frozen=True)
class Bootstrap:
    """An estimate and what it does when its data are drawn again.

    Attributes:
        estimate: From the data as they are.
        low: Lower end of its interval; None where it has none.
        high: Its upper end.
        p: Two-sided, that the estimate's sign is chance; None where there is no interval.
        n_seeds: Seeds per side; the fewer one when they differ.
        reason: Why there is no interval; None when there is.
    """

    estimate: float
    low: float | None
    high: float | None
    p: float | None
    n_seeds: int
    reason: str | None


def permutation_test(
    a_Q: npt.ArrayLike, b_Q: npt.ArrayLike, seed: int, resamples: int = 10_000
) -> Permutation:
    """Whether two encoders differ on one benchmark: flip the signs of the query differences.

    Args:
        a_Q: A measure per query.
        b_Q: The same measure of the same queries in the same order.
        seed: Of the signs; no matter when exact.
        resamples: How many sign patterns; all of them when there are no more than this.

    Raises:
        UserError: No queries, lengths that differ, a value that is not a number.

    Source: Smucker, Allan & Carterette 2007, CIKM, 10.1145/1321440.1321528.
    """
    a, b = whole("a_Q", a_Q, 1), whole("b_Q", b_Q, 1)
    if len(a) != len(b):
        raise UserError(
            f"a permutation test takes the same queries of both; found {len(a)} and {len(b)}"
        )
    d_Q = a - b
    moving = d_Q[d_Q != 0]  # a query that does not differ has no sign to flip
    p, looked_at, exact = sign_flip_ps(moving[:, None], seed, resamples)
    return Permutation(len(a), float(d_Q.mean()), float(p[0]), looked_at, exact)


def sign_flip_ps(d_QP: Floats, seed: int, resamples: int) -> tuple[Floats, int, bool]:
    """Sign-flip tests of P pairs on the same queries, which share their sign patterns.

    Sharing makes each pattern one row of a matrix product; every p alone is as if drawn alone.

    Returns:
        p of each pair, how many patterns were looked at, whether these are all.
    """
    n = len(d_QP)
    exact = n < 63 and 2**n <= resamples
    patterns = 2**n if exact else resamples
    # sums that are equal in exact arithmetic count as equal
    bar_P = np.abs(d_QP.sum(0)) - ROUNDING * np.abs(d_QP).sum(0)
    rng = np.random.default_rng(seed)
    reached_P = np.zeros(d_QP.shape[1])
    for rows in chunks(patterns, max(d_QP.shape)):
        if exact:
            bits = (np.arange(rows.start, rows.stop)[:, None] >> np.arange(n)) & 1
        else:
            bits = rng.integers(0, 2, size=(len(rows), n), dtype=np.int8)
        reached_P += (np.abs((2.0 * bits - 1) @ d_QP) >= bar_P).sum(0)
    p = reached_P / patterns if exact else (1 + reached_P) / (1 + patterns)
    return p, patterns, exact


def hierarchical_bootstrap(
    differences: Mapping[str, npt.ArrayLike],
    seed: int,
    resamples: int = 10_000,
    confidence: float = 0.95,
    weights: Mapping[str, float] | None = None,
) -> Bootstrap:
    """The mean over benchmarks of a difference, seeds and queries drawn again.

    Seeds are drawn once for all benchmarks, queries within each; both at once, crossed.

    Args:
        differences: By benchmark: (S, Q) per-query differences between two encoders at matched
            seeds; the same seeds in the same order everywhere.
        seed: Of the draws.
        resamples: How many.
        confidence: Of the interval.
        weights: By benchmark, in the mean; equal when None. A group of twelve that counts as one
            gives each of its members a twelfth.

    Returns:
        No interval for a single seed: nothing is known of another training.

    Raises:
        UserError: Nothing to average, a value that is not a number, seeds that differ.

    Source: Owen 2007, Annals of Applied Statistics 1(2), 386-411 (the pigeonhole bootstrap of
    crossed rows and columns).
    """
    tables = {name: whole(name, table, 2) for name, table in differences.items()}
    seeds = _same_seeds(tables)
    share = _shares(tables, weights)
    estimate = float(sum(share[name] * table.mean() for name, table in tables.items()))
    if seeds < 2:
        return Bootstrap(estimate, None, None, None, seeds, "one seed cannot be drawn again")
    rng = np.random.default_rng(seed)
    stretch = float(stdtrit(seeds - 1, 0.5 + confidence / 2) / ndtri(0.5 + confidence / 2))
    weights_RS = 1 / seeds + stretch * (draws(rng, seeds, resamples) - 1 / seeds)
    means_R = np.zeros(resamples)
    for name, d_SQ in tables.items():
        queries = d_SQ.shape[1]
        for rows in chunks(resamples, queries):
            part = slice(rows.start, rows.stop)
            drawn = rng.integers(0, queries, size=(len(rows), queries))
            values = np.take_along_axis(weights_RS[part] @ d_SQ, drawn, axis=1)
            means_R[part] += share[name] * values.mean(1)
    low, high = interval(means_R, confidence)
    return Bootstrap(estimate, low, high, sign_p(means_R), seeds, None)


def whole(name: str, values: npt.ArrayLike, axes: int) -> Floats:
    """An array without a hole, or an error that names it."""
    table = np.asarray(values, dtype=float)
    if table.ndim != axes or not table.size:
        kind = {1: "one value a query", 2: "a row a seed and a column a query or task"}[axes]
        raise UserError(f"{name}: takes {kind}, at least one of each; found shape {table.shape}")
    if holes := int((~np.isfinite(table)).sum()):
        raise UserError(
            f"{name}: {holes} of {table.size} values are not numbers; a query that was not scored "
            "cannot be compared: leave it out on both sides or score it"
        )
    return table


def chunks(count: int, width: int) -> Iterator[range]:
    """Ranges over `count` rows, each of at most CHUNK_NUMBERS numbers when `width` wide."""
    step = max(1, CHUNK_NUMBERS // max(1, width))
    for start in range(0, count, step):
        yield range(start, min(start + step, count))


def draws(rng: np.random.Generator, seeds: int, resamples: int) -> Floats:
    """(R, S) weights of n - 1 draws out of n; rows sum to 1."""
    return rng.multinomial(seeds - 1, np.full(seeds, 1 / seeds), size=resamples) / (seeds - 1)


def sign_p(found_R: Floats, middle: float = 0.0) -> float:
    """Twice the share of resamples on the rarer side of the middle, the data counted as one."""
    rarer = min((found_R <= middle).sum(), (found_R >= middle).sum())
    return min(1.0, 2 * (1 + float(rarer)) / (1 + len(found_R)))


def interval(found_R: Floats, confidence: float) -> tuple[float, float]:
    """The percentile interval."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(found_R, [tail, 1 - tail])
    return float(low), float(high)


def _same_seeds(tables: Mapping[str, Floats]) -> int:
    """The number of seeds, the same on all benchmarks."""
    if not tables:
        raise UserError("a mean over benchmarks takes at least one benchmark; found none")
    first, *others = tables
    for other in others:
        if len(tables[other]) != len(tables[first]):
            raise UserError(
                f"{first} has {len(tables[first])} seeds and {other} {len(tables[other])}; a seed "
                "is one encoder and must be scored on every benchmark of a mean"
            )
    return len(tables[first])


def _shares(tables: Iterable[str], weights: Mapping[str, float] | None) -> dict[str, float]:
    """Weights that sum to 1."""
    names = list(tables)
    weights = dict.fromkeys(names, 1.0) if weights is None else weights
    for name in names:
        if name not in weights:
            raise UserError(unknown("benchmark in weights", name, weights))
    total = sum(weights[name] for name in names)
    return {name: weights[name] / total for name in names}
