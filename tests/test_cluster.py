"""What fits and what is said otherwise; starting Ray is tested where it is used, in test_tune."""

import os
import socket
import time

import pytest

from ray_ablation import cluster
from ray_ablation.cluster import ClusterError, check_fits, needs, slots, start_ray
from ray_ablation.settings import Execution

CPU_NODE = {"CPU": 64.0, "memory": 1e9}
GPU_NODE = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9}


def test_a_trial_holds_gpus_only_on_cuda():
    execution = Execution(device="cuda", cpus_per_trial=3, gpus_per_trial=0.5)
    assert needs(execution) == {"CPU": 3.0, "GPU": 0.5}
    assert needs(execution.model_copy(update={"device": "cpu"})) == {"CPU": 3.0}


@pytest.mark.parametrize(
    ("wanted", "nodes", "fit"),
    [
        ({"CPU": 1.0}, [CPU_NODE], 64),
        ({"CPU": 3.0}, [GPU_NODE, GPU_NODE], 4),  # two on each, two CPUs idle on each
        ({"CPU": 1.0, "GPU": 1.0}, [GPU_NODE, CPU_NODE], 2),
        ({"CPU": 5.0, "GPU": 1.0}, [GPU_NODE], 1),  # CPUs bind
        ({"CPU": 1.0, "GPU": 0.5}, [GPU_NODE], 4),
    ],
)
def test_slots_count_what_fits_at_a_time(wanted, nodes, fit):
    check_fits(wanted, nodes)
    assert slots(wanted, nodes) == fit


@pytest.mark.parametrize(
    ("wanted", "nodes", "message"),
    [
        (
            {"CPU": 65.0},
            [CPU_NODE, GPU_NODE],
            "a trial holds 65 CPUs (execution.cpus_per_trial), but the biggest of 2 nodes has 64; "
            "set execution.cpus_per_trial to at most 64, or start a bigger node",
        ),
        (
            {"CPU": 16.0, "GPU": 1.0},
            [CPU_NODE, GPU_NODE],
            "a trial holds 16 CPUs (execution.cpus_per_trial), but the biggest of 1 node with "
            "enough GPUs has 8; set execution.cpus_per_trial to at most 8, or start a bigger node",
        ),
        (
            {"CPU": 1.0, "GPU": 4.0},
            [CPU_NODE, GPU_NODE],
            "a trial holds 4 GPUs (execution.gpus_per_trial), but the biggest of 2 nodes has 2; "
            "set execution.gpus_per_trial to at most 2, or start a bigger node",
        ),
        (
            {"CPU": 1.0, "GPU": 1.0},
            [CPU_NODE],
            "execution.device is cuda, but no node of this cluster (1 node) has a GPU; set "
            "execution.device to cpu, or start nodes with GPUs (where an autoscaler brings them: "
            "--wait-for-nodes 1)",
        ),
    ],
)
def test_what_no_node_can_hold_is_refused(wanted, nodes, message):
    with pytest.raises(ClusterError) as refused:
        check_fits(wanted, nodes)
    assert str(refused.value) == message


def test_an_address_nobody_answers_at_is_refused_in_seconds():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        began = time.monotonic()
        with (
            pytest.raises(ClusterError, match=f"no Ray cluster answers at {address}"),
            start_ray(Execution(), address=address),
        ):
            pass
    assert time.monotonic() - began < 6


def test_workers_get_what_reproducibility_needs(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = cluster.worker_environment(Execution(cpus_per_trial=3))
    assert found["OMP_NUM_THREADS"] == "3"
    assert found["PYTHONHASHSEED"] == "0"
    assert found["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert found["HF_HUB_OFFLINE"] == "1"
    root, other = found["PYTHONPATH"].split(os.pathsep)
    assert os.path.isfile(os.path.join(root, "ray_ablation", "cluster.py"))
    assert other == "/somewhere"


def test_environment_is_put_back(monkeypatch):
    monkeypatch.setenv("ABLATION_A", "before")
    monkeypatch.delenv("ABLATION_B", raising=False)
    with cluster.environment({"ABLATION_A": "inside", "ABLATION_B": "inside"}):
        assert (os.environ["ABLATION_A"], os.environ["ABLATION_B"]) == ("inside", "inside")
    assert os.environ["ABLATION_A"] == "before"
    assert "ABLATION_B" not in os.environ
