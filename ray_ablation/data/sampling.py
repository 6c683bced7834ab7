"""Which triples are trained on: filtered first, then held out, then sampled, all from one seed.

The order matters. 305,792 of the 808,731 rows of the MS MARCO hard negatives have no positive:
sampled first, 500,000 rows would shrink in silence. Rows are therefore filtered while they stream
by, and of the usable ones a permutation is drawn: its head is held out, the next rows are trained
on. So a smaller sample is the head of a larger one, both share their held-out rows, and the draws
within a row depend on the seed and its query alone.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ray_ablation import problems
from ray_ablation.data.files import DataError
from ray_ablation.trial import Trial

Ids = NDArray[np.int64]


class Row(NamedTuple):
    """One query of a train set, by ids.

    Attributes:
        query: The query; None where its text is empty.
        positives: Passages to draw its positive from; may be empty.
        negatives: Mining system -> passages it ranked high.
        relevant: Passages known to be relevant, `positives` or not.
    """

    query: int | None
    positives: list[int]
    negatives: dict[str, list[int]]
    relevant: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Picked:
    """A sample by ids, a row each: query, positive, negatives.

    Attributes:
        train: (samples, 2 + negatives).
        held_out: (held_out, 2 + negatives).
        counts: Rows and negatives before and after each filter.
        systems: Mining system -> negatives it lists.
    """

    train: Ids
    held_out: Ids
    counts: dict[str, int]
    systems: dict[str, int]


def pick(rows: Iterable[Row], trial: Trial) -> Picked:
    """Draw the trial's sample.

    Raises:
        DataError: Too few usable rows, no negatives at all, or a mining system that no row has.
    """
    counts, systems = Counter[str](), Counter[str]()
    flat = array("q")
    for row in rows:
        counts["rows"] += 1
        systems.update({name: len(ids) for name, ids in row.negatives.items()})
        flat.extend(_draw(row, trial, counts))
    for name in trial.negative_systems:
        if name not in systems:
            unknown = problems.unknown("mining system", name, systems)
            raise DataError(f"train set {trial.train_set!r}, negative_systems: {unknown}")
    if trial.negatives and not systems.total():
        raise DataError(
            f"train set {trial.train_set!r} lists no negatives, but negatives = {trial.negatives}; "
            "set negatives: 0 to train on in-batch negatives alone"
        )
    usable = np.array(flat, dtype=np.int64).reshape(-1, 2 + trial.negatives)
    wanted = trial.held_out + trial.samples
    if len(usable) < wanted:
        raise DataError(_too_few(trial, len(usable), counts))
    order = seeded(trial.sample_seed, "order").permutation(len(usable))
    named = {
        "rows": counts["rows"],
        "rows_without_query": counts["unasked"],
        "rows_without_positive": counts["without"],
        "negatives_listed": counts["listed"],
        "negatives_dropped_as_relevant": counts["relevant"],
        "rows_with_too_few_negatives": counts["few"],
        "usable_rows": len(usable),
        "held_out_rows": trial.held_out,
        "sampled_rows": trial.samples,
    }
    return Picked(
        train=usable[order[trial.held_out : wanted]],
        held_out=usable[order[: trial.held_out]],
        counts=named,
        systems=dict(sorted(systems.items())),
    )


def seeded(*parts: int | str) -> np.random.Generator:
    """A generator of its own for each tuple of parts; (1, 23) and (12, 3) differ."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "little")))


def text_key(text: str) -> int:
    """64-bit identity of a text; two of a million texts share one with probability 3e-8."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little", signed=True)


def _draw(row: Row, trial: Trial, counts: Counter[str]) -> list[int]:
    """Query, positive and negatives of a row; nothing when it is not usable."""
    if row.query is None:
        counts["unasked"] += 1
        return []
    if not row.positives:
        counts["without"] += 1
        return []
    listed = [
        passage
        for name in trial.negative_systems or row.negatives
        for passage in row.negatives.get(name, ())
    ]
    candidates = list(dict.fromkeys(listed))
    relevant = row.relevant.union(row.positives)
    left = [passage for passage in candidates if passage not in relevant]
    counts["listed"] += len(candidates)
    counts["relevant"] += len(candidates) - len(left)
    if len(left) < trial.negatives:
        counts["few"] += 1
        return []
    random = seeded(trial.sample_seed, "row", row.query)
    positive = row.positives[random.integers(len(row.positives))]
    # Generator.choice would permute all that is left to draw one.
    negatives = [left.pop(random.integers(len(left))) for _ in range(trial.negatives)]
    return [row.query, positive, *negatives]


def _too_few(trial: Trial, usable: int, counts: Counter[str]) -> str:
    left = usable - trial.held_out
    can = f"samples can be at most {left:,}" if left > 0 else "lower held_out and samples"
    return (
        f"train set {trial.train_set!r} has {usable:,} usable rows of {counts['rows']:,} "
        f"({counts['unasked'] + counts['without']:,} without a query or a positive, "
        f"{counts['few']:,} with fewer than {trial.negatives} negatives left), but "
        f"samples = {trial.samples:,} and held_out = {trial.held_out:,} need "
        f"{trial.samples + trial.held_out:,}; {can}"
    )
