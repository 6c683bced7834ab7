"""All trials on the cluster: one fresh Ray Tune session over those that are not done yet.

    trials without a sound record --longest first--> grid_search --> one worker a trial: train_trial
                                                                     -> the ledger

The ledger remembers, Tune does not: `Tuner.restore` forbids a changed grid and forgets the order,
so every session starts from what the ledger lacks, and a trial that was killed continues from its
own checkpoint in the ledger. A session's folder studies/<name>/tune/<n> is there to be opened with
`tune.ExperimentAnalysis`, whose columns config/trial/depth, config/trial/seed, ... are the fields
of the trials.

A trial that raises is tried again `execution.max_failures` times, unless what it raised is a
`UserError`, which would only be raised again. The other trials go on.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.logger import JsonLoggerCallback

from ray_ablation import cluster, telemetry
from ray_ablation.grid import Grid
from ray_ablation.ledger import HeldError, Ledger
from ray_ablation.problems import Failure, UserError, one_line
from ray_ablation.progress import Progress, Work
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial
from ray_ablation.views import View, open_view

TrainTrial = Callable[..., dict[str, Any]]  # the signature of train.train_trial

# Tune's table, error dumps and advice give way to the view and the ledger; workers stay in the
# folder the command runs in, where relative paths mean what they say; of Tune's loggers JSON is
# enough, and is what ExperimentAnalysis reads.
TUNE_ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
}


def train(
    grid: Grid,
    trials: Sequence[Trial],
    ledger: Ledger,
    *,
    view: Callable[[Progress], View] = open_view,
    train_trial: TrainTrial | None = None,
) -> list[Failure]:
    """Train the trials that the ledger does not have, on the cluster Ray is connected to.

    Args:
        grid: Gives execution settings and local folders.
        trials: Those to have afterwards; the ones with a sound record are left alone.
        ledger: Where records, checkpoints and Tune's folder go; all nodes see its root.
        view: Makes what draws the progress.
        train_trial: What trains one trial; `train.train_trial` unless given.

    Returns:
        A failure for each trial that has no record now.

    Raises:
        ClusterError: No node can hold a trial.
        KeyboardInterrupt: Ctrl-C; finished trials and checkpoints are kept.
    """
    pending = [trial for trial in trials if ledger.trained(trial) is None]
    if not pending:
        return []
    with cluster.start_ray(grid.execution):
        session = Session(grid, pending, Ledger(ledger.root.resolve()), train_trial)
        with view(session.progress) as shown:
            breakdown = session.run(shown)
    if breakdown is None and session.progress.unfinished:
        raise KeyboardInterrupt  # Tune answers Ctrl-C by returning as if all were well
    return [
        Failure(trial.id, session.progress.trials[trial.id].reason or breakdown or "left no record")
        for trial in pending
        if ledger.read_trial(trial.id) is None
    ]


class Session:
    """The pending trials of one call of `train`, and how they fare."""

    def __init__(
        self, grid: Grid, pending: Sequence[Trial], ledger: Ledger, train_trial: TrainTrial | None
    ) -> None:
        self.grid, self.ledger, self.train_trial = grid, ledger, train_trial
        self.execution = settle(grid.execution, ledger)
        self.needs, nodes = cluster.needs(self.execution), cluster.nodes()
        cluster.check_fits(self.needs, nodes)
        fitting = cluster.slots(self.needs, nodes)
        self.slots = min(fitting, self.execution.max_concurrent or fitting)
        self.trials = {trial.id: trial for trial in sorted(pending, key=Trial.longest_first)}
        works = (Work(trial.id, trial.steps, trial.cost) for trial in self.trials.values())
        self.progress = Progress(works)

    def run(self, view: View) -> str | None:
        """Run Tune until every trial has ended, again if Tune itself breaks down.

        Tune raises a RuntimeError when a worker dies of what it does not know, such as the memory
        monitor of a cluster that others started.

        Returns:
            Why Tune broke down the last time, None when it returned.
        """
        breakdown = None
        for _ in range(1 + self.execution.max_failures):
            if not self.progress.unfinished:
                return None
            try:
                with cluster.environment(TUNE_ENVIRONMENT), cluster.quiet():
                    self._tuner(view).fit()
                return None
            except RuntimeError as error:
                breakdown = one_line(error)
                self.progress.interrupted()
        return breakdown

    def _tuner(self, view: View) -> tune.Tuner:
        unfinished = [self.trials[trial_id] for trial_id in self.progress.unfinished]
        # One grid_search over whole trials keeps their order; a search over each field would not.
        cells = [{"id": trial.id, **trial.fields()} for trial in unfinished]
        folder = self.ledger.new_tune_dir(self.grid.name)
        resources = {name.lower(): amount for name, amount in self.needs.items()}
        return tune.Tuner(
            tune.with_resources(self._trainable(), resources),
            param_space={"trial": tune.grid_search(cells)},
            tune_config=tune.TuneConfig(
                # No more than fit at once, or Tune stages the others and starts them out of order.
                max_concurrent_trials=self.slots,
                # A fresh process takes seconds to import torch. On a GPU it is worth them: a clean
                # CUDA context, whose peak memory and workspaces are the trial's own.
                reuse_actors="gpu" not in resources,
                trial_name_creator=_trial_id,
                trial_dirname_creator=_trial_id,
            ),
            run_config=tune.RunConfig(
                name=folder.name,
                storage_path=str(folder.parent),
                verbose=0,
                callbacks=[JsonLoggerCallback(), Watcher(self.progress, view)],
                failure_config=tune.FailureConfig(max_failures=self.execution.max_failures),
            ),
        )

    def _trainable(self) -> Callable[[dict[str, Any]], None]:
        trials, ledger, execution = self.trials, self.ledger, self.execution
        sources, train_trial = self.grid.sources(), self.train_trial

        def train_one(config: dict[str, Any]) -> None:
            run_trial(trials[config["trial"]["id"]], sources, ledger, execution, train_trial)

        return train_one


class Watcher(tune.Callback):  # type: ignore[misc]
    """Tells the progress, the view and the gauges what Tune reports."""

    def __init__(self, progress: Progress, view: View) -> None:
        self._progress, self._view = progress, view
        self._reasons: dict[str, str] = {}  # what an attempt said of its own end

    def __reduce__(self) -> tuple[Any, ...]:
        # Tune pickles callbacks for a restore that never comes; a view holds an open terminal.
        return tune.Callback, ()

    def on_trial_start(self, *, trial: Any, **info: Any) -> None:
        """An attempt begins in a worker."""
        self._reasons.pop(_trial_id(trial), None)
        self._progress.started(_trial_id(trial))
        self._show(trial)

    def on_trial_result(self, *, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """A row of training, or why the attempt is about to end."""
        if "error" in result:
            self._reasons[_trial_id(trial)] = result["error"]
            if not result["retry"]:
                trial.max_failures = 0
            return
        self._progress.reported(_trial_id(trial), result)
        telemetry.training(_trial_id(trial), result)
        self._show(trial)

    def on_trial_complete(self, *, trial: Any, **info: Any) -> None:
        """The trial is done."""
        self._progress.finished(_trial_id(trial))
        self._show(trial)

    def on_trial_recover(self, *, trial: Any, **info: Any) -> None:
        """An attempt failed and another follows, after all that wait."""
        self._progress.retried(_trial_id(trial), self._reason(trial))
        self._show(trial)

    def on_trial_error(self, *, trial: Any, **info: Any) -> None:
        """The last attempt failed."""
        self._progress.failed(_trial_id(trial), self._reason(trial))
        self._show(trial)

    def on_step_end(self, **info: Any) -> None:
        """Several times a second."""
        self._view.tick()

    def _show(self, trial: Any) -> None:
        self._view.changed(self._progress.trials[_trial_id(trial)])
        telemetry.trials(self._progress.counts)

    def _reason(self, trial: Any) -> str:
        """What the attempt said itself; of a worker that died, what Ray noticed."""
        noted = Path(trial.error_file).read_text() if trial.error_file else ""
        said = self._reasons.get(_trial_id(trial))
        return said or last_error(noted) or "its worker ended without a word"


def run_trial(
    trial: Trial,
    sources: Mapping[str, Path],
    ledger: Ledger,
    execution: Execution,
    train_trial: TrainTrial | None,
) -> None:
    """Train one trial in a worker of Tune; the ledger learns the result, or why there is none."""
    if train_trial is None:
        from ray_ablation import train as training  # torch and transformers: only workers wait

        train_trial = training.train_trial
    where = {
        "node_id": ray.get_runtime_context().get_node_id(),
        "node_ip": ray.util.get_node_ip_address(),
        "gpu_ids": [str(gpu) for gpu in ray.get_gpu_ids()],
    }
    try:
        record = train_trial(trial, sources, ledger, execution, report=tune.report, where=where)
    except Exception as error:
        reason = one_line(error)
        with suppress(OSError):  # a full disk must not hide what filled it
            if not isinstance(error, HeldError):  # then the trial is doing well elsewhere
                ledger.fail_trial(trial, reason, traceback.format_exc())
        tune.report({"error": reason, "retry": not isinstance(error, UserError)})
        raise
    tune.report(last_row(trial, record))


def last_row(trial: Trial, record: Mapping[str, Any]) -> dict[str, Any]:
    """What a finished trial shows in ExperimentAnalysis: the plain values of its result."""
    result = record["result"]
    plain = {k: v for k, v in result.items() if v is None or isinstance(v, str | int | float)}
    return plain | {"id": trial.id, "step": trial.steps, "steps": trial.steps}


def settle(execution: Execution, ledger: Ledger) -> Execution:
    """Execution as workers need it: the device decided, the cache absolute."""
    cache = ledger.cache_dir(execution.cache).resolve()
    return cluster.settle_device(execution).model_copy(update={"cache": str(cache)})


def last_error(noted: str) -> str:
    """The one line that matters in the file where Tune notes the errors of a trial.

    Tune heads each with "Failure # n"; a traceback says it in its last line, a death in its first.
    """
    lines = noted.rpartition("Failure # ")[2].strip().splitlines()[1:] or [""]
    return lines[-1 if any("Traceback" in line for line in lines) else 0].strip()


def _trial_id(trial: Any) -> str:
    return str(trial.config["trial"]["id"])
