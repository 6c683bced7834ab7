"""Tables: what a reader sees, and that CSV and Markdown are of one source."""

import io
import re

import pandas as pd
import pytest

import synthetic
from analysis.readers import read_study
from analysis.table import DASH, Column, Table, seeds_cell, whole
from analysis.tables import all_tables, change_table, seeds_table

TWO_LONG_SEEDS = synthetic.GRID.replace(
    "fixed:", "  F: {batch: 32, steps: 80000, seed: 43}\nfixed:"
)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    ledger = synthetic.write_study(
        tmp_path_factory.mktemp("tables"),
        text=TWO_LONG_SEEDS,
        failed={"L12-b32-20k-s44": "RuntimeError: a | b"},
        unscored=(("L3-b32-80k-s42", "fiqa"),),
    )
    return read_study("depth-study", ledger)


def test_a_cell_with_a_missing_value_is_a_dash():
    column = Column("parameters", ("parameters",), whole)
    assert column.cell({"parameters": 22_713_216}) == "22,713,216"
    assert [column.cell({"parameters": value}) for value in (None, float("nan"), pd.NA)] == [
        DASH
    ] * 3


def test_one_seed_has_a_dash_for_its_spread():
    assert seeds_cell(0.2400, 3, 0.0069) == "0.2400 ± 0.0069 (3)"
    assert seeds_cell(0.2143, 1, None) == "0.2143 ± – (1)"


def test_markdown_is_a_table_whatever_stands_in_it():
    frame = pd.DataFrame({"what": ["a | b\nc"], "n": [1234]})
    columns = (Column("what", ("what",), number=False), Column("n", ("n",), whole))
    lines = Table("t", "T", "why", frame, columns).markdown().splitlines()
    assert lines[4:] == ["| what | n |", "| --- | ---: |", "| a \\| b c | 1,234 |"]


def test_seeds_are_summarised_from_the_trials_themselves(study):
    table = seeds_table(study, "nDCG@10")
    results = study.results
    own = results[
        (results["measure"] == "nDCG@10")
        & (results["benchmark"] == "scifact")
        & (results["depth"] == 6)
        & (results["steps"] == 20_000)
    ]["value"]
    row = table.frame.set_index("configuration").loc["depth 6, batch 32, 20k steps"]
    assert row["scifact mean"] == pytest.approx(own.mean())
    assert row["scifact sd"] == pytest.approx(own.std(ddof=1))
    assert row["scifact n"] == 3


def test_a_failed_seed_lowers_n_and_a_missing_benchmark_its_mean(study):
    frame = seeds_table(study, "nDCG@10").frame.set_index("configuration")
    assert frame.loc["depth 12, batch 32, 20k steps", "mean n"] == 2
    third = frame.loc["depth 3, batch 32, 80k steps"]
    assert (third["nfcorpus n"], third["fiqa n"], third["mean n"]) == (2, 1, 1)


def test_change_is_between_matched_seeds(study):
    table = change_table(study)
    assert table.title == "nDCG@10 from 20k to 80k steps (batch 32)"
    value = {
        (row["depth"], row["steps"], row["seed"]): row["value"]
        for row in study.results.dropna(subset=["seed"]).to_dict("records")
        if row["benchmark"] == "nfcorpus" and row["measure"] == "nDCG@10"
    }
    rows = table.frame.set_index(["x", "benchmark"])
    for depth in (3, 6, 12):
        differences = [value[depth, 80_000, s] - value[depth, 20_000, s] for s in (42, 43)]
        row = rows.loc[(depth, "nfcorpus")]
        assert row["difference"] == pytest.approx(sum(differences) / 2)
        assert row["matched"] == "42, 43"
    assert rows.loc[(3, "mean"), "matched"] == "43"


def test_every_table_is_markdown_and_csv_of_the_same_rows(study):
    for table in all_tables(study):
        rows = [line for line in table.markdown().splitlines() if line.startswith("| ")]
        assert len(rows) == len(table.frame) + 2
        columns = {len(re.split(r"(?<!\\)\|", row)) for row in rows}
        assert columns == {len(table.columns) + 2}, table.name
        parsed = pd.read_csv(io.StringIO(table.csv()))
        assert len(parsed) == len(table.frame)
        cells = "".join(cell for row in table.cells() for cell in row)
        assert not re.search(r"\bnan\b|<NA>|None", cells), table.name


def test_csv_keeps_the_digits_that_markdown_rounds(study):
    table = next(t for t in all_tables(study) if t.name == "trials-nDCG-10")
    parsed = pd.read_csv(io.StringIO(table.csv()))
    assert parsed["scifact"].tolist() == pytest.approx(table.frame["scifact"].tolist(), nan_ok=True)
    at = [column.title for column in table.columns].index("scifact")
    shown = [float(row[at]) if row[at] != DASH else None for row in table.cells()]
    for rounded, exact in zip(shown, parsed["scifact"], strict=True):
        assert pd.isna(exact) if rounded is None else rounded == pytest.approx(exact, abs=5e-5)


def test_what_is_missing_is_listed_with_its_reason(study):
    table = next(t for t in all_tables(study) if t.name == "unfinished")
    listed = {row[0].partition("-s4")[0]: row[1:] for row in table.cells()}
    assert listed["L12-b32-20k"] == ["failed", "RuntimeError: a | b"]
    assert listed["L3-b32-80k"] == ["missing", "not scored yet"]


def test_an_insufficient_latency_is_called_indicative(study):
    table = next(t for t in all_tables(study) if t.name == "latency")
    assert {row[-2] for row in table.cells()} == {"indicative (insufficient)"}
    assert [row[0] for row in table.cells()] == ["L12", "L6", "L3"]
