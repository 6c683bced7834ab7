"""Claims as they are written: what may be said, what is refused and how, and when it was first."""

import json
import re

import jsonschema
import pytest

from ray_ablation import grid as grids
from ray_ablation.claim_world import World, check
from ray_ablation.grid_file import ClaimsFile, GridFile, read_claims
from ray_ablation.ledger import Ledger
from ray_ablation.problems import GridError

GRID = """
name: small
axes:
  depth: [12, 6, 3]
  keep: [first, last]
experiments:
  untrained: {steps: 0}
  s42: {steps: 20000, seed: 42}
  long: {steps: 80000, seed: 42}
benchmarks: [scifact, fiqa]
measures: [nDCG@10, RR@10]
"""
DIFFERENCE = {
    "name": "one",
    "kind": "difference",
    "of": "nDCG@10",
    "axis": "depth",
    "a": 6,
    "b": 12,
}
GOOD = {
    "difference": {"a": 6, "b": 12},
    "equivalent": {"margin": 0.01},
    "best": {"level": 6},
    "top_k": {"level": 6, "k": 2},
    "dominates": {"level": 6, "over": [12]},
    "decreases": {"axis": "steps", "before": 20_000, "after": 80_000, "most_at": {"depth": 12}},
    "increases": {"axis": "steps", "before": 20_000, "after": 80_000},
    "spread_ratio": {"level": 12, "at_least": 2, "at_most": 30.5},
    "linear": {"of": "p50_ms", "within": 1},
    "monotone": {"direction": "falls"},
    "correlates": {"axis": "passes", "direction": "falls"},
}


def entry(kind, **changed):
    base = {"name": kind, "kind": kind, "of": "nDCG@10", "axis": "depth"}
    return base | GOOD[kind] | changed


def with_claims(tmp_path, *entries, text=GRID):
    file = tmp_path / "grid.yaml"
    file.write_text(text + "claims: " + json.dumps(list(entries)) + "\n")
    return file


def problem(tmp_path, *entries):
    with pytest.raises(GridError) as error:
        grids.load(with_claims(tmp_path, *entries), here=False)
    (line,) = error.value.found
    return line


def test_every_kind_loads_with_a_grid(tmp_path):
    grid = grids.load(with_claims(tmp_path, *(entry(kind) for kind in GOOD)), here=False)
    assert [claim.kind for claim in grid.claims] == list(GOOD)
    kinds = re.findall(r'"const": "(\w+)"|"enum": \["decreases', json.dumps(schema()))
    assert set(GOOD) - {"decreases", "increases"} <= set(kinds)


def test_every_kind_fits_the_schema_that_editors_use():
    for kind in GOOD:
        written = {"name": "g", "benchmarks": ["scifact"], "claims": [entry(kind)]}
        assert not list(jsonschema.Draft202012Validator(schema()).iter_errors(written)), kind
    wrong = {"name": "g", "benchmarks": ["scifact"], "claims": [entry("best") | {"k": 1}]}
    assert list(jsonschema.Draft202012Validator(schema()).iter_errors(wrong))


def test_every_field_of_every_kind_is_described():
    for name, model in schema()["$defs"].items():
        for field, about in model.get("properties", {}).items():
            if "kind" in model["properties"] and field != "kind":
                assert about.get("description"), (name, field)


def schema():
    return GridFile.model_json_schema()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"axis": "dept"}, "claims[0].axis: unknown axis 'dept'; known: backbone, "),
        ({"axis": "dept"}, "Did you mean 'depth'?"),
        ({"axis": "seed"}, "claims[0].axis: unknown axis 'seed'"),
        ({"axis": "passes"}, "claims[0].axis: unknown axis 'passes'"),
        (
            {"axis": "pooling", "a": "mean", "b": "cls"},
            "claims[0].axis: pooling is mean throughout",
        ),
        ({"a": 7}, "claims[0].a: no trial has depth 7; there are 3, 6, 12"),
        ({"a": "6"}, "claims[0].a: no trial has depth '6'; there are 3, 6, 12"),
        ({"axis": "keep", "a": "frist", "b": "last"}, "Did you mean 'first'?"),
        ({"b": 6}, "claims[0].b: 6 is named twice; a comparison needs two levels"),
        ({"of": "nDCG@5"}, "claims[0].of: unknown column 'nDCG@5'; known: "),
        ({"of": "example_per_s"}, "Did you mean 'examples_per_s'?"),
        ({"of": "NDCG@1O"}, "claims[0].of: 'NDCG@1O'; expected nDCG, RR, R, P, AP or Success"),
        ({"on": "scifcat"}, "claims[0].on: unknown benchmark 'scifcat'; known: each, fiqa, mean, "),
        ({"of": "p50_ms", "on": "mean"}, "claims[0].on: p50_ms is not measured on benchmarks"),
        ({"where": {"stepps": 20_000}}, "claims[0].where.stepps: unknown field 'stepps'; known: "),
        (
            {"where": {"steps": 2000}},
            "where.steps: no trial has steps 2000; there are 0, 20000, ",
        ),
        (
            {"where": {"steps": [20_000, 1]}},
            "claims[0].where.steps: no trial has steps 1; there are 0, 20000, 80000",
        ),
        ({"by": -1}, "claims[0].by: -1; it should be greater than or equal to 0"),
        ({"confidence": 1.0}, "claims[0].confidence: 1.0; it should be less than 1"),
        ({"margin": 1}, "claims[0].margin: unknown key 'margin'; known: a, axis, b, by, "),
        ({"directon": "above"}, "Did you mean 'direction'?"),
        ({"direction": "up"}, "claims[0].direction: 'up'; it should be 'above' or 'below'"),
        ({"kind": "diference"}, "claims[0].kind: unknown kind 'diference'; known: best, "),
        ({"kind": "diference"}, "Did you mean 'difference'?"),
        ({"name": ""}, "claims[0].name: ''; "),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, changed, said):
    assert said in problem(tmp_path, DIFFERENCE | changed)


