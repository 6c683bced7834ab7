"""Spread, matched change, Pareto: against hand-worked numbers, scipy and brute force."""

import itertools
import math
import random

import pytest
from scipy import stats

from analysis.statistics import matched_change, pareto, summarize


def test_summary_of_three_seeds_by_hand():
    found = summarize([0.2326, 0.2410, 0.2463])
    # deviations -0.0073667, 0.0010333, 0.0063333; squares sum to 9.5447e-5; / 2, root
    assert found.n == 3
    assert found.mean == pytest.approx(0.2399667, abs=1e-7)
    assert found.sd == pytest.approx(0.0069082, abs=1e-7)


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
