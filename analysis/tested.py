"""Everything of a study that a test was made of, once for tables, sentences and exit code."""

from dataclasses import dataclass

import pandas as pd

from analysis.claims import Answer, answer
from analysis.differences import OverQueries, over_queries, pairs
from analysis.facts import facts
from analysis.study import Study
from ray_ablation.frames import FIELD_TYPES


@dataclass(frozen=True)
class Tested:
    """What the tests say.

    Attributes:
        pairs: `differences.pairs`.
        queries: `differences.over_queries`.
        answers: One a claim.
    """

    pairs: pd.DataFrame
    queries: OverQueries
    answers: tuple[Answer, ...]


def tested(study: Study) -> Tested:
    """Test a study's differences and answer its claims.

    Raises:
        GridError: A claim speaks of what the study does not have.
    """
    return Tested(pairs(study), over_queries(study), tuple(_answers(study)))


def _answers(study: Study) -> list[Answer]:
    if not study.claims:
        return []
    unknown = [n for n in FIELD_TYPES if study.imported and study.trials[n].isna().all()]
    trials = study.trials.drop(columns=unknown)
    frames = (trials, study.results, study.latency, study.axes)
    known = facts(*frames, imported=study.imported, groups=study.groups)
    return answer(study.claims, known, study.registered)
