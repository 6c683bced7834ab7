"""Draws a `Progress`: a table redrawn in place on a terminal, lines for a file or a pipe.

    8 trials: 2 running, 3 pending, 3 done   0:14:03 elapsed   about 0:21:40 left
    trial                     state            step    loss  examples/s     left
    L12-b32-20k-s42-3f9ac1d2  running  8,200/20,000  0.4312       311.8  0:12:10

Both write to standard error, so that standard output stays the report's, and both take the clock of
what they draw. Colours are left out where NO_COLOR is set.
"""

from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ray_ablation.progress import STATES, Progress, TrialProgress

STYLES = {"running": "cyan", "retrying": "yellow", "failed": "red", "pending": "dim"}
LOG_INTERVAL_S = 10.0
HEADER_INTERVAL_S = 60.0
REFRESH_S = 0.5


class View(Protocol):
    """What draws a `Progress` while it is entered."""

    def __enter__(self) -> Self:
        """Begin to draw."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Draw the end."""

    def changed(self, trial: TrialProgress) -> None:
        """This trial has just changed."""

    def tick(self) -> None:
        """Time has passed."""


class TerminalView:
    """A table that is redrawn in place and never larger than the terminal."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._drawn_s = float("-inf")

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._draw()
        return self

    def __exit__(self, *error: Any) -> None:
        self._draw()
        self._live.__exit__(*error)

    def changed(self, trial: TrialProgress) -> None:
        """Draw it; a reason is printed above the table, where it stays."""
        if trial.state in ("failed", "retrying"):
            self._console.print(Text(f"{trial.work.id} {trial.state}: {trial.reason}", "red"))
        self.tick()

    def tick(self) -> None:
        """Draw at most every REFRESH_S."""
        if self._progress.clock() - self._drawn_s >= REFRESH_S:
            self._draw()

    def _draw(self) -> None:
        self._drawn_s = self._progress.clock()
        width, height = self._console.size
        self._live.update(table(self._progress, width, height), refresh=True)


class LogView:
    """Lines: when a trial starts, at each quarter, when it ends, and now and then between.

    Now and then is 10 seconds for a trial and a minute for all of them, or a twentieth of the age
    when that is longer, so that a night's log can still be read.
    """

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress, self._console = progress, console
        # State and where it resumed, quarter, and time of the last line.
        self._last: dict[str, tuple[tuple[str, int], int, float]] = {}
        self._started_s: dict[str, float] = {}
        self._headed_s = 0.0  # when the header was printed last

    def __enter__(self) -> Self:
        self._print(header(self._progress))
        return self

    def __exit__(self, *error: Any) -> None:
        self._print(header(self._progress))

    def changed(self, trial: TrialProgress) -> None:
        """Print the trial's line if it is time."""
        now, trial_id = self._progress.clock(), trial.work.id
        state, quarter, printed_s = self._last.get(trial_id, (("", 0), 0, now))
        here = (trial.state, trial.from_step)
        age_s = now - self._started_s.setdefault(trial_id, now)
        reached = int(trial.fraction * 4)
        due = now - printed_s >= max(LOG_INTERVAL_S, age_s / 20)
        if here != state or reached > quarter or due:
            self._last[trial_id] = (here, reached, now)
            self._print(line(trial, now))

    def tick(self) -> None:
        """Print the header if it is time."""
        elapsed_s = self._progress.elapsed_s
        if elapsed_s - self._headed_s >= max(HEADER_INTERVAL_S, elapsed_s / 20):
            self._headed_s = elapsed_s
            self._print(header(self._progress))

    def _print(self, text: str) -> None:
        stamp = f"[{duration(self._progress.elapsed_s)}]"
        self._console.print(Text(f"{stamp} {text}"), soft_wrap=True)


def open_view(progress: Progress, console: Console | None = None) -> View:
    """A table on a terminal, else a log."""
    console = console or Console(stderr=True)
    live = console.is_terminal and not console.is_dumb_terminal
    return TerminalView(progress, console) if live else LogView(progress, console)


def header(progress: Progress) -> str:
    """Totals, time elapsed and time left, in one line."""
    total = len(progress.trials)
    counts = ", ".join(f"{n} {state}" for state, n in progress.counts.items() if n)
    text = f"{total} trial{'s' * (total != 1)}: {counts}   {duration(progress.elapsed_s)} elapsed"
    left = progress.left_s if progress.unfinished else None
    return text if left is None else f"{text}   about {duration(left)} left"


def line(trial: TrialProgress, now: float) -> str:
    """One trial as a line of a log."""
    words = [trial.work.id, trial.state]
    if trial.work.steps and trial.state != "pending":
        words.append(f"step {_steps(trial)}")
    if trial.from_step:
        words.append(f"resumed at {trial.from_step}")
    if trial.loss is not None:
        words.append(f"loss {trial.loss:.4f}")
    if trial.examples_per_s is not None:
        words.append(f"{trial.examples_per_s:,.1f} examples/s")
    if (left := trial.left_s(now)) is not None:
        words.append(f"{duration(left)} left")
    if trial.reason:
        words.append(trial.reason)
    return "  ".join(words)


def table(progress: Progress, width: int, height: int) -> RenderableType:
    """The header and a row a trial, those that run first, cut to the size of the terminal.

    Narrow terminals lose the columns on the right; short ones the trials at the foot, which a last
    line counts.
    """
    now = progress.clock()
    trials = sorted(progress.trials.values(), key=lambda trial: STATES.index(trial.state))
    room = max(1, height - 3)
    shown = trials if len(trials) <= room else trials[: max(1, room - 1)]
    columns = [column for column in COLUMNS if width >= column.from_width]
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        right = "right" if column.right else "left"
        grid.add_column(column.title, justify=right, no_wrap=True)  # type: ignore[arg-type]
    for trial in shown:
        cells = [column.cell(trial, now) for column in columns]
        grid.add_row(*cells, style=STYLES.get(trial.state))
    parts: list[RenderableType] = [_cropped(header(progress)), grid]
    if hidden := Counter(trial.state for trial in trials[len(shown) :]):
        counts = ", ".join(f"{n} {state}" for state, n in hidden.items())
        parts.append(_cropped(f"and {counts}"))
    return Group(*parts)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds, as 1:02:03.

    >>> duration(3723.4)
    '1:02:03'
    """
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{second:02d}"


def _steps(trial: TrialProgress) -> str:
    return f"{trial.step:,}/{trial.work.steps:,}" if trial.work.steps else "-"


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)


def _left(trial: TrialProgress, now: float) -> str:
    left = trial.left_s(now)
    return "-" if left is None else duration(left)


def _cropped(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


class Column(NamedTuple):
    """A column of the table, shown on terminals at least `from_width` wide."""

    title: str
    right: bool
    from_width: int
    cell: Callable[[TrialProgress, float], str]


COLUMNS = (
    Column("trial", False, 0, lambda trial, now: trial.work.id),
    Column("state", False, 0, lambda trial, now: trial.state),
    Column("step", True, 54, lambda trial, now: _steps(trial)),
    Column("loss", True, 62, lambda trial, now: _number(trial.loss, ".4f")),
    Column("examples/s", True, 80, lambda trial, now: _number(trial.examples_per_s, ",.1f")),
    Column("left", True, 70, lambda trial, now: _left(trial, now)),
)
