"""A report is whole, the same wherever it lies, needs no network, and says what it lacks."""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest

import synthetic
from analysis import images, report
from analysis.report import main, write_report
from analysis.study import read_study
from ray_ablation import frames
from ray_ablation.atomic import read_frame
from ray_ablation.ledger import Ledger

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    ledger = synthetic.write_study(tmp_path_factory.mktemp("report") / "results")
    return ledger, write_report("depth-study", ledger, png=False)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".png"
    }


def test_everything_is_written(written):
    ledger, made = written
    assert made.notes == ()
    names = set(files_of(made.folder))
    assert {"RESULTS.md", "report.html", "results.parquet", "grid.yaml"} <= names
    figures = {f"figures/{name}.html" for name in report.draw(read_study("depth-study", ledger))}
    assert figures | {"figures/plotly.min.js", "tables/seeds-nDCG-10.csv"} <= names


def test_results_parquet_is_the_tidy_frame(written):
    ledger, made = written
    stored, about = read_frame(made.folder / "results.parquet")
    study = read_study("depth-study", ledger)
    assert about == {"study": "depth-study"}
    values = ["trial", "benchmark", "measure", "value", "depth", "learning_rate"]
    pd.testing.assert_frame_equal(
        stored[values], study.results[values], check_dtype=False, check_exact=True
    )
    assert set(frames.FIELD_TYPES) <= set(stored)


def test_the_same_ledger_gives_the_same_bytes_wherever_it_lies(written, tmp_path):
    ledger, made = written
    before = files_of(made.folder)
    moved = Ledger(tmp_path / "elsewhere" / "renamed")
    shutil.copytree(ledger.root, moved.root)
    for name in ("RESULTS.md", "report.html", "results.parquet", "figures", "tables"):
        place = moved.study_dir("depth-study") / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    os.utime(moved.study_grid("depth-study"), (0, 0))
    again = write_report("depth-study", moved, png=False)
    assert files_of(again.folder) == before
    text = b"".join(before.values())
    assert str(ledger.root).encode() not in text
    assert str(Path.cwd()).encode() not in text


