"""Imported tables that say little, or say what cannot be: each is reported, or refused by row."""

import re

import pytest

from analysis.differences import pairs
from analysis.import_results import main
from analysis.imported import RowsError
from analysis.readers import read_study
from analysis.report import write_report
from ray_ablation.ledger import Ledger
from test_import_results import bring, problems_of, rows_of


@pytest.fixture
def ledger(tmp_path):
    (tmp_path / "mine.csv").write_text("depth,benchmark,nDCG@10\n1,fiqa,.3\n")
    return Ledger(tmp_path / "results")


SEEDLESS = {
    "experiments": ("experiment,benchmark,nDCG@10\nA,fiqa,.3\nB,fiqa,.4\n", [1, 1]),
    "depths": ("depth,benchmark,nDCG@10\n1,fiqa,.3\n2,fiqa,.4\n", [1, 1]),
    "one among seeded": (
        "depth,seed,benchmark,nDCG@10\n1,,fiqa,.3\n2,1,fiqa,.4\n2,2,fiqa,.5\n",
        [1, 2],
    ),
    "baseline": (
        "experiment,depth,seed,benchmark,nDCG@10\nbase,1,,fiqa,.3\nours,1,1,fiqa,.4\n"
        "ours,1,2,fiqa,.5\n",
        [1, 2],
    ),
}


@pytest.mark.parametrize("case", SEEDLESS)
def test_an_unknown_seed_is_one_run_and_matches_no_other(ledger, case):
    text, n = SEEDLESS[case]
    bring(ledger, text)
    study = read_study("mine", ledger)
    assert study.means["n"].tolist() == n
    found = pairs(study)
    assert (len(found), found["p"].isna().all(), found["n"].tolist()) == (1, True, [0])
    assert "seed None" not in write_report("mine", ledger, png=False).html.read_text()


def test_two_budgets_without_seeds_are_not_compared_at_matched_seeds(ledger):
    cells = ("1,16,.3", "1,32,.4", "2,16,.3", "2,32,.4")
    text = "depth,batch,nDCG@10,benchmark\n" + "".join(f"{cell},fiqa\n" for cell in cells)
    bring(ledger, text)
    study = read_study("mine", ledger)
    assert study.axes == ("depth", "batch")
    assert study.comparison is None


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("depth,seed,benchmark,nDCG@10\n1,1,mean,.3\n2,1,mean,.5\n", {}),
        ("depth,seed,mean\n1,1,.3\n2,1,.5\n", {"measure": "nDCG@10"}),
    ],
)
def test_the_mean_alone_makes_a_report(ledger, text, options):
    bring(ledger, text, **options)
    assert read_study("mine", ledger).means["mean"].tolist() == [0.3, 0.5]
    markdown = write_report("mine", ledger, png=False).markdown.read_text()
    assert "The highest nDCG@10 (value) is 0.5000, of depth 2" in markdown


@pytest.mark.parametrize("head", ["experiment,seed", "seed,experiment", "batch,seed"])
def test_one_configuration_without_a_depth_makes_a_report(ledger, head):
    rows = "7,1,fiqa,.3\n7,2,fiqa,.4\n" if head.endswith("seed") else "1,7,fiqa,.3\n2,7,fiqa,.4\n"
    bring(ledger, f"{head},benchmark,nDCG@10\n{rows}")
    assert (
        "of all trials (n = 2 seeds" in write_report("mine", ledger, png=False).markdown.read_text()
    )


def test_a_row_longer_than_the_head_is_refused_by_number(ledger):
    text = "experiment,fiqa,scifact\nE,0.5,0.6,\n\nF,0.7,0.8\nG,0.7,0.8,0.9\n"
    with pytest.raises(RowsError) as caught:
        bring(ledger, text, measure="nDCG@10")
    assert re.findall(r"row \d has 4 fields, the head 3", str(caught.value)) == [
        "row 1 has 4 fields, the head 3",
        "row 3 has 4 fields, the head 3",
    ]
    with pytest.raises(RowsError, match="separate fields by commas, and write numbers with a"):
        bring(ledger, "depth;benchmark;nDCG@10\n1;fiqa;0,3\n")


