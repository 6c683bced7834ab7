"""Seeds and detectable effects, against statsmodels, a textbook number and simulation."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestIndPower, TTestPower

from analysis import power
from analysis.power import detectable_effect, seeds_needed
from ray_ablation.problems import UserError


def test_textbook_counts():
    # Cohen's d of 0.5, alpha 0.05, power 0.8: 34 pairs, or 64 a group.
    assert seeds_needed(2.0, 1.0).n == 34
    assert seeds_needed(2.0, -1.0, paired=False).n == 64
    assert seeds_needed(2.0, 1.0).statement == "34 seeds"


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("comparisons", [1, 6])
def test_counts_are_the_fewest_by_statsmodels(paired, comparisons):
    oracle = TTestPower() if paired else TTestIndPower()
    for effect in (0.05, 0.3, 0.7, 1.5):
        n = seeds_needed(1.0, effect, paired=paired, comparisons=comparisons).n
        few, enough = (oracle.power(effect, m, 0.05 / comparisons) for m in (n - 1, n))
        assert few < 0.8 <= enough


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n", [3, 5, 10, 300])
def test_detectable_effect_has_the_power_by_statsmodels(paired, n):
    oracle = TTestPower() if paired else TTestIndPower()
    effect = detectable_effect(0.002, n, power=0.9, paired=paired)
    assert oracle.power(effect / 0.002, n, 0.05) == pytest.approx(0.9, abs=1e-6)


def test_three_seeds_detect_what_simulation_finds():
    effect = detectable_effect(1.0, 3, comparisons=6)
    assert effect == pytest.approx(8.02, abs=0.01)
    studies = np.random.default_rng(1).normal(effect, 1.0, (20_000, 3))
    found = stats.ttest_1samp(studies, 0, axis=1).pvalue < 0.05 / 6
    assert found.mean() == pytest.approx(0.8, abs=0.01)


def test_power_is_a_number_that_grows_everywhere():
    # scipy's noncentral t is NaN in far tails, statsmodels' power with it.
    assert math.isnan(TTestPower().power(8, 2, 0.05))
    for n in (2, 3, 30, 1_000, 10_000):
        for alpha in (0.05, 0.05 / 1000):
            sizes = np.geomspace(1e-4, 1e5, 60)
            found = [power._power(size, n, alpha, True) for size in sizes]
            assert np.all(np.diff(found) > -1e-9)
            assert 0 < found[0] < found[-1] <= 1


def test_a_round_trip():
    effect = detectable_effect(0.004, 7, comparisons=3)
    assert seeds_needed(0.004, effect * 1.0001, comparisons=3).n == 7


def test_two_seeds_are_the_least_and_the_cap_is_stated():
    assert seeds_needed(1.0, 1e9).n == 2
    found = seeds_needed(1.0, 1e-6)
    assert (found.n, found.capped) == (10_000, True)
    assert found.statement == "more than 10,000 seeds"


def test_an_unknown_spread_is_none():
    for sd in (None, math.nan, 0.0):
        found = seeds_needed(sd, 0.1)
        assert (found.n, found.capped) == (None, False)
        assert "not known" in found.statement
        assert detectable_effect(sd, 3) is None
    assert detectable_effect(1.0, 1) is None
    assert detectable_effect(1.0, 0) is None


def test_bad_input_is_named():
    with pytest.raises(UserError, match="a number other than 0; found 0"):
        seeds_needed(1.0, 0)
    with pytest.raises(UserError, match="a number other than 0; found nan"):
        seeds_needed(1.0, math.nan)
    with pytest.raises(UserError, match="at least 0; found -1"):
        seeds_needed(-1.0, 1.0)
    with pytest.raises(UserError, match=r"0 < alpha < power < 1; found 0, 0\.8"):
        seeds_needed(1.0, 1.0, alpha=0)
    with pytest.raises(UserError, match=r"found 0\.05, 1"):
        detectable_effect(1.0, 3, power=1)
    with pytest.raises(UserError, match="comparisons must be at least 1; found 0"):
        detectable_effect(1.0, 3, comparisons=0)
