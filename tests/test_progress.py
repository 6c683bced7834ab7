import pytest

from ray_ablation.progress import Progress, Work

LONG, SHORT, REFERENCE = "L12-long", "L3-short", "L3-untrained"


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def progress(clock):
    works = [Work(LONG, 100, 300.0), Work(SHORT, 50, 60.0), Work(REFERENCE, 0, 0.0)]
    return Progress(works, clock)


def test_a_trial_starts_reports_and_finishes(progress):
    assert progress.counts["pending"] == 3
    progress.started(LONG)
    progress.reported(LONG, {"step": 25, "loss": 0.0, "examples_per_s": 12.5})
    trial = progress.trials[LONG]
    assert (trial.state, trial.fraction, trial.loss) == ("running", 0.25, 0.0)
    progress.reported(LONG, {"step": 30, "loss": None})
    assert (trial.step, trial.loss, trial.examples_per_s) == (30, 0.0, 12.5)
    progress.finished(LONG)
    assert (trial.state, trial.fraction) == ("done", 1.0)
    assert progress.unfinished == [SHORT, REFERENCE]


def test_a_failed_attempt_is_retried_then_failed(progress):
    progress.started(SHORT)
    progress.retried(SHORT, "RuntimeError: no")
    assert progress.trials[SHORT].reason == "RuntimeError: no"
    assert SHORT in progress.unfinished
    progress.started(SHORT)
    assert progress.trials[SHORT].reason is None
    progress.failed(SHORT, "RuntimeError: again")
    assert progress.counts == {"running": 0, "retrying": 0, "failed": 1, "pending": 2, "done": 0}
    assert SHORT not in progress.unfinished


def test_interruption_makes_running_trials_pending(progress):
    progress.started(LONG)
    progress.started(SHORT)
    progress.failed(SHORT, "it broke")
    progress.interrupted()
    assert [trial.state for trial in progress.trials.values()] == ["pending", "failed", "pending"]


def test_speed_of_a_resumed_trial_counts_from_where_it_resumed(progress, clock):
    progress.started(LONG)
    trial = progress.trials[LONG]
    clock.now += 10
    assert trial.left_s(clock()) is None
    progress.reported(LONG, {"step": 80})  # resumed there: 80 steps in 10 s would be a wrong speed
    assert trial.left_s(clock()) is None
    clock.now += 10
    progress.reported(LONG, {"step": 85})
    assert trial.left_s(clock()) == pytest.approx(15 * 2.0)


def test_time_left_over_all_divides_the_cost_that_is_left(progress, clock):
    assert progress.left_s is None
    progress.started(LONG)
    clock.now += 30  # Ray and the libraries load; not work
    progress.reported(LONG, {"step": 10})
    clock.now += 20
    progress.reported(LONG, {"step": 30})  # 60 of 300 cost units in 20 s
    # 210 + 60 units are left at 3 units/s; two trials at a time would have shown 6.
    assert progress.left_s == pytest.approx(90.0)


def test_time_left_is_at_least_that_of_the_slowest_trial(progress, clock):
    for trial, step in ((SHORT, 0), (LONG, 0)):
        progress.started(trial)
        progress.reported(trial, {"step": step})
    clock.now += 10
    progress.reported(SHORT, {"step": 25})  # 30 units
    progress.reported(LONG, {"step": 10})  # 30 units
    # By cost: (30 + 270) / 6 = 50 s, but the long one alone needs 90.
    assert progress.left_s == pytest.approx(90.0)
    progress.finished(SHORT)
    progress.finished(LONG)
    progress.finished(REFERENCE)
    assert progress.unfinished == []
