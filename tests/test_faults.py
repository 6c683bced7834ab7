"""Faults on a real Ray of several nodes: something is really killed, and the study still ends well.

Each test kills one thing by a signal to a process that the test itself started, then compares the
weights with those of an undisturbed run and adds a row to the table that is printed at the end.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from ray._private.node import Node
from ray.cluster_utils import Cluster

from ray_ablation import cluster, tune
from ray_ablation.atomic import read_json
from ray_ablation.grid import Grid, load
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Execution
from tiny import benchmark, hard_negatives, tiny_bert

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[1]
STEPS, EVERY = 600, 25
HEAD = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False}
ROWS: list[str] = []


# What the tests share


@pytest.fixture(scope="module", autouse=True)
def table(request):
    """The table of all faults, printed when the last is over."""
    yield
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{'fault':34}{'caused by':26}{'noticed':>9}{'steps lost':>12}  weights equal")
        print(*ROWS, sep="\n")


def add_row(fault: str, cause: str, noticed_s: float | None, lost: int | None, equal: bool) -> None:
    noticed = "-" if noticed_s is None else f"{noticed_s:.1f} s"
    steps = "-" if lost is None else str(lost)
    ROWS.append(f"{fault:34}{cause:26}{noticed:>9}{steps:>12}  {'yes' if equal else 'NO'}")


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    tiny_bert(root / "bert", dropout=0.1)
    hard_negatives(root / "triples")
    benchmark(root / "words")
    return root


def make_grid(folder: Path, sources: Path, trials: int = 2, **execution: object) -> Grid:
    settings = {"device": "cpu", "checkpoint_every_steps": EVERY, "log_every_steps": 5}
    text = f"""
        name: faults
        axes: {{seed: {list(range(trials))}}}
        fixed:
          {{backbone: tiny, depth: 2, train_set: msmarco-hard-negatives, samples: 40, held_out: 4,
           max_length: 32, precision: fp32, batch: 8, steps: {STEPS}}}
        benchmarks: [words]
        paths: {{words: {sources / "words"}, tiny: {sources / "bert"},
                msmarco-hard-negatives: {sources / "triples"}}}
        execution: {json.dumps(settings | execution)}
    """
    folder.mkdir(exist_ok=True)
    (folder / "grid.yaml").write_text(dedent(text))
    return load(folder / "grid.yaml")


@pytest.fixture(scope="module")
def undisturbed(sources, tmp_path_factory) -> dict[str, str]:
    """sha256 of the weights that each trial ends with, by id, trained in this process."""
    from ray_ablation.train import train_trial

    folder = tmp_path_factory.mktemp("whole")
    grid, ledger = make_grid(folder, sources, trials=4), Ledger(folder / "results")
    records = [train_trial(t, grid.sources(), ledger, grid.execution) for t in grid.trials]
    return {record["id"]: record["result"]["encoder_sha256"] for record in records}


def weights(grid: Grid, ledger: Ledger) -> dict[str, str]:
    return {t.id: ledger.trained(t)["result"]["encoder_sha256"] for t in grid.trials}


def same(grid: Grid, ledger: Ledger, undisturbed: dict[str, str]) -> bool:
    return all(undisturbed[i] == found for i, found in weights(grid, ledger).items())


def lost_steps(grid: Grid, ledger: Ledger) -> int:
    """Steps that were executed twice."""
    attempts = [ledger.trained(trial)["attempts"] for trial in grid.trials]
    return sum(
        a["to_step"] - b["from_step"] for of_trial in attempts for a, b in pairwise(of_trial)
    )


def running(ledger: Ledger, trial_id: str) -> dict | None:
    """The attempt under way, once it is past its second checkpoint."""
    attempts = (read_json(ledger.checkpoints_dir(trial_id) / "attempts.json") or {}).get("attempts")
    return attempts[-1] if attempts and attempts[-1]["to_step"] > 2.2 * EVERY else None


def wait_for(condition: Callable[[], object], timeout_s: float = 120.0) -> object:
    end = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
    return found


def kill_mine(pid: int) -> None:
    """Kill a process that descends from this one, and no other."""
    assert any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents()), pid
    os.kill(pid, signal.SIGKILL)


def kill_daemon(node: Node, name: str) -> None:
    """Kill a process of Ray's; as a zombie it would look alive to those that watch it."""
    process = node.all_processes[name][0].process
    kill_mine(process.pid)
    process.wait()


