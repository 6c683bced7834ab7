"""Who wins: one side over another, or one level over all.

A mean difference can hang on one benchmark; how often a run of one side beats a run of the other
cannot. And the level with the best mean need not be best: redraw the seeds and count how often it
is. Runs are drawn whole and n - 1 out of n, as in `resampling`.

With three seeds there are six different draws of two, so a share of 1 says that each pair of seeds
agrees, not that the level is certainly best.

Shapes: X and Y runs, T tasks, R resamples, S seeds, L levels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.resampling import Bootstrap, draws, interval, sign_p, whole
from ray_ablation.problems import UserError


@dataclass(frozen=True)
class BestConfidence:
    """How sure it is which level is best.

    Attributes:
        share: By level: in what share of the resamples it is among the best `top`; ties are
            drawn by lot. None where there is nothing to resample.
        paired: Whether all levels have the same seeds, which are then drawn together.
        n_seeds: The fewest seeds of any level.
        top: How many count as best.
        reason: Why the shares are None; None when they are not.
    """

    share: dict[Any, float | None]
    paired: bool
    n_seeds: int
    top: int
    reason: str | None


def probability_of_improvement(
    x_XT: npt.ArrayLike,
    y_YT: npt.ArrayLike,
    seed: int = 0,
    resamples: int = 10_000,
    confidence: float = 0.95,
) -> Bootstrap:
    """How often a run of x beats a run of y, averaged over tasks; a tie counts half.

    Args:
        x_XT: Runs (seeds) by tasks (benchmarks).
        y_YT: The same tasks; the number of runs may differ.
        seed: Of the draws; a run is drawn whole, with all of its tasks.
        resamples: How many.
        confidence: Of the percentile interval.

    Returns:
        Its p asks whether the probability differs from one half.

    Raises:
        UserError: No runs, tasks that differ in number, a value that is not a number.

    Source: Agarwal et al. 2021, arXiv:2108.13264.
    """
    x, y = whole("x_XT", x_XT, 2), whole("y_YT", y_YT, 2)
    if x.shape[1] != y.shape[1]:
        raise UserError(f"both take the same tasks; found {x.shape[1]} and {y.shape[1]}")
    wins_XYT = (x[:, None] > y[None]) + 0.5 * (x[:, None] == y[None])
    wins_XY = wins_XYT.mean(2)
    fewest = min(wins_XY.shape)
    if fewest < 2:
        reason = "one run cannot be drawn again"
        return Bootstrap(float(wins_XY.mean()), None, None, None, fewest, reason)
    rng = np.random.default_rng(seed)
    x_R, y_R = (draws(rng, runs, resamples) for runs in wins_XY.shape)
    found_R = ((x_R @ wins_XY) * y_R).sum(1)
    low, high = interval(found_R, confidence)
    return Bootstrap(float(wins_XY.mean()), low, high, sign_p(found_R, 0.5), fewest, None)


def best_confidence(
    values: Mapping[Any, Mapping[Any, float | None]],
    seed: int,
    top: int = 1,
    resamples: int = 10_000,
    higher_is_better: bool = True,
) -> BestConfidence:
    """In what share of resampled studies each level is among the best `top` by its mean.

    Args:
        values: By level: by seed: a value. Missing ones are left out.
        seed: Of the draws.
        top: How many count as best.
        resamples: How many.
        higher_is_better: False for a latency.

    Raises:
        UserError: `top` is not in 1..levels, a level without a value.
    """
    kept = {level: _kept(level, by_seed) for level, by_seed in values.items()}
    if not 1 <= top <= len(kept):
        raise UserError(f"top must be in 1..{len(kept)}, the number of levels; found {top}")
    fewest = min(map(len, kept.values()))
    same = len({frozenset(by_seed) for by_seed in kept.values()}) == 1
    if fewest < 2:
        alone = [level for level, by_seed in kept.items() if len(by_seed) < 2]
        reason = f"one seed cannot be drawn again: {', '.join(map(str, alone))}"
        return BestConfidence(dict.fromkeys(kept), same, fewest, top, reason)
    rng = np.random.default_rng(seed)
    shared = draws(rng, fewest, resamples)
    means_RL = np.empty((resamples, len(kept)))
    for column, by_seed in enumerate(kept.values()):
        weights_RS = shared if same else draws(rng, len(by_seed), resamples)
        numbers = np.array([by_seed[key] for key in sorted(by_seed, key=repr)])
        means_RL[:, column] = (weights_RS * numbers).sum(1)
    order = np.lexsort((rng.random(means_RL.shape), -means_RL if higher_is_better else means_RL))
    counts = np.bincount(order[:, :top].ravel(), minlength=len(kept)) / resamples
    share = dict(zip(kept, counts.tolist(), strict=True))
    return BestConfidence(share, same, fewest, top, None)


def _kept(level: Any, by_seed: Mapping[Any, float | None]) -> dict[Any, float]:
    found = {k: float(v) for k, v in by_seed.items() if v is not None and np.isfinite(v)}
    if not found:
        raise UserError(f"level {level!r} has no value at any seed; leave it out or train it")
    return found
