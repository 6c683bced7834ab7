"""Estimates against schedules worked by hand, and against the best schedule found by trying all."""

import itertools

import pytest

from ray_ablation.cost import estimate, lower_bound, makespan
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial

ON_GPUS = Execution(device="cuda")


def trial(depth=12, steps=20_000, batch=32, **fields) -> Trial:
    return Trial(depth=depth, steps=steps, batch=batch, **fields).reduced()


def record(trial: Trial, seconds: float, device="cuda", name="H100"):
    return {
        "trial": trial.model_dump(mode="json"),
        "result": {"training_seconds": seconds},
        "execution": {"device": device, "device_name": name},
    }


def test_the_makespan_is_that_of_slots_taking_the_next_as_they_fall_free():
    assert makespan([16, 16, 4, 4, 1, 1], slots=2) == 21  # 16+4+1 on both
    assert makespan([1, 1, 4, 4, 16, 16], slots=2) == 21
    assert makespan([1, 1, 1, 1, 4], slots=4) == 5  # short ones first: the long one comes late
    assert makespan([4, 1, 1, 1, 1], slots=4) == 4
    assert makespan([3], slots=8) == 3


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_longest_first_stays_within_a_third_of_the_best_schedule(slots):
    lengths = [7, 7, 6, 5, 4, 4, 2]
    best = min(
        max(sum(n for n, s in zip(lengths, where, strict=True) if s == slot) for slot in where)
        for where in itertools.product(range(slots), repeat=len(lengths))
    )
    assert lower_bound(lengths, slots) <= best <= makespan(lengths, slots) <= best * 4 / 3


def test_measured_trials_give_the_speed():
    # Half the depth takes half the time; four times the steps four times.
    done = [record(trial(steps=10_000), 3600.0)]
    found = estimate([trial(), trial(depth=6), trial(depth=6, steps=80_000)], done, ON_GPUS, 2)
    assert found.gpu_hours == pytest.approx(2 + 1 + 4)
    assert found.makespan_hours == pytest.approx(4)
    assert found.bound_hours == pytest.approx(4)
    assert found.price is None
    assert "measured" in str(found)
    assert "1 trial on H100" in str(found)


def test_what_is_of_another_kind_is_not_measured_by():
    others = [
        record(trial(backbone="other"), 1.0),
        record(trial(), 1.0, device="cpu"),
        record(trial(steps=0), None),
    ]
    found = estimate([trial()], others, ON_GPUS, 1)
    assert "assumed, as no finished trial tells" in found.basis
    # 12 layers x 32 x 20,000 examples x 3 texts x 128 tokens, 42.5 MFLOP each, at 1e14 FLOP/s
    tokens = 12 * 32 * 20_000 * 3 * 128
    assert found.gpu_hours == pytest.approx(tokens * 6 * 12 * 768**2 / 1e14 / 3600)


def test_the_price_is_per_hour_of_a_whole_gpu():
    half = Execution(device="cuda", gpus_per_trial=0.5, price_per_gpu_hour=4.0)
    found = estimate([trial(), trial(seed=1)], [record(trial(), 3600.0)], half, 2)
    assert found.gpu_hours == pytest.approx(1.0)
    assert found.price == pytest.approx(4.0)
    assert "; 4.00 at the price per GPU-hour" in str(found)
    on_cpu = Execution(device="cpu", price_per_gpu_hour=4.0)
    assert estimate([trial()], [], on_cpu, 1).price is None


def test_nothing_to_train_costs_nothing():
    assert estimate([], [], ON_GPUS, 1) is None
    assert estimate([trial(steps=0)], [], ON_GPUS, 1) is None
