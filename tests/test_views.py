import io

import pytest
from rich.console import Console

from ray_ablation.progress import Progress, Work
from ray_ablation.views import LogView, TerminalView, duration, header, open_view, table


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def make(clock, trials: int = 3) -> Progress:
    works = [Work(f"L12-b32-20k-s{40 + i}-3f9ac1d{i}", 20_000, 1.0) for i in range(trials)]
    return Progress(works, clock)


def run_second(progress: Progress, clock: Clock) -> str:
    """The second trial at step 8,200 after 120 s, of which 60 at 100 steps a second."""
    trial = list(progress.trials)[1]
    progress.started(trial)
    clock.now = 60.0
    progress.reported(trial, {"step": 2_200})
    clock.now = 120.0
    progress.reported(trial, {"step": 8_200, "loss": 0.43124, "examples_per_s": 3200.04})
    return trial


def drawn(progress: Progress, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(table(progress, width, height))
    return console.file.getvalue().rstrip("\n").split("\n")


def test_table_has_a_line_a_trial_running_first(clock):
    progress = make(clock)
    run_second(progress, clock)
    progress.finished(list(progress.trials)[2])
    lines = [line.rstrip() for line in drawn(progress)]
    assert lines == [
        "3 trials: 1 running, 1 pending, 1 done   0:02:00 elapsed   about 0:05:18 left",
        "trial                     state            step    loss  examples/s     left",
        "L12-b32-20k-s41-3f9ac1d1  running  8,200/20,000  0.4312     3,200.0  0:01:58",
        "L12-b32-20k-s40-3f9ac1d0  pending      0/20,000       -           -        -",
        "L12-b32-20k-s42-3f9ac1d2  done         0/20,000       -           -        -",
    ]


@pytest.mark.parametrize("width", [40, 54, 62, 70, 80, 200])
@pytest.mark.parametrize("height", [5, 10, 24])
def test_table_fits_the_terminal(clock, width, height):
    progress = make(clock, trials=40)
    run_second(progress, clock)
    lines = drawn(progress, width, height)
    assert len(lines) < height  # the cursor takes the last line
    assert all(len(line) <= width for line in lines)
    assert "running" in lines[2]
    assert ("examples/s" in lines[1]) == (width >= 80)


def test_short_terminal_counts_what_it_hides(clock):
    progress = make(clock, trials=20)
    run_second(progress, clock)
    progress.finished(list(progress.trials)[7])
    lines = drawn(progress, height=10)
    assert len(lines) == 9
    assert lines[-1].rstrip() == "and 13 pending, 1 done"


def log(progress: Progress, clock: Clock) -> tuple[LogView, io.StringIO]:
    console = Console(file=io.StringIO(), width=40)
    return LogView(progress, console), console.file


def test_log_is_sparse_between_quarters(clock):
    progress = make(clock, trials=1)
    view, file = log(progress, clock)
    [trial] = progress.trials
    with view:
        progress.started(trial)
        view.changed(progress.trials[trial])
        for step in range(100, 20_001, 100):  # 2 s each, 400 s in all
            clock.now += 2
            progress.reported(trial, {"step": step, "loss": 0.5})
            view.changed(progress.trials[trial])
        progress.finished(trial)
        view.changed(progress.trials[trial])
    lines = file.getvalue().splitlines()
    assert lines[0] == "[0:00:00] 1 trial: 1 pending   0:00:00 elapsed"
    assert lines[1] == "[0:00:00] L12-b32-20k-s40-3f9ac1d0  running  step 0/20,000"
    assert "[0:00:10] L12-b32-20k-s40-3f9ac1d0  running  step 500/20,000  loss 0.5000" in lines[2]
    assert lines[-2].startswith("[0:06:40] L12-b32-20k-s40-3f9ac1d0  done  step 20,000/20,000")
    assert lines[-1] == "[0:06:40] 1 trial: 1 done   0:06:40 elapsed"
    for quarter in ("5,000", "10,000", "15,000"):
        assert any(f"step {quarter}/20,000" in line for line in lines)
    assert 30 < len(lines) < 45  # about one in 10 s, then one in a twentieth of the age


def test_log_says_when_all_will_be_done(clock):
    progress = make(clock)
    view, file = log(progress, clock)
    with view:
        run_second(progress, clock)
        view.tick()
        view.tick()
    said = [line for line in file.getvalue().splitlines() if "about" in line]
    assert said[0] == (
        "[0:02:00] 3 trials: 1 running, 2 pending   0:02:00 elapsed   about 0:08:38 left"
    )
    assert len(said) == 2  # once by the tick, once at the end


def test_log_says_where_a_trial_went_on(clock):
    progress = make(clock, trials=1)
    (trial_id,) = progress.trials
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    view = LogView(progress, console)
    progress.started(trial_id)
    view.changed(progress.trials[trial_id])
    progress.reported(trial_id, {"step": 1_001, "from_step": 1_000, "loss": 0.5})
    view.changed(progress.trials[trial_id])
    lines = console.file.getvalue().splitlines()
    assert [line.partition("running")[2] for line in lines] == [
        "  step 0/20,000",
        "  step 1,001/20,000  resumed at 1000  loss 0.5000",
    ]


def test_log_gives_the_reason_of_a_failure(clock):
    progress = make(clock)
    view, file = log(progress, clock)
    trial = run_second(progress, clock)
    progress.retried(trial, "RuntimeError: once")
    view.changed(progress.trials[trial])
    progress.failed(trial, "RuntimeError: twice")
    view.changed(progress.trials[trial])
    retried, failed = file.getvalue().splitlines()
    assert retried.endswith(
        "retrying  step 8,200/20,000  loss 0.4312  3,200.0 examples/s  RuntimeError: once"
    )
    assert failed.endswith("RuntimeError: twice")


def terminal(**settings) -> Console:
    return Console(file=io.StringIO(), width=80, height=12, force_terminal=True, **settings)


def test_terminal_redraws_at_most_twice_a_second_and_keeps_reasons(clock):
    progress = make(clock)
    console = terminal()
    with TerminalView(progress, console) as view:
        trial = run_second(progress, clock)
        view.changed(progress.trials[trial])
        size = len(console.file.getvalue())
        clock.now += 0.4
        view.tick()
        assert len(console.file.getvalue()) == size
        clock.now += 0.1
        view.tick()
        assert len(console.file.getvalue()) > size
        progress.failed(trial, "RuntimeError: boom")
        view.changed(progress.trials[trial])
    assert f"{trial} failed: RuntimeError: boom" in console.file.getvalue()


def test_no_color_leaves_colours_out(clock, monkeypatch):
    def colours(console: Console) -> bool:
        progress = make(clock)
        with TerminalView(progress, console) as view:
            view.changed(progress.trials[run_second(progress, clock)])
        return "\x1b[36m" in console.file.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert colours(terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours(terminal())


def test_a_pipe_or_a_dumb_terminal_gets_a_log(clock, monkeypatch):
    progress = make(clock)
    assert isinstance(open_view(progress, Console(file=io.StringIO())), LogView)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_view(progress, terminal()), LogView)
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_view(progress, terminal()), TerminalView)


def test_header_of_finished_trials_has_no_time_left(clock):
    progress = make(clock, trials=1)
    progress.failed(next(iter(progress.trials)), "no")
    assert header(progress) == "1 trial: 1 failed   0:00:00 elapsed"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00:00"), (59.6, "0:01:00"), (3723.4, "1:02:03"), (1e6, "277:46:40")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text
