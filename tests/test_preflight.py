"""A real Ray of three nodes with pretended GPUs: what a preflight says of it, what runs where."""

import os
import time
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pandas as pd
import pytest
import ray
from ray.cluster_utils import Cluster

from ray_ablation import cluster, preflight, run, slot, tune
from ray_ablation.atomic import write_frame
from ray_ablation.cluster import ClusterError
from ray_ablation.grid import Grid, load
from ray_ablation.ledger import HeldError, Ledger
from ray_ablation.preflight import Needed
from ray_ablation.settings import Execution
from tiny import benchmark, hard_negatives, tiny_bert

CPU, CUDA = Execution(device="cpu"), Execution(device="cuda")


@pytest.fixture(scope="module")
def several_nodes():
    """A head without GPUs and two nodes with two each, labelled as a cloud labels H100s."""
    head = {"num_cpus": 1, "num_gpus": 0, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        nodes.add_node(num_cpus=3, num_gpus=2, labels={"ray.io/accelerator-type": "H100"})
    try:
        with cluster.start_ray(CPU, address=nodes.address):
            yield nodes
    finally:
        nodes.shutdown()


@pytest.fixture
def sound(several_nodes, tmp_path):
    return Needed(ledger=Ledger(tmp_path), sources={})


def gpu_nodes() -> list[dict]:
    return [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]


def make_grid(folder: Path, trials: int) -> Grid:
    (folder / "mine").mkdir()
    seeds = list(range(trials))
    (folder / "grid.yaml").write_text(
        dedent(
            f"""
            name: spread
            axes: {{seed: {seeds}, depth: [2, 1]}}
            fixed: {{backbone: bert-base-uncased, train_set: docstrings, steps: 4, batch: 2}}
            benchmarks: [mine]
            paths: {{mine: {folder / "mine"}}}
            execution: {{device: cuda}}
            """
        )
    )
    return load(folder / "grid.yaml")


def sleeping(events: Path, unit_s: float):
    """A trial that sleeps as long as it is deep, and notes when and where."""
    events.mkdir()

    def train_trial(trial, sources, ledger, execution, report, where):
        began = time.time()
        time.sleep(unit_s * trial.depth)
        report({"step": trial.steps, "steps": trial.steps, "loss": 1.0})
        ledger.model_dir(trial.id).mkdir(parents=True)
        write_frame(ledger.train_parquet(trial.id), pd.DataFrame({"step": [1]}), {})
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        note = {"id": trial.id, "began": began, "ended": time.time(), "seen": seen, **where}
        (events / trial.id).write_text(pd.Series(note).to_json())
        return ledger.finish_trial(trial, {"result": {}, "execution": where})

    return train_trial


def test_sound_nodes_pass_and_leave_no_probe(sound):
    found = preflight.check(CPU, sound)
    assert found.slots == 7
    assert found.line == "cluster: 3 nodes sound, 7 trials at a time (1 CPU each)"
    assert list(sound.ledger.root.iterdir()) == []


def test_pretended_gpus_do_not_pass_for_gpus_that_compute(sound):
    began = time.monotonic()
    with pytest.raises(ClusterError) as refused:
        preflight.check(CUDA, sound)
    assert time.monotonic() - began < preflight.LIMIT_S + 5
    lines = str(refused.value).splitlines()
    assert len(lines) == 2  # the head has none and needs none
    assert all("sees 0 of its 2 GPUs; mend its driver, or set execution.device" in s for s in lines)


def test_a_storage_root_that_is_not_shared_is_named_by_node(sound, monkeypatch):
    node = gpu_nodes()[0]["NodeID"]
    here = preflight.look

    def elsewhere(needed, token, name, gpus):
        return here(needed, token.parent / "local" / token.name if name == node else token, name, 0)

    monkeypatch.setattr(preflight, "look", elsewhere)
    with pytest.raises(ClusterError) as refused:
        preflight.check(CPU, sound)
    [line] = str(refused.value).splitlines()
    assert f"({node[:8]}) does not see what this process wrote there (No such file" in line
    assert (
        "mount one folder on all nodes, or name a place they share: --storage FOLDER or URI" in line
    )


def test_all_that_differs_is_said_at_once(sound, monkeypatch, tmp_path):
    node = gpu_nodes()[1]["NodeID"]
    here = preflight.look

    def older(needed, token, name, gpus):
        found = here(needed, token, name, 0)
        if name == node:
            versions = found["code"]["versions"] | {"torch": "1.0.0"}
            found["code"] = {"versions": versions, "sha256": "0" * 64}
        return found

    monkeypatch.setattr(preflight, "look", older)
    with pytest.raises(ClusterError) as refused:
        preflight.check(CPU, replace(sound, sources={"mine": tmp_path / "none"}))
    lines = str(refused.value).splitlines()
    assert sum(f"cannot reach {tmp_path / 'none'} (mine); give a place" in s for s in lines) == 3
    assert sum(f"({node[:8]}) has torch 1.0.0, here is" in s for s in lines) == 1
    assert sum(f"({node[:8]}) has training code 00000000, here is" in s for s in lines) == 1


def test_a_node_that_does_not_answer_is_named_within_the_limit(sound, monkeypatch):
    node = gpu_nodes()[0]["NodeID"]

    def hangs(needed, token, name, gpus):
        if name == node:
            time.sleep(600)
        raise OSError("no such device\nreally")

    monkeypatch.setattr(preflight, "look", hangs)
    began = time.monotonic()
    with pytest.raises(ClusterError) as refused:
        preflight.check(CPU, sound, limit_s=6)
    assert time.monotonic() - began < 12
    lines = str(refused.value).splitlines()
    assert sum(f"({node[:8]}) did not answer in time" in line for line in lines) == 1
    assert sum("cannot run our code: really; install the project" in line for line in lines) == 2


def test_waiting_for_nodes_ends_when_they_are_there_or_the_time_is_over(several_nodes):
    preflight.wait_for_nodes(CUDA, 2, limit_s=5)
    began = time.monotonic()
    with pytest.raises(
        ClusterError, match=r"after 1 s 2 of 3 nodes could hold a trial \(1 CPU and"
    ):
        preflight.wait_for_nodes(CUDA, 3, limit_s=1)
    assert time.monotonic() - began < 4
    assert ray.available_resources()["GPU"] == 4  # what was asked for is given back


def test_the_plan_of_a_cluster_is_checked_on_it(several_nodes, tmp_path, monkeypatch, capsys):
    tiny_bert(tmp_path / "bert", layers=1)
    hard_negatives(tmp_path / "triples")
    benchmark(tmp_path / "words")
    monkeypatch.chdir(tmp_path)
    text = """
        name: tiny
        axes: {seed: [1, 2]}
        fixed: {backbone: bert, depth: 1, samples: 40, held_out: 4, batch: 8, steps: 10,
                max_length: 24, precision: fp32}
        benchmarks: [words]
        paths: {bert: bert, words: words, msmarco-hard-negatives: triples}
        execution: {device: cpu, cpus_per_trial: 1}
    """
    Path("grid.yaml").write_text(dedent(text))
    asked = ["grid.yaml", "--plan", "--address", several_nodes.address]
    assert run.main(asked) == 0
    said = capsys.readouterr().out
    assert "cluster: 3 nodes sound, 7 trials at a time (1 CPU each)" in said
    assert "estimate: 2 trials with steps to do" in said
    Path("grid.yaml").write_text(dedent(text).replace("cpus_per_trial: 1", "cpus_per_trial: 9"))
    assert run.main(asked) == 2
    assert "the biggest of 3 nodes has 3; set execution.cpus_per_trial" in capsys.readouterr().err
    assert run.main(["grid.yaml", "--plan", "--gpus", "4"]) == 0  # without any cluster
    assert "2 trials with steps to do" in capsys.readouterr().out
    assert not list(Path("results").glob("trials/*"))


def test_a_task_that_holds_no_gpu_sees_none(several_nodes):
    @ray.remote(num_cpus=0)
    def visible():
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    node = gpu_nodes()[0]["NodeID"]
    at = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)
    assert ray.get(visible.options(scheduling_strategy=at).remote()) == ""
    assert ray.get(visible.options(scheduling_strategy=at, num_gpus=1).remote()) in ("0", "1")


