"""The root-cause study's design: factors told apart, planted effects found, nothing else."""

import numpy as np
import pytest

from ray_ablation.latency.conditions import Conditions
from ray_ablation.latency.design import Effect, effects, plackett_burman
from ray_ablation.latency.factors import FACTORS, applicable, screened, unit_with


@pytest.mark.parametrize(("factors", "runs"), [(3, 12), (11, 12), (12, 20), (19, 20)])
def test_columns_are_balanced_and_orthogonal(factors, runs):
    levels = plackett_burman(factors)
    assert levels.shape == (runs, factors)
    assert not levels.sum(axis=0).any()
    assert np.array_equal(levels.T @ levels, runs * np.eye(factors))


def test_more_factors_than_a_design_holds_are_refused():
    with pytest.raises(ValueError, match="20 factors; a design is known for up to 19"):
        plackett_burman(20)


def planted(replicates: int, seed: int, noise: float = 0.05):
    """Factor 2 adds 0.7, factor 5 takes 0.4."""
    levels = np.tile(plackett_burman(11), (replicates, 1))
    y = 1 + 0.35 * levels[:, 2] - 0.2 * levels[:, 5]
    y += np.random.default_rng(seed).normal(0, noise, len(y))
    return levels, y.tolist()


@pytest.mark.parametrize("replicates", [1, 2])
def test_planted_effects_are_found_and_the_others_seldom(replicates):
    false = 0
    for seed in range(20):
        found = effects(*planted(replicates, seed))
        assert found[2].est == pytest.approx(0.7, abs=0.12)
        assert found[5].est == pytest.approx(-0.4, abs=0.12)
        assert found[2].clear
        assert found[5].clear
        false += sum(effect.clear for i, effect in enumerate(found) if i not in (2, 5))
    assert false <= 0.1 * 20 * 9  # 5 % are expected


def test_the_interval_is_that_of_ordinary_least_squares():
    import statsmodels.api as sm

    levels, y = planted(3, seed=1)
    ours = effects(levels, y)
    theirs = 2 * sm.OLS(y, sm.add_constant(levels)).fit().conf_int()[1:]
    for effect, (low, high) in zip(ours, theirs, strict=True):
        assert effect.est == pytest.approx((low + high) / 2)
        assert effect.hi - effect.lo == pytest.approx(high - low, rel=0.25)


def test_failed_runs_are_left_out():
    levels, y = planted(2, seed=0)
    y[3] = y[17] = None
    assert effects(levels, y)[2].est == pytest.approx(0.7, abs=0.12)
    assert not any(effect.clear for effect in effects(levels, [None] * len(y)))
    assert not Effect(1.0, None, None).clear


UNIT = {"inputs": "exact", "threads": 1, "variants": ["L2"]}


@pytest.mark.parametrize("name", FACTORS)
def test_every_factor_changes_a_unit_into_one_that_can_be_run(name):
    base = unit_with(UNIT, [], "cuda", 8)
    wild = unit_with(UNIT, [name], "cuda", 8)
    assert wild != base
    for unit in (base, wild):
        conditions = Conditions(**unit["conditions"])
        assert "cpus" not in [*unit.values(), conditions.cotenants]
    assert FACTORS[name].says.count(" / ") == 1


def test_a_cpu_has_the_factors_that_exist_there():
    assert len(screened("cpu")) == len(applicable("cpu")) == 11
    assert set(applicable("cuda")) == set(FACTORS)
    assert not {"graph", "compile"} & set(screened("cuda"))
    wild = unit_with(UNIT, FACTORS, "cpu", 2)
    assert (wild["threads"], wild["inputs"], wild["conditions"]["cotenants"]) == (2, "natural", 2)
    assert "gpu_cotenant" not in wild["conditions"]