@pytest.mark.parametrize(
    "text",
    [
        "experiment,batch,benchmark,nDCG@10\nE,16,fiqa,.3\nE-b16,,fiqa,.4\n",
        "experiment,steps,benchmark,nDCG@10\nE,80000,fiqa,.3\nE-80k,,fiqa,.4\n",
    ],
)
def test_trials_of_different_fields_have_different_ids(ledger, text):
    bring(ledger, text)
    study = read_study("mine", ledger)
    assert study.trials["trial"].is_unique
    assert study.product == "2 trials, imported as 2 rows"
    assert sorted(study.means["mean"]) == [0.3, 0.4]
    again = read_study("mine", ledger)
    assert again.trials["trial"].tolist() == study.trials["trial"].tolist()


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["fiqa", "FiQA"], "row 2: benchmark 'FiQA' differs from 'fiqa' in case only"),
        (["mine", "MINE"], "row 2: benchmark 'MINE' differs from 'mine' in case only"),
        (["SciFact"], "row 1: benchmark 'SciFact' differs from 'scifact' in case only"),
        (["fiqa", "Mean"], "row 2: benchmark 'Mean'; the mean over benchmarks is spelt 'mean'"),
        (["fiqa", " average"], "row 2: benchmark 'average'; the mean over benchmarks is"),
        (["fiqa", "fiqa "], "rows 1 and 2 are the same cell"),
    ],
)
def test_a_benchmark_has_one_spelling(names, says):
    assert says in problems_of("benchmark,nDCG@10\n" + "".join(f"{n},0.5\n" for n in names))


def means_of(fiqa: str, scifact: str, mean: str) -> str:
    """A table of three trials; the first is whole, the second as given, the third a mean alone."""
    return f"depth,fiqa,scifact,mean\n1,0.300,0.501,0.401\n2,{fiqa},{scifact},{mean}\n3,,,0.4\n"


@pytest.mark.parametrize(
    ("fiqa", "scifact", "mean", "says"),
    [
        ("1", "0", "1", "the mean is stated as 1, that of its 2 benchmarks is 0.5"),
        ("0.3", "", "0.9", "stated as 0.9, which no value gives beside fiqa at a mean of 0.3"),
        ("0.3", "", "0.3", "which is that of fiqa alone, and scifact is missing; state what"),
    ],
)
def test_a_mean_that_its_parts_contradict_is_refused(fiqa, scifact, mean, says):
    text = problems_of(means_of(fiqa, scifact, mean), measure="nDCG@10")
    assert "row 2: the mean is stated" in text
    assert says in text


def test_a_mean_of_integers_is_held_against_them_at_two_digits():
    text = problems_of("depth,fiqa,scifact,mean\n1,1,0,1\n", measure="nDCG@10")
    assert "the mean is stated as 1, that of its 2 benchmarks is 0.5" in text


def test_a_mean_is_rounded_as_means_are_and_not_as_its_parts_are():
    text = "depth,fiqa,scifact,mean\n1,0.123456,0.234567,0.179\n"
    assert len(rows_of(text, measure="nDCG@10")) == 3


def test_a_stated_mean_beside_a_missing_part_is_said_to_be_as_stated(ledger):
    bring(ledger, means_of("0.3", "", "0.45"), measure="nDCG@10")
    text = "One mean is as stated; not every benchmark behind is known."
    assert text in write_report("mine", ledger, png=False).markdown.read_text()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("depth", "inf", "row 1: depth: inf; it should be a valid integer"),
        ("seed", "1_0", "row 1: seed: '1_0'; it should be a valid integer"),
        ("parameters", "inf", "row 1: parameters inf; expected a whole number of at least 0"),
        ("parameters", "1e23", "row 1: parameters 1e+23; expected a whole number"),
        ("parameters", "22.7", "row 1: parameters 22.7; expected a whole number"),
        ("n_queries", "648.5", "row 1: n_queries 648.5; expected a whole number"),
        ("n_queries", "-5", "row 1: n_queries -5; expected a whole number of at least 0"),
        ("p50_ms", "inf", "row 1: p50_ms inf; expected a number of at least 0"),
        ("p50_ms", "-3", "row 1: p50_ms -3; expected a number of at least 0"),
        ("seconds", "1_0", "row 1: seconds '1_0'; expected a number of at least 0"),
    ],
)
def test_numbers_that_nothing_can_have_are_refused(field, value, says):
    assert says in problems_of(f"{field},benchmark,nDCG@10\n{value},fiqa,.3\n")


@pytest.mark.parametrize("value", ["True", "False"])
def test_a_truth_is_no_value(value):
    text = problems_of(f"benchmark,nDCG@10\nfiqa,{value}\n")
    assert f"row 1: value {value}; expected a number in 0..1" in text


def test_a_root_that_is_a_file_and_an_own_benchmark_named_as_a_field(ledger, capsys):
    file, root = ledger.root.parent / "mine.csv", ledger.root.parent / "file"
    root.write_text("")
    assert main([str(file), "--study", "mine", "--root", str(root)]) == 2
    assert "is a file; name the folder where results lie" in capsys.readouterr().err
    own = ["--measure", "nDCG@10", "--benchmarks", "seed"]
    assert main([str(file), "--study", "mine", "--root", str(ledger.root), *own]) == 2
    assert "--benchmarks seed: a column of that name is a field" in capsys.readouterr().err