@contextmanager
def nodes(*cpus: int, **head: object) -> Iterator[Cluster]:
    """A head that runs no trial and nodes of so many CPUs; this process is connected."""
    found = Cluster(initialize_head=True, head_node_args=HEAD | head)
    try:
        for count in cpus:
            found.add_node(num_cpus=count, num_gpus=0)
        with cluster.start_ray(Execution(), address=found.address):
            yield found
    finally:
        found.shutdown()


@dataclass
class Scene:
    """A view that shows nothing: it lets the fault happen once it is time, and notes states."""

    time_has_come: Callable[[], object] = lambda: None
    fault: Callable[[object], object] = lambda found: None
    happened: float | None = None
    states: list[tuple[float, str]] = field(default_factory=list)

    def __call__(self, progress):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def changed(self, trial):
        self.states.append((time.monotonic(), trial.state))

    def tick(self):
        if self.happened is None and (found := self.time_has_come()):
            self.fault(found)
            self.happened = time.monotonic()

    def seconds_to(self, state: str) -> float:
        """From the fault to the first trial in that state."""
        assert self.happened, "the study was over before the fault happened"
        return min(at for at, found in self.states if found == state and at > self.happened) - (
            self.happened
        )


# What is lost


def test_a_worker_is_killed(sources, undisturbed, tmp_path):
    grid, ledger = make_grid(tmp_path, sources, max_failures=0), Ledger(tmp_path / "results")
    first = grid.trials[0].id
    scene = Scene(lambda: running(ledger, first), lambda attempt: kill_mine(attempt["pid"]))
    with nodes(2):
        assert tune.train(grid, grid.trials, ledger, view=scene) == []
    assert same(grid, ledger, undisturbed)
    lost = lost_steps(grid, ledger)
    assert 0 <= lost <= EVERY + 10
    noticed_s = scene.seconds_to("retrying")
    add_row("worker process killed", "SIGKILL, its pid", noticed_s, lost, True)


def test_a_node_is_lost(sources, undisturbed, tmp_path):
    grid, ledger = make_grid(tmp_path, sources, max_failures=0), Ledger(tmp_path / "results")
    first = grid.trials[0].id
    with nodes(1, 1) as found:

        def kill(attempt: dict) -> None:
            by_id = {node.node_id: node for node in found.list_all_nodes()}
            kill_daemon(by_id[attempt["node_id"]], "raylet")

        scene = Scene(lambda: running(ledger, first), kill)
        assert tune.train(grid, grid.trials, ledger, view=scene) == []
    assert same(grid, ledger, undisturbed)
    assert lost_steps(grid, ledger) <= EVERY + 10
    where = [attempt["node_id"] for attempt in ledger.trained(grid.trials[0])["attempts"]]
    assert len(set(where)) == 2
    lost = lost_steps(grid, ledger)
    add_row("node lost", "SIGKILL, its raylet", scene.seconds_to("retrying"), lost, True)


def test_a_node_that_is_added_is_used(sources, undisturbed, tmp_path):
    grid, ledger = make_grid(tmp_path, sources, trials=4), Ledger(tmp_path / "results")
    with nodes(1) as found:
        scene = Scene(
            lambda: any(running(ledger, trial.id) for trial in grid.trials),
            lambda _: found.add_node(num_cpus=1, num_gpus=0),
        )
        assert tune.train(grid, grid.trials, ledger, view=scene) == []
    assert same(grid, ledger, undisturbed)
    used = {ledger.trained(trial)["execution"]["node_id"] for trial in grid.trials}
    assert len(used) == 2
    add_row("node added", "Cluster.add_node", None, 0, True)


DRIVER = """
import sys
from pathlib import Path
from ray_ablation import cluster, tune
from ray_ablation.grid import load
from ray_ablation.ledger import Ledger

grid = load("grid.yaml")
try:
    with cluster.start_ray(grid.execution, address=sys.argv[1]):
        failures = tune.train(grid, grid.trials, Ledger(Path("results")))
except KeyboardInterrupt:
    sys.exit(130)
print(*failures, sep="\\n")
sys.exit(bool(failures))
"""


