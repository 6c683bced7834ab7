"""One comparison of a claim, and which of several decides it.

Every comparison becomes a `Finding`: how far the numbers lie in the claimed direction, and a
two-sided p that says whether they are separated from the claim's threshold, whichever side they lie
on. A claim is as good as its weakest comparison, so the largest p counts and needs no correction
(an intersection-union test); when the weakest lies on the other side, it was picked as the worst of
m, so its p is multiplied by m. "Among the k best" asks for m - k + 1 of m comparisons only: the
finding at that place decides, times k (a partial conjunction; Benjamini and Heller 2008,
Biometrics 64, 1215-1222).
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from scipy.special import fdtrc, fdtri, ndtr, ndtri

from analysis.power import MOST_SEEDS, seeds_needed

POWER = 0.8
Needed = Callable[[float], int | None]


def _unknown(alpha: float) -> int | None:
    return None


@dataclass(frozen=True)
class Finding:
    """One comparison of a claim.

    Attributes:
        place: What is compared where, in words.
        estimate: The difference, ratio, distance or correlation found; None where there is none.
        distance: How far it lies in the claimed direction from the claim's threshold; negative on
            the other side.
        n: Matched seeds, or trials.
        sd: Spread over seeds of the differences; None for one.
        low: Lower end of the interval of the estimate.
        high: Its upper end.
        p: Two-sided, of the distance; None where there is no test.
        exact: Whether it is a statement about the numbers there are, which needs no test.
        tests: How many comparisons p was corrected for.
        needed: alpha -> how many seeds would separate such a distance; None when nobody knows.
        unit: What n counts.
        note: What else is to be known.
    """

    place: str
    estimate: float | None
    distance: float
    n: int
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    exact: bool = False
    tests: int = 1
    needed: Needed = _unknown
    unit: str = "seeds"
    note: str = ""

    @property
    def evidence(self) -> tuple[float, float]:
        """Sorts findings from the worst for the claim to the best.

        A finding that is against it by the numbers, or with a single seed, comes first. Differences
        that are all equal are no test and no description either: a tested one goes before them.
        """
        described = self.exact or (self.distance < 0 and self.n < 2)
        certainty = 1 - self.p if self.p is not None else float(described)
        return math.copysign(certainty, self.distance), self.distance


def deciding(findings: Sequence[Finding], spared: int = 0) -> Finding:
    """The finding that decides whether all hold but `spared`, with its p corrected.

    Args:
        findings: At least one more than `spared`.
        spared: How many may fail.
    """
    weakest_first = sorted(findings, key=lambda finding: finding.evidence)
    one = weakest_first[spared]
    tests = 1 + spared if one.distance > 0 else len(findings) - spared
    p = None if one.p is None else min(1.0, tests * one.p)
    return replace(one, p=p, tests=tests * one.tests)


def seeds(sd: float | None, distance: float, sides: int = 2) -> Needed:
    """Matched seeds with which a t test finds a distance."""

    def needed(alpha: float) -> int | None:
        if not distance:
            return None
        found = seeds_needed(sd, distance, min(alpha * 2 / sides, POWER / 2), POWER)
        return None if found.capped else found.n

    return needed


def seeds_of_ratio(size: float) -> Needed:
    """Seeds a level with which an F test finds a ratio of standard deviations."""
    large = max(size, 1 / size) ** 2

    def power(n: int, alpha: float) -> float:
        return float(fdtrc(n - 1, n - 1, float(fdtri(n - 1, n - 1, 1 - alpha / 2)) / large))

    return lambda alpha: _fewest(lambda n: power(n, alpha))


def trials_of_tau(tau: float) -> Needed:
    """Trials with which Kendall's test finds a correlation, by its normal approximation."""

    def power(n: int, alpha: float) -> float:
        error = math.sqrt(2 * (2 * n + 5) / (9 * n * (n - 1)))
        return float(ndtr(abs(tau) / error - ndtri(1 - alpha / 2)))

    return lambda alpha: _fewest(lambda n: power(n, alpha))


def _fewest(power: Callable[[int], float]) -> int | None:
    sizes = range(2, MOST_SEEDS + 1)
    found = bisect_left(sizes, POWER, key=power)
    return sizes[found] if found < len(sizes) else None
