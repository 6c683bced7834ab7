"""YAML to trials, ids, and every problem at once."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from ray_ablation import grid, grid_file
from ray_ablation.problems import GridError, UserError
from ray_ablation.trial import UNTRAINED_FIELDS, Trial

GRIDS = Path(__file__).parent.parent / "grids"
SMALL = """
name: small
axes: {depth: [3, 6]}
fixed: {steps: 100}
benchmarks: [scifact]
"""


def load(tmp_path: Path, text: str) -> grid.Grid:
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    return grid.load(file)


def problems(tmp_path: Path, text: str) -> str:
    with pytest.raises(GridError) as error:
        load(tmp_path, text)
    return str(error.value)


@pytest.mark.parametrize("file", sorted(GRIDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_grids_expand_to_their_first_comment(file):
    first = file.read_text().splitlines()[0]
    study = grid.load(file)
    assert first == f"# {study.product}"
    assert len(study.trials) == int(re.match(r"# (\d+)", first)[1])
    assert study.name == file.stem


@pytest.mark.parametrize("file", sorted(GRIDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_grids_match_the_shipped_schema(file):
    schema = json.loads((GRIDS / "schema.json").read_text())
    written = json.loads(json.dumps(YAML(typ="safe").load(file)))
    assert not list(jsonschema.Draft202012Validator(schema).iter_errors(written))


def test_schema_is_current():
    expected = json.loads(json.dumps(grid_file.GridFile.model_json_schema()))
    assert json.loads((GRIDS / "schema.json").read_text()) == expected


def test_full_is_the_study():
    study = grid.load(GRIDS / "full.yaml")
    seen = {(t.depth, t.batch, t.steps, t.seed) for t in study.trials}
    cells = [(256, 20_000, 42), (32, 20_000, 42), (32, 20_000, 43), (32, 20_000, 44)]
    cells.append((32, 80_000, 42))
    assert seen == {(depth, *cell) for depth in (12, 9, 6, 3) for cell in cells}
    a, e = study.trial("L12-b256"), study.trial("L12-b32-80k")
    assert (a.passes, e.passes) == (10.24, 5.12)
    assert (a.in_batch_negatives, e.in_batch_negatives) == (511, 63)
    assert e.warmup_steps == 8_000


def test_ids_are_frozen():
    """A changed id orphans results: raise RECIPE on purpose, never a default by accident."""
    assert Trial(depth=12).id == "L12-b32-20k-s42-e5374d96"
    assert Trial(depth=3, steps=60, seed=1, batch=16).label == "L3-b16-60-s1"


def test_defaults_leave_the_id_alone(tmp_path):
    plain = load(tmp_path, SMALL).trials[0]
    spelt = load(tmp_path, SMALL.replace("steps: 100", "steps: 100, seed: 42, keep: first"))
    assert spelt.trials[0].id == plain.id


def test_order_of_the_yaml_changes_no_id(tmp_path):
    reordered = "\n".join(reversed(SMALL.replace("[3, 6]", "[6, 3]").strip().splitlines()))
    ids = {trial.id for trial in load(tmp_path, SMALL).trials}
    assert {trial.id for trial in load(tmp_path, reordered).trials} == ids


def test_untrained_references_collapse(tmp_path):
    text = """
name: small
axes: {depth: [3, 6]}
experiments:
  none-a: {steps: 0, seed: 1}
  none-b: {steps: 0, seed: 2, batch: 8}
  some: {steps: 5}
benchmarks: [scifact]
"""
    study = load(tmp_path, text)
    assert study.product == "4 trials = 3 experiment x 2 depth"
    untrained = study.trials[0]
    assert study.experiments[untrained.id] == "none-a+none-b"
    fields = untrained.fields()
    assert {name for name, value in fields.items() if value is not None} <= set(UNTRAINED_FIELDS)
    assert untrained.passes is None


def test_warmup_is_the_exact_ceiling():
    steps = {30: 3, 31: 4, 20_000: 2_000, 1: 1}
    assert {n: Trial(depth=1, steps=n).warmup_steps for n in steps} == steps


def test_all_problems_at_once(tmp_path):
    text = """