def test_one_trial_a_gpu_over_all_nodes_longest_first(several_nodes, tmp_path):
    grid, ledger = make_grid(tmp_path, trials=4), Ledger(tmp_path / "results")
    train_trial = sleeping(tmp_path / "events", unit_s=1.0)
    assert tune.train(grid, grid.trials, ledger, train_trial=train_trial) == []
    notes = pd.DataFrame(
        [pd.read_json(file, typ="series") for file in (tmp_path / "events").iterdir()]
    ).sort_values("began")
    assert len(notes) == 8
    notes["gpu"] = [
        f"{node}:{ids[0]}" for node, ids in zip(notes.node_id, notes.gpu_ids, strict=True)
    ]
    assert notes.gpu.nunique() == 4
    assert (notes.gpu_ids.str[0] == notes.seen.astype(str)).all()
    for _, held in notes.groupby("gpu"):
        assert (held.began.iloc[1:].to_numpy() >= held.ended.iloc[:-1].to_numpy()).all()
    # The canary and the longest start before any other.
    depths = [ledger.read_trial(trial)["trial"]["depth"] for trial in notes.id]
    assert sorted(depths[:4]) == [1, 2, 2, 2]
    assert sorted(depths[4:]) == [1, 1, 1, 2]


def test_a_second_live_trial_on_a_gpu_is_refused():
    node = "f" * 56
    with slot.hold(["0"], node, share=1.0, timeout_s=0):
        with slot.hold(["1"], node, share=1.0, timeout_s=0):
            pass
        with (
            pytest.raises(HeldError, match=f"GPU {node[:16]}-0 is in use by another live trial"),
            slot.hold(["0"], node, share=1.0, timeout_s=0),
        ):
            pass
    half = {"node": node, "share": 0.5, "timeout_s": 0}
    with (
        slot.hold(["0"], **half),
        slot.hold(["0"], **half),
        pytest.raises(HeldError, match="wait for it, or stop it"),
        slot.hold(["0"], **half),
    ):
        pass
    with slot.hold([], node, share=1.0, timeout_s=0):  # a trial on a CPU holds none
        pass
