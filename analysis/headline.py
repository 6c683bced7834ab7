"""Sentences made from the data: what a study found, what it does not show, and where it ran."""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from analysis.study import Study
from analysis.table import missing
from ray_ablation.frames import MEAN


def findings(study: Study) -> list[str]:
    """What the headline measure says, in plain sentences; facts, no test of significance."""
    means = study.means[study.means["trained"] & (study.means["n"] > 0)]
    if means.empty:
        return [f"No trained encoder is scored on all of {', '.join(study.benchmarks)} yet."]
    return [*_best(study, means), *_along_x(study, means), *_budgets(study), *_untrained(study)]


def limits(study: Study) -> list[str]:
    """What the report does not show."""
    found = [*_seed_limits(study), *_latency_limits(study), *_data_limits(study)]
    found.append(
        "No difference here is tested for significance: intervals are of single means or changes, "
        "and many are looked at."
    )
    return found


def facts(study: Study) -> list[tuple[str, str]]:
    """What was computed, when, where and with what; (name, text)."""
    done = study.state("done")
    counts = {state: len(study.state(state)) for state in ("done", "failed", "missing")}
    cells = study.results[study.results["benchmark"] != MEAN].drop_duplicates(
        ["trial", "benchmark"]
    )
    same = (f"{name.replace('_', ' ')} {value}" for name, value in study.grid.common().items())
    return [
        ("grid", f"{study.grid.name}: {study.grid.product}"),
        ("the same for all that are trained", ", ".join(same)),
        ("trials", ", ".join(f"{count} {state}" for state, count in counts.items() if count)),
        ("scores", f"{int(cells['n_queries'].notna().sum())} of {len(cells)} trials x benchmarks"),
        ("finished", _between(done["finished_at"])),
        ("devices", _list(done["device_name"])),
        ("nodes", _list(done["node"])),
        ("versions", _versions(study)),
        ("commit", _list(text[:12] + text[40:] for text in done["git_commit"].dropna())),
        ("training code", _list(_short(done["code_sha256"]))),
        ("weights", _list(_short(done["weights_sha256"]))),
        ("train sample", _list(_short(done["sample_sha256"]))),
        ("latency profile", _list(study.latency["profile"])),
    ]


def _best(study: Study, means: pd.DataFrame) -> Iterator[str]:
    best = means.sort_values("mean", kind="stable").iloc[-1]
    over = f"mean over {len(study.benchmarks)} benchmarks" if len(study.benchmarks) > 1 else "value"
    yield (
        f"The highest {study.headline} ({over}) is {best['mean']:.4f}, of "
        f"{best['configuration']} ({_seeds(best)})."
    )


def _along_x(study: Study, means: pd.DataFrame) -> Iterator[str]:
    """Is the range along x larger than the spread of seeds?"""
    if not study.layout.varies:
        return
    x = study.layout.x.replace("_", " ")
    for name in study.layout.series:
        rows = means[means["series"] == name]
        spread = rows["sd"].max()
        if len(rows) < 2 or missing(spread):
            continue
        extent = rows["mean"].max() - rows["mean"].min()
        widest = rows.dropna(subset=["sd"]).sort_values("sd", kind="stable").iloc[-1]
        larger = "more" if extent > spread else "no more"
        ordered = rows.sort_values("mean", kind="stable")
        low, high = ordered.iloc[0], ordered.iloc[-1]
        yield (
            f"At {name}, {x} {high['x']} is highest ({high['mean']:.4f}) and {x} {low['x']} lowest "
            f"({low['mean']:.4f}), {extent:.4f} apart: {larger} than the largest sd over seeds "
            f"({spread:.4f}, {widest['configuration']}, n = {widest['n']})."
        )


def _budgets(study: Study) -> Iterator[str]:
    found = study.comparison
    if found is None:
        return
    rows = found.frame[(found.frame["n"] > 0) & (found.frame["benchmark"] == MEAN)]
    if rows.empty:
        return
    up, count = int((rows["difference"] > 0).sum()), len(rows)
    ends = [
        f"{end:+.4f}".replace("-", "−")
        for end in (rows["difference"].min(), rows["difference"].max())
    ]
    fixed = f" ({found.fixed})" if found.fixed else ""
    x = study.layout.x.replace("_", " ")
    verb = {0: "falls", count: "rises"}.get(up, "changes")
    where = f"at every {x}" if verb != "changes" else f"({up} of {count} up)"
    parts = found.frame[(found.frame["n"] > 0) & (found.frame["benchmark"] != MEAN)]
    largest = parts.loc[parts["difference"].abs() == parts["difference"].abs().max()].iloc[0]
    relative = f"{largest['relative']:+.0%}".replace("-", "−")
    yield (
        f"{found.change.capitalize()}{fixed} the mean {found.measure} {verb} {where}, by "
        f"{' to '.join(dict.fromkeys(ends))} at matched {found.matched}; the largest "
        f"change is on {largest['benchmark']} ({relative}, {x} {largest['x']})."
    )


