"""What a claim puts to the test, in symbols: a reader need not guess margin or direction."""

from collections.abc import Callable
from typing import Any

from ray_ablation.claim import Changes, Difference, Linear, SpreadRatio, Statement


def meaning(claim: Statement) -> str:
    """As in "6 − 12 > 0" or "all differences within ±0.01"."""
    return MEANINGS[str(getattr(claim, "kind", ""))](claim)


def _difference(claim: Difference) -> str:
    high, low = (claim.a, claim.b) if claim.direction == "above" else (claim.b, claim.a)
    return f"{high} − {low} > {claim.by:g}"


def _change(claim: Changes) -> str:
    ends = (claim.before, claim.after)
    low, high = ends if claim.kind == "increases" else ends[::-1]
    most = "".join(f", most at {field} {level}" for field, level in (claim.most_at or {}).items())
    return f"{high} − {low} > {claim.by:g}{most}"


def _spread(claim: SpreadRatio) -> str:
    most = "" if claim.at_most is None else f" and < {claim.at_most:g}"
    return f"sd of {claim.level} / sd of each other > {claim.at_least:g}{most}"


def _linear(claim: Linear) -> str:
    if claim.slope is None:
        return f"all within {claim.within:g} of the line of least squares"
    return f"all within {claim.within:g} of {claim.intercept:g} + {claim.slope:g} x {claim.axis}"


MEANINGS: dict[str, Callable[[Any], str]] = {
    "difference": _difference,
    "equivalent": lambda claim: f"all differences within ±{claim.margin:g}",
    "best": lambda claim: f"{claim.level} better than each other",
    "top_k": lambda claim: f"{claim.level} among the best {claim.k}",
    "dominates": lambda claim: f"{claim.level} better on every benchmark",
    "decreases": _change,
    "increases": _change,
    "spread_ratio": _spread,
    "linear": _linear,
    "monotone": lambda claim: f"{claim.direction} from level to level",
    "correlates": lambda claim: f"{claim.direction} with {claim.axis}",
}