def test_the_page_asks_for_nothing_from_outside(written):
    text = written[1].html.read_text(encoding="utf-8")
    assert text.count("plotly.js v") == 1
    assert "default-src 'none'" in text
    outside_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)\s*=\s*['\"](?!#)", outside_scripts)
    assert "url(" not in outside_scripts


def test_page_markdown_and_figures_show_the_same_numbers(written):
    ledger, made = written
    study = read_study("depth-study", ledger)
    markdown, page = made.markdown.read_text(), made.html.read_text()
    drawing = report.draw(study)["depth_by_budget"]
    for trace in drawing.figure.data:
        for value in trace.y if trace.name and "n = 3" in trace.name else []:
            assert f"| {value:.4f} ± " in markdown
            assert f"<td class='n'>{value:.4f} ± " in page
    for finding in made.findings:
        assert finding in markdown
        assert finding in page
    assert drawing.caption in markdown
    assert drawing.caption in page


def test_headline_sentences_follow_the_data(written):
    ledger, made = written
    study = read_study("depth-study", ledger)
    means = study.means[study.means["trained"]].set_index("configuration")["mean"]
    assert f"is {means.max():.4f}, of {means.idxmax()} (n = 3 seeds" in made.findings[0]
    fall = next(text for text in made.findings if "20k to 80k" in text)
    assert "falls at every depth" in fall
    assert "matched seed 42" in fall
    assert "fiqa" in fall


def test_the_largest_spread_is_one_that_is_known(tmp_path):
    more = synthetic.GRID.replace("fixed:", "  F: {batch: 32, steps: 80000, seed: 43}\nfixed:")
    ledger = synthetic.write_study(tmp_path, text=more, missing=("L3-b32-80k-s43",))
    found = write_report("depth-study", ledger, png=False).findings
    sentence = next(text for text in found if text.startswith("At batch 32, 80k steps"))
    assert "n = 2" in sentence
    assert "depth 3," not in sentence


def test_limits_name_single_seeds_latency_and_truncation(written):
    text = written[1].markdown.read_text().partition("## What this does not show")[2]
    assert "3 of 6 trained configurations have a single seed" in text
    assert "Latency is indicative for L12, L6, L3: insufficient (processes)." in text
    assert "12.5% of the documents of scifact are cut at 128 tokens." in text


def test_neither_ray_nor_torch_is_imported(written):
    ledger, _ = written
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from analysis.report import write_report\n"
        "from ray_ablation.ledger import Ledger\n"
        "write_report('depth-study', Ledger(Path(sys.argv[1])), png=False)\n"
        "heavy = {'ray', 'torch', 'transformers', 'sentence_transformers'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ledger.root)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_backbones_of_another_machine_are_not_asked_for(tmp_path):
    text = synthetic.GRID.replace("paths: {", "paths: {bert-base-uncased: /not/here, ")
    ledger = synthetic.write_study(tmp_path, text=text)
    assert write_report("depth-study", ledger, png=False).notes == ()


def test_nothing_finished_is_a_report_that_says_so(tmp_path, capsys):
    synthetic.write_study(tmp_path, missing=("L12", "L3"), failed={"L6": "OSError: disk full"})
    assert main(["--study", "depth-study", "--root", str(tmp_path), "--no-png"]) == 0
    assert "No trained encoder is scored on all of nfcorpus, scifact, fiqa yet." in (
        capsys.readouterr().out
    )
    markdown = (tmp_path / "studies/depth-study/RESULTS.md").read_text()
    assert "- trials: 5 failed, 10 missing" in markdown
    assert "| failed | OSError: disk full |" in markdown
    assert "Not drawn: no trained encoder" in markdown


def test_an_unfinished_study_reports_what_there_is(tmp_path):
    ledger = synthetic.write_study(
        tmp_path, missing=("L6-b32-20k-s43",), unscored=(("L3-b32-20k-s42", "fiqa"),)
    )
    markdown = write_report("depth-study", ledger, png=False).markdown.read_text()
    assert "- scores: 41 of 45 trials x benchmarks" in markdown
    assert "2 of 15 trials are not scored on every benchmark and left out." in markdown


def test_what_an_earlier_report_left_is_removed(tmp_path):
    ledger = synthetic.write_study(tmp_path)
    folder = write_report("depth-study", ledger, png=False).folder
    for trial in ledger.root.glob("trials/*/trial.json"):
        trial.unlink()
    write_report("depth-study", ledger, png=False)
    assert list((folder / "figures").iterdir()) == []
    assert not (folder / "tables/change.csv").exists()


def test_an_unknown_study_names_those_there_are(tmp_path, capsys):
    synthetic.write_study(tmp_path)
    assert main(["--study", "depth-studi", "--root", str(tmp_path)]) == 2
    text = capsys.readouterr().err
    assert "unknown study 'depth-studi'; known: depth-study. Did you mean 'depth-study'?" in text


def test_an_empty_root_says_how_to_run_one(tmp_path, capsys):
    assert main(["--study", "quickstart", "--root", str(tmp_path)]) == 2
    assert "holds no study at all; run one: python -m ray_ablation.run" in capsys.readouterr().err


def test_a_damaged_grid_is_named(tmp_path, capsys):
    ledger = synthetic.write_study(tmp_path)
    ledger.study_grid("depth-study").write_text("name: [depth-study\n")
    assert main(["--study", "depth-study", "--root", str(tmp_path)]) == 2
    assert "grid.yaml has 1 problem" in capsys.readouterr().err


def test_no_chrome_is_a_note(tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-browser"))
    reason = images.write_pngs({tmp_path / "figure.png": '{"data": [], "layout": {}}'})
    assert "no-browser" in reason
    assert not (tmp_path / "figure.png").exists()


def test_a_chrome_that_hangs_is_ended_with_all_it_started(tmp_path, monkeypatch):
    chrome = tmp_path / "chrome"
    chrome.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    chrome.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(chrome))
    started = time.monotonic()
    figures = {tmp_path / "figure.png": '{"data": [], "layout": {}}'}
    reason = images.write_pngs(figures, limit_s=8)
    assert reason == "Chrome took longer than 8 s"
    assert time.monotonic() - started < 40
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_pictures_are_drawn_again_only_when_their_figure_changed(tmp_path, monkeypatch):
    asked = []

    def write_pngs(figures):
        asked.append(sorted(path.name for path in figures))
        for path in figures:
            path.write_bytes(b"a picture")

    monkeypatch.setattr(report, "write_pngs", write_pngs)
    ledger = synthetic.write_study(tmp_path)
    write_report("depth-study", ledger)
    write_report("depth-study", ledger)
    assert [len(names) for names in asked] == [5, 0]
