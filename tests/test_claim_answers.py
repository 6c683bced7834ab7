"""Answers of a report: one family of tests, stamps, sentences made of their rows, and facts."""

import itertools
import re

import pandas as pd
import pytest

from analysis import report
from analysis.claims import VERDICTS, answer, answers_frame, claims_table
from analysis.facts import facts
from analysis.readers import read_study
from ray_ablation import run
from ray_ablation.problems import GridError, UserError
from tests.claim_facts import AT_20K, LADDER, ask, claims, made, number, one_level, published
from tests.synthetic import GRID, write_study

# families, stamps, tables


def test_claims_of_one_report_are_corrected_as_a_family():
    known = one_level(LADDER)
    entries = [{"kind": "difference", "a": a, "b": b} for a, b in itertools.combinations(LADDER, 2)]
    found = answer(claims(*entries, {"kind": "linear", "within": 1.0}), known)
    tested = sorted(one.p for one in found if one.p is not None)
    assert {one.family for one in found} == {6, None}
    running = 0.0
    for rank, p in enumerate(tested):
        running = max(running, min(1.0, (6 - rank) * p))
        assert running == pytest.approx(next(one.p_holm for one in found if one.p == p))


def test_the_corrected_p_decides():
    known = one_level({6: (0.31, 0.33, 0.32, 0.34), 12: (0.30, 0.31, 0.31, 0.32)})
    entry = {"kind": "difference", "a": 6, "b": 12}
    assert 0.01 < ask(known, **entry).p < 0.05
    flipped = [entry] * 6
    found = answer(claims(*flipped), known)
    assert {one.verdict for one in found} == {"underpowered"}
    assert found[0].family == 6


def test_registered_before_or_after_the_first_result_it_speaks_of():
    known = published()
    (claim,) = claims({"kind": "difference", "a": 6, "b": 12, "where": AT_20K})
    for seen, stamp in (
        ("2025-03-01T12:00:00Z", "before the first result"),
        ("2025-02-01T00:00:00+00:00", "before the first result"),
        ("2025-03-01T14:00:01+02:00", "after the first result"),
    ):
        (found,) = answer([claim], known, {claim.digest: seen})
        assert found.registered == stamp
    assert answer([claim], known)[0].registered == "not registered"
    (changed,) = claims({"kind": "difference", "a": 6, "b": 12, "where": AT_20K, "by": 0.001})
    assert answer([changed], known, {claim.digest: "2025-02-01T00:00:00Z"})[0].registered == (
        "not registered"
    )
    (imported,) = answer([claim], made(known.rows, imported=True))
    assert imported.registered == "unknown (imported)"


def test_a_level_that_a_claim_does_not_speak_of_does_not_date_it():
    early = {"finished_at": "2025-01-01T00:00:00+00:00"}
    rows = [*one_level({6: (0.31, 0.33), 12: (0.30, 0.31)}).rows]
    rows.append(number(3, 32, 20_000, 1, 0.2, **early))
    (pair, all_of_them) = claims(
        {"kind": "difference", "a": 6, "b": 12}, {"kind": "best", "level": 6}
    )
    seen = dict.fromkeys((pair.digest, all_of_them.digest), "2025-02-01T00:00:00+00:00")
    found = answer([pair, all_of_them], made(rows), seen)
    assert [one.registered[:6] for one in found] == ["before", "after "]


HEADLINES = [
    {"kind": "difference", "a": 6, "b": 12, "where": AT_20K},
    {"kind": "equivalent", "margin": 0.01, "where": AT_20K},
    {"kind": "best", "level": 6, "where": {"steps": 80_000}},
    {"kind": "top_k", "level": 6, "k": 2},
    {"kind": "dominates", "level": 6, "over": [9], "where": {"batch": 32}},
    {"kind": "decreases", "axis": "steps", "where": {"batch": 32}, "before": 20_000}
    | {"after": 80_000}
    | {"most_at": {"depth": 12}},
    {"kind": "spread_ratio", "level": 12, "where": AT_20K},
    {"of": "p50_ms", "kind": "linear", "intercept": 12.3, "slope": 0.33, "within": 0.5},
    {"kind": "monotone", "direction": "falls", "where": AT_20K},
    {"kind": "correlates", "direction": "falls"},
    {"kind": "difference", "a": 6, "b": 12, "where": {"seed": 44, "steps": 20_000}},
]  # fmt: skip


def said(sentence):
    """The numbers of a sentence, as they are spelt."""
    return re.findall(r"[+−-]?\d+(?:\.\d+)?(?:e-?\d+)?", sentence)


def stands_in(token, row):
    value = float(token.replace("−", "-"))
    digits = len(token.partition("e")[0].partition(".")[2])
    numbers = [cell for cell in row.values() if isinstance(cell, int | float)]
    if any(f"{number:.{digits}f}" == f"{value:.{digits}f}" for number in numbers):
        return True
    if any(
        number and abs(number - value) <= 0.06 * abs(number) for number in numbers if "e" in token
    ):
        return True
    return any(
        token in str(row[name]) for name in ("what", "place", "note", "missing") if row[name]
    )


def test_every_number_of_a_sentence_stands_in_its_row():
    answers = answer(claims(*HEADLINES), published())
    for row in answers_frame(answers).to_dict("records"):
        sentence = row.pop("sentence")
        assert said(sentence), sentence
        for token in said(sentence):
            assert stands_in(token, row), (token, sentence)


