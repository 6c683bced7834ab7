"""One child at a time: what hangs or dies is killed, recorded, and the next one starts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ray_ablation.latency.lease import Lease, LeaseError, _choose_node, _what_to_hold, hold
from ray_ablation.latency.process import run_child

ROOT = Path(__file__).resolve().parents[1]


def run_python(code: str, folder: Path, limit_s: float = 30.0):
    return run_child([sys.executable, "-c", code], dict(os.environ), limit_s, folder / "log.txt")


def gone(pid: int, within_s: float) -> bool:
    """Whether a process ends in that time."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_a_child_that_hangs_is_killed_with_its_own_children_and_the_next_one_runs(tmp_path):
    code = (
        "import subprocess, sys, time, pathlib\n"
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(grandchild.pid))\n"
        "time.sleep(60)"
    )
    outcome = run_python(code, tmp_path, limit_s=2.0)
    assert outcome.error == "killed after 2 s, its limit"
    assert 2.0 <= outcome.seconds < 5.0
    assert gone(int((tmp_path / "pid").read_text()), within_s=5)
    assert run_python("pass", tmp_path).error is None


def test_a_child_that_dies_is_recorded_with_its_last_words(tmp_path):
    killed = run_python("import os; os.kill(os.getpid(), 9)", tmp_path)
    assert killed.error == "killed by SIGKILL: it said nothing"
    raised = run_python("raise MemoryError('no room')", tmp_path)
    assert raised.error == "ended with exit code 1: MemoryError: no room"


def test_a_child_without_a_sound_spec_says_so(tmp_path):
    command = [sys.executable, "-m", "ray_ablation.latency.child", str(tmp_path)]
    (tmp_path / "spec.json").write_text('{"unit": 0}')
    outcome = run_child(command, Lease("cpu")._environment(), 60.0, tmp_path / "log.txt")
    assert outcome.error == f"ended with exit code 2: no sound spec.json in {tmp_path}"


def test_children_inherit_only_what_is_listed(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "5")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    environment = Lease("cpu")._environment()
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert "MKL_DEBUG_CPU_TYPE" not in environment
    assert Lease("cuda")._environment()["CUDA_VISIBLE_DEVICES"] == "3"


def start_driver(code: str) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code], env=environment)


def pid_in(file: Path, within_s: float = 30.0) -> int:
    """The number in a file that another process is about to write."""
    until = time.monotonic() + within_s
    while not file.exists() or not file.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)
    return int(file.read_text())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills with the parent")
def test_a_child_does_not_outlive_a_killed_parent(tmp_path):
    child = (
        "import os, sys, time\n"
        "from ray_ablation.latency.child import die_with_parent\n"
        "die_with_parent(int(sys.argv[1]))\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    driver = start_driver(
        "import os, subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}, str(os.getpid())]).wait()"
    )
    try:
        pid = pid_in(tmp_path / "pid")
        driver.send_signal(signal.SIGKILL)
        assert gone(pid, within_s=5)
    finally:
        driver.kill()
        driver.wait()


def test_ctrl_c_in_the_driver_kills_the_child(tmp_path):
    child = (
        "import os, time\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(60)"
    )
    driver = start_driver(
        "import os, pathlib, sys\n"
        "from ray_ablation.latency.process import run_child\n"
        f"run_child([sys.executable, '-c', {child!r}], dict(os.environ), 60.0,\n"
        f"          pathlib.Path({str(tmp_path / 'log')!r}))"
    )
    try:
        pid = pid_in(tmp_path / "pid")
        driver.send_signal(signal.SIGINT)
        assert gone(pid, within_s=5)
        assert driver.wait(timeout=5) != 0
    finally:
        driver.kill()
        driver.wait()


def test_local_holds_this_machine():
    with hold("cpu", local=True) as holder:
        node = holder.node()
    assert (node["device"], node["cpus"], node["gpu"]) == ("cpu", os.cpu_count(), None)


def alive(address: str, **resources: float) -> dict:
    node = {"Alive": True, "NodeManagerAddress": address, "NodeID": address}
    return node | {"Resources": resources}


def test_the_node_under_test_has_a_gpu_unless_the_device_is_cpu():
    nodes = [alive("10.0.0.3", CPU=64), alive("10.0.0.2", CPU=8, GPU=4), alive("10.0.0.1", CPU=8)]
    nodes.append({**alive("10.0.0.0", CPU=96, GPU=8), "Alive": False})
    assert _choose_node(nodes, "auto")["NodeID"] == "10.0.0.2"
    assert _choose_node(nodes, "cuda")["NodeID"] == "10.0.0.2"
    assert _choose_node(nodes, "cpu")["NodeID"] == "10.0.0.3"
    assert _choose_node(nodes[2:], "auto")["NodeID"] == "10.0.0.1"
    with pytest.raises(LeaseError, match="device is cuda and none of the cluster's 1 nodes"):
        _choose_node(nodes[2:], "cuda")


def test_the_grid_names_the_node_by_accelerator_or_label():
    nodes = [
        alive("10.0.0.1", CPU=64, GPU=8) | {"Labels": {"ray.io/accelerator-type": "A100"}},
        alive("10.0.0.2", CPU=8, GPU=1, **{"accelerator_type:H100": 1.0}),
        alive("10.0.0.3", CPU=8) | {"Labels": {"rack": "7"}},
    ]
    assert _choose_node(nodes, "auto", "H100")["NodeID"] == "10.0.0.2"
    assert _choose_node(nodes, "auto", "A100")["NodeID"] == "10.0.0.1"
    assert _choose_node(nodes, "auto", {"rack": "7"})["NodeID"] == "10.0.0.3"
    with pytest.raises(LeaseError, match="device is cuda and none of the cluster's 1 nodes"):
        _choose_node(nodes, "cuda", {"rack": "7"})
    found = "there is accelerator type H100, rack: 7, ray.io/accelerator-type: A100"
    with pytest.raises(LeaseError, match=f"latency.node is T4, which none .* 3 nodes has; {found}"):
        _choose_node(nodes, "auto", "T4")
    with pytest.raises(LeaseError, match="no node with CPUs"):
        _choose_node([], "auto")


def test_all_of_a_node_is_held_or_one_gpu_of_it():
    resources = {"CPU": 64.0, "GPU": 8.0, "memory": 1e9}
    assert _what_to_hold(resources, "node") == {"CPU": 64.0, "GPU": 8.0}
    assert _what_to_hold(resources, "gpu") == {"CPU": 1.0, "GPU": 1.0}
    assert _what_to_hold({"CPU": 2.0}, "gpu") == {"CPU": 2.0}
