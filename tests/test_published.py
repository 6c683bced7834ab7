"""The published study: what its figures say of its sentences, computed and nowhere typed."""

import re
import shutil
from pathlib import Path

import pytest

from analysis import published_study
from analysis.plots import change
from analysis.published_study import find_published, read_published
from analysis.report import main, write, write_published
from analysis.study import StudyError
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = published_study.FOLDER / "depth_study"


@pytest.fixture(scope="module")
def markdown(tmp_path_factory):
    ledger = Ledger(tmp_path_factory.mktemp("published"))
    return write_published("depth_study", ledger, png=False).markdown.read_text()


@pytest.fixture
def copy(tmp_path):
    return Path(shutil.copytree(FOLDER, tmp_path / "copy"))


def edited(folder: Path, file: str, old: str, new: str) -> str:
    """RESULTS.md of a copy with one cell changed."""
    path = folder / file
    text = path.read_text()
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new))
    return write(read_published(folder), folder / "report", png=False).markdown.read_text()


def section(markdown: str, title: str) -> str:
    return markdown.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "text",
    [
        # paired by seed, raw and corrected over six pairs
        "| depth 6 | depth 9 | batch 32, 20k steps | +0.0053 | +0.0022 to +0.0084 "
        "| 0.0013 | 3 | 0.018 | 0.105 | 6 | not separated |",
        "| depth 6 | depth 12 | batch 32, 20k steps | +0.0038 | −0.0109 to +0.0186 "
        "| 0.0059 | 3 | 0.380 | 1.000 | 6 | not separated |",
        # the drop is largest at L9, whatever the caption said
        "by −0.0279 (depth 9) to −0.0173 (depth 6) at matched seed 42",
        "| depth 12 | mean | 0.2326 | 0.2143 | −0.0183 | −7.9% |",
        "at depth 12 that change is −7.9% at matched seed 42, and −10.7% between the means",
        "p50 is 11.08 ms and 0.444 ms a block (R² 0.89, off by 0.71 ms at most)",
        "Batch 256, 20k steps (A) makes the most passes over the sample (10.24) and scores highest",
        "batch 32, 80k steps (E) makes 5.12 and scores lowest",
        "Batch and steps are confounded between batch 256, 20k steps and batch 32, 80k steps",
        "is stated as 75 hours; by its own figures 20 trials take 116 GPU-hours",
        "is stated as 16 hours; by its own figures 8 trials take 128 GPU-hours",
        "| depth 12, batch 32, 20k steps | 0.2400 | 0.0069 | 0.0172 |",  # half-width of t, n = 3
        "Of experiments A, C, D only the mean over benchmarks is known, not its parts.",
        "Warning: fine-tuned configurations lie below BM25 (published) in nDCG@10 on 3 of 3",
    ],
)
def test_what_follows_from_the_figures(markdown, text):
    assert text in markdown


@pytest.mark.parametrize(
    ("says", "verdict"),
    [
        ("At 20K steps depth is invariant within seed noise.", "Underpowered"),
        ("At 20K steps L9 is nominally the lowest; it is not above L6.", "Underpowered"),
        ("At 20K steps L6 is above L12.", "Underpowered"),
        ("The seeds of L12 spread 7 to 23 times as far", "Not supported"),
        ("Every depth gets worse with 80K steps.", "Underpowered"),
        ("The drop at 80K steps is largest at L12.", "Contradicted"),
        ("The fall is on fiqa, and deeper encoders fall further.", "Underpowered"),
        ("nfcorpus moves within noise for every depth.", "Contradicted"),
        ("scifact moves within noise for every depth.", "Contradicted"),
        ("L6 is the clear best at 80K steps.", "Underpowered"),
        ("L6 is among the best two in every regime.", "Underpowered"),
        ("The latency is p50 = 12.3 ms + 0.33 ms a layer.", "Contradicted"),
        ("More passes over one source overfit it", "Not supported"),
        ("L9 trains slower than L12.", "Unanswered"),
    ],
)
def test_each_published_sentence_has_its_verdict(markdown, says, verdict):
    line = next(one for one in section(markdown, "Verdicts").splitlines() if says in one)
    assert f"** {verdict}" in line


def test_a_mean_that_is_not_that_of_its_parts_is_refused(copy):
    with pytest.raises(UserError, match=r"the mean is stated as 0.239, that of its 3"):
        edited(copy, "ndcg10_mean.csv", "E,32,80000,42,9,0.2109", "E,32,80000,42,9,0.2390")