def start_driver(folder: Path, address: str) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, address],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_the_driver_is_killed_and_started_again_at_once(sources, undisturbed, tmp_path, sent):
    """Its worker still writes when the next one begins; the trial's lock keeps them apart."""
    grid, ledger = make_grid(tmp_path, sources), Ledger(tmp_path / "results")
    first = grid.trials[0].id
    with nodes(2) as found:
        driver = start_driver(tmp_path, found.address)
        attempt = wait_for(lambda: running(ledger, first))
        os.kill(driver.pid, sent)
        code = driver.wait(timeout=60)
        assert code == (130 if sent == signal.SIGINT else -signal.SIGKILL)
        assert ledger.read_trial(first) is None
        alive = psutil.pid_exists(attempt["pid"])
        assert tune.train(grid, grid.trials, ledger, view=Scene()) == []
    assert same(grid, ledger, undisturbed)
    lost = lost_steps(grid, ledger)
    assert lost <= EVERY + 100  # the worker may go on for seconds
    what = f"driver killed, worker {'still alive' if alive else 'gone'}"
    what = what if sent == signal.SIGKILL else "Ctrl-C"
    add_row(what, f"{sent.name}, driver's pid", None, lost, True)


def test_the_head_is_killed_and_a_new_cluster_goes_on(sources, undisturbed, tmp_path):
    grid, ledger = make_grid(tmp_path, sources), Ledger(tmp_path / "results")
    first = grid.trials[0].id
    old = Cluster(initialize_head=True, head_node_args=HEAD)
    address = old.address
    try:
        old.add_node(num_cpus=2, num_gpus=0)
        driver = start_driver(tmp_path, old.address)
        wait_for(lambda: running(ledger, first))
        for name in ("gcs_server", "raylet"):
            kill_daemon(old.head_node, name)
        at = time.monotonic()
        said, _ = driver.communicate(timeout=180)
        noticed = time.monotonic() - at
    finally:
        old.shutdown()
    assert driver.returncode == 1, said
    assert f"the head of the Ray cluster at {address} is gone" in said, said
    assert noticed < 30
    with nodes(2):
        assert tune.train(grid, grid.trials, ledger, view=Scene()) == []
    assert same(grid, ledger, undisturbed)
    lost = lost_steps(grid, ledger)
    add_row("head killed, new cluster", "SIGKILL, gcs and raylet", noticed, lost, True)


# What is damaged or full


def test_a_truncated_checkpoint_gives_way_to_the_one_before(sources, undisturbed, tmp_path):
    grid, ledger = make_grid(tmp_path, sources, trials=1), Ledger(tmp_path / "results")
    folder = ledger.checkpoints_dir(grid.trials[0].id)
    with nodes(1) as found:
        driver = start_driver(tmp_path, found.address)
        attempt = wait_for(lambda: running(ledger, grid.trials[0].id))
        driver.kill()
        driver.wait()
        wait_for(lambda: not psutil.pid_exists(attempt["pid"]))
        before, newest = sorted(folder.glob("step-*"))[-2:]
        file = newest / "optimizer.safetensors"
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        assert tune.train(grid, grid.trials, ledger, view=Scene()) == []
    assert same(grid, ledger, undisturbed)
    attempts = ledger.trained(grid.trials[0])["attempts"]
    assert attempts[-1]["from_step"] == int(before.name[5:])
    lost = lost_steps(grid, ledger)
    add_row("checkpoint truncated", "half of its file", None, lost, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_storage_root_is_a_named_failure_and_room_heals_it(sources, undisturbed, tmp_path):
    root = tmp_path / "small"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(root)], check=True)
    try:
        grid, ledger = make_grid(tmp_path, sources), Ledger(root)
        filler = root / "filler"

        def fill(_: dict) -> None:
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while True:
                    file.write(bytes(4096))

        scene = Scene(lambda: running(ledger, grid.trials[0].id), fill)
        with nodes(2):
            at_first: list | str
            try:
                at_first = tune.train(grid, grid.trials, ledger, view=scene)
            except OSError as error:  # of Tune's own files; the command answers it with its errno
                at_first = str(error)
            assert "No space left on device" in str(at_first)
            filler.unlink()
            assert tune.train(grid, grid.trials, ledger, view=Scene()) == []
        assert same(grid, ledger, undisturbed)
        add_row("storage root full", "ENOSPC on a tmpfs", None, lost_steps(grid, ledger), True)
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)