def test_the_helper_would_notice_a_number_from_elsewhere():
    row = answers_frame(answer(claims(HEADLINES[0]), published())).to_dict("records")[0]
    row.pop("sentence")
    assert not stands_in("0.0039", row)
    assert stands_in("+0.0038", row)


def test_the_table_shows_every_claim_and_is_the_same_twice():
    first, second = (
        claims_table(answer(claims(*HEADLINES), published())).markdown() for _ in range(2)
    )
    assert first == second
    assert first.count("\n| ") == len(HEADLINES) + 2
    assert "underpowered (" in first
    assert claims_table([]) is None


def test_all_verdicts_are_words_of_the_list():
    found = {one.verdict for one in answer(claims(*HEADLINES), published())}
    assert found <= set(VERDICTS)
    assert len(found) >= 3


# facts


def test_facts_of_a_ledger(tmp_path):
    ledger = write_study(tmp_path, missing=("L6-b32-20k-s43",))
    study = read_study("depth-study", ledger)
    known = facts(study.trials, study.results, study.latency, study.axes)
    assert ask(known, kind="difference", a=12, b=3, where=AT_20K).n == 3
    gone = ask(known, kind="difference", a=12, b=6, where=AT_20K)
    assert gone.verdict == "unanswered"
    assert gone.missing.startswith("L6-b32-20k-s43")
    # p50 is 2 ms and 1 ms a block, of three architectures and not of fifteen trials.
    line = ask(known, of="p50_ms", kind="linear", intercept=2.0, slope=1.0, within=1e-9)
    assert line.verdict == "supported"
    assert line.comparisons == 1
    # 400 / depth examples a second, so seconds rise with depth at equal steps.
    rise = ask(known, of="seconds", kind="monotone", direction="rises", where={"steps": 80_000})
    assert rise.agree == rise.comparisons == 2
    untrained = ask(
        known, kind="difference", axis="steps", a=20_000, b=0, where={"depth": 12, "batch": 32}
    )
    assert untrained.verdict == "supported"
    assert untrained.n == 3
    passes = ask(known, kind="correlates", axis="passes", direction="falls", where={"depth": 12})
    assert passes.n == 4


def test_a_claim_about_nothing_is_an_error():
    with pytest.raises(GridError, match=r"claims\[0\]\.of: unknown column 'nDCG@5'"):
        ask(published(), of="nDCG@5", kind="difference", a=6, b=12)


def test_a_column_that_nobody_recorded_leaves_a_claim_unanswered():
    found = ask(published(), of="examples_per_s", kind="difference", a=9, b=12, direction="below")
    assert found.sentence == "Unanswered: examples_per_s is missing for depth 9; depth 12."


def test_two_numbers_of_one_place_are_an_error():
    rows = [number(d, 32, 20_000, 1, 0.3, trial=f"t{d}{i}") for d in (6, 12) for i in (1, 2)]
    with pytest.raises(UserError, match=r"t61 and t62 differ in no field that is known"):
        ask(made(rows), kind="difference", a=6, b=12)


def test_an_infinite_number_is_an_error():
    trials = pd.DataFrame([{"trial": "t1", "state": "done", "depth": 3, "seconds": float("inf")}])
    with pytest.raises(UserError, match="trial t1: seconds is inf; a number is needed"):
        facts(trials, pd.DataFrame(), pd.DataFrame(columns=["length"]))


# exit codes

CLAIMED = """
claims:
  - {name: falls, kind: decreases, of: nDCG@10, on: fiqa, axis: depth, before: 12, after: 3,
     where: {steps: 20000}, by: 0.2}
  - {name: line, kind: linear, of: p50_ms, axis: depth, intercept: 2, slope: 1, within: 0.001}
"""


def test_strict_exits_with_1_when_a_claim_does_not_hold(tmp_path, capsys):
    ledger = write_study(tmp_path / "results", text=GRID + CLAIMED)
    file = tmp_path / "grid.yaml"
    file.write_text(GRID + CLAIMED)
    command = [str(file), "--phase", "report", "--local", "--storage", str(ledger.root)]
    assert run.main(command) == 0
    assert run.main([*command, "--strict"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("a claim does not hold: falls: Contradicted: depth 3 − depth 12")
    of_study = ["--study", "depth-study", "--root", str(ledger.root), "--no-png", "--strict"]
    assert report.main(of_study) == 1
    only = tmp_path / "claims.yaml"
    line = [text for text in CLAIMED.splitlines() if "linear" in text]
    only.write_text("\n".join(["claims:", *line]) + "\n")
    assert report.main([*of_study, "--claims", str(only)]) == 0
    only.write_text("claims:\n" + line[0].replace("depth", "dept") + "\n")
    assert report.main([*of_study, "--claims", str(only)]) == 2
    assert "claims[0].axis: unknown axis 'dept'" in capsys.readouterr().err


def test_a_report_with_claims_is_the_same_twice(tmp_path):
    ledger = write_study(tmp_path, text=GRID + CLAIMED)
    texts = []
    for _ in range(2):
        assert report.main(["--study", "depth-study", "--root", str(tmp_path), "--no-png"]) == 0
        texts.append((ledger.study_dir("depth-study") / "RESULTS.md").read_bytes())
    assert texts[0] == texts[1]
    assert b"after the first result" in texts[0]  # its trials finished in 2025
