"""Two questions a difference of means does not answer: is it negligible, is one side steadier?

"Not significant" is not "the same": with three seeds nearly nothing is significant. Equivalence has
to be shown, by two one-sided t tests against a margin that was named before looking.

Spread takes more seeds than means do. At five seeds a side, the F test calls two standard
deviations different only when one is about three times the other, and it trusts that seeds are
normal, so Brown and Forsythe's test, which hardly does, stands beside it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scipy.special import fdtr, fdtrc, fdtri, stdtr

from analysis.statistics import ROUNDING, no_t_test, present, summarize
from ray_ablation.problems import UserError


@dataclass(frozen=True)
class Equivalence:
    """Whether a mean difference is shown to lie within plus or minus a margin.

    Attributes:
        n: Differences that are present.
        mean: None when there are none.
        low: Lower end of the (1 - 2 alpha) t interval, 90 % for alpha 0.05; None where p is.
        high: Its upper end.
        p: The larger of the two one-sided tests; None for fewer than two or all equal.
        verdict: "equivalent" (the interval lies within the margin), "different" (wholly beyond
            it), "undecided" (it holds a margin), or None where p is.
        reason: Why p is None; None when it is not.
    """

    n: int
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    verdict: str | None
    reason: str | None


@dataclass(frozen=True)
class VarianceRatio:
    """How much further one group spreads than another.

    Attributes:
        n_a: Values in the first group.
        n_b: Values in the second.
        sd: sd of the first over sd of the second; None when one is missing or the second is 0.
        variance: Its square.
        low: Lower end of the interval of the ratio of variances; its root is that of the sds.
        high: Its upper end.
        p: Two-sided F test. Trusts that both groups are normal.
        p_brown_forsythe: Levene's test around medians, which hardly does; None for fewer than
            three in a group, where the deviations from a median of two are equal by construction.
        reason: Why p is None; None when it is not.
    """

    n_a: int
    n_b: int
    sd: float | None
    variance: float | None
    low: float | None
    high: float | None
    p: float | None
    p_brown_forsythe: float | None
    reason: str | None


def equivalence(
    differences: Iterable[float | None], margin: float, alpha: float = 0.05
) -> Equivalence:
    """Two one-sided t tests (TOST) of a mean difference against plus and minus a margin.

    Args:
        differences: One a matched seed; missing ones are left out.
        margin: The largest difference that does not matter, in the unit of the differences.
        alpha: Of each one-sided test.

    Raises:
        UserError: The margin is not a positive number.

    Source: Schuirmann 1987, J. Pharmacokinetics and Biopharmaceutics 15, 657-680.
    """
    if not 0 < margin < math.inf:
        raise UserError(
            f"an equivalence margin must be a number above 0, in the measure's unit; found {margin}"
        )
    found = summarize(values := present(differences), confidence=1 - 2 * alpha)
    reason = no_t_test(found, max(map(abs, values), default=0.0))
    if reason or found.mean is None or found.sd is None or found.low is None or found.high is None:
        return Equivalence(found.n, found.mean, None, None, None, None, reason)
    error = found.sd / math.sqrt(found.n)
    p = float(stdtr(found.n - 1, (abs(found.mean) - margin) / error))  # the nearer margin decides
    verdict = "equivalent" if p < alpha else "undecided"
    if found.low > margin or found.high < -margin:
        verdict = "different"
    return Equivalence(found.n, found.mean, found.low, found.high, p, verdict, None)


def variance_ratio(
    a: Iterable[float | None], b: Iterable[float | None], confidence: float = 0.95
) -> VarianceRatio:
    """Compare the spread of two groups of seeds; missing values are left out."""
    a, b = present(a), present(b)
    sd_a, sd_b = summarize(a).sd, summarize(b).sd
    if sd_a is None or sd_b is None:
        return _no_ratio(a, b, "a spread takes at least two values in each group")
    if min(sd_a, sd_b) <= ROUNDING * max(map(abs, [*a, *b])):
        return _no_ratio(a, b, "the values of a group are all equal, so an F test is undefined")
    ratio = (sd_a / sd_b) ** 2
    free = (len(a) - 1, len(b) - 1)
    tail = (1 - confidence) / 2
    low, high = ratio / float(fdtri(*free, 1 - tail)), ratio / float(fdtri(*free, tail))
    p = min(1.0, 2 * min(float(fdtr(*free, ratio)), float(fdtrc(*free, ratio))))
    steady = _brown_forsythe(a, b)
    return VarianceRatio(len(a), len(b), sd_a / sd_b, ratio, low, high, p, steady, None)


def _no_ratio(a: list[float], b: list[float], reason: str) -> VarianceRatio:
    return VarianceRatio(len(a), len(b), None, None, None, None, None, None, reason)


def _brown_forsythe(a: list[float], b: list[float]) -> float | None:
    if min(len(a), len(b)) < 3:
        return None
    from scipy.stats import levene  # half a second to import

    p = float(levene(a, b, center="median").pvalue)
    return None if math.isnan(p) else p
