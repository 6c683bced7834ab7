"""What a report says of latency: its calls, its stages, its line, and its verdict."""

import pytest

import synthetic
from analysis.figures import FIGURES
from analysis.readers import read_study
from analysis.tables import all_tables
from ray_ablation import grid as grids


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """The same study with an insufficient profile, and with a stable one of five processes."""
    ledger = synthetic.write_study(tmp_path_factory.mktemp("report"))
    before = read_study("depth-study", ledger)
    grid = grids.load(ledger.study_grid("depth-study"), here=False)
    synthetic.write_profile(ledger, grid, verdict="stable", processes=5)
    return {"insufficient": before, "stable": read_study("depth-study", ledger)}


def traces(drawing):
    return {trace.name: trace for trace in drawing.figure.data if trace.name}


def test_every_call_is_in_the_distribution(studies):
    drawing = FIGURES["latency_distribution"](studies["stable"])
    line = traces(drawing)["L12 (stable)"]
    assert [line.x[0], line.x[-1]] == pytest.approx([13.8, 14.2])
    assert (line.y[0], line.y[-1]) == (0.0, 1.0)
    assert line.x[100] == pytest.approx(14.0)
    assert line.line.dash == "solid"
    assert "L12 500, L6 500, L3 500" in drawing.caption
    unsure = FIGURES["latency_distribution"](studies["insufficient"])
    assert traces(unsure)["L12 (insufficient)"].line.dash == "dot"
    assert unsure.caption.endswith("insufficient; such a time is indicative.")


def test_stages_add_up_beside_the_untouched_call(studies):
    drawing = FIGURES["latency_stages"](studies["insufficient"])
    bars = [trace for trace in drawing.figure.data if trace.type == "bar"]
    assert [bar.name for bar in bars][:3] == ["tokenise", "copy to the device", "forward"]
    sums = [sum(values) for values in zip(*(bar.y for bar in bars), strict=True)]
    assert sums == pytest.approx([14.0, 8.0, 5.0])
    points = traces(drawing)["p50 end to end"]
    assert list(points.y) == pytest.approx(sums)
    assert set(points.marker.color) == {"white"}
    assert "device is busy" not in drawing.caption  # a CPU has no such number


def test_a_line_comes_with_its_residuals_and_r2(studies):
    """The synthetic latency is 2 ms and 1 ms a block, exactly."""
    drawing = FIGURES["latency_by_depth"](studies["stable"])
    assert "2.00 ms + 1.000 ms a block, R² 1.00" in drawing.caption
    residuals = next(trace for trace in drawing.figure.data if trace.type == "bar")
    assert list(residuals.y) == pytest.approx([0, 0, 0], abs=1e-9)
    points = traces(drawing)["p50"]
    assert points.error_y.array == pytest.approx([0.2] * 3)
    assert "indicative" not in drawing.caption


def test_the_table_shows_a_p50_with_its_verdict_and_interval_and_the_ratio_always(studies):
    for verdict, study in studies.items():
        [table] = [table for table in all_tables(study) if table.name == "latency"]
        rows = [
            dict(zip((c.title for c in table.columns), cells, strict=True))
            for cells in table.cells()
        ]
        assert [row["ratio to L12"] for row in rows] == ["1.000", "0.571", "0.357"]
        assert all(verdict in row["verdict"] for row in rows)
        assert [row["95 % interval"] for row in rows] == (
            ["–"] * 3
            if verdict == "insufficient"
            else ["13.90 to 14.20", "7.90 to 8.20", "4.90 to 5.20"]
        )
