"""Imported results: whatever their form they make one study; what is wrong is named, by row."""

import io
import re

import pandas as pd
import pytest

import synthetic
from analysis.import_results import import_results, main
from analysis.imported import RowsError, tidy
from analysis.readers import read_study
from analysis.report import write_report
from analysis.study import StudyError
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError

TIDY = """\
experiment,depth,seed,batch,steps,benchmark,measure,value,n_queries,p50_ms
B,6,1,32,1000,scifact,nDCG@10,0.50,300,8.0
B,6,2,32,1000,scifact,nDCG@10,0.52,300,8.0
B,12,1,32,1000,scifact,nDCG@10,0.40,300,14.0
B,12,2,32,1000,scifact,nDCG@10,,300,14.0
B,6,1,32,1000,nfcorpus,nDCG@10,0.30,323,8.0
B,6,2,32,1000,nfcorpus,nDCG@10,0.32,323,8.0
B,12,1,32,1000,nfcorpus,nDCG@10,0.20,323,14.0
B,12,2,32,1000,nfcorpus,nDCG@10,0.28,323,14.0
"""


def rows_of(text: str, **options) -> pd.DataFrame:
    return tidy(pd.read_csv(io.StringIO(text)), "mine.csv", **options)


def problems_of(text: str, **options) -> str:
    with pytest.raises(RowsError) as caught:
        rows_of(text, **options)
    return str(caught.value)


@pytest.fixture
def ledger(tmp_path):
    (tmp_path / "mine.csv").write_text(TIDY)
    return Ledger(tmp_path / "results")


def bring(ledger, text: str, name: str = "mine", **options) -> int:
    file = ledger.root.parent / "mine.csv"
    file.write_text(text)
    return import_results(file, name, ledger, **options)


def test_a_tidy_table_becomes_a_study(ledger):
    assert bring(ledger, TIDY) == 8
    study = read_study("mine", ledger)
    assert (study.benchmarks, study.measures) == (("scifact", "nfcorpus"), ("nDCG@10",))
    assert study.axes == ("depth", "seed")
    assert study.common == {"batch": 32, "steps": 1000}
    assert set(study.trials["state"]) == {"imported"}
    means = study.means.set_index("configuration")
    assert means.loc["depth 6", "mean"] == pytest.approx((0.40 + 0.42) / 2)
    assert means.loc["depth 6", "n"] == 2
    assert means.loc["depth 12", "n"] == 1  # one of its means lacks a part
    assert study.latency.set_index("trial")["p50_ms"].to_dict() == {
        "L6-s1": 8.0,
        "L6-s2": 8.0,
        "L12-s1": 14.0,
        "L12-s2": 14.0,
    }


def test_tidy_wide_by_measure_and_wide_by_benchmark_are_the_same_study(ledger):
    frame = pd.read_csv(io.StringIO(TIDY))
    keys = ["experiment", "depth", "seed", "batch", "steps"]
    by_measure = frame.drop(columns="measure").rename(columns={"value": "NDCG@10"})
    by_benchmark = frame.pivot(index=keys, columns="benchmark", values="value").reset_index()
    plain = frame.drop(columns=["n_queries", "p50_ms"])
    found = [
        rows_of(plain.to_csv(index=False)),
        rows_of(by_measure.drop(columns=["n_queries", "p50_ms"]).to_csv(index=False)),
        rows_of(by_benchmark.to_csv(index=False), measure="nDCG@10"),
    ]
    order = [*keys, "benchmark"]
    first, *others = [f.sort_values(order).reset_index(drop=True)[first_columns(f)] for f in found]
    for other in others:
        pd.testing.assert_frame_equal(first, other)


def first_columns(frame: pd.DataFrame) -> list[str]:
    return sorted(frame.columns)


def test_parquet_is_read_as_csv_is(ledger):
    file = ledger.root.parent / "mine.parquet"
    pd.read_csv(io.StringIO(TIDY)).to_parquet(file)
    import_results(file, "parquet", ledger)
    bring(ledger, TIDY, "csv")
    first, second = read_study("parquet", ledger), read_study("csv", ledger)
    pd.testing.assert_frame_equal(first.results, second.results)


