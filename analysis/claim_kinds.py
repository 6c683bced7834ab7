"""What each kind of claim computes from the numbers it speaks of.

Most kinds compare pairs of levels at matched seeds and differ in the pairs: the level and each
other, one level and the next, all with all. `findings.deciding` makes one answer of them.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtr, ndtri

from analysis.claim_scope import Row, Stratum, on, strata, trials_by_place
from analysis.configurations import say
from analysis.facts import Facts
from analysis.findings import Finding, deciding, seeds, seeds_of_ratio, trials_of_tau
from analysis.hypotheses import equivalence, variance_ratio
from analysis.statistics import linear_fit, paired, summarize
from ray_ablation.claim import (
    Changes,
    Correlates,
    Difference,
    Equivalent,
    Linear,
    Monotone,
    Ranked,
    SpreadRatio,
    Statement,
    TopK,
)

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Evidence:
    """All that a claim's numbers say.

    Attributes:
        findings: Its comparisons, those of "among the best" already decided by stratum.
        missing: Trials whose value is missing.
    """

    findings: tuple[Finding, ...]
    missing: tuple[str, ...]

    @property
    def decides(self) -> Finding:
        """The weakest."""
        return deciding(self.findings)


def collect(claim: Statement, facts: Facts) -> Evidence:
    """Hold a claim's numbers against it.

    Raises:
        UserError: Two numbers of one place.
    """
    if isinstance(claim, Correlates):
        trials = trials_by_place(claim, facts)
        if gaps := _gaps([row for _, rows in trials for row in rows]):
            return Evidence((), gaps)
        return Evidence(tuple(_correlation(claim, place, rows) for place, rows in trials), ())
    places = strata(claim, facts)
    used = [row for place in places for row in _used(claim, place)]
    if gaps := _gaps(used):
        return Evidence((), gaps)
    found = [finding for place in places for finding in _compare(claim, place)]
    if found and isinstance(claim, Changes) and claim.most_at:
        most = list(_largest(claim, places))
        found = found + most if most else []
    return Evidence(tuple(found), ())


def _gaps(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(row["trial"]) for row in rows if row["value"] is None))


def _used(claim: Statement, place: Stratum) -> list[Row]:
    """The rows of a stratum that a claim compares."""
    if isinstance(claim, Linear):
        return place.rows(place.levels)
    if isinstance(claim, SpreadRatio):
        return [row for pair in _pairs(claim, place) for row in place.rows(pair)]
    return [row for a, b in _pairs(claim, place) for both in place.matched(a, b) for row in both]


def _pairs(claim: Statement, place: Stratum) -> list[Pair]:
    """The levels that a claim compares, those that the stratum has."""
    levels = list(place.levels)
    chosen = getattr(claim, "levels", None) or levels
    if isinstance(claim, Difference):
        pairs = [(claim.a, claim.b)]
    elif isinstance(claim, Changes):
        pairs = [(claim.after, claim.before)]
    elif isinstance(claim, Monotone):
        pairs = [(b, a) for a, b in itertools.pairwise(chosen)]
    elif isinstance(claim, Equivalent):
        pairs = list(itertools.combinations(chosen, 2))
    elif isinstance(claim, Ranked | SpreadRatio):
        others = getattr(claim, "over", None) or levels
        pairs = [(claim.level, other) for other in others if other != claim.level]
    else:
        raise TypeError(claim)
    return [(a, b) for a, b in pairs if a in place.levels and b in place.levels]


def _compare(claim: Statement, place: Stratum) -> Iterator[Finding]:
    if isinstance(claim, Linear):
        if len(place.levels) > (1 if claim.stated else 2):
            yield _line(claim, place)
        return
    pairs = [(a, b) for a, b in _pairs(claim, place) if place.matched(a, b)]
    if isinstance(claim, SpreadRatio):
        yield from (_ratio(claim, place, a, b) for a, b in _pairs(claim, place))
    elif isinstance(claim, Equivalent):
        yield from (_equivalence(claim, place, a, b) for a, b in pairs)
    elif isinstance(claim, TopK):
        found = [_difference(claim, place, a, b) for a, b in pairs]
        if len(found) >= claim.k:
            yield deciding(found, spared=claim.k - 1)
    else:
        yield from (_difference(claim, place, a, b) for a, b in pairs)


def _sign(claim: Statement) -> int:
    """+1 where a claim says that the first of a pair is above the second."""
    if isinstance(claim, Ranked):
        return claim.sign
    if isinstance(claim, Changes):
        return 1 if claim.kind == "increases" else -1
    return 1 if getattr(claim, "direction", "above") in ("above", "rises") else -1


def _values(claim: Statement, place: Stratum, a: Any, b: Any) -> tuple[str, list[float]]:
    """A pair in words, and its differences at matched seeds."""
    text = f"{say(claim.axis, a)} − {say(claim.axis, b)}{place.place}"
    return text, [first["value"] - second["value"] for first, second in place.matched(a, b)]


def _difference(claim: Statement, place: Stratum, a: Any, b: Any) -> Finding:
    text, differences = _values(claim, place, a, b)
    sign = _sign(claim)
    # Tested against the threshold rather than 0; mean and interval are then put back.
    threshold = sign * getattr(claim, "by", 0.0)
    rows = list(enumerate(place.matched(a, b)))
    found = paired(
        {seed: second["value"] + threshold for seed, (_, second) in rows},
        {seed: first["value"] for seed, (first, _) in rows},
        claim.confidence,
    )
    distance = sign * (found.mean or 0.0)
    return Finding(
        place=text,
        estimate=sum(differences) / len(differences),
        distance=distance,
        n=found.n,
        sd=found.sd,
        low=None if found.low is None else found.low + threshold,
        high=None if found.high is None else found.high + threshold,
        p=found.p,
        needed=seeds(found.sd, distance),
        note=_note(found.reason, found.n),
    )


def _equivalence(claim: Equivalent, place: Stratum, a: Any, b: Any) -> Finding:
    text, differences = _values(claim, place, a, b)
    found = equivalence(differences, claim.margin, 1 - claim.confidence)
    mean = found.mean or 0.0
    distance = claim.margin - abs(mean)
    p, sd = found.p, summarize(differences).sd
    return Finding(
        place=text,
        estimate=mean,
        distance=distance,
        n=found.n,
        sd=sd,
        low=found.low,
        high=found.high,
        # Beyond the margin, the same test asked the other way round.
        p=1 - p if p is not None and distance < 0 else p,
        needed=seeds(sd, distance, sides=1),
        note=_note(found.reason, found.n),
    )


def _note(reason: str | None, n: int) -> str:
    """Why there is no test, where n does not tell."""
    return reason if reason and n > 1 else ""


def _ratio(claim: SpreadRatio, place: Stratum, a: Any, b: Any) -> Finding:
    first, second = place.numbers(a), place.numbers(b)
    found = variance_ratio(first, second, claim.confidence)
    text = f"sd of {say(claim.axis, a)} / sd of {say(claim.axis, b)}{place.place}"
    n = min(len(first), len(second))
    if found.sd is None or found.low is None or found.high is None:
        return Finding(text, None, 0.0, n, note=_note(found.reason, n))
    bounds = [(1, claim.at_least)] + ([(-1, claim.at_most)] if claim.at_most else [])
    sides = [
        Finding(
            place=text,
            estimate=found.sd,
            distance=sign * (found.sd - bound),
            n=n,
            low=math.sqrt(found.low),
            high=math.sqrt(found.high),
            p=variance_ratio(first, [value * bound for value in second]).p,
            needed=seeds_of_ratio(found.sd / bound),
        )
        for sign, bound in bounds
    ]
    return deciding(sides)


def _line(claim: Linear, place: Stratum) -> Finding:
    means = {level: summarize(place.numbers(level)).mean for level in place.levels}
    fit = linear_fit(list(means), list(means.values()))
    intercept = claim.intercept if claim.stated else fit.intercept
    slope = claim.slope if claim.stated else fit.slope
    off = {
        level: mean - (intercept + slope * level)
        for level, mean in means.items()
        if mean is not None and intercept is not None and slope is not None
    }
    furthest = max(off, key=lambda level: abs(off[level]))
    return Finding(
        place=f"{say(claim.axis, furthest)} from the line{place.place}",
        estimate=off[furthest],
        distance=claim.within - abs(off[furthest]),
        n=min(len(seeds) for seeds in place.levels.values()),
        exact=True,
        note=f"least squares gives {fit.intercept:.4g} {fit.slope:+.4g} x {claim.axis}, "
        f"off by {fit.max_residual:.4g} at most",
    )


def _largest(claim: Changes, places: Sequence[Stratum]) -> Iterator[Finding]:
    """Is the change largest where it is said to be, among strata that differ in that field?"""
    ((field, level),) = (claim.most_at or {}).items()
    groups: dict[Any, dict[Any, tuple[float, int]]] = {}
    for place in places:
        _, changes = _values(claim, place, claim.after, claim.before)
        if changes and field in place.values:
            rest = [value for name, value in place.values.items() if name != field]
            group = groups.setdefault((place.benchmark, *rest), {})
            group[place.values[field]] = (_sign(claim) * sum(changes) / len(changes), len(changes))
    for (benchmark, *_), changed in groups.items():
        if level in changed and len(changed) > 1:
            rival = max((one for one in changed if one != level), key=lambda one: changed[one])
            ahead = changed[level][0] - changed[rival][0]
            what = "rise" if claim.kind == "increases" else "fall"
            text = f"{what} at {say(field, level)} − {what} at {say(field, rival)}{on(benchmark)}"
            n = min(count for _, count in changed.values())
            yield Finding(text, estimate=ahead, distance=ahead, n=n, exact=True)


def _correlation(claim: Correlates, place: str, rows: Sequence[Row]) -> Finding:
    tau, p = _kendall([row[claim.axis] for row in rows], [row["value"] for row in rows])
    text = f"tau of {claim.of} and {claim.axis.replace('_', ' ')}{place}"
    if math.isnan(tau):
        return Finding(text, None, 0.0, len(rows), unit="trials", note=f"{claim.of} is constant")
    return Finding(
        place=text,
        estimate=tau,
        distance=tau * _sign(claim),
        n=len(rows),
        p=p,
        needed=trials_of_tau(tau),
        unit="trials",
    )


def _kendall(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Tau b and its two-sided p, exact for few trials without ties; tau is nan of a constant."""
    import numpy as np
    from scipy.stats import kendalltau  # half a second to import

    tau, p = map(float, kendalltau(x, y))
    if len(set(x)) < len(x) or len(set(y)) < len(y):
        # Ties leave the normal approximation, which calls three seeds above three separated
        # (p 0.0495; by all orders 0.1) unless it is corrected for continuity.
        signs = (np.sign(np.subtract.outer(one, one)) for one in (x, y))
        score = abs(np.sum(np.multiply(*signs))) / 2
        p = min(1.0, 2 * float(ndtr(ndtri(p / 2) * (1 - 1 / score)))) if score else 1.0
    return tau, p
