"""Figures: their marks are the frames' numbers, and their captions say what is in them."""

import json
from dataclasses import replace

import pytest

import synthetic
from analysis.configurations import short
from analysis.figures import FIGURES, draw
from analysis.plots import style
from analysis.readers import read_study
from ray_ablation import grid as grids


def study_of(folder, **options):
    name = options.get("text", synthetic.GRID).split()[1]
    return read_study(name, synthetic.write_study(folder, **options))


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return study_of(tmp_path_factory.mktemp("figures"))


def traces(drawing):
    return {trace.name: trace for trace in drawing.figure.data if trace.name}


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_whole(study, name):
    drawing = FIGURES[name](study)
    made = json.loads(drawing.figure.to_json())
    assert (made["layout"]["width"], made["layout"]["height"]) == (style.WIDTH, style.HEIGHT)
    assert made["layout"]["title"]["text"]
    titled = [a for k, a in made["layout"].items() if k.startswith("yaxis")]
    assert any(axis.get("title", {}).get("text") for axis in titled)
    assert drawing.caption.endswith(".")


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_says_why_it_is_not_drawn(tmp_path, name):
    nothing = study_of(tmp_path, missing=("L",))
    if name.startswith("latency_"):  # which no score is needed for
        nothing = replace(nothing, latency=nothing.latency[:0])
    drawing = FIGURES[name](nothing)
    assert drawing.figure is None
    assert drawing.caption.startswith("Not drawn: ")


def test_lines_are_means_and_bands_two_sd(study):
    drawing = FIGURES["depth_by_budget"](study)
    line = traces(drawing)["batch 32, 20k steps (n = 3)"]
    assert list(line.x) == [3, 6, 12]
    results = study.results
    for x, y in zip(line.x, line.y, strict=True):
        own = results[
            (results["depth"] == x)
            & (results["steps"] == 20_000)
            & (results["benchmark"] == "mean")
            & (results["measure"] == "nDCG@10")
        ]["value"]
        assert y == pytest.approx(own.mean())
        band = next(t for t in drawing.figure.data if t.fill == "toself")
        ends = sorted(y for at, y in zip(band.x, band.y, strict=True) if at == x)
        wanted = [own.mean() - 2 * own.std(ddof=1), own.mean() + 2 * own.std(ddof=1)]
        assert ends == pytest.approx(wanted)


def test_single_seeds_are_dashed_hollow_and_without_a_band(study):
    drawing = FIGURES["depth_by_budget"](study)
    line = traces(drawing)["batch 32, 80k steps (n = 1)"]
    assert line.line.dash == "dash"
    assert set(line.marker.color) == {"white"}
    assert sum(trace.fill == "toself" for trace in drawing.figure.data) == 1


def test_a_far_reference_gets_a_panel_of_its_own(study):
    drawing = FIGURES["depth_by_budget"](study)
    reference = traces(drawing)["untrained"]
    assert (reference.line.dash, reference.yaxis) == ("dot", "y2")
    assert "on its own scale" in drawing.caption


def test_bars_are_matched_differences(study):
    drawing = FIGURES["change_by_benchmark"](study)
    assert "matched seed 42" in drawing.figure.layout.title.text
    results = study.results[study.results["measure"] == "nDCG@10"]
    for depth in (3, 6, 12):
        bar = traces(drawing)[f"depth {depth}"]
        for benchmark, change in zip(bar.x, bar.y, strict=True):
            own = results[(results["depth"] == depth) & (results["benchmark"] == benchmark)]
            own = own[own["seed"] == 42].set_index("steps")["value"]
            assert change == pytest.approx(own[80_000] - own[20_000])


def test_every_seed_is_a_point(study):
    drawing = FIGURES["seeds_by_depth"](study)
    points = sorted(y for t in drawing.figure.data if t.showlegend is False for y in t.y)
    means = study.results[
        (study.results["benchmark"] == "mean")
        & (study.results["measure"] == "nDCG@10")
        & (study.results["steps"] == 20_000)
    ]
    assert points == pytest.approx(sorted(means["value"]))
    assert "(n = 3)" in drawing.caption


