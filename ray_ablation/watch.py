"""What a Tune session tells its driver, and what follows from it.

`Watcher` passes events on to the progress, the view and the gauges. It also decides whether a trial
that ended badly is tried again, since Tune counts all ends alike: an error that the trial raised
counts against `execution.max_failures`; the death of its worker or node does not, and is followed
by another attempt as long as attempts get anywhere. `Concurrency` lets in as many trials as the
cluster holds while it grows and shrinks, and none once `SameErrors` has heard enough.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.search.basic_variant import BasicVariantGenerator

from ray_ablation import telemetry
from ray_ablation.failures import SameErrors
from ray_ablation.progress import Progress
from ray_ablation.views import View

# Deaths in a row, none further than the one before, after which it is the trial that kills.
DEATHS = 3
LOOK_S = 2.0

FOR_EVER, LAST = -1, 0  # Tune's max_failures: whether an attempt that fails is followed by another


class Concurrency(BasicVariantGenerator):  # type: ignore[misc]
    """Tune's generator of trials, with a limit that follows the cluster.

    Args:
        slots: How many trials may be under way now.
    """

    def __init__(self, slots: Callable[[], int]) -> None:
        super().__init__(max_concurrent=max(1, slots()))
        self._slots, self._looked_s = slots, time.monotonic()

    def __reduce__(self) -> tuple[Any, ...]:
        return BasicVariantGenerator, ()  # Tune pickles it for a restore that never comes

    def look(self) -> None:
        """Look at the cluster again, if it is time."""
        if time.monotonic() - self._looked_s >= LOOK_S:
            self._looked_s = time.monotonic()
            # At least one, or Tune would sleep; with no node left that one waits for the next.
            self.max_concurrent = max(1, self._slots())


class Watcher(tune.Callback):  # type: ignore[misc]
    """Hears of every trial.

    Args:
        progress: Told of states and rows.
        view: Draws them.
        errors: Counts trials that fail of one error.
        max_failures: Errors of its own after which a trial is tried again.

    Attributes:
        generator: Of the Tune session that is watched now.
        lost: Trials whose worker died before it could begin, which Tune does not try again.
    """

    generator: Concurrency

    def __init__(
        self, progress: Progress, view: View, errors: SameErrors, max_failures: int
    ) -> None:
        self.lost: set[str] = set()
        self._progress, self._view = progress, view
        self._errors, self._max_failures = errors, max_failures
        self._reasons: dict[str, str] = {}  # what an attempt said of its own end
        self._raised: Counter[str] = Counter()
        self._deaths: Counter[str] = Counter()
        self._furthest: Counter[str] = Counter()

    def __reduce__(self) -> tuple[Any, ...]:
        # Tune pickles callbacks for a restore that never comes; a view holds an open terminal.
        return tune.Callback, ()

    def on_trial_start(self, *, trial: Any, **info: Any) -> None:
        """An attempt begins in a worker."""
        trial_id = id_of(trial)
        self._reasons.pop(trial_id, None)
        self._progress.started(trial_id)
        self._show(trial)

    def on_trial_result(self, *, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """A row of training, or why the attempt is about to end."""
        trial_id = id_of(trial)
        if "error" in result:
            self._reasons[trial_id] = result["error"]
            self._raised[trial_id] += 1
            again = result["retry"] and self._raised[trial_id] <= self._max_failures
            trial.max_failures = FOR_EVER if again else LAST
            return
        if result.get("step", 0) > self._furthest[trial_id]:
            self._furthest[trial_id] = result["step"]
            self._deaths[trial_id], trial.max_failures = 0, FOR_EVER
        self._progress.reported(trial_id, result)
        telemetry.training(trial_id, result)
        self._show(trial)

    def on_trial_complete(self, *, trial: Any, **info: Any) -> None:
        """The trial is done."""
        self._progress.finished(id_of(trial))
        self._errors.finished()
        self._show(trial)

    def on_trial_recover(self, *, trial: Any, **info: Any) -> None:
        """An attempt failed and another follows, after all that wait."""
        trial_id = id_of(trial)
        self._deaths[trial_id] += trial_id not in self._reasons
        trial.max_failures = FOR_EVER if self._deaths[trial_id] < DEATHS else LAST
        self._progress.retried(trial_id, self._reason(trial))
        self._show(trial)

    def on_trial_error(self, *, trial: Any, **info: Any) -> None:
        """The last attempt failed."""
        trial_id, reason = id_of(trial), self._reason(trial)
        if trial_id not in self._reasons and trial.max_failures == FOR_EVER:
            self.lost.add(trial_id)
            self.on_trial_recover(trial=trial)
            return
        self._progress.failed(trial_id, reason)
        self._errors.failed(trial_id, reason)
        if self._errors.verdict:
            self.generator.set_finished()
        self._show(trial)

    def on_step_begin(self, **info: Any) -> None:
        """Several times a second, before new trials are let in."""
        self.generator.look()

    def on_step_end(self, **info: Any) -> None:
        """Several times a second."""
        self._view.tick()

    def _show(self, trial: Any) -> None:
        self._view.changed(self._progress.trials[id_of(trial)])
        telemetry.trials(self._progress.counts)

    def _reason(self, trial: Any) -> str:
        """What the attempt said itself; of a worker that died, what Ray noticed."""
        noted = Path(trial.error_file).read_text() if trial.error_file else ""
        said = self._reasons.get(id_of(trial))
        return said or last_error(noted) or "its worker ended without a word"


def last_error(noted: str) -> str:
    """The one line that matters in the file where Tune notes the errors of a trial.

    Tune heads each with "Failure # n"; a traceback says it in its last line, a death in its first.
    """
    lines = noted.rpartition("Failure # ")[2].strip().splitlines()[1:] or [""]
    return lines[-1 if any("Traceback" in line for line in lines) else 0].strip()


def id_of(trial: Any) -> str:
    """Our id of Tune's trial."""
    return str(trial.config["trial"]["id"])