def test_what_is_not_stated_is_unknown_and_never_a_default(ledger):
    bring(ledger, "depth,seed,benchmark,nDCG@10\n6,1,scifact,0.5\n6,2,scifact,0.6\n")
    study = read_study("mine", ledger)
    unstated = set(study.trials.columns) & {
        "batch",
        "steps",
        "learning_rate",
        "backbone",
        "pooling",
    }
    assert study.trials[sorted(unstated)].isna().all().all()
    assert study.trials[["examples", "passes", "in_batch_negatives"]].isna().all().all()
    markdown = write_report("mine", ledger, png=False).markdown.read_text()
    assert "bert-base-uncased" not in markdown
    assert "2e-05" not in markdown
    assert "no per-query scores: these results were imported" in markdown


def test_what_follows_from_stated_fields_is_computed(ledger):
    head = "depth,batch,steps,samples,negatives,benchmark,nDCG@10\n"
    bring(ledger, head + "6,32,1000,16000,1,scifact,0.5\n6,64,1000,16000,1,scifact,0.6\n")
    rows = read_study("mine", ledger).trials.set_index("batch")
    assert rows["passes"].to_dict() == {32: 2.0, 64: 4.0}
    assert rows["in_batch_negatives"].to_dict() == {32: 63, 64: 127}


def test_an_experiment_is_an_axis_where_fields_do_not_tell_trials_apart(ledger):
    bring(ledger, "experiment,benchmark,nDCG@10\nours,scifact,0.5\ntheirs,scifact,0.6\n")
    study = read_study("mine", ledger)
    assert [c.label for c in study.layout.configurations] == [
        "experiment ours",
        "experiment theirs",
    ]
    assert study.means["n"].tolist() == [1, 1]


def test_an_untrained_reference_has_no_training_fields(ledger):
    head = "depth,seed,batch,steps,benchmark,nDCG@10\n"
    bring(ledger, head + "6,1,32,0,scifact,0.1\n6,1,32,500,scifact,0.5\n6,2,32,500,scifact,0.6\n")
    found = read_study("mine", ledger).layout.configurations
    assert [(c.trained, c.series) for c in found] == [(False, "untrained"), (True, "all trials")]


def test_a_stated_mean_stands_where_parts_are_missing(ledger):
    head = "depth,seed,benchmark,nDCG@10\n"
    bring(ledger, head + "6,1,mean,0.4\n6,2,mean,0.5\n6,1,scifact,0.3\n6,1,nfcorpus,0.5\n")
    study = read_study("mine", ledger)
    assert study.benchmarks == ("scifact", "nfcorpus")
    assert study.means["mean"].tolist() == pytest.approx([0.45])
    markdown = write_report("mine", ledger, png=False).markdown.read_text()
    assert "Of 1 trials only the mean over benchmarks is known, not its parts." in markdown


def test_groups_count_once_in_a_mean(ledger):
    forums = ("android", "english")
    text = "depth,benchmark,nDCG@10\n6,scifact,0.6\n"
    text += "".join(f"6,cqadupstack-{name},0.{index}\n" for index, name in enumerate(forums, 2))
    bring(ledger, text)
    results = read_study("mine", ledger).results.set_index("benchmark")["value"]
    assert results["cqadupstack"] == pytest.approx(0.25)
    assert results["mean"] == pytest.approx((0.6 + 0.25) / 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("depth,benchmark,nDCG@10\n", "holds no row"),
        ("dept,benchmark,nDCG@10\n6,scifact,0.5\n", "unknown column 'dept'; known: "),
        ("dept,benchmark,nDCG@10\n6,scifact,0.5\n", "Did you mean 'depth'?"),
        ("depth,nDCG@10\n6,0.5\n", "column 'benchmark' is missing; a tidy table has benchmark"),
        ("depth,benchmark,value\n6,scifact,0.5\n", "column 'measure' is missing"),
        ("depth,benchmark,measure\n6,scifact,nDCG@10\n", "column 'value' is missing"),
        ("benchmark,value,nDCG@10\nscifact,1,1\n", "both a column 'value' and columns of values"),
        ("benchmark,nDCG@10\nscifact,45.2\n", "row 1: value 45.2; expected a number in 0..1"),
        ("benchmark,nDCG@10\nscifact,high\n", "row 1: value 'high'; expected a number in 0..1"),
        ("benchmark,nDCG@10\n,0.5\n", "row 1: benchmark is empty"),
        ("benchmark,measure,value\nscifact,BLEU,0.5\n", "row 1: measure 'BLEU'; expected nDCG"),
        ("depth,benchmark,nDCG@10\n0,scifact,0.5\n", "row 1: depth: 0; it should be greater"),
        ("depth,benchmark,nDCG@10\n6.5,scifact,0.5\n", "row 1: depth: 6.5; "),
        ("pooling,benchmark,nDCG@10\nmiddle,scifact,0.5\n", "row 1: pooling: 'middle'; "),
        (
            "benchmark,nDCG@10,seconds\nscifact,0.5,long\n",
            "row 1: seconds 'long'; expected a number",
        ),
        (
            "depth,benchmark,nDCG@10\n6,scifact,0.5\n3,scifact,0.4\n6,scifact,0.5\n",
            "rows 1 and 3 are the same cell; state the field in which they differ",
        ),
        (
            "depth,benchmark,nDCG@10,n_queries\n6,scifact,0.5,300\n3,scifact,0.4,299\n",
            "rows 1 and 2 are of one benchmark (scifact) but have n_queries 300 and 299",
        ),
        (
            "depth,benchmark,nDCG@10,p50_ms\n6,scifact,0.5,8\n6,nfcorpus,0.4,9\n",
            "rows 1 and 2 are of one trial but have p50_ms 8.0 and 9.0",
        ),
        (
            "benchmark,nDCG@10\nscifact,0.50\nnfcorpus,0.30\nmean,0.45\n",
            "row 3: the mean is stated as 0.45, that of its 2 benchmarks is 0.4",
        ),
    ],
)
def test_what_is_wrong_is_named(text, says):
    assert says in problems_of(text)


