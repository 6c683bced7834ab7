"""Scores of one ranking of one benchmark and the run they come from, believed together.

A score file says what was scored (`what`). It counts while that is still what is asked for, and
while the run beside it is the one it was computed from. A measure asked for later is computed from
that run, so nothing is searched again for it.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ray_ablation import metrics
from ray_ablation.atomic import read_frame, write_atomic, write_frame
from ray_ablation.data.beir import Prepared


@dataclass(frozen=True)
class Files:
    """Where scores and their run lie, and who is told of what is written there."""

    scores: Path
    run: Path
    publish: Callable[[Path], None]


def kept(files: Files, what: dict[str, Any], prepared: Prepared, measures: Sequence[str]) -> bool:
    """Whether sound scores of this very `what` are there; measures they lack are added."""
    found = read_frame(files.scores)
    try:
        trec = files.run.read_bytes()
    except OSError:
        return False
    if found is None or found[1]["what"] != what:
        return False
    frame, about = found
    if hashlib.sha256(trec).hexdigest() != about["run_sha256"]:
        return False
    if any(measure not in frame for measure in measures):
        # Those of other grids stay: the ledger is shared.
        together = list(dict.fromkeys([*measures, *frame.columns[1:]]))
        more = metrics.score(metrics.from_trec(trec), prepared.qrels(), together)
        write_frame(files.scores, more, about)
        files.publish(files.scores)
    return True


def keep(
    files: Files,
    cut: metrics.Cut,
    tag: str,
    prepared: Prepared,
    measures: Sequence[str],
    about: dict[str, Any],
) -> pd.DataFrame:
    """Score a ranking; write its run, then its scores.

    Args:
        files: Where they go.
        cut: The ranking after the benchmark's rules.
        tag: Last column of the run.
        prepared: The benchmark.
        measures: As ir_measures spells them.
        about: `what` was scored, and counts beside it.

    Returns:
        The scores, a row a judged query: `query_id`, then a column a measure.
    """
    trec = metrics.to_trec(cut.run, tag=tag)
    frame = metrics.score(cut.run, prepared.qrels(), measures)

    def write(temporary: Path) -> None:
        temporary.write_bytes(trec)

    write_atomic(files.run, write)
    counts = {"ties_at_cutoff": cut.ties, "self_ids_dropped": cut.self_ids}
    run_sha256 = hashlib.sha256(trec).hexdigest()
    write_frame(files.scores, frame, about | counts | {"run_sha256": run_sha256})
    for file in (files.run, files.scores):
        files.publish(file)
    return frame
