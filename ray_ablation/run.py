"""The command: plan -> train -> evaluate -> profile -> report.

    python -m ray_ablation.run grids/full.yaml                   the whole study
    python -m ray_ablation.run grids/full.yaml --plan            what it comes to, and stop
    python -m ray_ablation.run grids/full.yaml --local --only ID one trial in this process

The same command resumes, heals and grows a study: what the ledger holds is not done again. Exit
codes: 0 done, 1 something failed (with --strict also a claim), 2 bad input, 130 stopped by Ctrl-C.
Ray and torch are imported only by a phase that has work.
"""

import argparse
import errno
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ray_ablation import callbacks, options, plan
from ray_ablation import grid as grids
from ray_ablation.data.beir import Benchmark
from ray_ablation.failures import SameErrors
from ray_ablation.grid import Grid
from ray_ablation.ledger import HeldError, open_ledger
from ray_ablation.problems import Failure, UserError, one_line, unknown
from ray_ablation.study import Study, say
from ray_ablation.trial import Trial

if TYPE_CHECKING:
    from ray_ablation.progress import Progress
    from ray_ablation.views import View

STORAGE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parsed = options.parser(list(PHASES)).parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        return _run(parsed)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nstopped; what is done is kept, the same command goes on", file=sys.stderr)
        return 130
    except OSError as error:
        if error.errno not in STORAGE_ERRORS:
            raise
        place = error.filename or parsed.storage or "the results folder"
        print(
            f"{place}: {error.strerror}. What is done is kept; make room, or give another folder "
            "with --storage, and run the same command again",
            file=sys.stderr,
        )
        return 2


def _run(arguments: argparse.Namespace) -> int:
    grid = _load(arguments)
    ledger = open_ledger(grid.execution.storage)
    trials = list(grid.trials) if arguments.only is None else [grid.trial(arguments.only)]
    benchmarks = _benchmarks(grid, arguments.benchmark)
    with ExitStack() as resources:
        ledger.fetch_study(grid)
        study = Study(grid, ledger, trials, benchmarks, arguments, resources)
        if arguments.plan:
            study.statuses = plan.survey(grid, ledger)
            study.describe()
            return 0
        ledger.check_writable()
        resources.enter_context(ledger.study_lock(grid.name))
        ledger.open_study(grid)
        _go(study)
    return _conclude(study)


def _load(arguments: argparse.Namespace) -> Grid:
    grid = grids.load(arguments.grid)
    callbacks.check(grid.execution.callbacks)
    storage = arguments.storage or grid.execution.storage
    storage = grids.expand_storage(storage)
    changed = {"storage": storage}
    if grid.execution.cache:
        changed["cache"] = str(grids.expand_path(grid.execution.cache, "execution.cache"))
    if arguments.local:
        changed["evaluate"] = "local"
    return replace(grid, execution=grid.execution.model_copy(update=changed))


def _benchmarks(grid: Grid, name: str | None) -> list[Benchmark]:
    found = [one for one in grid.benchmarks if name in (None, one.name, one.group)]
    if not found:
        names = [benchmark.name for benchmark in grid.benchmarks]
        raise UserError(f"--benchmark: {unknown('benchmark of this grid', str(name), names)}")
    return found


def _go(study: Study) -> None:
    """The phases asked for, one after another, each told with its time."""
    chosen = [study.arguments.phase] if study.arguments.phase else list(PHASES)
    surveyed = plan.survey(study.grid, study.ledger)
    study.statuses = [status for status in surveyed if status.trial in study.trials]
    print(plan.summary(study.grid, surveyed))
    if study.pending and "train" in chosen:
        study.connect("train")  # before data are prepared: what is wrong shows in seconds
    if chosen != ["report"]:
        plan.preflight(study.grid, study.statuses, study.benchmarks, study.ledger, say)
    for name in chosen:
        started = time.monotonic()
        print(f"{name}:", flush=True)
        PHASES[name](study)
        say(f"{time.monotonic() - started:.1f} s")


def train(study: Study) -> None:
    """Train what is not trained."""
    if not study.pending:
        say("nothing to do")
    elif study.arguments.local:
        study.failures += _train_here(study, study.pending)
    else:
        from ray_ablation import tune

        study.connect("train")
        study.failures += tune.train(study.grid, study.pending, study.ledger)