def test_latency_points_are_hollow_until_the_verdict_is_stable(tmp_path):
    ledger = synthetic.write_study(tmp_path)
    before = FIGURES["accuracy_by_latency"](read_study("depth-study", ledger))
    assert set(traces(before)["batch 32, 20k steps"].marker.color) == {"white"}
    assert "indicative" in before.caption
    grid = grids.load(ledger.study_grid("depth-study"), here=False)
    synthetic.write_profile(ledger, grid, verdict="stable", processes=5)
    after = FIGURES["accuracy_by_latency"](read_study("depth-study", ledger))
    assert "white" not in traces(after)["batch 32, 20k steps"].marker.color
    assert "indicative" not in after.caption
    points = traces(after)["batch 32, 20k steps"]
    assert dict(zip(points.text, points.x, strict=True)) == {"L12": 14.0, "L6": 8.0, "L3": 5.0}


BATCHES = """\
name: batches
axes:
  batch: [16, 32, 64]
  seed: [1, 2]
fixed: {depth: 6, steps: 100}
benchmarks: [mine]
paths: {mine: ./mine}
"""
STRATEGIES = """\
name: strategies
axes:
  keep: [first, last]
  seed: [1, 2]
experiments:
  untrained: {steps: 0}
  short: {steps: 100}
  long: {steps: 400}
fixed: {depth: 3}
benchmarks: [mine]
paths: {mine: ./mine}
"""
STEPS = """\
name: steps
axes:
  steps: [0, 1000, 2000, 16000]
  learning_rate: [1e-5, 2e-5]
fixed: {depth: 6, seed: 1}
benchmarks: [mine]
paths: {mine: ./mine}
"""


def test_another_axis_takes_the_place_of_depth(tmp_path):
    drawing = FIGURES["depth_by_budget"](study_of(tmp_path, text=BATCHES))
    line = traces(drawing)["all trials (n = 2)"]
    assert list(line.x) == [16, 32, 64]
    assert drawing.figure.layout.xaxis.title.text == "batch"


def test_names_make_an_axis_too(tmp_path):
    study = study_of(tmp_path, text=STRATEGIES)
    drawing = FIGURES["depth_by_budget"](study)
    assert list(traces(drawing)["100 steps (n = 2)"].x) == ["first", "last"]
    change = FIGURES["change_by_benchmark"](study)
    assert "from 100 to 400 steps" in change.figure.layout.title.text
    assert "n = 2 a bar" in change.caption


def test_steps_as_the_axis_show_the_reference_as_a_level(tmp_path):
    study = study_of(tmp_path, text=STEPS)
    drawing = FIGURES["depth_by_budget"](study)
    assert drawing.figure.layout.xaxis.type == "log"
    level = traces(drawing)["untrained"]
    assert len(set(level.y)) == 1
    assert list(level.x) == [1000, 2000, 16000]
    assert "learning rate 1e-05 (n = 1)" in traces(drawing)
    assert list(drawing.figure.layout.xaxis.ticktext) == ["1k", "2k", "16k"]


@pytest.mark.parametrize("text", [BATCHES, STRATEGIES, STEPS])
def test_other_studies_have_every_figure_or_a_reason(tmp_path, text):
    for drawing in draw(study_of(tmp_path, text=text)).values():
        assert drawing.figure is not None or drawing.caption.startswith("Not drawn: ")


def test_layout_groups_what_differs_only_in_its_seed(study):
    found = study.layout
    assert found.x == "depth"
    assert found.series == ["batch 32, 20k steps", "batch 32, 80k steps"]
    assert sorted(len(c.trials) for c in found.configurations) == [1] * 6 + [3] * 3


def test_numbers_are_labelled_without_loss():
    assert [short(v) for v in (20_000, 1500, 2e-5, 0.1234567891)] == [
        "20k",
        "1500",
        "2e-05",
        "0.1234567891",
    ]
