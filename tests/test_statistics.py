"""Spread, paired tests, Holm, lines, Pareto: by hand, scipy, statsmodels and brute force."""

import itertools
import math
import random

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.statistics import holm, linear_fit, matched_change, paired, pareto, summarize
from ray_ablation.problems import UserError

# A study's table: mean nDCG@10 over three benchmarks, batch 32, 20K steps, seeds 42, 43, 44.
SEEDS = (42, 43, 44)
L12, L9, L6, L3 = (
    dict(zip(SEEDS, values, strict=True))
    for values in (
        (0.2326, 0.2410, 0.2463),
        (0.2388, 0.2382, 0.2384),
        (0.2427, 0.2441, 0.2446),
        (0.2428, 0.2427, 0.2412),
    )
)


def test_summary_of_three_seeds_by_hand():
    found = summarize([0.2326, 0.2410, 0.2463])
    # deviations -0.0073667, 0.0010333, 0.0063333; squares sum to 9.5447e-5; / 2, root
    assert found.n == 3
    assert found.mean == pytest.approx(0.2399667, abs=1e-7)
    assert found.sd == pytest.approx(0.0069082, abs=1e-7)
    assert found.high - found.mean == pytest.approx(0.0172, abs=5e-5)  # t(2) 4.303 * sd / root 3


def test_interval_is_scipys():
    values = [0.2326, 0.2410, 0.2463, 0.2391]
    low, high = stats.t.interval(0.95, 3, loc=sum(values) / 4, scale=stats.sem(values))
    found = summarize(values)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_one_seed_has_no_spread_and_none_has_no_mean():
    assert vars(summarize([0.5])) == {"n": 1, "mean": 0.5, "sd": None, "low": None, "high": None}
    assert vars(summarize([None, math.nan]))["mean"] is None


def test_missing_values_are_left_out_and_n_says_so():
    assert summarize([0.1, None, 0.3, math.nan]) == summarize([0.1, 0.3])


def test_matched_change_takes_only_seeds_that_both_have():
    before = {42: 0.2326, 43: 0.2410, 44: None}
    after = {42: 0.2143, 44: 0.9, 45: 0.9}
    found = matched_change(before, after)
    assert found.keys == (42,)
    assert found.difference.mean == pytest.approx(-0.0183)
    assert found.relative == pytest.approx(-0.0787, abs=5e-5)
    assert found.difference.sd is None


def test_matched_change_pairs_by_seed():
    # Paired, the change is exactly 0.1 for each; unpaired means would hide that it has no spread.
    found = matched_change({1: 0.1, 2: 0.5}, {2: 0.6, 1: 0.2})
    assert found.difference.mean == pytest.approx(0.1)
    assert found.difference.sd == pytest.approx(0.0)


def test_no_match_is_none_not_zero():
    found = matched_change({1: 0.1}, {2: 0.2})
    assert (found.before, found.after, found.difference.mean, found.relative) == (None,) * 4


def test_paired_test_of_the_study():
    found = paired(L9, L6)
    assert (found.n, found.keys) == (3, SEEDS)
    assert (round(found.mean, 4), round(found.p, 3)) == (0.0053, 0.018)
    found = paired(L12, L6)
    assert (round(found.mean, 4), round(found.p, 2)) == (0.0038, 0.38)


def test_paired_is_scipys_over_the_keys_that_match():
    rng = np.random.default_rng(1)
    for n in (2, 3, 7, 40):
        a, b = rng.normal(size=(2, n))
        expected = stats.ttest_rel(b, a)
        before = {(seed, "scifact"): value for seed, value in enumerate(a)} | {"extra": 9.0}
        after = {(seed, "scifact"): value for seed, value in enumerate(b)} | {"gone": None}
        found = paired(before, after, confidence=0.9)
        interval = expected.confidence_interval(0.9)
        assert found.p == pytest.approx(expected.pvalue)
        assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
        assert (found.n, found.sd) == (n, pytest.approx(np.std(b - a, ddof=1)))


