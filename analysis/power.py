"""How many seeds a difference takes, and how small a difference the seeds at hand can show.

The answer for a two-sided t test. With several comparisons each is tested at alpha over their
number, Holm's first and hardest step, so the counts hold for whichever difference is found first.
A paired test takes the sd of the differences at matched seeds, an unpaired one the sd of one level.
The surprising fact is how little three seeds show: a difference of 3.3 sd, and 8.0 sd in a family
of six. On `scipy.special` alone, because statsmodels' power is NaN for a large effect at two seeds.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

from scipy.special import nctdtr, stdtrit

from ray_ablation.problems import UserError

MOST_SEEDS = 10_000  # nobody trains more; beyond it the count says no more than "hopeless"


@dataclass(frozen=True)
class Seeds:
    """How many seeds a study takes.

    Attributes:
        n: Seeds per level, at least 2; None when the spread is not known. The cap when capped.
        capped: More than n are needed.
        statement: The same in words.
    """

    n: int | None
    capped: bool
    statement: str


def seeds_needed(
    sd: float | None,
    effect: float,
    alpha: float = 0.05,
    power: float = 0.8,
    paired: bool = True,
    comparisons: int = 1,
) -> Seeds:
    """The fewest seeds per level with which a t test finds an effect as often as `power` says.

    Args:
        sd: Of the paired differences, or of one level when not paired; None or 0 when not known.
        effect: The difference to be found, in the unit of sd; its sign does not matter.
        alpha: Two-sided, over all comparisons together.
        power: Share of studies that should find it.
        paired: By seed.
        comparisons: How many tests share alpha.

    Raises:
        UserError: An effect of zero, or a number out of range.
    """
    _check(alpha, power, comparisons)
    if not effect or not math.isfinite(effect):
        raise UserError(f"an effect to be found must be a number other than 0; found {effect}")
    if (spread := _spread(sd)) is None:
        return Seeds(None, False, "the spread over seeds is not known, so no number of seeds is")
    size = abs(effect) / spread
    sizes = range(2, MOST_SEEDS + 1)
    enough = bisect_left(sizes, power, key=lambda n: _power(size, n, alpha / comparisons, paired))
    if enough == len(sizes):
        return Seeds(MOST_SEEDS, True, f"more than {MOST_SEEDS:,} seeds")
    return Seeds(sizes[enough], False, f"{sizes[enough]:,} seeds")


def detectable_effect(
    sd: float | None,
    n: int,
    alpha: float = 0.05,
    power: float = 0.8,
    paired: bool = True,
    comparisons: int = 1,
) -> float | None:
    """The smallest difference that n seeds per level find as often as `power` says.

    Returns:
        In the unit of sd; None when sd is not known or 0, or n is below 2.

    Raises:
        UserError: A number out of range.
    """
    _check(alpha, power, comparisons)
    spread = _spread(sd)
    if spread is None or n < 2:
        return None
    from scipy.optimize import brentq

    def short(size: float) -> float:
        return _power(size, n, alpha / comparisons, paired) - power

    above = 1.0
    while short(above) < 0:
        above *= 2
    return spread * float(brentq(short, 0.0, above))


def _power(size: float, n: int, alpha: float, paired: bool) -> float:
    """Share of studies whose t test finds an effect of `size` sds."""
    free = n - 1 if paired else 2 * (n - 1)
    shift = size * math.sqrt(n if paired else n / 2)
    critical = float(stdtrit(free, 1 - alpha / 2))
    return 1 - _below(free, shift, critical) + _below(free, shift, -critical)


def _below(free: int, shift: float, t: float) -> float:
    """Noncentral t probability below t. scipy says NaN where it is under 1e-7, which is 0 here."""
    p = float(nctdtr(free, shift, t))
    return 0.0 if math.isnan(p) else p


def _spread(sd: float | None) -> float | None:
    """None as well for 0: seeds that do not differ at all have not been seen to spread."""
    if sd is None or math.isnan(sd) or sd == 0:
        return None
    if sd < 0:
        raise UserError(f"a standard deviation is at least 0; found {sd}")
    return float(sd)


def _check(alpha: float, power: float, comparisons: int) -> None:
    if not 0 < alpha < power < 1:
        raise UserError(
            f"alpha and power must satisfy 0 < alpha < power < 1; found {alpha}, {power}"
        )
    if comparisons < 1:
        raise UserError(f"comparisons must be at least 1; found {comparisons}")