def _untrained(study: Study) -> Iterator[str]:
    """How far fine-tuning moved each x from its own reference."""
    means = study.means[study.means["n"] > 0]
    references = means[~means["trained"]].drop_duplicates("x").set_index("x")["mean"]
    gains = [
        row["mean"] - references[row["x"]]
        for _, row in means[means["trained"]].iterrows()
        if row["x"] in references.index
    ]
    if gains:
        above = sum(gain > 0 for gain in gains)
        ends = [f"{end:+.4f}".replace("-", "−") for end in (min(gains), max(gains))]
        yield (
            f"{above} of {len(gains)} fine-tuned configurations are above the untrained reference "
            f"of their own {study.layout.x.replace('_', ' ')}; they differ from it by "
            f"{' to '.join(dict.fromkeys(ends))}."
        )


def _seed_limits(study: Study) -> Iterator[str]:
    trained = study.means[study.means["trained"]]
    single = trained[trained["n"] == 1]
    if len(single):
        yield (
            f"{len(single)} of {len(trained)} trained configurations have a single seed, so their "
            "spread is not known."
        )
    if trained["n"].max() in (2, 3):
        yield "Two or three seeds give a rough spread: a standard deviation of so few is uncertain."


def _latency_limits(study: Study) -> Iterator[str]:
    found = study.latency[study.latency["verdict"].notna()]
    if found.empty:
        yield "No latency was measured."
        return
    unsteady = found.drop_duplicates(["variant", "length", "arm"])
    unsteady = unsteady[unsteady["verdict"] != "stable"]
    if len(unsteady):
        reasons = _list(code for codes in unsteady["reasons"] for code in codes.split(", "))
        yield (
            f"Latency is indicative for {_list(unsteady['variant'])}: "
            f"{_list(unsteady['verdict'])} ({reasons})."
        )


def _data_limits(study: Study) -> Iterator[str]:
    unfinished = study.trials[study.trials["state"] != "done"]
    if len(unfinished):
        yield f"{len(unfinished)} of {len(study.trials)} trials are not done; they are listed."
    for name, part in study.audit.groupby("benchmark", sort=False):
        if part["benchmark_sha256"].nunique() > 1:
            yield f"Trials were scored on different contents of {name}; they do not compare."
        documents = part["documents"].max()
        for measure in study.grid.measures:
            if measure.startswith("R@") and int(measure[2:]) >= documents:
                yield f"{measure} takes in all {documents} documents of {name}: it cannot but be 1."
        if (share := part["truncated_documents"].max()) > 0:
            length = _list(part["max_length"])
            yield f"{share:.1%} of the documents of {name} are cut at {length} tokens."
    done = study.state("done")
    for column, what in (("device_name", "devices"), ("code_sha256", "versions of the code")):
        if done[column].nunique() > 1:
            yield f"Trials were trained on different {what}: {_list(_short(done[column]))}."
    if len({str(sorted(versions.items())) for versions in study.versions.values()}) > 1:
        yield "Trials were trained with different versions of the libraries."


def _seeds(row: Any) -> str:
    """n and spread of a row of `spread`."""
    if row["n"] == 1:
        return "a single seed, n = 1"
    return f"n = {row['n']} seeds, sd {row['sd']:.4f}"


def _versions(study: Study) -> str:
    found = {
        f"{library} {version}"
        for versions in study.versions.values()
        for library, version in versions.items()
        if version
    }
    return _list(sorted(found))


def _between(moments: "pd.Series[str]") -> str:
    known = sorted(moments.dropna())
    return " to ".join(dict.fromkeys((known[0], known[-1]))) if known else "–"


def _short(digests: "pd.Series[str]") -> list[str]:
    return [text[:12] if len(text) == 64 else text for text in digests.dropna()]


def _list(values: Iterable[Any]) -> str:
    """Distinct values in their order, a dash for none."""
    known = dict.fromkeys(str(value) for value in values if not missing(value))
    return ", ".join(known) or "–"
