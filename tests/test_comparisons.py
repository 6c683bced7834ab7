"""All pairs at once: against single tests, known answers of a study and a thousand null studies."""

import itertools
import math
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from analysis.comparisons import COLUMNS, compare, compare_queries
from analysis.power import detectable_effect
from analysis.resampling import permutation_test
from ray_ablation.problems import UserError

# Mean nDCG@10 over three benchmarks, batch 32, 20K steps, seeds 42, 43, 44.
STUDY = {
    12: (0.2326, 0.2410, 0.2463),
    9: (0.2388, 0.2382, 0.2384),
    6: (0.2427, 0.2441, 0.2446),
    3: (0.2428, 0.2427, 0.2412),
}


def tidy(values_CLS: np.ndarray, levels: list | None = None) -> pd.DataFrame:
    """(contexts, levels, seeds) values as a tidy frame."""
    index = itertools.product(*map(range, values_CLS.shape))
    frame = pd.DataFrame(index, columns=["context", "level", "seed"])
    frame["level"] = frame["level"].map(dict(enumerate(levels or range(values_CLS.shape[1]))))
    return frame.assign(value=values_CLS.ravel())


def study() -> pd.DataFrame:
    return tidy(np.array([list(STUDY.values())]), list(STUDY))


def pair(table: pd.DataFrame, a: object, b: object) -> pd.Series:
    (row,) = (row for _, row in table.iterrows() if (row["level_a"], row["level_b"]) == (a, b))
    return row


def test_the_study_has_no_pair_left_after_holm():
    table = compare(study(), levels=[3, 6, 9, 12])
    assert list(table.columns) == COLUMNS
    assert len(table) == 6
    row = pair(table, 6, 9)
    assert (row["n"], row["family"], row["method"]) == (3, 6, "paired t test over seeds")
    assert (round(row["difference"], 4), round(row["p"], 3)) == (0.0053, 0.018)
    assert round(row["p_holm"], 3) == 0.105
    row = pair(table, 6, 12)
    assert (round(row["difference"], 4), round(row["p"], 2)) == (0.0038, 0.38)
    assert table["p_holm"].min() > 0.05


def test_one_level_against_the_others_is_a_smaller_family():
    table = compare(study(), against=12)
    assert list(zip(table["level_a"], table["level_b"], strict=True)) == [(9, 12), (6, 12), (3, 12)]
    assert table["family"].tolist() == [3, 3, 3]
    chosen = compare(study(), levels=[6, 3], against=12)
    assert chosen["level_a"].tolist() == [6, 3]


def test_every_row_is_scipys_whatever_the_order_of_the_frame():
    values = np.random.default_rng(1).normal(size=(3, 4, 5))
    table = compare(tidy(values).sample(frac=1, random_state=0), levels=range(4))
    assert len(table) == 18
    for row in table.to_dict("records"):
        a, b = (values[row["context"], row[level]] for level in ("level_a", "level_b"))
        expected = stats.ttest_rel(a, b)
        interval = expected.confidence_interval()
        assert (row["difference"], row["p"]) == pytest.approx(((a - b).mean(), expected.pvalue))
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert table["p_holm"].tolist() == pytest.approx(multipletests(table["p"], method="holm")[1])
    within = compare(tidy(values), family_by_context=True)
    assert within["family"].unique().tolist() == [6]
    for _, part in within.groupby("context"):
        assert part["p_holm"].tolist() == pytest.approx(multipletests(part["p"], method="holm")[1])


def test_what_cannot_be_tested_stays_in_the_table_and_out_of_the_family():
    frame = study()
    frame = frame[(frame["level"] != 9) | (frame["seed"] == 0)]  # one seed
    frame.loc[frame["level"] == 3, "seed"] += 10  # no seed in common
    table = compare(frame)
    assert table["family"].unique().tolist() == [1]
    row = pair(table, 12, 9)
    assert row["n"] == 1
    assert row["difference"] == pytest.approx(0.2326 - 0.2388)
    assert row[["sd", "low", "high", "p", "p_holm"]].isna().all()
    assert row["reason"] == "n = 1; a test takes at least two matched seeds"
    assert pair(table, 12, 3)[["difference", "p"]].isna().all()
    assert pair(table, 12, 6)["p_holm"] == pair(table, 12, 6)["p"]