def _train_here(study: Study, pending: list[Trial]) -> list[Failure]:
    """The same trials in this process, where a debugger works."""
    from ray_ablation.progress import Progress, Work
    from ray_ablation.views import open_view

    progress = Progress([Work(trial.id, trial.steps, trial.cost) for trial in pending])
    failures: list[Failure] = []
    errors = SameErrors(study.grid.execution.stop_after_same_errors)
    with open_view(progress) as view:
        for trial in sorted(pending, key=Trial.longest_first):
            if errors.verdict:
                failures.append(Failure(trial.id, errors.verdict))
                continue
            progress.started(trial.id)
            try:
                _train_one(study, trial, progress, view)
                errors.finished()
            except Exception as error:
                failures.append(Failure(trial.id, one_line(error)))
                progress.failed(trial.id, one_line(error))
                errors.failed(trial.id, one_line(error))
                if not isinstance(error, HeldError):  # then the trial is doing well elsewhere
                    study.ledger.fail_trial(trial, one_line(error), traceback.format_exc())
                if study.arguments.only and not isinstance(error, UserError):
                    raise  # for the debugger, or to be read whole
            view.changed(progress.trials[trial.id])
    return failures


def _train_one(study: Study, trial: Trial, progress: "Progress", view: "View") -> None:
    from ray_ablation.train import train_trial

    def report(row: dict[str, Any]) -> None:
        progress.reported(trial.id, row)
        view.changed(progress.trials[trial.id])

    view.changed(progress.trials[trial.id])
    grid = study.grid
    train_trial(trial, grid.sources(), study.ledger, grid.execution, report)
    progress.finished(trial.id)


def evaluate(study: Study) -> None:
    """Score what is not scored."""
    from ray_ablation.evaluate import evaluate as score

    said: list[str] = []

    def tell(text: str) -> None:
        said.append(text)
        say(text)

    def connect() -> None:
        if study.grid.execution.evaluate != "local":
            study.connect("evaluate")

    failures = score(
        study.grid,
        study.trials,
        study.ledger,
        benchmarks=study.benchmarks,
        say=tell,
        connect=connect,
    )
    if not said and not failures:
        say("nothing to do")
    study.failures += failures


def profile(study: Study) -> None:
    """Profile the architectures, with nothing else running."""
    if study.grid.latency is None:
        say("left out: latency is null in the grid")
        return
    from ray_ablation.latency import profile as profiling
    from ray_ablation.latency import record

    trials = study.grid.trials  # also with --only: one architecture alone has no ratio
    if record.stored(study.grid, trials, study.ledger) is not None:
        say("nothing to do")
        return
    study.connect("profile")
    local = study.arguments.local
    study.failures += profiling.profile(study.grid, trials, study.ledger, local=local)


def report(study: Study) -> None:
    """Write the study's report from the ledger."""
    from analysis import report as reporting

    written = reporting.write_report(study.grid.name, study.ledger)
    say(str(written))
    if study.arguments.strict:
        from analysis.claims import not_held

        study.unheld += not_held(written.answers)


def _conclude(study: Study) -> int:
    """The last lines: what failed, why, and how to run it alone."""
    for line in study.unheld:
        print(f"a claim does not hold: {line}", file=sys.stderr)
    if not study.failures:
        return 1 if study.unheld else 0
    print(f"{len(study.failures)} failed:", file=sys.stderr)
    for failure in study.failures:
        print(f"  {failure.what}: {failure.reason}", file=sys.stderr)
    first = study.failures[0].what.partition(" / ")[0]
    only = f"--only {first}" if first in study.grid.experiments else "--phase evaluate"
    storage = f" --storage {study.arguments.storage}" if study.arguments.storage else ""
    print(
        f"one alone, in this process:\n"
        f"  python -m ray_ablation.run {study.arguments.grid} --local {only}{storage}",
        file=sys.stderr,
    )
    return 1


PHASES: dict[str, Callable[[Study], None]] = {
    "train": train,
    "evaluate": evaluate,
    "profile": profile,
    "report": report,
}

if __name__ == "__main__":
    sys.exit(main())
