"""All trials on the cluster: one fresh Ray Tune session over those that are not done yet.

    trials without a sound record --longest first--> grid_search --> one worker a trial: train_trial
                                                                     -> the ledger

The ledger remembers, Tune does not: `Tuner.restore` forbids a changed grid and forgets the order,
so every session starts from what the ledger lacks, and a trial that was killed continues from its
own checkpoint in the ledger. A session's folder studies/<name>/tune/<n> is there to be opened with
`tune.ExperimentAnalysis`, whose columns config/trial/depth, config/trial/seed, ... are the fields
of the trials.

A trial that raises is tried again `execution.max_failures` times, unless what it raised is a
`UserError`, which would only be raised again; one whose worker or node is lost goes on elsewhere
(`watch.py`). The other trials go on. In a study that has never finished a trial, the cheapest one
runs beside the longest ones as a canary: what breaks at the end of training breaks in minutes.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ray
from ray import tune
from ray.tune.logger import JsonLoggerCallback

from ray_ablation import callbacks, cluster, slot
from ray_ablation.failures import SameErrors
from ray_ablation.grid import Grid
from ray_ablation.ledger import HeldError, Ledger
from ray_ablation.problems import Failure, UserError, one_line
from ray_ablation.progress import Progress, Work
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial
from ray_ablation.views import View, open_view
from ray_ablation.watch import FOR_EVER, Concurrency, Watcher, id_of

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
        session = Session(grid, pending, replace(ledger, root=ledger.root.resolve()), train_trial)
        with view(session.progress) as shown:
            breakdown = session.run(shown)
    for trial in pending:
        ledger.fetch_trial(trial.id)
    stopped = breakdown or session.errors.verdict
    if stopped is None and session.progress.unfinished:
        raise KeyboardInterrupt  # Tune answers Ctrl-C by returning as if all were well
    return [
        Failure(trial.id, session.progress.trials[trial.id].reason or stopped or "left no record")
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
        begun = any(ledger.read_trial(trial.id) for trial in grid.trials)
        first = order(pending, self.slots(), canary=not begun)
        self.trials = {trial.id: trial for trial in first}
        works = (Work(trial.id, trial.steps, trial.cost) for trial in self.trials.values())
        self.progress = Progress(works)
        self.errors = SameErrors(self.execution.stop_after_same_errors)

    def slots(self) -> int:
        """How many trials may be under way on the cluster as it is now."""
        return self.execution.max_concurrent or cluster.slots(self.needs, cluster.nodes())

    def run(self, view: View) -> str | None:
        """Run Tune until every trial has ended, again if Tune itself breaks down.

        Tune raises a RuntimeError when a worker dies of what it does not know, such as the memory
        monitor of a cluster that others started. A breakdown after which nothing was finished
        counts against `max_failures`.

        Returns:
            Why Tune broke down the last time, None when it returned.
        """
        watcher = Watcher(self.progress, view, self.errors, self.execution.max_failures)
        breakdowns = 0
        while unfinished := self.progress.unfinished:
            done = self.progress.counts["done"]
            watcher.lost.clear()
            try:
                with cluster.environment(TUNE_ENVIRONMENT), cluster.quiet():
                    self._tuner(unfinished, watcher).fit()
            except RuntimeError as error:
                self.progress.interrupted()
                breakdowns = 1 + breakdowns * (self.progress.counts["done"] == done)
                if breakdowns > self.execution.max_failures:
                    return one_line(error)
                continue
            except Exception:
                # Of a full disk Tune keeps empty files, and trips over them when all is over.
                if self.progress.unfinished and not self.errors.verdict:
                    raise
            if self.errors.verdict or set(self.progress.unfinished) != watcher.lost:
                return None  # the end, or Ctrl-C
        return None

    def _tuner(self, unfinished: Sequence[str], watcher: Watcher) -> tune.Tuner:
        # One grid_search over whole trials keeps their order; a search over each field would not.
        cells = [{"id": i, **self.trials[i].fields()} for i in unfinished]
        folder = self.ledger.new_tune_dir(self.grid.name)
        resources = {name.lower(): amount for name, amount in self.needs.items()}
        # No more than fit at once, or Tune stages the others and starts them out of order.
        watcher.generator = Concurrency(self.slots)
        return tune.Tuner(
            tune.with_resources(self._trainable(), resources),
            param_space={"trial": tune.grid_search(cells)},
            tune_config=tune.TuneConfig(
                search_alg=watcher.generator,
                # A fresh process takes seconds to import torch. On a GPU it is worth them: a clean
                # CUDA context, whose peak memory and workspaces are the trial's own.
                reuse_actors="gpu" not in resources,
                trial_name_creator=id_of,
                trial_dirname_creator=id_of,
            ),
            run_config=tune.RunConfig(
                name=folder.name,
                storage_path=str(folder.parent),
                verbose=0,
                callbacks=[
                    JsonLoggerCallback(),
                    watcher,
                    *callbacks.make(self.execution.callbacks),
                ],
                failure_config=tune.FailureConfig(max_failures=FOR_EVER),
            ),
        )

    def _trainable(self) -> Callable[[dict[str, Any]], None]:
        trials, ledger, execution = self.trials, self.ledger, self.execution
        sources, train_trial = self.grid.sources(), self.train_trial

        def train_one(config: dict[str, Any]) -> None:
            run_trial(trials[config["trial"]["id"]], sources, ledger, execution, train_trial)

        return train_one


def run_trial(
    trial: Trial,
    sources: Mapping[str, Any],
    ledger: Ledger,
    execution: Execution,
    train_trial: TrainTrial | None,
) -> None:
    """Train one trial in a worker of Tune; the ledger learns the result, or why there is none."""
    if train_trial is None:
        from ray_ablation import train as training  # torch and transformers: only workers wait

        train_trial = training.train_trial
    where: dict[str, Any] = {
        "node_id": ray.get_runtime_context().get_node_id(),
        "node_ip": ray.util.get_node_ip_address(),
        "gpu_ids": [str(gpu) for gpu in ray.get_gpu_ids()],
    }
    try:
        with slot.hold(where["gpu_ids"], where["node_id"], execution.gpus_per_trial):
            record = train_trial(trial, sources, ledger, execution, report=tune.report, where=where)
    except Exception as error:
        reason = one_line(error)
        with suppress(OSError):  # a full disk must not hide what filled it
            if not isinstance(error, HeldError):  # then the trial is doing well elsewhere
                ledger.fail_trial(trial, reason, traceback.format_exc())
        # What holds the trial or its GPU may be a worker that has not noticed yet that it is lost.
        again = isinstance(error, HeldError) or not isinstance(error, UserError)
        tune.report({"error": reason, "retry": again})
        raise
    tune.report(last_row(trial, record))


def order(pending: Sequence[Trial], slots: int, canary: bool) -> list[Trial]:
    """Longest first; with a canary the cheapest that trains before them, if not all start at once.

    Beside the longest it costs no time: it is over before any of them.
    """
    trials = sorted(pending, key=Trial.longest_first)
    learning = [trial for trial in trials if trial.steps]
    if canary and learning and len(trials) > slots:
        trials.remove(learning[-1])
        trials.insert(0, learning[-1])
    return trials


def last_row(trial: Trial, record: Mapping[str, Any]) -> dict[str, Any]:
    """What a finished trial shows in ExperimentAnalysis: the plain values of its result."""
    result = record["result"]
    plain = {k: v for k, v in result.items() if v is None or isinstance(v, str | int | float)}
    return plain | {"id": trial.id, "step": trial.steps, "steps": trial.steps}


def settle(execution: Execution, ledger: Ledger) -> Execution:
    """Execution as workers need it: the device decided, the cache absolute."""
    cache = ledger.cache_dir(execution.cache).resolve()
    return cluster.settle_device(execution).model_copy(update={"cache": str(cache)})
