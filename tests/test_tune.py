"""Tune sessions on a real local Ray, with a trial function that counts instead of learning."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from textwrap import dedent

import pandas as pd
import pytest
import ray
from ray import tune as ray_tune

from ray_ablation import callbacks, cluster, telemetry, tune, watch
from ray_ablation.atomic import write_frame
from ray_ablation.grid import Grid, load
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError, one_line
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        patch.setattr(cluster, "usable_cpus", lambda: 2)
        with cluster.start_ray(Execution(cpus_per_trial=1)):
            yield


def make_grid(folder: Path, **execution) -> Grid:
    """Depths 1..3, plus what each test asks for through its own trials."""
    (folder / "mine").mkdir(exist_ok=True)
    settings = {"device": "cpu", "max_failures": 2} | execution
    file = folder / "grid.yaml"
    file.write_text(
        dedent(
            f"""
            name: tiny
            axes: {{depth: [1, 3, 2]}}
            fixed: {{backbone: bert-base-uncased, train_set: docstrings, steps: 4, batch: 2}}
            benchmarks: [mine]
            paths: {{mine: {folder / "mine"}}}
            execution: {{{", ".join(f"{k}: {v}" for k, v in settings.items())}}}
            """
        )
    )
    return load(file)


def make_trial(**fields) -> Trial:
    """A trial of four steps; seeds choose how the counting trial behaves."""
    defaults = {"depth": 1, "steps": 4, "batch": 2, "train_set": "docstrings"}
    return Trial(**(defaults | fields)).reduced()


RAISES, REFUSES, DIES, DIES_EACH_STEP = 901, 902, 903, 904


def counting(events: Path, step_s: float = 0.0):
    """A trial function that checkpoints every step, resumes, and notes each attempt in `events`.

    It is made here so that its code travels to the workers, which cannot import this file.
    """
    events.mkdir(exist_ok=True)
    raises, refuses, dies, dies_each_step = RAISES, REFUSES, DIES, DIES_EACH_STEP

    def train_trial(trial, sources, ledger, execution, report, where):
        import torch

        threads = f"{os.environ['OMP_NUM_THREADS']} {torch.get_num_threads()}"
        checkpoint = ledger.checkpoints_dir(trial.id) / "step"
        begin = int(checkpoint.read_text()) if checkpoint.exists() else 0
        note = events / f"{time.time_ns()}-{trial.id}"
        note.write_text(f"{begin} {threads} {os.getcwd()}")
        for step in range(begin + 1, trial.steps + 1):
            time.sleep(step_s)
            report({"step": step, "steps": trial.steps, "loss": 1 / step, "examples_per_s": 9.0})
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            checkpoint.write_text(str(step))
            if trial.seed == raises and step >= 2:
                raise RuntimeError("the loss\nis not finite")
            if trial.seed == refuses:
                raise UserError("too few distinct texts")
            if trial.seed == dies_each_step or (trial.seed == dies and begin == 0 and step == 3):
                os.kill(os.getpid(), signal.SIGKILL)
        ledger.model_dir(trial.id).mkdir(parents=True)
        (ledger.model_dir(trial.id) / "weights").write_text(trial.id)
        write_frame(ledger.train_parquet(trial.id), pd.DataFrame({"step": [trial.steps]}), {})
        result = {"loss": 0.25, "eval_loss": None, "encoder_sha256": "ab", "parameters": 7}
        return ledger.finish_trial(trial, {"result": result, "execution": where})

    return train_trial


DRIVER = """
import sys
from pathlib import Path
from ray_ablation import cluster, tune
from ray_ablation.grid import load
from ray_ablation.ledger import Ledger

cluster.usable_cpus = lambda: 2
grid = load("grid.yaml")
try:
    failures = tune.train(grid, grid.trials, Ledger(Path("results")), train_trial=TRAIN_TRIAL)
except KeyboardInterrupt:
    sys.exit(130)
print(failures)
"""


def start_driver(folder: Path, train_trial: str = "None") -> subprocess.Popen:
    """The grid of `folder` trained by a process of its own, with a Ray of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    script = DRIVER.replace("TRAIN_TRIAL", train_trial)
    return subprocess.Popen([sys.executable, "-c", script], cwd=folder, env=environment)


