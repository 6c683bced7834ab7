"""Permutations and bootstraps, against enumeration, scipy, formulas and simulation."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from analysis import resampling
from analysis.resampling import hierarchical_bootstrap, permutation_test, sign_flip_ps
from ray_ablation.problems import UserError


def test_few_queries_are_enumerated():
    d = [0.3, -0.1, 0.2, 0.0, 0.5]
    flips = itertools.product((1, -1), repeat=5)
    reached = [abs(np.dot(f, d)) >= abs(sum(d)) - 1e-12 for f in flips]
    found = permutation_test(d, np.zeros(5), seed=0)
    assert found.p == pytest.approx(np.mean(reached))
    assert (found.n, found.exact, found.resamples) == (5, True, 16)  # 0.0 has no sign to flip
    assert found.difference == pytest.approx(0.18)


def test_many_queries_agree_with_scipys():
    rng = np.random.default_rng(1)
    a, b = rng.beta(1, 2, (2, 200))
    expected = stats.permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        batch=2_000,
        rng=np.random.default_rng(4),
    )
    found = permutation_test(a, b, seed=0, resamples=50_000)
    assert not found.exact
    assert found.p == pytest.approx(expected.pvalue, abs=0.02)


def test_p_is_never_zero_and_equal_encoders_give_one():
    found = permutation_test(np.ones(500), np.zeros(500), seed=0, resamples=999)
    assert found.p == 1 / 1000
    same = permutation_test(np.ones(500), np.ones(500), seed=0)
    assert (same.p, same.difference) == (1.0, 0.0)


def test_sums_equal_but_for_rounding_count_as_equal():
    # All eight sums of +-0.1 +-0.2 +-0.3 reach |0|, whatever floats make of it.
    assert permutation_test([0.1, 0.2, -0.3], [0, 0, 0], seed=0).p == 1.0


def test_the_seed_decides_and_the_size_of_a_chunk_does_not(monkeypatch):
    a, b = np.random.default_rng(3).normal(0.1, 1, (2, 100))
    first = permutation_test(a, b, seed=5)
    assert permutation_test(a, b, seed=5) == first
    assert permutation_test(a, b, seed=6) != first
    tables = {"one": np.random.default_rng(4).normal(size=(3, 40))}
    whole = hierarchical_bootstrap(tables, seed=5, resamples=500)
    monkeypatch.setattr(resampling, "CHUNK_NUMBERS", 700)
    assert permutation_test(a, b, seed=5) == first
    assert hierarchical_bootstrap(tables, seed=5, resamples=500) == whole


def test_p_is_uniform_under_the_null():
    null = np.random.default_rng(6).exponential(size=(60, 1500))
    null *= np.random.default_rng(7).choice([-1, 1], size=null.shape)  # symmetric, far from normal
    p, _, _ = sign_flip_ps(null, seed=0, resamples=999)
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert 0.03 < np.mean(p <= 0.05) < 0.07


def test_pairs_that_share_signs_have_the_p_they_have_alone():
    d = np.random.default_rng(8).normal(0.1, 1, (80, 5))
    together, _, _ = sign_flip_ps(d, seed=3, resamples=2000)
    alone = [permutation_test(column, np.zeros(80), seed=3, resamples=2000).p for column in d.T]
    assert together.tolist() == alone


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ([0.1, math.nan], [0.1, 0.2], "a_Q: 1 of 2 values are not numbers"),
        ([0.1, 0.2], [0.1, math.inf], "b_Q: 1 of 2 values are not numbers"),
        ([0.1, 0.2], [0.1], "the same queries of both; found 2 and 1"),
        ([], [], r"a_Q: takes one value a query, .*found shape \(0,\)"),
        ([[0.1]], [[0.1]], r"found shape \(1, 1\)"),
    ],
)
def test_permutation_refuses(a, b, text):
    with pytest.raises(UserError, match=text):
        permutation_test(a, b, seed=0)


def test_bootstrap_spread_is_the_formulas():
    # One query, so only seeds vary: the interval is the t interval, up to the shape of few draws.
    d = np.random.default_rng(9).normal(0.02, 0.01, (30, 1))
    found = hierarchical_bootstrap({"one": d}, seed=0)
    low, high = stats.t.interval(0.95, 29, d.mean(), stats.sem(d[:, 0]))
    assert found.estimate == pytest.approx(d.mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.0004)


def test_seeds_are_drawn_together_over_benchmarks():
    # A seed that is good on one benchmark is bad on the other: the mean over both does not vary.
    d = np.random.default_rng(10).normal(size=(5, 1))
    found = hierarchical_bootstrap({"one": d, "other": 0.3 - d}, seed=0)
    assert (found.low, found.high) == pytest.approx((0.15, 0.15))
    assert found.p == pytest.approx(2 / 10_001)


def test_benchmarks_weigh_the_same_whatever_their_queries_unless_told():
    tables = {"small": np.full((2, 3), 0.1), "large": np.full((2, 500), 0.3)}
    assert hierarchical_bootstrap(tables, 0, 100).estimate == pytest.approx(0.2)
    weights = {"small": 3.0, "large": 1.0}
    assert hierarchical_bootstrap(tables, 0, 100, weights=weights).low == pytest.approx(0.15)


# Standard deviations of the seeds' effect, the queries' and the rest, and the least and the most
# often that a 95 % interval over three benchmarks of 50 queries held the truth.
COVERAGE = {
    ("seeds alone", 3): ((0.1, 0.001, 0.001), 0.90, 0.97),
    ("seeds alone", 10): ((0.1, 0.001, 0.001), 0.92, 0.98),
    ("both", 3): ((0.03, 0.05, 0.1), 0.95, 1.0),
    ("both", 10): ((0.03, 0.05, 0.1), 0.92, 0.98),
    ("queries alone", 3): ((0.0, 0.1, 0.1), 0.97, 1.0),
    ("queries alone", 10): ((0.0, 0.1, 0.1), 0.94, 1.0),
}


@pytest.mark.parametrize("case", COVERAGE)
def test_coverage_of_the_bootstrap(case):
    (seed_sd, query_sd, rest_sd), least, most = COVERAGE[case]
    rng, seeds, held = np.random.default_rng(11), case[1], []
    for study in range(400):
        effect = rng.normal(0, seed_sd, (seeds, 1))
        tables = {
            name: effect + rng.normal(0, query_sd, 50) + rng.normal(0, rest_sd, (seeds, 50))
            for name in ("one", "two", "three")
        }
        found = hierarchical_bootstrap(tables, study, resamples=400)
        held.append(found.low <= 0 <= found.high)
    assert least <= np.mean(held) <= most


def test_one_seed_has_an_estimate_and_no_interval():
    found = hierarchical_bootstrap({"one": [[0.1, 0.3]]}, seed=0)
    assert found.estimate == pytest.approx(0.2)
    assert (found.low, found.high, found.p, found.n_seeds) == (None, None, None, 1)
    assert found.reason == "one seed cannot be drawn again"


@pytest.mark.parametrize(
    ("tables", "weights", "text"),
    [
        ({}, None, "at least one benchmark; found none"),
        ({"scifact": [[0.1, math.nan]]}, None, "scifact: 1 of 2 values are not numbers"),
        ({"scifact": np.empty((0, 3))}, None, r"scifact: takes .*found shape \(0, 3\)"),
        ({"scifact": [0.1, 0.2]}, None, r"scifact: takes a row a seed.*found shape \(2,\)"),
        (
            {"scifact": np.zeros((2, 3)), "arguana": np.zeros((3, 3))},
            None,
            "scifact has 2 seeds and arguana 3",
        ),
        (
            {"scifact": np.zeros((2, 3))},
            {"scifacts": 1.0},
            "unknown benchmark in weights 'scifact'; known: scifacts. Did you mean 'scifacts'",
        ),
    ],
)
def test_bootstrap_refuses(tables, weights, text):
    with pytest.raises(UserError, match=text):
        hierarchical_bootstrap(tables, seed=0, weights=weights)
