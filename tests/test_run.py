"""The command, from a grid to a report: what it does again, and what it refuses."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ray_ablation import provenance, run
from ray_ablation.atomic import read_frame
from ray_ablation.ledger import Ledger
from tiny import benchmark, hard_negatives, tiny_bert

ROOT = Path(__file__).parent.parent
GRID = """
name: tiny
axes: {depth: [2, 1]}
experiments:
  untrained: {steps: 0}
  s1: {steps: 6, seed: 1}
  s2: {steps: 6, seed: 2}
fixed: {backbone: tiny, samples: 50, held_out: 8, batch: 8, max_length: 24, precision: fp32}
benchmarks: [words, more-words]
measures: [nDCG@10, R@100]
latency: null
execution: {device: cpu}
paths:
  tiny: $TINY/tiny
  msmarco-hard-negatives: $TINY/triples
  words: $TINY/words
  more-words: $TINY/more
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    tiny_bert(root / "tiny", layers=2)
    hard_negatives(root / "triples")
    benchmark(root / "words")
    benchmark(root / "more", documents=20, queries=5)
    return root


@pytest.fixture
def place(tmp_path, sources, monkeypatch):
    """A folder of its own with tiny.yaml, in which the command runs."""
    monkeypatch.setenv("TINY", str(sources))
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(GRID)
    return tmp_path


@pytest.fixture
def finished(place, tmp_path_factory, sources):
    """The same with a finished study, made once and copied."""
    template = sources / "finished"
    if not template.exists():
        assert command() == 0
        shutil.copytree(place / "results", template)
    else:
        shutil.copytree(template, place / "results")
    return place


def command(*arguments, grid="tiny.yaml"):
    return run.main([grid, "--local", *arguments])


def change(old, new):
    text = Path("tiny.yaml").read_text()
    assert old in text
    Path("tiny.yaml").write_text(text.replace(old, new))


def written(since):
    """Trial records, encoders and scores written after a moment, by trial and file name."""
    files = [p for p in Path("results/trials").rglob("*") if p.is_file()]
    kept = [p for p in files if p.suffix in {".json", ".parquet", ".safetensors", ".gz"}]
    new = [p for p in kept if p.stat().st_mtime_ns > since]
    return {f"{p.relative_to('results/trials').parts[0]}/{p.name}" for p in new}


def now():
    time.sleep(0.02)  # clocks of file systems tick coarsely
    return time.time_ns()


def trial_dir(start):
    (found,) = Path("results/trials").glob(f"{start}-*")
    return found


def test_a_study_from_grid_to_report(finished, capsys):
    ledger = Ledger(Path("results"))
    results, _ = read_frame(Path("results/studies/tiny/results.parquet"))
    trials = results["trial"].unique() if "trial" in results else results["id"].unique()
    assert len(trials) == 6
    for trial_id in trials:
        record = ledger.read_trial(trial_id)
        assert (record["result"]["loss"] is None) == (record["trial"]["steps"] == 0)
        scores, _ = ledger.read_scores(trial_id, "words")
        assert len(scores) == 8
    report = Path("results/studies/tiny/report.html").read_text()
    assert "nDCG@10" in report
    # The mean in the report is the mean of the score files.
    deep = trial_dir("L2-b8-6-s1").name
    mean = ledger.read_scores(deep, "words")[0]["nDCG@10"].mean()
    assert f"{mean:.4f}" in Path("results/studies/tiny/RESULTS.md").read_text()
    capsys.readouterr()


def test_again_does_nothing(finished, capsys):
    since = now()
    assert command() == 0
    assert written(since) == set()
    out = capsys.readouterr().out
    assert "6 done, 0 to train" in out
    assert out.count("nothing to do") == 2


def test_a_seed_more_runs_only_what_is_new(finished):
    change("  s2:", "  s3: {steps: 6, seed: 3}\n  s2:")
    since = now()
    assert command() == 0
    made = {name.split("/")[0].rpartition("-")[0] for name in written(since)}
    assert made == {"L2-b8-6-s3", "L1-b8-6-s3"}


def test_another_order_runs_nothing(finished):
    change("depth: [2, 1]", "depth: [1, 2]")
    since = now()
    assert command() == 0
    assert written(since) == set()


