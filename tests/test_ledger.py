"""Names, atomic writes, damage."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from ray_ablation import atomic, grid
from ray_ablation.atomic import read_frame, read_json, write_frame, write_json
from ray_ablation.ledger import Ledger, LedgerError
from ray_ablation.trial import Trial

GRID = "name: {name}\naxes: {{depth: [{depths}]}}\nbenchmarks: [scifact]\n"


def study(tmp_path, name="small", depths="3, 6"):
    file = tmp_path / "grid.yaml"
    file.write_text(GRID.format(name=name, depths=depths))
    return grid.load(file)


def finished(ledger, trial):
    """A trial with a model of one file, as training leaves it."""
    ledger.model_dir(trial.id).mkdir(parents=True)
    (ledger.model_dir(trial.id) / "model.safetensors").write_bytes(b"weights")
    write_frame(ledger.train_parquet(trial.id), pd.DataFrame({"step": [1]}), {})
    return ledger.finish_trial(trial, {"result": {"loss": 0.5}})


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_every_flipped_byte_of_a_record_is_seen(tmp_path):
    file = tmp_path / "a.json"
    value = {"loss": 0.125, "name": "ä", "list": [1, None]}
    write_json(file, value)
    assert read_json(file) == value
    whole = file.read_bytes()
    for position in range(len(whole)):
        flip(file, position)
        found = read_json(file)
        # White space carries no value.
        assert found is None or whole[position : position + 1].isspace(), position
        file.write_bytes(whole)


def test_every_cut_of_a_frame_is_seen(tmp_path):
    file = tmp_path / "key=value" / "a.parquet"  # such a folder is no partition
    frame = pd.DataFrame({"query_id": list("abc"), "nDCG@10": [0.1, np.nan, 1.0]})
    write_frame(file, frame, {"what": {"k": 3}})
    found, about = read_frame(file)
    assert found.equals(frame)
    assert about == {"what": {"k": 3}}
    whole = file.read_bytes()
    for length in range(0, len(whole), 7):
        file.write_bytes(whole[:length])
        assert read_frame(file) is None
    values = whole.index(np.float64(0.1).tobytes())
    file.write_bytes(whole)
    flip(file, values)
    assert read_frame(file) is None


def test_a_trial_is_trained_only_while_all_its_files_are_sound(tmp_path):
    ledger, trial = Ledger(tmp_path), Trial(depth=3)
    assert ledger.trained(trial) is None
    finished(ledger, trial)
    assert ledger.trained(trial)["result"] == {"loss": 0.5}
    for file in (ledger.model_dir(trial.id) / "model.safetensors", ledger.trial_json(trial.id)):
        whole = file.read_bytes()
        flip(file, 3)
        assert ledger.trained(trial) is None
        file.write_bytes(whole)
        assert ledger.trained(trial) is not None
    (ledger.model_dir(trial.id) / "model.safetensors").unlink()
    assert ledger.trained(trial) is None


def test_a_moved_ledger_is_the_same(tmp_path):
    trial = Trial(depth=3)
    finished(Ledger(tmp_path / "a"), trial)
    (tmp_path / "a").rename(tmp_path / "b")
    assert Ledger(tmp_path / "b").trained(trial) is not None
    text = Ledger(tmp_path / "b").trial_json(trial.id).read_text()
    assert str(tmp_path) not in text


def test_a_killed_write_leaves_the_old_file(tmp_path):
    file = tmp_path / "a.json"
    write_json(file, {"old": True})

    def fail(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.write_atomic(file, fail)
    assert read_json(file) == {"old": True}
    assert os.listdir(tmp_path) == ["a.json"]


def test_scores_of_something_else_do_not_count(tmp_path):
    ledger = Ledger(tmp_path)
    frame = pd.DataFrame({"query_id": ["q"], "nDCG@10": [1.0]})
    ledger.write_scores("t", "scifact", frame, {"what": {"dtype": "fp32"}})
    assert ledger.read_scores("t", "scifact", {"dtype": "fp32"}) is not None
    assert ledger.read_scores("t", "scifact", {"dtype": "fp16"}) is None


def test_a_study_grows_but_is_not_replaced(tmp_path):
    ledger = Ledger(tmp_path / "results")
    ledger.open_study(study(tmp_path))
    ledger.open_study(study(tmp_path, depths="6, 9"))
    with pytest.raises(LedgerError, match="another study called 'small': none of its 2 trials"):
        ledger.open_study(study(tmp_path, depths="1"))
    ledger.open_study(study(tmp_path, name="other", depths="1"))


def test_a_second_run_of_a_study_is_refused_until_the_first_dies(tmp_path):
    script = (
        "import sys; from pathlib import Path; from ray_ablation.ledger import Ledger;"
        "lock = Ledger(Path(sys.argv[1])).study_lock('small'); lock.__enter__();"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as first:
        assert first.stdout.readline() == b"held\n"
        locked = Ledger(tmp_path).study_lock("small")
        with pytest.raises(LedgerError, match="study 'small' is running in another process"):
            locked.__enter__()
        first.kill()
    with Ledger(tmp_path).study_lock("small"):
        pass


def test_an_unwritable_root_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"cannot be written: .*--storage FOLDER"):
        Ledger(tmp_path / "file" / "results").check_writable()


def test_failures_are_noted_until_success(tmp_path):
    ledger, trial = Ledger(tmp_path), Trial(depth=3)
    ledger.fail_trial(trial, "ValueError: no", "Traceback ...")
    assert ledger.failure(trial.id)["reason"] == "ValueError: no"
    finished(ledger, trial)
    assert ledger.failure(trial.id) is None


def test_tune_sessions_are_numbered(tmp_path):
    ledger = Ledger(tmp_path)
    first = ledger.new_tune_dir("small")
    assert first.name == "1"
    first.mkdir(parents=True)
    assert ledger.new_tune_dir("small").name == "2"