@pytest.mark.parametrize(
    ("before", "after", "n", "reason"),
    [
        ({}, {}, 0, "n = 0; a test takes at least two matched seeds"),
        ({1: 0.1}, {1: 0.2}, 1, "n = 1; a test takes at least two matched seeds"),
        ({1: 0.1, 2: 0.3}, {1: 0.2, 2: math.nan}, 1, "n = 1; a test takes at least two"),
        ({1: 0.1, 2: 0.5}, {1: 0.2, 2: 0.6}, 2, "all 2 differences are equal"),
        ({1: 0.1, 2: 0.5}, {1: 0.1, 2: 0.5}, 2, "all 2 differences are equal"),
    ],
)
def test_no_paired_test_is_none_with_a_reason(before, after, n, reason):
    found = paired(before, after)
    assert (found.n, found.low, found.high, found.p) == (n, None, None, None)
    assert found.reason.startswith(reason)
    assert (found.mean is None) == (n == 0)
    assert (found.sd is None) == (n < 2)


def test_holm_of_the_study():
    pairs = itertools.combinations((L12, L9, L6, L3), 2)
    ps = [paired(a, b).p for a, b in pairs]
    assert round(holm(ps)[3], 3) == 0.105  # L9 and L6, of six pairs


def test_holm_by_hand():
    # 0.01 * 3, 0.02 * 2, 0.03 * 1 lifted to the one before
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])


def test_holm_is_statsmodels_with_the_missing_left_out():
    rng = np.random.default_rng(2)
    for n in range(1, 30):
        ps = rng.random(n) ** 3
        ps[: n // 3] = ps[-1]  # ties
        expected = multipletests(ps, method="holm")[1].tolist()
        assert holm(ps.tolist()) == pytest.approx(expected)
        found = holm([None, *ps.tolist(), math.nan])
        assert (found[0], found[-1]) == (None, None)
        assert found[1:-1] == pytest.approx(expected)
    assert holm([]) == []
    assert holm([None]) == [None]


def test_holm_refuses_what_is_no_p():
    with pytest.raises(UserError, match=r"p-values must lie in 0\.\.1; found 0\.1\.\.1\.5"):
        holm([0.1, 1.5, None])


def test_line_of_the_study():
    # "12.3 + 0.33 n" was claimed of these p50_ms
    found = linear_fit([12, 9, 6, 3], [16.17, 15.78, 13.03, 12.65])
    assert (round(found.intercept, 2), round(found.slope, 3)) == (11.08, 0.444)
    assert round(found.r2, 2) == 0.89
    assert found.max_residual == pytest.approx(0.712)  # 13.03 - 11.08 - 0.443667 * 6
    assert found.residuals[2] == pytest.approx(-0.712)


def test_line_is_scipys_and_skips_points_with_a_part_missing():
    rng = np.random.default_rng(3)
    for n in (2, 5, 30):
        x, y = rng.normal(size=(2, n)) * 100
        expected = stats.linregress(x, y)
        found = linear_fit([*x, None, 1.0], [*y, 1.0, math.nan])
        assert (found.slope, found.intercept) == pytest.approx((expected.slope, expected.intercept))
        assert found.r2 == pytest.approx(expected.rvalue**2)
        left = y - (expected.intercept + expected.slope * x)
        assert found.residuals[:n] == pytest.approx(left.tolist(), abs=1e-9)
        assert (found.n, found.residuals[n:]) == (n, (None, None))


def test_no_line_through_one_x_and_no_share_of_no_variance():
    upright = linear_fit([3, 3, None], [1.0, 2.0, 3.0])
    assert (upright.n, upright.slope, upright.intercept, upright.r2) == (2, None, None, None)
    assert upright.residuals == (None, None, None)
    flat = linear_fit([1, 2, 3], [0.1, 0.1, 0.1])
    assert (flat.slope, flat.r2) == (pytest.approx(0.0), None)
    with pytest.raises(UserError, match="one y for each x; found 2 x and 1 y"):
        linear_fit([1, 2], [1])


def test_pareto_against_brute_force():
    rng = random.Random(0)
    for _ in range(50):
        points = [(rng.randint(1, 6), rng.randint(1, 6)) for _ in range(rng.randint(1, 12))]
        beaten = {
            i
            for i, j in itertools.permutations(range(len(points)), 2)
            if points[j] != points[i]
            and points[j][0] <= points[i][0]
            and points[j][1] >= points[i][1]
        }
        found = pareto([cost for cost, _ in points], [value for _, value in points])
        assert set(found) == set(range(len(points))) - beaten
        assert [points[i][0] for i in found] == sorted(points[i][0] for i in found)


def test_pareto_leaves_out_what_is_missing():
    assert pareto([1.0, None, 2.0], [0.1, 0.9, math.nan]) == [0]
