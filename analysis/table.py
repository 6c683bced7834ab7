"""A table: numbers in a frame, and per column how a reader sees them.

Markdown, HTML and CSV come from the same frame; the CSV keeps every digit of what the others round.
A missing value is a dash, and so is a standard deviation of one seed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pandas as pd

DASH = "–"


@dataclass(frozen=True)
class Column:
    """How one column is shown.

    Attributes:
        title: Its head.
        fields: Columns of the frame it is made of.
        say: Their values to text; none of them is missing unless `optional`.
        number: Whether it is a number, aligned right.
        optional: How many of the fields, from the end, `say` takes as None.
    """

    title: str
    fields: tuple[str, ...]
    say: Callable[..., str] = str
    number: bool = True
    optional: int = 0

    def cell(self, row: dict[str, Any]) -> str:
        """The text of one cell, a dash when a value it needs is missing."""
        values = [None if missing(row[field]) else row[field] for field in self.fields]
        needed = values[: len(values) - self.optional]
        return DASH if any(value is None for value in needed) else self.say(*values)


@dataclass(frozen=True)
class Table:
    """Numbers, their columns as a reader sees them, and what they mean.

    Attributes:
        name: File name without ending, and anchor.
        title: Heading.
        caption: What is in the cells: n, units, how means are taken.
        frame: The numbers.
        columns: In order.
    """

    name: str
    title: str
    caption: str
    frame: pd.DataFrame
    columns: tuple[Column, ...]

    def cells(self) -> list[list[str]]:
        """Rows of text."""
        rows: list[Any] = self.frame.to_dict("records")
        return [[column.cell(row) for column in self.columns] for row in rows]

    def markdown(self) -> str:
        """Heading, caption and a table as GitHub renders it."""
        head = [column.title for column in self.columns]
        rule = ["---:" if column.number else "---" for column in self.columns]
        lines = ["| " + " | ".join(_escape(cells)) + " |" for cells in [head, rule, *self.cells()]]
        return "\n".join([f"## {self.title}", "", self.caption, "", *lines, ""])

    def csv(self) -> str:
        """The numbers with all their digits; what is missing is empty."""
        fields = dict.fromkeys(field for column in self.columns for field in column.fields)
        return str(self.frame[list(fields)].to_csv(index=False, lineterminator="\n"))


def missing(value: Any) -> bool:
    """Whether a cell holds no value: None, NaN or NA."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def digits(count: int) -> Callable[[float], str]:
    """A number with so many digits behind the point."""
    return lambda value: f"{value:,.{count}f}"


def whole(value: float) -> str:
    """A whole number with separators: 22,713,216."""
    return f"{int(value):,}"


def signed(form: str) -> Callable[..., str]:
    """A format whose minus is a minus, not a hyphen."""
    return lambda *values: form.format(*values).replace("-", "−")


def seeds_cell(mean: float, n: int, sd: float | None) -> str:
    """Mean, spread and n: 0.2400 ± 0.0069 (3); one seed is marked: 0.2143 ± – (1)."""
    return f"{mean:.4f} ± {DASH if sd is None else f'{sd:.4f}'} ({n})"


def _escape(cells: list[str]) -> list[str]:
    return [" ".join(cell.replace("|", "\\|").split()) for cell in cells]
