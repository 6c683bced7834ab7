"""How far the training of many trials is.

`Progress` is told what happens (started, reported, failed, ...) and answers where each trial stands
and how long the rest will take. It knows neither Ray nor a screen, and its clock is an argument.

The time left over all trials divides the work that is left by the work done so far in this session,
both in the cost units the caller gives, so that it holds for any number of trials at a time; the
slowest running trial bounds it from below.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

STATES = ("running", "retrying", "failed", "pending", "done")

Clock = Callable[[], float]


class Work(NamedTuple):
    """A trial to come.

    Attributes:
        id: Its id.
        steps: Optimizer steps it takes; 0 for an untrained reference.
        cost: What it costs relative to the others, in any unit.
    """

    id: str
    steps: int
    cost: float


@dataclass
class TrialProgress:
    """Where one trial stands.

    Attributes:
        from_step: Where this attempt went on from a checkpoint; 0 began anew.
        began: Step and time of the first report of this attempt; its speed counts from there,
            since an attempt resumes at any step.
        reason: Why it failed, or is tried again.
    """

    work: Work
    state: str = "pending"
    step: int = 0
    from_step: int = 0
    loss: float | None = None
    examples_per_s: float | None = None
    began: tuple[int, float] | None = None
    reason: str | None = None

    @property
    def fraction(self) -> float:
        """Share of the trial that is done, 0..1."""
        if self.state == "done":
            return 1.0
        return min(1.0, self.step / self.work.steps) if self.work.steps else 0.0

    def left_s(self, now: float) -> float | None:
        """Seconds to go at the speed since the first report; None before there is a speed."""
        if self.state != "running" or self.began is None:
            return None
        step, since = self.began
        if self.step <= step or now <= since:
            return None
        return (self.work.steps - self.step) * (now - since) / (self.step - step)


class Progress:
    """Where all trials stand."""

    def __init__(self, works: Iterable[Work], clock: Clock = time.monotonic) -> None:
        self.trials = {work.id: TrialProgress(work) for work in works}
        self.clock = clock
        self.began_s = clock()
        # Cost units worked off since the first report: before it Ray and the libraries load.
        self._worked, self._working_since_s = 0.0, 0.0

    def started(self, trial_id: str) -> None:
        """An attempt begins."""
        trial = self.trials[trial_id]
        trial.state, trial.began, trial.reason = "running", None, None

    def reported(self, trial_id: str, row: Mapping[str, Any]) -> None:
        """A row of training: step, loss, examples_per_s; what it lacks stays as it was."""
        trial = self.trials[trial_id]
        before = trial.fraction
        for name in ("step", "from_step", "loss", "examples_per_s"):
            if row.get(name) is not None:
                setattr(trial, name, row[name])
        if trial.began is None:
            trial.began = (trial.step, self.clock())
            self._working_since_s = self._working_since_s or self.clock()
        elif trial.fraction > before:
            self._worked += (trial.fraction - before) * trial.work.cost

    def finished(self, trial_id: str) -> None:
        """The trial is done."""
        trial = self.trials[trial_id]
        if trial.began is not None:
            self._worked += (1.0 - trial.fraction) * trial.work.cost
        trial.state = "done"

    def retried(self, trial_id: str, reason: str) -> None:
        """An attempt failed; another will follow."""
        self._stopped(trial_id, "retrying", reason)

    def failed(self, trial_id: str, reason: str) -> None:
        """The last attempt failed."""
        self._stopped(trial_id, "failed", reason)

    def interrupted(self) -> None:
        """Nothing runs any more; what ran is pending again."""
        for trial in self.trials.values():
            if trial.state in ("running", "retrying"):
                trial.state = "pending"

    def _stopped(self, trial_id: str, state: str, reason: str) -> None:
        trial = self.trials[trial_id]
        trial.state, trial.reason = state, reason

    @property
    def unfinished(self) -> list[str]:
        """Ids of the trials that have neither succeeded nor failed."""
        return [i for i, trial in self.trials.items() if trial.state not in ("done", "failed")]

    @property
    def counts(self) -> dict[str, int]:
        """How many trials are in each state, every state of STATES present."""
        found = Counter(trial.state for trial in self.trials.values())
        return {state: found[state] for state in STATES}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self.began_s

    @property
    def left_s(self) -> float | None:
        """Seconds until all trials are done, as the module explains; None when nothing is known."""
        now = self.clock()
        open_trials = [self.trials[i] for i in self.unfinished]
        slowest = max((trial.left_s(now) or 0.0 for trial in open_trials), default=0.0)
        if not self._worked:
            return slowest or None
        left = sum((1.0 - trial.fraction) * trial.work.cost for trial in open_trials)
        return max(slowest, left * (now - self._working_since_s) / self._worked)
