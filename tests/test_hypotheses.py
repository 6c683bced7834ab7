"""Equivalence and spread, against statsmodels, numbers by hand and simulation."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.weightstats import DescrStatsW

from analysis.hypotheses import equivalence, variance_ratio
from ray_ablation.problems import UserError


def test_equivalence_is_statsmodels():
    rng = np.random.default_rng(1)
    for n in (2, 3, 12, 100):
        d = rng.normal(0.1, 1, n)
        for margin in (0.05, 0.5, 2.0):
            expected = DescrStatsW(d).ttost_mean(-margin, margin)[0]
            found = equivalence([*d, None], margin)
            assert found.p == pytest.approx(expected)
            interval = stats.t.interval(0.9, n - 1, d.mean(), stats.sem(d))
            assert (found.low, found.high) == pytest.approx(interval)


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.001, -0.001, 0.002, 0.0], "equivalent"),
        ([0.021, 0.023, 0.022], "different"),
        ([-0.021, -0.023, -0.022], "different"),
        ([0.001, -0.03, 0.02], "undecided"),
        ([0.0051, 0.0052, 0.0050], "equivalent"),  # surely not zero, surely negligible
    ],
)
def test_verdict_agrees_with_the_interval(differences, verdict):
    found = equivalence(differences, margin=0.01)
    assert found.verdict == verdict
    assert (verdict == "equivalent") == (found.low > -0.01 and found.high < 0.01)


def test_equivalence_errs_five_times_in_a_hundred_at_the_margin():
    # A true difference that sits on the margin is the worst case: called negligible in 5 %.
    studies = np.random.default_rng(4).normal(1.0, 0.1, (2000, 5))
    wrong = sum(equivalence(study.tolist(), 1.0).verdict == "equivalent" for study in studies)
    assert 0.035 < wrong / 2000 < 0.065


def test_no_equivalence_test_is_none_with_a_reason():
    for values, reason in ([0.1], "n = 1"), ([], "n = 0"), ([0.1] * 3, "all 3 differences"):
        found = equivalence(values, 0.01)
        assert (found.p, found.verdict, found.low) == (None, None, None)
        assert found.reason.startswith(reason)


@pytest.mark.parametrize("margin", [0, -0.01, math.nan, math.inf])
def test_a_margin_is_above_zero(margin):
    with pytest.raises(UserError, match=f"must be a number above 0.*found {margin}"):
        equivalence([0.1, 0.2], margin)


def test_variance_ratio_of_three_seeds_by_hand():
    # L12 and L9 of the study: sds 0.0069082 and 0.00030551, F(2, 2) = 511.3. With 2 and 2 degrees
    # the upper tail is 1 / (1 + F), and the 97.5 % point 39.
    found = variance_ratio([0.2326, 0.2410, 0.2463], [0.2388, 0.2382, 0.2384])
    assert found.variance == pytest.approx(511.3, abs=0.1)
    assert found.sd == pytest.approx(22.61, abs=0.01)
    assert found.p == pytest.approx(2 / 512.3, rel=1e-3)
    assert (found.low, found.high) == pytest.approx((511.3 / 39, 511.3 * 39), rel=1e-3)


def test_variance_ratio_turned_round():
    a, b = np.random.default_rng(5).normal(size=(2, 8))
    one, other = variance_ratio(a, b[:5]), variance_ratio(b[:5], a)
    assert one.p == pytest.approx(other.p)
    assert (one.low, one.high) == pytest.approx((1 / other.high, 1 / other.low))
    assert one.sd == pytest.approx(1 / other.sd)
    low = one.variance / stats.f.ppf(0.975, 7, 4)
    assert one.low == pytest.approx(low)


def test_brown_forsythe_is_an_anova_of_distances_from_the_median():
    a, b = np.random.default_rng(6).normal(size=(2, 9))
    distances = [np.abs(values - np.median(values)) for values in (a, b * 3)]
    found = variance_ratio(a, b * 3)
    assert found.p_brown_forsythe == pytest.approx(stats.f_oneway(*distances).pvalue)


def test_f_holds_for_normal_seeds_and_not_for_heavy_tails_where_brown_forsythe_does():
    rng = np.random.default_rng(7)

    def rejected(values_2N: np.ndarray) -> np.ndarray:
        found = [variance_ratio(*study) for study in values_2N]
        return np.mean([(f.p < 0.05, f.p_brown_forsythe < 0.05) for f in found], axis=0)

    normal = rejected(rng.normal(size=(600, 2, 10)))
    heavy = rejected(rng.standard_t(3, size=(600, 2, 10)))
    assert normal[0] < 0.08
    assert heavy[0] > 0.15
    assert heavy[1] < 0.08


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([0.1], [0.1, 0.2], "a spread takes at least two values in each group"),
        ([], [], "a spread takes at least two"),
        ([0.1, 0.2], [0.3, 0.3], "the values of a group are all equal"),
        ([0.3, 0.3], [0.1, 0.2], "the values of a group are all equal"),
    ],
)
def test_no_ratio_is_none_with_a_reason(a, b, reason):
    found = variance_ratio(a, [*b, None])
    assert (found.n_a, found.n_b) == (len(a), len(b))
    assert (found.sd, found.variance, found.p, found.low) == (None,) * 4
    assert found.reason.startswith(reason)


def test_two_seeds_have_an_f_test_but_no_brown_forsythe():
    found = variance_ratio([0.1, 0.2], [0.1, 0.4])
    assert found.p is not None
    assert found.p_brown_forsythe is None