def test_all_problems_come_in_one_report():
    text = problems_of("depth,benchmark,nDCG@10\n6,scifact,2\n0,,0.5\n")
    assert text.startswith("mine.csv has 3 problems:\n")
    assert re.findall(r"row \d", text) == ["row 1", "row 2", "row 2"]


def test_an_own_benchmark_may_be_a_column_when_it_is_named():
    text = "depth,mine\n6,0.5\n"
    assert "a benchmark of your own: --benchmarks NAME" in problems_of(text, measure="nDCG@10")
    assert rows_of(text, measure="nDCG@10", own=["mine"])["benchmark"].tolist() == ["mine"]


def test_importing_again_replaces_the_same_columns_only(ledger):
    bring(ledger, "depth,benchmark,nDCG@10\n6,scifact,0.5\n")
    bring(ledger, "depth,benchmark,nDCG@10\n6,scifact,0.6\n3,scifact,0.4\n")
    assert len(read_study("mine", ledger).trials) == 2
    other = "depth,batch,benchmark,nDCG@10\n6,32,scifact,0.5\n"
    with pytest.raises(StudyError, match=r"this table has .*batch.*Replace it with --replace"):
        bring(ledger, other)
    bring(ledger, other, replace=True)
    assert read_study("mine", ledger).common == {"depth": 6, "batch": 32}


def test_the_name_of_a_study_that_was_run_is_refused(ledger):
    synthetic.write_study(ledger.root)
    with pytest.raises(StudyError, match="holds a study that was run; import under another name"):
        bring(ledger, TIDY, "depth-study")


def test_a_grid_is_not_run_into_an_imported_study(ledger):
    bring(ledger, TIDY, "depth-study")
    with pytest.raises(UserError, match="holds imported results; give the grid another name"):
        synthetic.write_study(ledger.root)


def test_a_half_written_import_is_not_read(ledger):
    bring(ledger, TIDY)
    parquet = ledger.study_dir("mine") / "imported.parquet"
    bring(ledger, TIDY.replace("0.50", "0.51"), "other")
    parquet.write_bytes((ledger.study_dir("other") / "imported.parquet").read_bytes())
    with pytest.raises(StudyError, match=r"do not belong together; import again: .* --replace"):
        read_study("mine", ledger)


def test_the_command_says_what_comes_next_and_exits_with_2_on_bad_input(ledger, capsys):
    file, root = ledger.root.parent / "mine.csv", str(ledger.root)
    assert main([str(file), "--study", "mine", "--root", root]) == 0
    assert (
        "8 cells imported; now: python -m analysis.report --study mine" in capsys.readouterr().out
    )
    assert main([str(file), "--study", "../mine", "--root", root]) == 2
    assert main([str(file) + "x", "--study", "mine", "--root", root]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main([str(file), "--study", "mine", "--root", root, "--measure", "BLEU"]) == 2
    assert "--measure BLEU: expected nDCG, RR" in capsys.readouterr().err


def test_results_parquet_says_that_rows_were_imported(ledger):
    bring(ledger, TIDY)
    folder = write_report("mine", ledger, png=False).folder
    assert pd.read_parquet(folder / "results.parquet")["imported"].all()