def test_only_the_damaged_piece_is_made_again(finished):
    deep, shallow = trial_dir("L2-b8-6-s1"), trial_dir("L1-b8-6-s2")
    other = trial_dir("L2-b8-6-s2")
    before = {p: p.read_bytes() for p in (deep / "model").rglob("model.safetensors")}
    score = shallow / "scores" / "words.parquet"
    score.write_bytes(score.read_bytes()[:-20])
    shutil.rmtree(deep / "model")
    record = bytearray((other / "trial.json").read_bytes())
    record[len(record) // 2] ^= 1
    (other / "trial.json").write_bytes(record)
    since = now()
    assert command() == 0
    made = written(since)
    assert {name.split("/")[0] for name in made} == {deep.name, shallow.name, other.name}
    assert {name for name in made if name.startswith(shallow.name)} == {
        f"{shallow.name}/words.parquet",
        f"{shallow.name}/words.trec.gz",
    }
    # Made again to the same bits, so their scores still stand.
    assert {p: p.read_bytes() for p in before} == before
    assert not any("parquet" in name for name in made if name.startswith(f"{deep.name}/words"))


def test_a_moved_folder_gives_the_same_report(finished):
    folder = Path("results/studies/tiny")
    before = {name: (folder / name).read_bytes() for name in ("RESULTS.md", "report.html")}
    Path("results").rename("elsewhere")
    assert command("--storage", "elsewhere", "--phase", "report") == 0
    moved = Path("elsewhere/studies/tiny")
    assert {name: (moved / name).read_bytes() for name in before} == before


def test_one_trial_alone_and_one_benchmark_alone(place):
    assert command("--only", "L1-b8-6-s1", "--phase", "train") == 0
    assert [p.name[:11] for p in Path("results/trials").iterdir()] == ["L1-b8-6-s1-"]
    assert command("--only", "L1-b8-6-s1", "--benchmark", "words", "--phase", "evaluate") == 0
    scored = [p.name for p in trial_dir("L1-b8-6-s1").glob("scores/*")]
    assert scored == ["words.parquet"]


def test_a_failing_trial_is_a_row_and_the_others_finish(place, capsys):
    change("  s2: {steps: 6, seed: 2}", "  s2: {steps: 6, seed: 2, learning_rate: 1e30}")
    assert command() == 1
    err = capsys.readouterr().err
    assert "2 failed:" in err
    assert re.search(r"L2-b8-6-s2-\w+: TrainingError: .*lower learning_rate", err)
    assert re.search(r"--local --only L\d-b8-6-s2-\w+", err)
    assert len(list(Path("results/trials").glob("*/scores/words.parquet"))) == 4
    assert "lower learning_rate" in Path("results/studies/tiny/RESULTS.md").read_text()


def test_plan_needs_no_data(place, monkeypatch, capsys):
    monkeypatch.setenv("TINY", str(place / "nowhere"))
    change("backbone: tiny", "backbone: bert-base-uncased")
    assert command("--plan") == 0
    out = capsys.readouterr().out
    assert "tiny: 6 trials = 3 experiment x 2 depth; 0 done, 6 to train" in out
    assert not Path("results").exists()


def bad(capsys, *arguments, grid="tiny.yaml"):
    assert command(*arguments, grid=grid) == 2
    return capsys.readouterr().err


def test_bad_input_exits_with_2_and_says_what_to_do(place, sources, capsys, monkeypatch):
    assert "cannot be read" in bad(capsys, grid="none.yaml")
    assert "no trial is called 'L9'" in bad(capsys, "--only", "L9")
    assert "Did you mean 'words'?" in bad(capsys, "--benchmark", "word")
    monkeypatch.delenv("TINY")
    assert "export TINY=" in bad(capsys)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("$TINY/tiny", "$TINY/none", "no config.json"),
        ("$TINY/words", "$TINY/triples", "lacks corpus.jsonl"),
        ("$TINY/triples", "$TINY/words", "lacks msmarco-hard-negatives.jsonl"),
        ("samples: 50", "samples: 500", "52"),
        ("batch: 8", "batch: 51", "cannot be made. Lower batch"),
        ("device: cpu", "device: cuda", "no GPU"),
        ("depth: [2, 1]", "depth: [3]", "tiny has 2 layers, so it must be in 1..2"),
    ],
)
def test_bad_input_is_refused_before_anything_is_trained(place, capsys, old, new, text):
    change(old, new)
    code = command()
    assert text in capsys.readouterr().err
    assert code == 2 or new == "device: cuda"
    assert not list(Path("results").glob("trials/*/trial.json"))


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_another_backbone_under_done_trials_is_refused(
    finished, sources, capsys, monkeypatch, name
):
    copied = finished / "sources"
    shutil.copytree(sources, copied, ignore=shutil.ignore_patterns("finished"))
    file = copied / "tiny" / name
    file.write_bytes(file.read_bytes() + b" ")
    monkeypatch.setenv("TINY", str(copied))
    assert "was trained with backbone_sha256" in bad(capsys)