def real_grid(folder: Path) -> Grid:
    """Two trials that really train, one after the other, with checkpoints every 20 steps."""
    from tiny import hard_negatives, tiny_bert

    backbone, triples = tiny_bert(folder / "bert", dropout=0.1), hard_negatives(folder / "triples")
    (folder / "mine").mkdir()
    (folder / "grid.yaml").write_text(
        dedent(
            f"""
            name: real
            experiments: {{first: {{depth: 1, steps: 130}}, second: {{depth: 4, steps: 500}}}}
            fixed:
              {{backbone: tiny, train_set: msmarco-hard-negatives, samples: 40, held_out: 4,
               max_length: 32, precision: fp32, batch: 8}}
            benchmarks: [mine]
            paths: {{mine: {folder / "mine"}, tiny: {backbone}, msmarco-hard-negatives: {triples}}}
            execution: {{device: cpu, checkpoint_every_steps: 20, max_concurrent: 1}}
            """
        )
    )
    return load(folder / "grid.yaml")


def wait_for(condition, driver: subprocess.Popen, timeout_s: float = 120.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert driver.poll() is None, f"the driver ended with {driver.returncode}"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def attempts(events: Path) -> list[tuple[str, int]]:
    """(trial id, first step) of each attempt, in order of time."""
    notes = sorted(events.iterdir(), key=lambda note: int(note.name.partition("-")[0]))
    return [(note.name.partition("-")[2], int(note.read_text().split()[0])) for note in notes]


def test_pending_trials_run_longest_first_and_only_once(tmp_path, capfd):
    grid, ledger = make_grid(tmp_path, max_concurrent=1), Ledger(tmp_path / "results")
    reference = make_trial(depth=3, steps=0)
    short = make_trial(depth=1, steps=2, seed=5)
    trials = [reference, short, *grid.trials]
    events = tmp_path / "events"

    assert tune.train(grid, trials[:3], ledger, train_trial=counting(events)) == []
    assert tune.train(grid, trials, ledger, train_trial=counting(events)) == []
    depth1, depth3, depth2 = grid.trials
    order = [trial for trial, _ in attempts(events)]
    # The first session has finished nothing before, so its cheapest that trains is the canary.
    assert order == [t.id for t in (short, depth1, reference, depth3, depth2)]
    assert tune.train(grid, trials, ledger, train_trial=counting(events)) == []
    assert len(attempts(events)) == 5
    assert sorted(p.name for p in (tmp_path / "results/studies/tiny/tune").iterdir()) == ["1", "2"]

    for note in events.iterdir():
        begin, omp, threads, cwd = note.read_text().split()
        assert (begin, omp, threads, cwd) == ("0", "1", "1", os.getcwd())
    place = ledger.read_trial(depth1.id)["execution"]
    assert place["node_id"] == ray.nodes()[0]["NodeID"]
    assert place["gpu_ids"] == []

    printed = capfd.readouterr()
    assert printed.out == ""
    assert "2 trials: 2 done" in printed.err
    assert all(line.startswith("[") for line in printed.err.splitlines())


def test_experiment_analysis_opens_a_moved_session(tmp_path):
    grid, ledger = make_grid(tmp_path), Ledger(tmp_path / "results")
    trials = [*grid.trials, make_trial(depth=2, steps=0)]
    tune.train(grid, trials, ledger, train_trial=counting(tmp_path / "events"))
    shutil.move(tmp_path / "results", tmp_path / "moved")

    frame = ray_tune.ExperimentAnalysis(str(tmp_path / "moved/studies/tiny/tune/1")).dataframe()
    fields = ["id", "depth", "seed", "batch", "steps", "backbone"]
    found = frame[[f"config/trial/{field}" for field in fields]].set_axis(fields, axis=1)
    expected = pd.DataFrame([{"id": t.id, **t.fields()} for t in trials])[fields]
    found, expected = (f.sort_values("id", ignore_index=True) for f in (found, expected))
    pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert (frame["parameters"] == 7).all()
    assert (frame["id"] == frame["config/trial/id"]).all()


def test_a_failing_trial_leaves_the_others_alone(tmp_path, capfd):
    grid, ledger = make_grid(tmp_path), Ledger(tmp_path / "results")
    bad, refused, killed = (make_trial(seed=seed) for seed in (RAISES, REFUSES, DIES))
    trials = [bad, refused, killed, *grid.trials]
    events = tmp_path / "events"
    failures = tune.train(grid, trials, ledger, train_trial=counting(events))

    assert [(failure.what, failure.reason) for failure in failures] == [
        (bad.id, "RuntimeError: the loss is not finite"),
        (refused.id, "UserError: too few distinct texts"),
    ]
    assert all(ledger.trained(trial) for trial in (killed, *grid.trials))
    seen = attempts(events)
    assert [step for trial, step in seen if trial == bad.id] == [0, 2, 3]  # max_failures: 2
    assert [step for trial, step in seen if trial == refused.id] == [0]  # would refuse again
    assert [step for trial, step in seen if trial == killed.id] == [0, 3]
    assert "is not finite" in ledger.failure(bad.id)["traceback"]
    assert f"{bad.id}  failed" in capfd.readouterr().err


def test_deaths_do_not_count_as_errors_as_long_as_attempts_get_further(tmp_path):
    grid, ledger = make_grid(tmp_path, max_failures=0), Ledger(tmp_path / "results")
    trial = make_trial(seed=DIES_EACH_STEP)
    assert tune.train(grid, [trial], ledger, train_trial=counting(tmp_path / "events")) == []
    assert [step for _, step in attempts(tmp_path / "events")] == [
        0,
        1,
        2,
        3,
        4,
    ]  # more deaths than DEATHS


def test_a_worker_that_only_dies_has_a_reason(tmp_path):
    events = tmp_path / "events"
    events.mkdir()

    def dies(trial, sources, ledger, execution, report, where):
        (events / str(time.time_ns())).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    grid, ledger = make_grid(tmp_path, max_failures=0), Ledger(tmp_path / "results")
    [failure] = tune.train(grid, grid.trials[:1], ledger, train_trial=dies)
    assert failure.what == grid.trials[0].id
    assert "died unexpectedly" in failure.reason
    assert "\n" not in failure.reason
    assert len(list(events.iterdir())) == 1 + watch.DEATHS


def test_an_error_that_all_trials_have_stops_the_study(tmp_path):
    grid = make_grid(tmp_path, max_failures=0, max_concurrent=1, stop_after_same_errors=2)
    ledger, events = Ledger(tmp_path / "results"), tmp_path / "events"
    bad = [make_trial(seed=RAISES, steps=steps) for steps in (7, 6, 5, 4)]
    failures = tune.train(grid, bad, ledger, train_trial=counting(events))
    assert [trial for trial, _ in attempts(events)] == [bad[3].id, bad[0].id]  # the canary first
    reasons = {failure.what: failure.reason for failure in failures}
    assert reasons.keys() == {trial.id for trial in bad}
    for trial in bad[1:3]:
        assert reasons[trial.id] == (
            "not started: 2 trials in a row failed of one error (RuntimeError: the loss is not "
            "finite); mend it and run the same command again, or raise "
            "execution.stop_after_same_errors"
        )


def test_callbacks_named_in_the_grid_hear_of_trials(tmp_path):
    named = "[ray.tune.logger.csv.CSVLoggerCallback]"
    grid, ledger = make_grid(tmp_path, callbacks=named), Ledger(tmp_path / "results")
    trial = grid.trials[0]
    assert tune.train(grid, [trial], ledger, train_trial=counting(tmp_path / "events")) == []
    [written] = (tmp_path / "results/studies/tiny/tune/1").glob("*/progress.csv")
    assert pd.read_csv(written)["step"].dropna().tolist()[:4] == [1, 2, 3, 4]


def test_a_callback_that_is_not_there_is_refused_by_name():
    check = callbacks.check
    check(["ray.tune.logger.csv.CSVLoggerCallback", {"ray.tune.logger.CSVLoggerCallback": {}}])
    with pytest.raises(UserError, match=r"nowhere.Callback cannot be imported .*No module named"):
        check(["nowhere.Callback"])
    with pytest.raises(UserError, match=r"ray.tune.Callbck cannot be imported .*no attribute"):
        check(["ray.tune.Callbck"])
    with pytest.raises(UserError, match=r"Path is no class derived from ray.tune.Callback"):
        check(["pathlib.Path"])
    with pytest.raises(UserError, match=r"cannot be made from \{'colour': 1\}: TypeError"):
        callbacks.make([{"ray.tune.logger.csv.CSVLoggerCallback": {"colour": 1}}])


def test_the_canary_is_the_cheapest_that_trains_and_only_where_not_all_start_at_once():
    reference, short, middle, longest = (make_trial(depth=4, steps=n) for n in (0, 1, 2, 3))
    trials = [reference, short, middle, longest]
    assert tune.order(trials, 2, canary=True) == [short, longest, middle, reference]
    assert tune.order(trials, 4, canary=True) == [longest, middle, short, reference]
    assert tune.order(trials, 2, canary=False) == [longest, middle, short, reference]
    assert tune.order([reference], 1, canary=True) == [reference]


@pytest.mark.parametrize("breakdowns", [1, 3])
def test_tune_breaking_down_is_planned_again(tmp_path, monkeypatch, breakdowns):
    grid, ledger = make_grid(tmp_path, max_failures=1), Ledger(tmp_path / "results")
    fit, left = ray_tune.Tuner.fit, [None] * breakdowns

    def breaks_down(self):
        if left:
            left.pop()
            raise RuntimeError("Caught unexpected exception: out of memory")
        return fit(self)

    monkeypatch.setattr(ray_tune.Tuner, "fit", breaks_down)
    failures = tune.train(grid, grid.trials, ledger, train_trial=counting(tmp_path / "events"))
    if breakdowns == 1:
        assert failures == []
    else:
        assert [failure.what for failure in failures] == [trial.id for trial in grid.trials]
        assert "out of memory" in failures[0].reason


def test_what_no_node_can_hold_is_refused_at_once(tmp_path):
    grid, ledger = make_grid(tmp_path, cpus_per_trial=8), Ledger(tmp_path / "results")
    began = time.monotonic()
    with pytest.raises(cluster.ClusterError, match=r"8 CPUs .* the biggest of 1 node has 2; set"):
        tune.train(grid, grid.trials, ledger)
    assert time.monotonic() - began < 3


def test_gauges_reach_the_metrics_port_of_the_node(tmp_path):
    grid, ledger = make_grid(tmp_path, max_concurrent=1), Ledger(tmp_path / "results")
    tune.train(grid, grid.trials[:1], ledger, train_trial=counting(tmp_path / "events"))
    telemetry.phase("train")
    node = ray.nodes()[0]
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    expected = [
        r'ray_ablation_trials\{.*state="done".*\} 1\.0',
        rf'ray_ablation_step\{{.*trial="{grid.trials[0].id}".*\}} 4\.0',
        r'ray_ablation_phase\{.*phase="train".*\} 1\.0',
        r'ray_ablation_phase\{.*phase="evaluate".*\} 0\.0',
    ]
    end = time.monotonic() + 60
    while True:
        text = urllib.request.urlopen(url, timeout=10).read().decode()
        if all(re.search(pattern, text) for pattern in expected):
            return
        assert time.monotonic() < end, [line for line in text.split("\n") if "ablation" in line]
        time.sleep(0.5)


@pytest.mark.timeout(400)  # imports torch in three processes, on a machine that may be busy
def test_killed_driver_leaves_done_trials_alone_and_resumes_the_other(tmp_path):
    grid, ledger = real_grid(tmp_path), Ledger(tmp_path / "results")
    killed, done = sorted(grid.trials, key=Trial.longest_first)
    driver = start_driver(tmp_path)
    checkpoints = ledger.checkpoints_dir(killed.id)
    wait_for(lambda: len(list(checkpoints.glob("step-*"))) > 1, driver)
    driver.kill()
    driver.wait()
    untouched = ledger.trial_json(done.id).stat().st_mtime_ns
    assert ledger.read_trial(killed.id) is None

    assert tune.train(grid, grid.trials, ledger) == []
    assert ledger.trial_json(done.id).stat().st_mtime_ns == untouched
    record = ledger.trained(killed)
    first, second = record["attempts"]
    assert first["from_step"] == 0
    assert 0 < second["from_step"] < second["to_step"] == 500
    assert second["node_id"] == ray.nodes()[0]["NodeID"] != first["node_id"]

    from ray_ablation.train import train_trial

    whole = train_trial(killed, grid.sources(), Ledger(tmp_path / "whole"), grid.execution)
    assert whole["result"]["encoder_sha256"] == record["result"]["encoder_sha256"]
    assert len(whole["attempts"]) == 1


def test_the_line_that_matters_of_what_tune_notes():
    died = "Failure # 1 (occurred at x)\nThe actor died.\n\tclass_name: A\n"
    raised = "Failure # 2 (occurred at y)\nray::f()\nTraceback (most recent ...\nKeyError: 'a'\n"
    assert watch.last_error("") == ""
    assert watch.last_error(died) == "The actor died."
    assert watch.last_error(died + raised) == "KeyError: 'a'"
    assert one_line(TimeoutError()) == "TimeoutError"
    assert one_line(ValueError("two\n lines")) == "ValueError: two lines"


def test_ctrl_c_ends_with_130_and_keeps_what_is_done(tmp_path):
    grid, ledger = make_grid(tmp_path, max_concurrent=1), Ledger(tmp_path / "results")
    first, second, third = tune.order(grid.trials, slots=1, canary=True)
    counts = "__import__('test_tune').counting(Path('events').resolve(), step_s=0.3)"
    driver = start_driver(tmp_path, counts)
    checkpoint = ledger.checkpoints_dir(second.id) / "step"
    wait_for(checkpoint.exists, driver)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=30) == 130
    assert ledger.trained(first)
    assert ledger.read_trial(second.id) is None
    assert checkpoint.exists()
    assert not ledger.trial_dir(third.id).exists()
    assert [ledger.failure(trial.id) for trial in grid.trials] == [None] * 3
