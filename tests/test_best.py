"""Who wins, against rliable, brute force over all draws and simulation."""

import itertools
import math

import numpy as np
import pytest
from rliable import metrics

from analysis.best import best_confidence, probability_of_improvement
from ray_ablation.problems import UserError


def test_probability_of_improvement_is_rliables():
    rng = np.random.default_rng(1)
    for x_runs, y_runs, tasks in ((3, 3, 1), (5, 3, 18), (2, 9, 4)):
        x = rng.integers(0, 6, (x_runs, tasks)).astype(float)  # many ties
        y = rng.integers(0, 5, (y_runs, tasks)).astype(float)
        expected = metrics.probability_of_improvement(x, y)
        assert probability_of_improvement(x, y).estimate == pytest.approx(expected)


def test_probability_of_improvement_by_hand():
    # 0.3 beats both, 0.2 ties one and beats one: (2 + 1.5) / 4
    found = probability_of_improvement([[0.3], [0.2]], [[0.2], [0.1]])
    assert found.estimate == pytest.approx(0.875)
    assert 0.5 <= found.low <= found.estimate <= found.high <= 1


def test_equal_sides_are_even_and_a_clear_winner_is_clear():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(5, 3))
    even = probability_of_improvement(x, x)
    assert even.estimate == 0.5
    assert even.p > 0.5
    clear = probability_of_improvement(x + 100, x)
    assert (clear.estimate, clear.low, clear.high) == (1.0, 1.0, 1.0)
    assert clear.p < 0.001


def test_coverage_of_the_probability_of_improvement():
    rng = np.random.default_rng(3)
    held = []
    for study in range(300):  # x is better by one sd: the truth is Phi(1 / root 2) = 0.760
        found = probability_of_improvement(
            rng.normal(1, 1, (10, 4)), rng.normal(0, 1, (10, 4)), study, 400
        )
        held.append(found.low <= 0.760 <= found.high)
    assert 0.90 <= np.mean(held) <= 0.99


def test_probability_of_improvement_refuses_and_one_run_has_no_interval():
    with pytest.raises(UserError, match="the same tasks; found 2 and 1"):
        probability_of_improvement([[1, 2]], [[1]])
    with pytest.raises(UserError, match="y_YT: 1 of 1 values are not numbers"):
        probability_of_improvement([[1]], [[math.nan]])
    one = probability_of_improvement([[2.0]], [[1.0], [3.0]])
    assert (one.estimate, one.low, one.p, one.n_seeds) == (0.5, None, None, 1)
    assert one.reason == "one run cannot be drawn again"


STUDY = {
    12: {42: 0.2326, 43: 0.2410, 44: 0.2463},
    9: {42: 0.2388, 43: 0.2382, 44: 0.2384},
    6: {42: 0.2427, 43: 0.2441, 44: 0.2446},
    3: {42: 0.2428, 43: 0.2427, 44: 0.2412},
}


def all_draws(top: int) -> dict[int, float]:
    """Two of three seeds with replacement, nine equally likely draws, worked one by one."""
    wins = dict.fromkeys(STUDY, 0.0)
    for draw in itertools.product((42, 43, 44), repeat=2):
        means = {level: sum(STUDY[level][s] for s in draw) for level in STUDY}
        for level in sorted(means, key=means.__getitem__, reverse=True)[:top]:
            wins[level] += 1 / 9
    return wins


@pytest.mark.parametrize("top", [1, 2])
def test_best_share_is_that_of_all_draws(top):
    found = best_confidence(STUDY, seed=0, top=top)
    assert (found.paired, found.n_seeds, found.top) == (True, 3, top)
    assert found.share == pytest.approx(all_draws(top), abs=0.015)
    assert sum(found.share.values()) == pytest.approx(top)


def test_lower_is_better_turns_it_round():
    values = {"fast": {1: 3.0, 2: 3.1}, "slow": {1: 4.0, 2: 4.1}}
    assert best_confidence(values, 0, higher_is_better=False).share == {"fast": 1.0, "slow": 0.0}


def test_pairing_takes_the_seeds_own_effect_out():
    # Seeds differ by far more than levels, and b is better at every one of them.
    a = dict(enumerate([0.1, 0.5, 0.9]))
    b = {seed: value + 0.01 for seed, value in a.items()}
    assert best_confidence({"a": a, "b": b}, 0).share["b"] == 1.0
    apart = best_confidence({"a": a, "b": {seed + 10: value for seed, value in b.items()}}, 0)
    assert not apart.paired
    assert 0.4 < apart.share["b"] < 0.8


def test_equal_levels_share_by_lot():
    values = {1: 0.1, 2: 0.7}
    found = best_confidence({"a": values, "b": values, "c": values}, seed=0)
    assert list(found.share.values()) == pytest.approx([1 / 3] * 3, abs=0.02)


def test_one_seed_says_nothing_and_bad_input_is_named():
    found = best_confidence({"a": {1: 0.1, 2: 0.2}, "b": {1: 0.3, 2: None}}, seed=0)
    assert found.share == {"a": None, "b": None}
    assert (found.n_seeds, found.reason) == (1, "one seed cannot be drawn again: b")
    with pytest.raises(UserError, match="level 'b' has no value at any seed"):
        best_confidence({"a": {1: 0.1}, "b": {1: math.nan}}, seed=0)
    with pytest.raises(UserError, match=r"top must be in 1\.\.1, the number of levels; found 2"):
        best_confidence({"a": {1: 0.1}}, seed=0, top=2)
    with pytest.raises(UserError, match=r"top must be in 1\.\.0"):
        best_confidence({}, seed=0)
