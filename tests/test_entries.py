"""What benchmarks and paths of a grid stand for."""

from pathlib import Path

import pytest

from ray_ablation import grid
from ray_ablation.data import beir
from ray_ablation.data.sources import Hub
from ray_ablation.problems import GridError

GRID = "name: x\naxes: {depth: [3]}\nfixed: {steps: 100, train_set: docstrings}\nbenchmarks: [%s]\n"


def load(tmp_path: Path, benchmarks: str, paths: str = "") -> grid.Grid:
    file = tmp_path / "grid.yaml"
    file.write_text(GRID % benchmarks + (f"paths: {{{paths}}}\n" if paths else ""))
    return grid.load(file)


def test_a_group_stands_for_its_benchmarks(tmp_path: Path) -> None:
    study = load(tmp_path, "scifact, cqadupstack", "cqadupstack: /sets/cqadupstack")
    names = [one.name for one in study.benchmarks]
    assert names == ["scifact", *(one.name for one in beir.GROUPS["cqadupstack"])]
    assert {study.source_of(one) for one in study.benchmarks[1:]} == {Path("/sets/cqadupstack")}
    # One forum alone is not the group.
    (alone,) = load(tmp_path, "cqadupstack-tex").benchmarks
    assert alone.group is None


def test_a_sample_takes_the_rules_of_its_whole(tmp_path: Path) -> None:
    text = "{name: msmarco-small, of: msmarco, others: 100000}, {name: q, of: quora, others: 1}"
    study = load(tmp_path, text, "msmarco: 'hf://datasets/BeIR/msmarco@main'")
    assert [one.split for one in study.benchmarks] == ["dev", "test"]
    assert study.benchmarks[1].self_ids == "drop"
    assert study.source_of(study.benchmarks[0]) == Hub("BeIR/msmarco", "main")
    assert study.source_of(study.benchmarks[1]) is None
    assert "judged documents and 100,000 others" in study.benchmarks[0].note


BAD_GRIDS = {
    "no source": (
        "scifact",
        "scifact: 's3://x/y'",
        r"paths\.scifact: 's3://x/y' is none of a fold",
    ),
    "half a sample": ("{name: a, of: scifact}", "", "of and others go together"),
    "of a group": ("{name: a, of: cqadupstack, others: 1}", "", "let it be of one benchmark"),
    "of itself": ("{name: nq, of: nq, others: 1}", "", "give it a name of its own"),
    "of nothing": (
        "{name: a, of: scifcat, others: 1}",
        "",
        "unknown benchmark 'scifcat'.*'scifact'",
    ),
    "twice": ("cqadupstack, cqadupstack-tex", "", "'cqadupstack-tex' stands there twice"),
    "group": ("{name: nq, group: fiqa}, fiqa", "", "the group 'fiqa' is called like a benchmark"),
}


@pytest.mark.parametrize("case", BAD_GRIDS)
def test_bad_benchmarks_and_paths_are_named(tmp_path: Path, case: str) -> None:
    benchmarks, paths, text = BAD_GRIDS[case]
    with pytest.raises(GridError, match=text):
        load(tmp_path, benchmarks, paths)


def test_a_backbone_is_no_url(tmp_path: Path) -> None:
    with pytest.raises(
        GridError, match=r"paths\.bert-base-uncased: https://x/y; a backbone comes "
    ):
        load(tmp_path, "scifact", "bert-base-uncased: 'https://x/y'")
