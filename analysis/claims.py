"""Claims answered: what an author meant to say, held against the numbers.

Every claim is answered by its weakest comparison (`findings.deciding`), at its own confidence:

supported        the test separates the numbers from the claim's threshold on the claimed side; or,
                 for a statement about the numbers there are (`linear`, `most_at`), they say so.
contradicted     they are separated on the other side, or the statement is false by the numbers.
                 At n = 1 there is no test: a number on the other side contradicts, and says so.
underpowered     the numbers lie on the claimed side and are not separated, and n is smaller than
                 the seeds that would separate such a difference four times in five. n = 1 is always
                 too few; so is a latency, which no seed touches: what can be said of it is a line.
not supported    otherwise: not separated, and on the wrong side, or more than 10,000 seeds away.
unanswered       a number it speaks of is missing, or nobody asked for it: levels without a seed in
                 common, a line of which there are two points.

The claims that are tested form a family, and p is corrected over it (Holm); the corrected one
decides, so a claim more is a little less certainty for each. A correlation counts trials where the
others count seeds, one benchmark and stratum at a time: pooled, the differences between them would
be taken for a trend, or the same trial on four benchmarks for four trials.

A claim is stamped as registered before or after the first result it speaks of. The run notes when
it first saw a claim (`ledger.open_study`); what was never noted is "not registered".

Every number of an answer's sentence stands in its row: the sentence is made from the row alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import pandas as pd

from analysis.claim_kinds import collect
from analysis.claim_scope import selected, would_answer
from analysis.facts import Facts
from analysis.findings import Finding
from analysis.meaning import meaning
from analysis.statistics import holm, present
from analysis.table import Column, Table, digits, missing, whole
from ray_ablation.claim import Equivalent, Statement
from ray_ablation.claim_world import check
from ray_ablation.problems import GridError

VERDICTS = ("supported", "not supported", "contradicted", "underpowered", "unanswered")


@dataclass(frozen=True)
class Answer:
    """A claim's row in the table of verdicts; what does not exist is None.

    Attributes:
        name: Of the claim.
        says: Its author's sentence.
        kind: Of the claim.
        what: Its column, and where it is measured.
        meaning: What is tested, in symbols.
        verdict: One of `VERDICTS`.
        place: What decided, in words.
        estimate: The difference, ratio, distance or correlation there.
        interval: Percent of the interval from low to high.
        low: Its lower end.
        high: Its upper end.
        sd: Spread over seeds of the differences.
        n: Matched seeds, or trials.
        comparisons: How many the claim makes.
        agree: How many lie on the claimed side.
        p: Of the deciding comparison, corrected for having been picked.
        p_holm: Corrected over the family besides.
        family: How many claims of the report were tested.
        needed: How many n would do.
        unit: What n counts.
        missing: Trials that would answer it.
        note: What else there is to know.
        registered: Before or after the first result it speaks of.
    """

    name: str
    says: str
    kind: str
    what: str
    meaning: str
    verdict: str
    place: str | None = None
    estimate: float | None = None
    interval: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    n: int | None = None
    comparisons: int | None = None
    agree: int | None = None
    p: float | None = None
    p_holm: float | None = None
    family: int | None = None
    needed: int | None = None
    unit: str | None = None
    missing: str | None = None
    note: str | None = None
    registered: str = "not registered"

    @property
    def holds(self) -> bool:
        """Whether it may be said."""
        return self.verdict == "supported"

    @property
    def sentence(self) -> str:
        """The answer in words; its numbers are those of the row."""
        if self.verdict == "unanswered":
            return f"Unanswered: {self.what} is missing for {self.missing}."
        head = self.verdict.capitalize()
        if self.verdict == "underpowered":
            head += f" ({self.needed} {self.unit} would do)" if self.needed else f" (n = {self.n})"
        if self.comparisons and self.comparisons > 1:
            head += f"; {self.agree} of {self.comparisons} comparisons are as claimed"
            head += ", the weakest" if self.agree == self.comparisons else ", the worst"
        return f"{head}: {self.place}: {self._numbers()}."

    def _numbers(self) -> str:
        parts = ["no number" if self.estimate is None else self._say(self.estimate)]
        if self.low is not None and self.high is not None:
            ends = f"{self._say(self.low)} to {self._say(self.high)}"
            parts[0] += f" ({self.interval:g} % interval {ends})"
        parts.append(f"n = {self.n}")
        if self.p is not None:
            parts.append(f"p = {self.p:.2g}")
        if self.p_holm is not None and self.family != 1:
            parts.append(f"{self.p_holm:.2g} with Holm over {self.family} tests")
        return ", ".join(parts) + (f"; {self.note}" if self.note else "")

    def _say(self, value: float) -> str:
        if self.kind in ("spread_ratio", "correlates"):
            return f"{value:.2f}".replace("-", "−")
        text = f"{value:+.4f}" if self.what.partition(" ")[0].count("@") else f"{value:+.4g}"
        return text.replace("-", "−")


def answer(
    claims: Sequence[Statement], facts: Facts, registered: Mapping[str, str] | None = None
) -> list[Answer]:
    """Answer the claims of one report, which share a family of tests.

    Args:
        claims: In the order of the file.
        facts: What they are held against.
        registered: Digest of a claim -> when the run first saw it, ISO 8601.

    Raises:
        GridError: A claim speaks of what the facts do not have.
        UserError: Two numbers of one place.
    """
    if found := list(check(claims, facts.world())):
        raise GridError("claims", found)
    evidence = [collect(claim, facts) for claim in claims]
    decides = [one.decides if one.findings else None for one in evidence]
    ps = [None if one is None or one.exact else one.p for one in decides]
    family = len(present(ps))
    answers = []
    for claim, one, finding, p_holm in zip(claims, evidence, decides, holm(ps), strict=True):
        rest: dict[str, Any] = {"registered": _stamp(claim, facts, registered or {})}
        if finding is None:
            missing_ones = one.missing or would_answer(claim, facts)
            answers.append(_row(claim, "unanswered", missing="; ".join(missing_ones), **rest))
            continue
        rest |= _of(claim, finding, p_holm, family)
        agree = sum(
            found.distance > 0 or (found.exact and not found.distance) for found in one.findings
        )
        rest |= {"comparisons": len(one.findings), "agree": agree}
        answers.append(_row(claim, _verdict(claim, finding, p_holm, rest["needed"]), **rest))
    return answers


def not_held(answers: Iterable[Answer]) -> list[str]:
    """A line for each claim that may not be said; none when all hold."""
    return [f"{one.name}: {one.sentence}" for one in answers if not one.holds]


def _row(claim: Any, verdict: str, **rest: Any) -> Answer:
    where = {"mean": "mean over benchmarks", "each": "each benchmark"}
    on = claim.benchmark and where.get(claim.benchmark, claim.benchmark)
    what = f"{claim.of} ({on})" if on else claim.of
    if verdict != "underpowered":
        rest |= {"needed": None}
    return Answer(claim.name, claim.says, claim.kind, what, meaning(claim), verdict, **rest)


def _of(claim: Statement, finding: Finding, p_holm: float | None, family: int) -> dict[str, Any]:
    """What an answer takes from the finding that decides it."""
    alpha = 1 - claim.confidence
    interval = 1 - 2 * alpha if isinstance(claim, Equivalent) else claim.confidence
    tested = p_holm is not None
    return {
        "place": finding.place,
        "estimate": finding.estimate,
        "interval": round(100 * interval, 6) if finding.low is not None else None,
        "low": finding.low,
        "high": finding.high,
        "sd": finding.sd,
        "n": finding.n,
        "p": finding.p if tested else None,
        "p_holm": p_holm,
        "family": family if tested else None,
        "needed": finding.needed(alpha / max(1, family * finding.tests)),
        "unit": finding.unit,
        "note": f"of these numbers; {finding.note}".rstrip("; ") if finding.exact else finding.note,
    }


def _verdict(claim: Statement, found: Finding, p_holm: float | None, needed: int | None) -> str:
    if found.exact:
        return "supported" if found.distance >= 0 else "contradicted"
    if p_holm is not None and p_holm < 1 - claim.confidence and found.distance:
        return "supported" if found.distance > 0 else "contradicted"
    if found.n < 2:
        return "contradicted" if found.distance < 0 else "underpowered"
    if found.distance > 0 and needed is not None and found.n < needed:
        return "underpowered"
    return "not supported"


def _stamp(claim: Statement, facts: Facts, registered: Mapping[str, str]) -> str:
    """When a claim was registered, seen from the first result it speaks of."""
    if facts.imported:
        return "unknown (imported)"
    seen = registered.get(claim.digest)
    if seen is None:
        return "not registered"
    finished = [row["finished_at"] for row in selected(claim, facts) if row["finished_at"]]
    first = min(map(datetime.fromisoformat, finished), default=None)
    before = first is None or datetime.fromisoformat(seen) <= first
    return f"{'before' if before else 'after'} the first result"


def answers_frame(answers: Iterable[Answer]) -> pd.DataFrame:
    """One row a claim: the attributes of `Answer`, then its sentence."""
    return pd.DataFrame([asdict(one) | {"sentence": one.sentence} for one in answers], dtype=object)


def claims_table(answers: Sequence[Answer]) -> Table | None:
    """The table of verdicts; None without claims."""
    if not answers:
        return None
    frame = answers_frame(answers)
    frame = frame.assign(says=frame["says"].where(frame["says"] != "", frame["name"]))
    return Table(
        name="claims",
        title="What was claimed",
        caption="Each claim of the study, held against its numbers. The comparison that decides is "
        "the weakest of those a claim makes. p is two-sided at matched seeds, then corrected over "
        "the claims that are tested (Holm). A claim is registered when the run first saw it.",
        frame=frame,
        columns=(
            Column("claim", ("says",), number=False),
            Column("verdict", ("verdict", "needed", "unit"), _verdict_cell, False, optional=2),
            Column("of", ("what",), number=False),
            Column("held against the data", ("meaning",), number=False),
            Column("decided by", ("place",), number=False),
            Column("estimate", ("estimate",), lambda value: f"{value:.4g}".replace("-", "−")),
            Column("interval", ("interval", "low", "high"), _interval_cell),
            Column("sd", ("sd",), digits(4)),
            Column("n", ("n",), whole),
            Column("as claimed", ("agree", "comparisons"), lambda a, b: f"{a} of {b}"),
            Column("p", ("p",), lambda value: f"{value:.2g}"),
            Column("p, Holm", ("p_holm",), lambda value: f"{value:.2g}"),
            Column("tests", ("family",), whole),
            Column("registered", ("registered",), number=False),
            Column("in words", ("sentence",), number=False),
        ),
    )


def _verdict_cell(verdict: str, needed: int | None, unit: str | None) -> str:
    return verdict if missing(needed) else f"{verdict} ({needed} {unit} would do)"


def _interval_cell(percent: float, low: float, high: float) -> str:
    return f"{low:.4g} to {high:.4g} ({percent:g} %)".replace("-", "−")