@pytest.mark.parametrize(
    ("kind", "changed", "said"),
    [
        ("equivalent", {"margin": 0}, "claims[0].margin: 0; it should be greater than 0"),
        ("equivalent", {"margin": -0.1}, "claims[0].margin: -0.1; it should be greater than 0"),
        ("equivalent", {"levels": [6]}, "claims[0].levels: [6]; "),
        ("equivalent", {"levels": [6, 7]}, "claims[0].levels[1]: no trial has depth 7"),
        ("equivalent", {"axis": "pooling"}, "claims[0].axis: pooling is mean throughout; a"),
        ("top_k", {"k": 0}, "claims[0].k: 0; it should be greater than or equal to 1"),
        ("top_k", {"k": 3}, "claims[0].k: 3; depth has 3 levels, so it must be under that"),
        ("dominates", {"over": [6]}, "claims[0].over[0]: 6 is named twice"),
        ("decreases", {"most_at": {"dept": 1}}, "claims[0].most_at: unknown field 'dept'"),
        ("decreases", {"most_at": {"steps": 0}}, "claims[0].most_at: unknown field 'steps'"),
        ("decreases", {"most_at": {"depth": 7}}, "claims[0].most_at.depth: no trial has depth 7"),
        ("decreases", {"most_at": {}}, "claims[0].most_at: {}; "),
        ("spread_ratio", {"at_most": 1}, "at_most must be larger than at_least 2"),
        ("linear", {"slope": 1}, "intercept and slope go together; give both or neither"),
        ("linear", {"axis": "keep"}, "claims[0].axis: keep is no number: first, last"),
        (
            "monotone",
            {"axis": "keep"},
            "claims[0].levels: missing; keep has no order of its own (first, last); name the "
            "levels in the order that is meant",
        ),
        ("linear", {"within": 0}, "claims[0].within: 0; it should be greater than 0"),
        ("correlates", {"axis": "pases"}, "Did you mean 'passes'?"),
    ],
)
def test_what_is_wrong_with_a_kind_is_named_with_its_place(tmp_path, kind, changed, said):
    assert said in problem(tmp_path, entry(kind, **changed))


def test_levels_of_no_number_have_the_order_that_is_named(tmp_path):
    named = entry("monotone", axis="keep", levels=["last", "first"])
    assert grids.load(with_claims(tmp_path, named), here=False).claims


@pytest.mark.parametrize(
    ("field", "values"), [("experiment", ["B", "A"]), ("micro_batch", ["none", 16, 8])]
)
def test_an_order_is_asked_for_where_not_all_levels_are_numbers(field, values):
    one = entry("monotone", axis=field)
    (claim,) = ClaimsFile.model_validate_json(json.dumps({"claims": [one]})).claims
    world = World([{field: value} for value in values], ["nDCG@10"], ["scifact"])
    (line,) = check([claim], world)
    assert line.startswith(f"claims[0].levels: missing; {field} has no order of its own (")


def test_a_claim_without_a_kind_or_a_field(tmp_path):
    nameless = {name: value for name, value in DIFFERENCE.items() if name != "kind"}
    assert problem(tmp_path, nameless) == "claims[0].kind: missing"
    short = {name: value for name, value in DIFFERENCE.items() if name != "b"}
    assert problem(tmp_path, DIFFERENCE | {"name": "first"}, short) == "claims[1].b: missing"


def test_a_number_that_is_none_is_refused(tmp_path):
    file = tmp_path / "grid.yaml"
    one = "{name: e, kind: equivalent, of: nDCG@10, axis: depth, margin: .nan}"
    file.write_text(GRID + f"claims: [{one}]\n")
    with pytest.raises(GridError, match="not plain data: Out of range float"):
        grids.load(file, here=False)


