"""How far a download is: a bar on a terminal, elsewhere a line now and then.

One class serves both libraries that move bytes: pooch wants an object with `total`, `update`,
`reset` and `close`, huggingface_hub the look of tqdm.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EVERY_S = 10.0

Say = Callable[[str], object]


class Progress:
    """One file on its way.

    Attributes:
        total: Bytes of the whole file, 0 while unknown.
        done: Bytes that have arrived.
    """

    def __init__(self, name: str, say: Say, total: int = 0, done: int = 0) -> None:
        self.name, self._say, self.total, self.done = name, say, total, done
        self._told_s = time.monotonic()
        self._started = False
        self._bar: Any = None

    def update(self, count: float | None = 1) -> None:
        """`count` more bytes have arrived."""
        if not self._started:
            self._start()
        self.done += int(count or 0)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self.done)
        elif time.monotonic() - self._told_s >= EVERY_S:
            self._told_s = time.monotonic()
            share = f" ({self.done / self.total:.0%})" if self.total else ""
            self._say(f"fetching {self.name}: {_megabytes(self.done)}{share}")

    def reset(self) -> None:
        """Count from the start again, as pooch does before it tells the whole."""
        self.done = 0

    def close(self) -> None:
        """All is there."""
        if self._started and self._bar is None:
            self._say(f"fetched {self.name}: {_megabytes(self.done)}")
        self.stop()

    def stop(self) -> None:
        """Take the bar away, however it ended."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._started = False

    def _start(self) -> None:
        self._started = True
        if not sys.stderr.isatty():
            size = f" ({_megabytes(self.total)})" if self.total else ""
            self._say(f"fetching {self.name}{size}")
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
        self._bar = Bars(*columns, TransferSpeedColumn(), console=Console(stderr=True))
        self._bar.add_task(self.name, total=self.total or None)
        self._bar.start()


@contextmanager
def bars(name: str, say: Say) -> Iterator[type]:
    """What huggingface_hub takes for tqdm's class."""
    made: list[Progress] = []

    class Bar(Progress):
        def __init__(self, *_: Any, total: float | None = 0, initial: int = 0, **__: Any) -> None:
            super().__init__(name, say, int(total or 0), initial)
            made.append(self)

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, kind: Any, *_: Any) -> None:
            if kind is None:
                self.close()

    try:
        yield Bar
    finally:
        for bar in made:
            bar.stop()


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
