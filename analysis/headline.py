"""What a study found, in sentences made from its data; every number stands in one of its tables."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis.beside import below
from analysis.configurations import say
from analysis.difference_tables import probability
from analysis.differences import ALPHA
from analysis.latency_forensics import forensic_sentences
from analysis.study import Study
from analysis.summary_tables import budgets, gains, latency_line
from analysis.table import capital, missing, signed
from analysis.tested import Tested
from ray_ablation.frames import MEAN

MOST_SERIES = 4
"""Beyond so many series a sentence sums them up instead of speaking of each."""
change = signed("{:+.4f}")
percent = signed("{:+.1%}")


def findings(study: Study, found: Tested) -> list[str]:
    """What the headline measure says, in plain sentences."""
    means = study.means[study.means["trained"] & (study.means["n"] > 0)]
    if means.empty:
        return [f"No trained encoder is scored on all of {', '.join(study.benchmarks)} yet."]
    return [
        *below(study),
        *_best(study, means),
        *_along_x(study, means),
        *_separated(study, found),
        *_over_queries(found),
        *_budgets(study),
        *_baseline(study),
        *_passes(study),
        *_untrained(study),
        *_line(study),
        *forensic_sentences(study),
        *_hours(study),
    ]


def _best(study: Study, means: pd.DataFrame) -> Iterator[str]:
    best = means.sort_values("mean", kind="stable").iloc[-1]
    over = f"mean over {len(study.units)} benchmarks" if len(study.units) > 1 else "value"
    yield (
        f"The highest {study.headline} ({over}) is {best['mean']:.4f}, of "
        f"{best['configuration']} ({_seeds(best)})."
    )


def _along_x(study: Study, means: pd.DataFrame) -> Iterator[str]:
    """Which end is highest in each series, and which lowest."""
    if not study.layout.varies:
        return
    groups = [(name, means[means["series"] == name]) for name in study.layout.series]
    for name, rows in [one for one in groups if len(one[1]) > 1][:MOST_SERIES]:
        ordered = rows.sort_values("mean", kind="stable")
        low, high = (say(study.layout.x, ordered.iloc[end]["x"]) for end in (0, -1))
        ends = ordered["mean"].iloc[[0, -1]].tolist()
        text = f"At {name}, {high} is highest ({ends[1]:.4f}) and {low} lowest ({ends[0]:.4f})"
        known = rows.dropna(subset=["sd"]).sort_values("sd", kind="stable")
        if known.empty:
            yield f"{text}; each is a single seed, so no spread is known."
            continue
        widest, spread = known.iloc[-1], known["sd"].max()
        larger = "more" if ends[1] - ends[0] > spread else "no more"
        yield (
            f"{text}, {larger} apart than the largest sd over seeds "
            f"({spread:.4f}, {widest['configuration']}, n = {widest['n']})."
        )


def _separated(study: Study, found: Tested) -> Iterator[str]:
    """What a corrected test over seeds makes of the differences along x."""
    tested = found.pairs[found.pairs["p"].notna()]
    groups: list[tuple[Any, pd.DataFrame]] = list(tested.groupby("context", sort=False))
    if len(groups) > MOST_SERIES:
        groups = [(f"{len(groups)} series", tested)]
    for context, part in groups:
        first = part.sort_values("p", kind="stable").iloc[0]
        held = int((part["p_holm"] < ALPHA).sum())
        x = study.layout.x.replace("_", " ")
        yield (
            f"At {context}, {held or 'none'} of {len(part)} pairs of {x} "
            f"{'is' if held == 1 else 'are'} separated by a paired t test over seeds, Holm over "
            f"{first['family']}; the smallest p is {probability(first['p'])}, "
            f"{probability(first['p_holm'])} corrected ({first['level_a']} against "
            f"{first['level_b']}, {change(first['difference'])}, n = {first['n']})."
        )


def _over_queries(found: Tested) -> Iterator[str]:
    tests = found.queries.tests
    if tests.empty or not tests["p"].notna().any():
        return
    known = tests[tests["p"].notna()]
    held = int((known["p_holm"] < ALPHA).sum())
    yield (
        f"Over queries, {held or 'none'} of {len(known)} differences on single benchmarks "
        f"{'is' if held == 1 else 'are'} separated (paired permutation tests, Holm over "
        f"{known['family'].iloc[0]}); that is about these encoders, not about training again."
    )


def _budgets(study: Study) -> Iterator[str]:
    found = study.comparison
    if found is None:
        return
    rows = found.frame[(found.frame["n"] > 0) & (found.frame["benchmark"] == MEAN)]
    if rows.empty:
        return
    up, count = int((rows["difference"] > 0).sum()), len(rows)
    ordered = rows.sort_values("difference", kind="stable")
    ends = [
        f"{change(row['difference'])} ({say(study.layout.x, row['x'])})"
        for row in ordered.iloc[[0, -1]].to_dict("records")
    ]
    fixed = f" ({found.fixed})" if found.fixed else ""
    x = study.layout.x.replace("_", " ")
    verb = {0: "falls", count: "rises"}.get(up, "changes")
    where = f"at every {x}" if verb != "changes" else f"({up} of {count} up)"
    text = (
        f"{found.change.capitalize()}{fixed} the mean {found.measure} {verb} {where}, by "
        f"{' to '.join(dict.fromkeys(ends))} at matched {found.matched}"
    )
    parts = found.frame[(found.frame["n"] > 0) & (found.frame["benchmark"] != MEAN)]
    if parts.empty:
        yield f"{text}."
        return
    largest = parts.iloc[int(parts["difference"].abs().argmax())]
    yield (
        f"{text}; the largest change is on {largest['benchmark']} "
        f"({change(largest['difference'])}, {percent(largest['relative'])}, "
        f"{say(study.layout.x, largest['x'])})."
    )


def _baseline(study: Study) -> Iterator[str]:
    """Where a change depends on whether seeds are matched."""
    found = study.comparison
    if found is None:
        return
    rows = found.frame[(found.frame["n"] > 0) & (found.frame["benchmark"] == MEAN)]
    gaps = (rows["relative"] - rows["relative_all"]).abs()
    if gaps.empty or gaps.max() < 0.0005:
        return
    row = rows.iloc[int(gaps.argmax())]
    yield (
        f"The baseline matters: at {say(study.layout.x, row['x'])} that change is "
        f"{percent(row['relative'])} at matched {found.matched}, and "
        f"{percent(row['relative_all'])} between the means of all seeds."
    )


def _passes(study: Study) -> Iterator[str]:
    """Passes beside scores: the first thing a claim of overfitting must agree with."""
    frame = budgets(study)
    frame = frame[frame["complete"] & frame["passes"].notna()] if len(frame) else frame
    if len(frame) < 2 or frame["passes"].nunique() < 2:
        return
    ordered = frame.sort_values("mean", kind="stable")
    low, high = ordered.iloc[0], ordered.iloc[-1]
    values = {c.series: c.values for c in study.layout.configurations if c.trained}
    apart = [n for n, v in values[low["series"]].items() if values[high["series"]][n] != v]
    both = " and ".join(name.replace("_", " ") for name in apart)
    most = "the most passes" if high["passes"] == frame["passes"].max() else "passes"
    yield (
        f"{capital(high['named'])} makes {most} over the sample ({high['passes']:.2f}) and scores "
        f"highest (mean {high['mean']:.4f}); {low['named']} makes {low['passes']:.2f} and scores "
        f"lowest ({low['mean']:.4f}). They differ in {both}, so this is no effect of passes alone."
    )


def _untrained(study: Study) -> Iterator[str]:
    """How far fine-tuning moved each x from its own reference."""
    known = [gain for gain in gains(study) if gain is not None]
    if known:
        above = sum(gain > 0 for gain in known)
        ends = [change(end) for end in (min(known), max(known))]
        yield (
            f"{above} of {len(known)} fine-tuned configurations are above the untrained reference "
            f"of their own {study.layout.x.replace('_', ' ')}; they differ from it by "
            f"{' to '.join(dict.fromkeys(ends))}."
        )


def _line(study: Study) -> Iterator[str]:
    line = latency_line(study)
    if line is None:
        return
    carried = "" if missing(line["r2"]) else f"R² {line['r2']:.2f}, "
    yield (
        f"By least squares over {line['n']} depths p50 is {line['intercept']:.2f} ms and "
        f"{line['slope']:.3f} ms a block ({carried}off by {line['max_residual']:.2f} ms at most)."
    )


def _hours(study: Study) -> Iterator[str]:
    if study.hours is None:
        return
    for row in study.hours.dropna(subset=["stated"]).to_dict("records"):
        if row["stated"] != row["hours"]:
            yield (
                f"The {row['what']} is stated as {row['stated']:g} hours; by its own figures "
                f"{row['trials']} trials take {row['hours']:g} GPU-hours."
            )


def _seeds(row: Any) -> str:
    """n and spread of a row of `spread`."""
    if row["n"] == 1:
        return "a single seed, n = 1"
    return f"n = {row['n']} seeds, sd {row['sd']:.4f}"