def test_missing_values_and_empty_frames():
    frame = study()
    frame.loc[frame["seed"] == 0, "value"] = None
    assert compare(frame)["n"].tolist() == [2] * 6
    for empty in (compare(study()[:0]), compare(study()[:3])):
        assert (list(empty.columns), len(empty)) == (COLUMNS, 0)


def test_a_thousand_null_studies_find_something_in_at_most_six_of_a_hundred():
    rng = np.random.default_rng(2)
    shared = rng.normal(0, 3, (1000, 1, 5))  # a seed's own effect, the same for all levels
    table = compare(tidy(shared + rng.normal(size=(1000, 4, 5))), family_by_context=True)
    found = (table["p_holm"] < 0.05).groupby(table["context"]).any()
    assert len(found) == 1000
    assert found.mean() <= 0.06
    raw = (table["p"] < 0.05).groupby(table["context"]).any()
    assert raw.mean() > 0.12  # what Holm is for


def test_a_difference_twice_the_detectable_one_is_found():
    rng = np.random.default_rng(3)
    values = rng.normal(0, 3, (300, 1, 5)) + rng.normal(size=(300, 4, 5))
    # a difference of two levels spreads by root 2
    values[:, 2] += 2 * detectable_effect(math.sqrt(2), 5, comparisons=6)
    table = compare(tidy(values), levels=range(4), family_by_context=True)
    planted = table[(table["level_a"] == 0) & (table["level_b"] == 2)]
    assert (planted["p_holm"] < 0.05).mean() >= 0.9
    assert (planted["difference"] < 0).all()


def queries(values_CLSQ: np.ndarray, benchmark: str = "scifact") -> pd.DataFrame:
    names = ["context", "level", "seed", "query_id"]
    frame = pd.DataFrame(itertools.product(*map(range, values_CLSQ.shape)), columns=names)
    return frame.assign(
        context=[("batch", c) for c in frame["context"]],
        query_id=frame["query_id"].map("q{}".format),
        benchmark=benchmark,
        value=values_CLSQ.ravel(),
    )


def test_queries_are_tested_as_one_by_one_and_seeds_are_meaned():
    rng = np.random.default_rng(4)
    one, two = rng.beta(1, 2, (2, 3, 2, 60)), rng.beta(1, 2, (2, 3, 2, 8))
    frame = pd.concat([queries(one), queries(two, "arguana")]).sample(frac=1, random_state=0)
    table = compare_queries(frame, levels=[0, 1, 2])
    assert len(table) == 2 * 2 * 3
    assert table["family"].unique().tolist() == [12]
    for row in table.to_dict("records"):
        values = one if row["benchmark"] == "scifact" else two
        context = row["context"][1]
        a, b = (values[context, row[level]].mean(0) for level in ("level_a", "level_b"))
        low, high = stats.t.interval(0.95, len(a) - 1, (a - b).mean(), stats.sem(a - b))
        assert row["difference"] == pytest.approx((a - b).mean())
        assert (row["low"], row["high"]) == pytest.approx((low, high))
        assert (row["n"], row["n_seeds"]) == (len(a), 2)
        expected = permutation_test(a, b, seed=0).p
        assert row["p"] == pytest.approx(expected, abs=0 if row["n"] == 8 else 0.02)
    assert table["p_holm"].tolist() == pytest.approx(multipletests(table["p"], method="holm")[1])


def test_query_tests_take_seeds_that_match_only():
    frame = queries(np.random.default_rng(5).random((1, 3, 2, 30)))
    frame = frame[~((frame["level"] == 1) & (frame["seed"] == 0))]
    frame.loc[frame["level"] == 2, "seed"] += 10
    table = compare_queries(frame)
    assert pair(table, 0, 1)["n_seeds"] == 1
    row = pair(table, 0, 2)
    assert (row["n"], row["n_seeds"], row["reason"]) == (30, 0, "no seed in common")
    assert row[["difference", "p", "p_holm"]].isna().all()
    assert table["family"].unique().tolist() == [1]


