"""A study on object storage: nodes that share no folder do as one that has it all."""

import json
import shutil
from pathlib import Path

import pytest

import s3_server
from ray_ablation import run
from ray_ablation.ledger import Ledger
from ray_ablation.objects import Objects
from ray_ablation.settings import Execution
from ray_ablation.train import train_trial
from ray_ablation.trial import Trial
from tiny import benchmark, hard_negatives, tiny_bert

server, s3 = s3_server.server, s3_server.s3
EXECUTION = Execution(device="cpu", log_every_steps=1, checkpoint_every_steps=2)
GRID = """
name: tiny
axes: {depth: [2, 1]}
experiments:
  untrained: {steps: 0}
  s1: {steps: 4, seed: 1}
fixed: {backbone: tiny, samples: 50, held_out: 8, batch: 8, max_length: 24, precision: fp32}
benchmarks: [words]
reference: [bm25]
measures: [nDCG@10]
latency: null
execution: {device: cpu}
paths: {tiny: $TINY/tiny, msmarco-hard-negatives: $TINY/triples, words: $TINY/words}
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sources")
    return {
        "tiny": tiny_bert(root / "tiny", layers=2, dropout=0.1),
        "msmarco-hard-negatives": hard_negatives(root / "triples"),
        "words": benchmark(root / "words"),
    }


class KilledError(Exception):
    """Stands for a node that is gone: raised out of the report."""


def killed_at(step: int):
    def report(row):
        if row["step"] == step:
            raise KilledError

    return report


def trial_of(**fields) -> Trial:
    defaults = {"depth": 2, "samples": 50, "held_out": 8, "batch": 8, "steps": 8, "seed": 3}
    return Trial(backbone="tiny", max_length=24, precision="fp32", **(defaults | fields))


def test_another_node_goes_on_from_the_checkpoint_to_the_same_bits(s3, sources, tmp_path):
    trial, uri = trial_of(), f"s3://{s3_server.BUCKET}/resume"
    alone = train_trial(trial, sources, Ledger(tmp_path / "alone"), EXECUTION)
    first, second = (Ledger(tmp_path / name, Objects(uri)) for name in ("first", "second"))
    with pytest.raises(KilledError):
        train_trial(trial, sources, first, EXECUTION, killed_at(5))
    record = train_trial(trial, sources, second, EXECUTION)
    assert record["attempts"][-1]["from_step"] == 4
    assert record["result"]["encoder_sha256"] == alone["result"]["encoder_sha256"]
    assert not Objects(uri).list(f"trials/{trial.id}/checkpoints")
    first.fetch_trial(trial.id)  # it has checkpoints still, and keeps them to itself
    assert not Objects(uri).list(f"trials/{trial.id}/checkpoints")
    third = Ledger(tmp_path / "third", Objects(uri))
    third.fetch(third.trial_dir(trial.id))
    assert third.trained(trial) == record


def test_a_trial_that_was_not_uploaded_is_handed_on(s3, sources, tmp_path):
    trial, uri = trial_of(steps=1), f"s3://{s3_server.BUCKET}/late"
    record = train_trial(trial, sources, Ledger(tmp_path / "first"), EXECUTION)
    Ledger(tmp_path / "first", Objects(uri)).fetch_trial(trial.id)
    second = Ledger(tmp_path / "second", Objects(uri))
    second.fetch_trial(trial.id)
    assert second.trained(trial) == record


def test_the_bucket_keeps_as_many_checkpoints_as_a_folder(s3, sources, tmp_path):
    trial, uri = trial_of(steps=10), f"s3://{s3_server.BUCKET}/kept"
    with pytest.raises(KilledError):
        train_trial(trial, sources, Ledger(tmp_path, Objects(uri)), EXECUTION, killed_at(9))
    steps = {key.split("/")[3] for key in Objects(uri).list(f"trials/{trial.id}/checkpoints")}
    assert steps == {"attempts.json", "step-00000006", "step-00000008"}


def test_a_model_that_was_cut_in_the_store_is_not_believed(s3, sources, tmp_path):
    trial, uri = trial_of(steps=1), f"s3://{s3_server.BUCKET}/cut"
    first = Ledger(tmp_path / "first", Objects(uri))
    record = train_trial(trial, sources, first, EXECUTION)
    key = f"cut/trials/{trial.id}/model/model.safetensors"
    s3.put_object(Bucket=s3_server.BUCKET, Key=key, Body=b"half")
    second = Ledger(tmp_path / "second", Objects(uri))
    again = train_trial(trial, sources, second, EXECUTION)
    assert len(again["attempts"]) == 1
    assert again["result"]["encoder_sha256"] == record["result"]["encoder_sha256"]
    assert s3.head_object(Bucket=s3_server.BUCKET, Key=key)["ContentLength"] > 4


def test_the_command_on_a_bucket_and_again_on_another_machine(
    s3, sources, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("TINY", str(sources["tiny"].parent))
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(GRID)
    command = ["tiny.yaml", "--local", "--storage", f"s3://{s3_server.BUCKET}/command/study"]
    assert run.main(command) == 0
    local = Path("results/objects/s3") / s3_server.BUCKET / "command" / "study"
    results = (local / "studies/tiny/RESULTS.md").read_text()
    shutil.rmtree("results")
    capsys.readouterr()
    assert run.main(command) == 0
    said = capsys.readouterr().out
    assert "4 done, 0 to train" in said
    assert said.count("nothing to do") == 2
    assert (local / "studies/tiny/RESULTS.md").read_text() == results
    ids = json.loads((local / "studies/tiny/trials.json").read_text())["ids"]
    kept = Objects(command[-1]).list()
    assert not [key for key in kept if key.endswith((".md", ".html"))]
    for trial_id in ids:
        for name in ("trial.json", "scores/words.parquet", "runs/words.trec.gz"):
            assert f"trials/{trial_id}/{name}" in kept


def test_a_store_that_does_not_answer_is_named(sources, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("TINY", str(sources["tiny"].parent))
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(GRID)
    assert run.main(["tiny.yaml", "--local", "--storage", "s3://bucket/study"]) == 2
    assert "s3://bucket/study" in capsys.readouterr().err
