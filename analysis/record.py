"""What was computed, when, where and with what: a report's record of its own making."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from analysis.study import Study
from analysis.table import missing
from ray_ablation.frames import MEAN


def facts(study: Study) -> list[tuple[str, str]]:
    """(name, text); what an imported study cannot know is left out."""
    done = study.state("done")
    states = ("done", "imported", "failed", "missing")
    counts = {state: len(study.state(state)) for state in states}
    same = (f"{name.replace('_', ' ')} {value}" for name, value in study.common.items())
    found = [
        ("grid", f"{study.name}: {study.product}"),
        ("the same for all that are trained", ", ".join(same)),
        ("trials", ", ".join(f"{count} {state}" for state, count in counts.items() if count)),
        ("scores", _scores(study)),
    ]
    if study.imported:
        return [("imported from", study.source), *found]
    return [
        *found,
        ("finished", _between(done["finished_at"])),
        ("devices", listed(done["device_name"])),
        ("nodes", listed(done["node"])),
        ("versions", _versions(study)),
        ("commit", listed(text[:12] + text[40:] for text in done["git_commit"].dropna())),
        ("training code", listed(shortened(done["code_sha256"]))),
        ("weights", listed(shortened(done["weights_sha256"]))),
        ("train sample", listed(shortened(done["sample_sha256"]))),
        ("latency profile", listed(study.latency["profile"])),
    ]


def _scores(study: Study) -> str:
    cells = study.results[study.results["benchmark"] != MEAN]
    cells = cells[cells["benchmark"].isin(study.benchmarks)]
    scored = cells["value"] if study.imported else cells["n_queries"]
    known = cells.assign(known=scored.notna()).groupby(["trial", "benchmark"])["known"].any()
    return f"{int(known.sum())} of {len(known)} trials x benchmarks"


def _versions(study: Study) -> str:
    found = {
        f"{library} {version}"
        for versions in study.versions.values()
        for library, version in versions.items()
        if version
    }
    return listed(sorted(found))


def _between(moments: "pd.Series[str]") -> str:
    known = sorted(moments.dropna())
    return " to ".join(dict.fromkeys((known[0], known[-1]))) if known else "–"


def shortened(digests: "pd.Series[str]") -> list[str]:
    """Twelve digits of each digest."""
    return [text[:12] if len(text) == 64 else text for text in digests.dropna()]


def listed(values: Iterable[Any]) -> str:
    """Distinct values in their order, a dash for none."""
    known = dict.fromkeys(str(value) for value in values if not missing(value))
    return ", ".join(known) or "–"
