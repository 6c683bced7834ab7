"""When a study had better stop: trial after trial fails of one and the same error.

A bug burns through every trial, at a minute of GPU each. So trials that fail are counted by their
error, with ids and numbers left out, and once enough of them have failed in a row no more are
started. A trial that finishes begins the count anew: then the error is not everybody's.
"""

import re
from collections import Counter


class SameErrors:
    """Counts failed trials by error.

    Args:
        limit: So many trials with one error, and none finished between, are enough.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._counts: Counter[str] = Counter()
        self.verdict: str | None = None
        """Why nothing more should be started; None as long as it may."""

    def failed(self, trial_id: str, reason: str) -> None:
        """A trial has failed for good."""
        kind = re.sub(r"\d+(\.\d+)?", "#", reason.replace(trial_id, ""))
        self._counts[kind] += 1
        if self._counts[kind] >= self._limit and self.verdict is None:
            self.verdict = (
                f"not started: {self._limit} trials in a row failed of one error ({reason}); mend "
                "it and run the same command again, or raise execution.stop_after_same_errors"
            )

    def finished(self) -> None:
        """A trial has finished."""
        self._counts.clear()