def test_rays_memory_monitor_kills_a_worker(sources, tmp_path, monkeypatch):
    """Its error is one that Tune does not know: `fit` raises, and is called again."""
    grid, ledger = make_grid(tmp_path, sources, trials=2), Ledger(tmp_path / "results")
    total, used = psutil.virtual_memory().total, psutil.virtual_memory().used
    hog, mark = int(7e9), tmp_path / "hogged"

    def train_trial(trial, sources, ledger, execution, report, where):
        import numpy as np

        report({"step": 1, "steps": trial.steps})
        if trial.seed == 0 and not mark.exists():
            mark.touch()
            held = np.ones(hog, dtype=np.uint8)
            time.sleep(60)
            del held
        ledger.model_dir(trial.id).mkdir(parents=True)
        (ledger.model_dir(trial.id) / "weights").write_text(trial.id)
        return ledger.finish_trial(trial, {"result": {}, "execution": where})

    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{(used + 4e9) / total:.3f}")
    found = Cluster(initialize_head=True, head_node_args=HEAD)
    try:
        found.add_node(num_cpus=2, num_gpus=0)
        with cluster.start_ray(Execution(), address=found.address):
            began = time.monotonic()
            failures = tune.train(grid, grid.trials, ledger, view=Scene(), train_trial=train_trial)
            took = time.monotonic() - began
    finally:
        found.shutdown()
    assert failures == []
    assert mark.exists()
    assert took < 50  # killed, not slept through
    assert all(ledger.read_trial(trial.id) for trial in grid.trials)
    add_row("memory monitor killed a worker", "7 GB, 4 are allowed", None, None, True)


# What evaluates and what profiles


def worker_of(found: Cluster, title: str) -> int | None:
    """The pid of a worker of this cluster whose title begins so."""
    for node in found.list_all_nodes():
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        for child in raylet.children(recursive=True):
            with suppress(psutil.Error):
                if child.name().startswith(title) or child.cmdline()[:1] == [title]:
                    return child.pid
    return None


def once(condition: Callable[[], int | None], act: Callable[[int], None]) -> threading.Thread:
    thread = threading.Thread(target=lambda: act(wait_for(condition)), daemon=True)
    thread.start()
    return thread


def test_an_evaluation_actor_is_killed(sources, tmp_path):
    from ray_ablation.evaluate import evaluate
    from ray_ablation.train import train_trial

    grid = make_grid(tmp_path, sources, trials=1, evaluate="ray", shards=8, evaluators=2)
    [trial] = grid.trials
    scores = {}
    for name in ("undisturbed", "disturbed"):
        ledger = Ledger(tmp_path / name)
        train_trial(trial, grid.sources(), ledger, grid.execution)
        with nodes(2, 1) as found:
            if name == "disturbed":
                killing = once(lambda: worker_of(found, "ray::MapWorker"), kill_mine)
            failures = evaluate(grid, grid.trials, ledger, benchmarks=grid.benchmarks, say=print)
        assert failures == []
        scores[name] = ledger.read_scores(trial.id, "words")[0]
    killing.join(timeout=1)
    assert not killing.is_alive()
    assert scores["disturbed"].equals(scores["undisturbed"])
    add_row("evaluation actor killed", "SIGKILL, its pid", None, None, True)


def test_the_profiling_actor_is_killed(tmp_path):
    from ray_ablation.latency.lease import LeaseError, hold

    with nodes(2) as found, hold("cpu", local=False) as held:
        assert held.node()["device"] == "cpu"
        kill_mine(worker_of(found, "ray::Lease"))
        at = time.monotonic()
        with pytest.raises(LeaseError, match="the lease was lost"):
            held.wait_quiet(20.0)
        noticed = time.monotonic() - at
    assert noticed < 20
    add_row("profiling actor killed", "SIGKILL, its pid", noticed, None, True)