name: bad
axes: {depth: [12, 9, true, 14], keep: [first, alternat], dept: [1]}
experiments: {A: {bach: 3, batch: x}}
benchmarks: [{name: nq, splt: dev}, 7]
measures: [MRR@10, best]
execution: {device: gpu}
nam: 3
"""
    report = problems(tmp_path, text)
    for line in (
        "axes.depth[2]: True; it should be a valid integer",
        "axes.keep[1]: 'alternat'; unknown strategy 'alternat'; known: alternate, first, last.",
        "axes.dept: unknown key 'dept'",
        "Did you mean 'depth'?",
        "experiments.A.bach: unknown key 'bach'",
        "experiments.A.batch: 'x'",
        "benchmarks[0].splt: unknown key 'splt'; known: group, name, of, others, self_ids, split",
        "benchmarks[1]: 7",
        "measures[1]: 'best'; expected nDCG, RR, R, P, AP or Success",
        "execution.device: 'gpu'; it should be 'auto', 'cuda' or 'cpu'",
        "nam: unknown key 'nam'",
    ):
        assert line in report
    # Told although the file does not even fit the schema.
    assert "axes.depth[3]: 14; bert-base-uncased has 12 layers" in report
    assert "grid.yaml has 11 problems:" in report


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("[3, 6]", "[3, 14]"), "axes.depth[1]: 14; bert-base-uncased has 12 layers"),
        (("[3, 6]", "[]"), "axes.depth: []; List should have at least 1 item"),
        (("[3, 6]", "[3, 3]"), "axes.depth[1]: 3 stands there twice"),
        (("steps: 100", "keep: alternat"), "Did you mean 'alternate'?"),
        (("steps: 100", "keep: [0, 1]"), "keep lists 2 layers [0, 1] but depth is 3"),
        (("steps: 100", "depth: 3"), "fixed.depth: also an axis; keep one of the two"),
        (("steps: 100", "train_set: ms"), "fixed.train_set: unknown train set 'ms'"),
        (("steps: 100", "micro_batch: 64"), "fixed.micro_batch: 64 is larger than batch 32"),
        (("steps: 100", "backbone: ./none"), "fixed.backbone: backbone './none': no config.json"),
        (("steps: 100", "steps: 100, steps: 3"), 'duplicate key "steps"'),
        (("scifact]", "scifact]\nmeasures: [R@1000]"), "R@1000 looks deeper than evaluation.k"),
        (("[scifact]", "[scifcat]"), "unknown benchmark 'scifcat'"),
        (("[scifact]", "[scifact, scifact]"), "benchmarks[1]: 'scifact' stands there twice"),
        (("fixed", "fixed: {}\nexperiments: {a: {seed: 1}, b: {seed: 1}}\n#"), "make the same tri"),
        (("axes: {depth: [3, 6]}", ""), "depth is set nowhere"),
        (("axes", "axes: [\n"), "line 4"),
        (("fixed: {steps: 100}", "experiments: {1: {seed: 1}}"), "key 1 is no text"),
        (
            ("steps: 100", "steps: 100, seed: 9223372036854775808"),
            "fixed.seed: 9223372036854775808",
        ),
    ],
)
def test_each_problem_is_named(tmp_path, change, text):
    assert text in problems(tmp_path, SMALL.replace(*change))


def test_a_missing_file_lists_what_there_is(monkeypatch):
    monkeypatch.chdir(GRIDS.parent)
    with pytest.raises(GridError, match=r"here are: grids/full.yaml"):
        grid.load("grids/ful.yaml")


def test_paths_expand_variables(tmp_path, monkeypatch):
    text = SMALL + "paths: {scifact: $SETS/scifact, own: ./own}\n"
    study = load(tmp_path, text)
    monkeypatch.setenv("SETS", "/sets")
    assert study.path("scifact") == Path("/sets/scifact")
    monkeypatch.delenv("SETS")
    with pytest.raises(GridError, match="export SETS="):
        study.path("scifact")


def test_a_trial_is_found_by_the_start_of_its_id(tmp_path):
    study = load(tmp_path, SMALL)
    assert study.trial("L6").depth == 6
    assert study.trial(study.trials[0].digest[:8]) == study.trials[0]
    with pytest.raises(UserError, match="2 trials start with 'L'"):
        study.trial("L")
    with pytest.raises(UserError, match="no trial is called 'x'"):
        study.trial("x")