def test_other_figures_give_other_sentences(markdown, copy):
    """L9 at 80K above its 20K: each sentence about the fall, the best and the passes moves."""
    parts = copy / "ndcg10_by_benchmark.csv"
    parts.write_text("\n".join(r for r in parts.read_text().splitlines() if "E,9," not in r) + "\n")
    after = edited(copy, "ndcg10_mean.csv", "E,32,80000,42,9,0.2109", "E,32,80000,42,9,0.2490")
    assert "falls at every depth, by −0.0279 (depth 9)" in markdown
    assert "changes (1 of 4 up), by −0.0225 (depth 3) to +0.0102 (depth 9)" in after
    before, now = section(markdown, "Verdicts"), section(after, "Verdicts")
    for says in ("Every depth gets worse", "L6 is the clear best", "More passes over"):
        lines = [next(x for x in text.splitlines() if says in x) for text in (before, now)]
        assert lines[0] != lines[1], says
    assert "At batch 32, 80k steps, depth 9 is highest (0.2490)" in after


def test_a_seed_moves_the_tests_and_the_interval(markdown, copy):
    after = edited(copy, "ndcg10_mean.csv", "D,32,20000,44,6,0.2446", "D,32,20000,44,6,0.2546")
    pair = r"\| depth 6 \| depth 9 \| batch 32, 20k steps \| (.*)\|"
    first, second = (re.search(pair, text).group(1) for text in (markdown, after))
    assert first != second
    row = r"\| depth 6, batch 32, 20k steps \| 0.2471 "
    assert re.search(row, after)


def test_a_latency_moves_the_line_and_its_claim(markdown, copy):
    after = edited(copy, "latency_ms.csv", "B and E,6,13.03", "B and E,6,14.28")
    assert "p50 is 11.08 ms" in markdown
    line = re.search(r"p50 is ([\d.]+) ms and ([\d.]+) ms a block", after)
    assert line.groups() != ("11.08", "0.444")


def test_hours_move_their_totals(copy):
    after = edited(
        copy,
        "runtime_hours.csv",
        "one variant of E (batch 32; 80K steps),16",
        "one variant of E (batch 32; 80K steps),20",
    )
    assert "20 trials take 132 GPU-hours" in after
    assert "8 trials take 160 GPU-hours" in after


def test_no_result_is_typed_in_a_source():
    for file in (REPOSITORY / "analysis").rglob("*"):
        if file.suffix in (".py", ".yaml"):
            text = file.read_text()
            for number in ("0.105", "11.08", "0.444", "0.0053", "0.0279", "116", "128.0"):
                assert not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", text), (file, number)


def test_the_change_figure_is_of_what_is_published():
    drawing = change.change_by_benchmark(read_published(FOLDER))
    assert "matched seed 42" in drawing.figure.layout.title.text
    assert "Of experiments A, C, D only the mean" in drawing.caption
    bar = next(trace for trace in drawing.figure.data if trace.name == "depth 12")
    by_name = dict(zip(bar.x, bar.y, strict=True))
    assert by_name["fiqa"] == pytest.approx(0.0625 - 0.1139)
    assert by_name["mean"] == pytest.approx(0.2143 - 0.2326)


def test_the_command_writes_it_and_strict_exits_with_1(tmp_path, capsys):
    arguments = ["--published", "depth_study", "--root", str(tmp_path), "--no-png"]
    assert main(arguments) == 0
    assert (tmp_path / "studies/depth_study/RESULTS.md").is_file()
    assert "claim l12-falls-most: contradicted" in capsys.readouterr().out
    assert main([*arguments, "--strict"]) == 1
    claims = tmp_path / "claims.yaml"
    line = "{name: line, kind: linear, of: p50_ms, axis: depth, within: 1.0}"
    claims.write_text(f"claims: [{line}]\n")
    assert main([*arguments, "--strict", "--claims", str(claims)]) == 0
    claims.write_text(f"claims: [{line.replace('p50_ms', 'p50')}]\n")
    assert main([*arguments, "--claims", str(claims)]) == 2
    assert "unknown column 'p50'; known: " in capsys.readouterr().err


def test_an_unknown_one_names_those_there_are():
    with pytest.raises(StudyError, match="unknown published study 'depth'; known: depth_study"):
        find_published("depth")


def test_another_study_of_that_name_is_not_overwritten(tmp_path):
    folder = tmp_path / "studies" / "depth_study"
    folder.mkdir(parents=True)
    (folder / "grid.yaml").write_text("name: depth_study\n")
    with pytest.raises(StudyError, match="holds another study of that name"):
        write_published("depth_study", Ledger(tmp_path), png=False)


def test_a_misspelt_quantity_is_named(copy):
    text = (copy / "study.yaml").read_text()
    (copy / "study.yaml").write_text(text.replace("stated total of", "total of"))
    with pytest.raises(StudyError, match="unknown quantity 'total of the five experiments'"):
        read_published(copy)