def test_a_claim_that_speaks_of_nothing(tmp_path):
    text = GRID.replace("steps: 80000, seed: 42", "steps: 80000, seed: 43")
    one = DIFFERENCE | {"where": {"steps": 80_000, "seed": 42}}
    with pytest.raises(GridError) as error:
        grids.load(with_claims(tmp_path, one, text=text), here=False)
    assert error.value.found == [
        "claims[0].where: it speaks of nothing; no trial has steps: 80000, seed: 42"
    ]


def test_two_claims_of_one_name(tmp_path):
    assert problem(tmp_path, DIFFERENCE, DIFFERENCE) == "claims[1].name: 'one' stands there twice"


def test_all_problems_come_in_one_report(tmp_path):
    bad = [DIFFERENCE | {"a": 7}, DIFFERENCE | {"axis": "dept", "of": "loss"}]
    with pytest.raises(GridError) as error:
        grids.load(with_claims(tmp_path, *bad), here=False)
    assert len(error.value.found) == 3  # the level, the name and the axis


def test_the_same_check_serves_a_table_that_was_imported():
    (claim,) = ClaimsFile.model_validate_json(json.dumps({"claims": [DIFFERENCE]})).claims
    world = World([{"depth": 6}, {"depth": 3}], ["nDCG@10"], ["scifact"])
    assert list(check([claim], world)) == ["claims[0].b: no trial has depth 12; there are 3, 6"]


def test_measures_may_be_spelt_as_elsewhere_and_layers_as_a_list(tmp_path):
    text = GRID.replace("[first, last]", "[first, [0, 5, 11]]").replace("[12, 6, 3]", "[3]")
    one = DIFFERENCE | {"of": "MRR@10", "axis": "keep", "a": "first", "b": [0, 5, 11]}
    (claim,) = grids.load(with_claims(tmp_path, one, text=text), here=False).claims
    assert (claim.of, claim.b) == ("RR@10", "0 5 11")


def test_a_length_can_be_asked_for_where_several_are_profiled(tmp_path):
    one = entry("linear", where={"length": 128})
    text = GRID + "latency: {lengths: [64, 128]}\n"
    assert grids.load(with_claims(tmp_path, one, text=text), here=False).claims
    with pytest.raises(GridError, match="no trial has length 128; there are 64, 256"):
        grids.load(with_claims(tmp_path, one, text=text.replace("128", "256")), here=False)


def test_no_latency_no_claim_about_one(tmp_path):
    with pytest.raises(GridError, match="unknown column 'p50_ms'"):
        grids.load(with_claims(tmp_path, entry("linear"), text=GRID + "latency: null\n"))


# a file of claims


def test_a_file_of_claims(tmp_path):
    file = tmp_path / "claims.yaml"
    file.write_text("claims:\n  - " + json.dumps(DIFFERENCE) + "\n")
    assert [claim.name for claim in read_claims(file)] == ["one"]
    file.write_text("claims:\n  - " + json.dumps(entry("equivalent", margin=0)) + "\n")
    with pytest.raises(GridError, match=r"claims\[0\]\.margin: 0; it should be greater than 0"):
        read_claims(file)
    file.write_text("claims: []\n")
    with pytest.raises(GridError, match=r"claims.yaml has 1 problem:\n  claims: \[\]"):
        read_claims(file)
    with pytest.raises(GridError, match="cannot be read"):
        read_claims(tmp_path / "none.yaml")


# registration


def test_a_claim_is_registered_when_a_study_is_opened_and_never_again(tmp_path):
    ledger = Ledger(tmp_path / "results")
    grid = grids.load(with_claims(tmp_path, DIFFERENCE), here=False)
    ledger.open_study(grid)
    first = ledger.claims_json("small").read_bytes()
    (digest,) = ledger.registered_claims("small")
    assert digest == grid.claims[0].digest
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", ledger.registered_claims("small")[digest]
    )
    ledger.open_study(grid)
    assert ledger.claims_json("small").read_bytes() == first
    more = grids.load(with_claims(tmp_path, DIFFERENCE | {"by": 0.01}, entry("best")), here=False)
    ledger.open_study(more)
    seen = ledger.registered_claims("small")
    assert len(seen) == 3
    assert seen[digest] == json.loads(first)[digest]


def test_a_study_without_claims_has_no_such_file(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text(GRID)
    ledger = Ledger(tmp_path / "results")
    ledger.open_study(grids.load(file, here=False))
    assert not ledger.claims_json("small").exists()


def test_the_digest_is_of_the_content_not_of_the_spelling():
    def digest(**changed):
        text = json.dumps({"claims": [DIFFERENCE | changed]})
        return ClaimsFile.model_validate_json(text).claims[0].digest

    assert digest() == digest(by=0.0, direction="above", where={})
    assert digest(where={"steps": 20_000}) == digest(where={"steps": [20_000]})
    changes = [{}, {"by": 0.1}, {"a": 3}, {"says": "it is"}, {"name": "two"}, {"on": "fiqa"}]
    assert len({digest(**changed) for changed in changes}) == len(changes)
