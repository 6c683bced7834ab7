"""The published ladder says what was worked out of it by hand; another one says something else."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis import latency_forensics
from analysis.latency_forensics import Line, forensics
from analysis.mixture import chance_of_equal_means, rebuild, stalls

FILE = Path(latency_forensics.__file__).parent / "published" / "depth_study" / "latency_ms.csv"


@pytest.fixture(scope="module")
def published():
    return pd.read_csv(FILE)


def test_the_published_ladder_is_taken_apart(published):
    """The numbers by hand: counts 60.0, 59.2, 59.9, 59.3; a step of 15.78 - 13.03."""
    said = forensics(published, line=Line(12.3, 0.33)).sentences
    assert said[0].startswith(
        "As a mixture of two speeds, p50, p95 and mean latency are those of 59.2 to 60.0 stalled "
        "calls in 500, equally many at all depths."
    )
    assert "59 at depth 3 would be 76 at depth 12, by the clock 64" in said[0]
    assert said[1].startswith("A stall adds 301 to 304 ms, equally long at all depths")
    assert said[2].startswith("p50 is a step, not a slope: it falls by 2.75 ms from depth 9 to 6")
    assert "11.08 ms + 0.444 ms a block (R² 0.89" in said[3]
    assert "another one (R² 0.78" in said[3]
    assert "B and E give the same figures to 0.01 ms at 4 depths" in said[4]
    assert "0.0006 at a depth, 2e-13 at all: this is no replication" in said[4]
    assert said[5].endswith("L12, L9, L6, L3 unstable (multimodal, tail).")


def test_its_mixture_is_judged_unstable_for_tail_and_modes_alone(published):
    frame = forensics(published).table.frame
    assert set(frame["verdict"]) == {"unstable"}
    assert set(frame["reasons"]) == {"multimodal, tail"}
    assert frame["residual_ms"].abs().max() == pytest.approx(0.71, abs=0.01)


def test_a_rebuilt_mixture_has_the_figures_it_is_made_of(published):
    for row in stalls(published).to_dict("records"):
        calls = rebuild(row["p50_ms"], row["p95_ms"], row["share"])
        assert len(calls) == 500
        assert np.median(calls) == pytest.approx(row["p50_ms"], rel=1e-3)
        assert np.quantile(calls, 0.95) == pytest.approx(row["p95_ms"], rel=1e-3)
        assert calls.mean() == pytest.approx(row["mean_ms"], rel=0.01)


def test_the_chance_of_equal_means_is_that_of_drawing_them():
    row = {"stall_ms": 303.0, "share": 0.12}
    rng = np.random.default_rng(0)
    means = 303.0 * rng.binomial(500, 0.12, size=(2, 400_000)) / 500
    drawn = (np.abs(means[0] - means[1]) < 0.5).mean()
    # Counts are whole, so means step by 0.606 ms; the half step of 0.303 stands for equality.
    assert chance_of_equal_means(row, 500, 0.606) == pytest.approx(drawn, rel=0.05)
    assert chance_of_equal_means(row, 500, 0.01) == pytest.approx(6.4e-4, rel=0.05)


def test_a_ladder_with_a_slope_and_stalls_by_time_is_told_from_it():
    depth = np.array([12, 9, 6, 3])
    ladder = pd.DataFrame({"experiments": "A", "depth": depth, "p50_ms": 2.0 + depth})
    ladder["p95_ms"] = ladder["p50_ms"] * 1.05
    ladder["mean_ms"] = ladder["p50_ms"] + (ladder["p95_ms"] - ladder["p50_ms"]) * depth / 100
    found = forensics(ladder, line=Line(2.0, 1.0))
    text = " ".join(found.sentences)
    assert "not equally many at all depths" in text
    assert "not equally long at all depths" in text
    assert "it is a slope" in text
    assert "is that line (R² 1.00" in text
    assert "replication" not in text
    assert not any("tail" in reasons for reasons in found.table.frame["reasons"])


def test_the_published_report_holds_it():
    from analysis.headline import findings
    from analysis.published_study import find_published, read_published
    from analysis.tables import all_tables
    from analysis.tested import tested

    study = read_published(find_published("depth_study"))
    found = tested(study)
    said = " ".join(findings(study, found))
    assert "59.2 to 60.0 stalled calls in 500" in said
    assert "The published line, 12.3 ms + 0.33 ms a block, is another one" in said
    assert "latency-forensics" in [table.name for table in all_tables(study, found)]
