"""What a report says, before it is written; Markdown and HTML are made from the same."""

from dataclasses import dataclass

from analysis.claims import Answer
from analysis.figures import draw
from analysis.headline import findings
from analysis.limits import limits
from analysis.plots.drawing import Drawing
from analysis.record import facts
from analysis.study import Study
from analysis.table import Table
from analysis.tables import all_tables
from analysis.tested import tested


@dataclass(frozen=True)
class Content:
    """What a report says, before it is written in any form."""

    title: str
    description: str
    findings: list[str]
    answers: tuple[Answer, ...]
    drawings: dict[str, Drawing]
    tables: list[Table]
    limits: list[str]
    facts: list[tuple[str, str]]


def make(study: Study) -> Content:
    """All that a report says.

    Raises:
        GridError: A claim speaks of what the study does not have.
    """
    found = tested(study)
    return Content(
        title=study.name,
        description=study.description,
        findings=findings(study, found),
        answers=found.answers,
        drawings=draw(study),
        tables=all_tables(study, found),
        limits=limits(study, found),
        facts=facts(study),
    )