def test_one_query_can_be_compared_and_never_told_apart():
    table = compare_queries(queries(np.array([0.1, 0.9]).reshape(1, 2, 1, 1)))
    assert table.loc[0, "p"] == 1.0
    assert table.loc[0, ["sd", "low", "high"]].isna().all()


def test_null_queries_are_found_in_at_most_six_of_a_hundred_studies():
    frame = queries(np.random.default_rng(6).random((500, 4, 1, 40)) ** 3)
    table = compare_queries(frame, resamples=2000, family_by_context=True)
    assert (table["p_holm"] < 0.05).groupby(table["context"]).any().mean() <= 0.06


def test_different_queries_are_refused_with_both_named():
    frame = queries(np.random.default_rng(7).random((1, 3, 1, 30)))
    lacking = frame[~((frame["level"] == 1) & (frame["query_id"] == "q7"))]
    text = r"scifact: 1 seed 0 \(\('batch', 0\)\) has 29 queries and 0 seed 0 .* has 30; query 'q7'"
    with pytest.raises(UserError, match=text):
        compare_queries(lacking)
    frame.loc[(frame["level"] == 1) & (frame["query_id"] == "q7"), "value"] = math.nan
    with pytest.raises(UserError, match=text):
        compare_queries(frame)
    assert len(compare_queries(lacking, levels=[0, 2])) == 1  # as the error advises
    apart = lacking[~((lacking["level"] == 0) & (lacking["query_id"] == "q3"))]  # equally many
    with pytest.raises(UserError, match=r"1 seed 0 .* has 29 .* and 0 seed 0 .* has 29; .*'q7'"):
        compare_queries(apart, levels=[0, 1])
    with pytest.raises(UserError, match="scifact: query 'q0' has no value for any encoder"):
        compare_queries(frame.assign(value=None))


def test_an_unknown_seed_matches_no_other():
    frame = study()
    frame["seed"] = frame["seed"].astype("Int64").where(frame["seed"] < 2)
    assert compare(frame)["n"].tolist() == [2] * 6
    nameless = compare(frame.assign(seed=None))
    assert (nameless["n"] == 0).all()
    assert nameless["p"].isna().all()


@pytest.mark.parametrize(("run", "frame"), [(compare, study()), (compare_queries, None)])
def test_bad_frames_are_refused(run, frame):
    frame = queries(np.random.default_rng(8).random((1, 3, 1, 9))) if frame is None else frame
    with pytest.raises(UserError, match=r"takes the columns level, context.*seed lacks among"):
        run(frame.drop(columns="seed"))
    with pytest.raises(UserError, match=f"{len(frame)} of {len(frame)} rows have no context"):
        run(frame.assign(context=None))
    two = pd.concat([frame.assign(measure="nDCG@10"), frame.assign(measure="R@100")])
    with pytest.raises(UserError, match="takes one measure; found R@100, nDCG@10"):
        run(two)
    with pytest.raises(UserError, match=r"unknown level '13'; known: .*2"):
        run(frame, against=13)
    with pytest.raises(UserError, match="unknown level 'L6'"):
        run(frame, levels=["L6"])
    with pytest.raises(UserError, match=r"name all that\s+differs in context"):
        run(pd.concat([frame, frame]))


def test_an_axis_with_too_many_pairs_is_refused_and_against_one_level_is_not():
    frame = tidy(np.zeros((1, 220, 2)))
    with pytest.raises(UserError, match="more than 20,000 comparisons; name fewer levels"):
        compare(frame)
    assert len(compare(frame, against=0)) == 219


def test_the_answers_above_are_computed_and_not_written_down():
    for path in (Path(__file__).parent.parent / "analysis").rglob("*.py"):
        assert not any(answer in path.read_text() for answer in ("0.105", "11.08")), path


@pytest.mark.slow
def test_a_thousand_trials_on_eighteen_benchmarks_take_seconds():
    values = np.random.default_rng(9).random((50, 4, 5, 300), dtype=np.float32)
    parts = [queries(values, f"b{number}") for number in range(18)]
    frame = pd.concat(parts, ignore_index=True).astype({"benchmark": "category"})
    frame["query_id"] = frame["query_id"].astype("category")
    start = time.perf_counter()
    table = compare_queries(frame)
    assert len(table) == 18 * 50 * 6
    assert time.perf_counter() - start < 60
