"""Tables of differences: what a corrected test separates, and what it does not.

"Not separated" is not "equal": with few seeds hardly anything is separated. Equivalence is a claim
of its own, with a margin (`claims:` in the grid).
"""

from typing import Any

import pandas as pd

from analysis.differences import ALPHA
from analysis.study import Study
from analysis.table import Column, Table, digits, missing, signed, whole
from analysis.tested import Tested

STAR = "*"
INTERVAL = Column("95 % interval", ("low", "high"), signed("{:+.4f} to {:+.4f}"))


def difference_tables(study: Study, found: Tested) -> list[Table]:
    """The tables of a study's differences, those without rows too."""
    return [_pairs_table(study, found), _means_table(study, found), _queries_table(study, found)]


def _pairs_table(study: Study, found: Tested) -> Table:
    x = study.layout.x.replace("_", " ")
    return Table(
        name="pairs",
        title=f"Differences between values of {x}",
        caption=f"{study.headline}, mean over benchmarks: the first minus the second at matched "
        "seeds, everything else equal. A paired t test over seeds, corrected over all tests of "
        f"the table (Holm). {STAR} marks a corrected p below {ALPHA:g}; without it the two are not "
        "separated, which does not make them equal. A single seed has no test.",
        frame=_read(found.pairs),
        columns=(
            *_heads(),
            _difference(),
            INTERVAL,
            Column("sd", ("sd",), digits(4)),
            Column("n", ("n",), whole),
            *_ps(),
            Column("reading", ("reading",), number=False),
        ),
    )


def _means_table(study: Study, found: Tested) -> Table:
    return Table(
        name="bootstrap",
        title="Differences of the mean over benchmarks, seeds and queries drawn again",
        caption=f"{study.headline}: hierarchical bootstrap of the mean over benchmarks, in the "
        "series with the most seeds. Seeds are drawn once for all benchmarks, queries within "
        "each; p is two-sided and not corrected. It says what another training on other such "
        "queries would give.",
        frame=found.queries.means.rename(columns={"estimate": "difference"}),
        columns=(
            *_heads(),
            Column("difference", ("difference",), signed("{:+.4f}")),
            INTERVAL,
            Column("n", ("n_seeds",), whole),
            Column("p", ("p",), probability),
            Column("resamples", ("resamples",), whole),
            Column("because", ("reason",), number=False),
        ),
    )


def _queries_table(study: Study, found: Tested) -> Table:
    return Table(
        name="queries",
        title="Differences by benchmark, over queries",
        caption=f"{study.headline}: the first minus the second, a query's difference being its "
        "mean over matched seeds; n counts queries. A paired permutation test over queries, "
        f"corrected over all tests of the table (Holm); {STAR} marks a corrected p below "
        f"{ALPHA:g}. It is about these encoders on such queries, not about training again.",
        frame=_read(found.queries.tests),
        columns=(
            *_heads(),
            Column("benchmark", ("benchmark",), number=False),
            _difference(),
            INTERVAL,
            Column("n", ("n",), whole),
            Column("seeds", ("n_seeds",), whole),
            *_ps(),
        ),
    )


def probability(value: float) -> str:
    """A p-value: three digits, and the smallest as a bound."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _heads() -> tuple[Column, ...]:
    titles = {"level_a": "first", "level_b": "second", "context": "at"}
    return tuple(Column(title, (name,), str, number=False) for name, title in titles.items())


def _difference() -> Column:
    def say(difference: float, p: float | None) -> str:
        star = STAR if p is not None and p < ALPHA else ""
        return signed("{:+.4f}")(difference) + star

    return Column("difference", ("difference", "p_holm"), say, optional=1)


def _ps() -> tuple[Column, ...]:
    return (
        Column("p", ("p",), probability),
        Column("p, Holm", ("p_holm",), probability),
        Column("tests", ("family",), whole),
    )


def _read(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows that have a difference, and how to take it."""
    if frame.empty:
        return frame
    kept = frame[frame["difference"].notna()]
    return kept.assign(reading=[_reading(row) for row in kept.to_dict("records")])


def _reading(row: dict[Any, Any]) -> str:
    if missing(row["p_holm"]):
        return "no test at n = 1" if row["n"] == 1 else str(row["reason"])
    if row["p_holm"] >= ALPHA:
        return "not separated"
    return "the first is higher" if row["difference"] > 0 else "the second is higher"