def test_scores_on_other_contents_of_a_name_are_not_shown(finished, sources, capsys):
    before = Path("results/studies/tiny/RESULTS.md").read_text()
    change("name: tiny", "name: other")
    change("  words: $TINY/words", "  words: $TINY/more")
    assert command() == 0
    change("name: other", "name: tiny")
    change("  words: $TINY/more", "  words: $TINY/words")
    assert command("--phase", "report") == 0
    after = Path("results/studies/tiny/RESULTS.md").read_text()
    assert after != before
    assert "scores: 6 of 12 trials x benchmarks" in after
    assert command() == 0
    assert Path("results/studies/tiny/RESULTS.md").read_text() == before


def test_damaged_prepared_data_is_prepared_again(finished):
    """A flipped byte in the sample would otherwise be trained on in silence."""
    (sample,) = Path("results/cache/triples").glob("*/train.arrow")
    content = bytearray(sample.read_bytes())
    content[len(content) // 2] ^= 1
    sample.write_bytes(content)
    for folder in ("tokens", "benchmarks"):
        for file in Path("results/cache", folder).rglob("*.parquet"):
            file.write_bytes(file.read_bytes()[:-1] + b"?")
    shutil.rmtree("results/cache/tokens")
    deep = trial_dir("L2-b8-6-s1")
    before = (deep / "model" / "model.safetensors").read_bytes()
    shutil.rmtree(deep / "model")
    assert command() == 0
    assert (deep / "model" / "model.safetensors").read_bytes() == before


def test_done_trials_of_other_code_are_kept_and_named(finished, capsys, monkeypatch):
    here = provenance.code()
    versions = here["versions"] | {"torch": "9.9.9"}
    monkeypatch.setattr(provenance, "code", lambda: here | {"versions": versions})
    since = now()
    assert command() == 0
    assert written(since) == set()
    torch = here["versions"]["torch"]
    expected = f"note: 6 done trials were trained with torch {torch}, here 9.9.9"
    assert expected in capsys.readouterr().out


def test_another_grid_of_the_same_name_is_refused(finished, capsys):
    change("batch: 8", "batch: 4")
    change("steps: 0", "steps: 1")
    assert "holds another study called 'tiny'" in bad(capsys)


def test_an_unwritable_folder_is_refused(place, capsys):
    Path("file").write_text("")
    assert "cannot be written" in bad(capsys, "--storage", "file/results")


def start(place, **environment):
    code = [sys.executable, "-m", "ray_ablation.run", "tiny.yaml", "--local"]
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    pipe = subprocess.PIPE
    return subprocess.Popen(code, cwd=place, env=env, stdout=pipe, stderr=pipe, text=True)


def wait_for(condition, process, timeout_s=120):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_exits_with_130_and_a_second_run_is_refused_meanwhile(place, capsys):
    change("steps: 6", "steps: 5000")
    first = start(place)
    try:
        wait_for(lambda: list(Path("results").glob("trials/*/checkpoints/step-*")), first)
        assert "study 'tiny' is running in another process" in bad(capsys)
        first.send_signal(signal.SIGINT)
        _, err = first.communicate(timeout=60)
    finally:
        first.kill()
    assert first.returncode == 130
    assert "what is done is kept" in err
    assert list(Path("results").glob("trials/*/checkpoints/step-*"))
    state = json.loads(next(Path("results").glob("studies/tiny/trials.json")).read_text())
    assert len(state["ids"]) == 6
