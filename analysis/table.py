"""A table: numbers in a frame, and per column how a reader sees them.

Markdown, HTML, LaTeX and CSV come from the same frame; the CSV keeps every digit of what the others
round. A missing value is a dash, and so is a standard deviation of one seed. A cell is bold where a
column of the frame says that a test separates it from all others; the largest number alone is not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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
        bold: Column of the frame that says which cells are bold.
    """

    title: str
    fields: tuple[str, ...]
    say: Callable[..., str] = str
    number: bool = True
    optional: int = 0
    bold: str = ""

    def is_bold(self, row: dict[str, Any]) -> bool:
        """Whether the cell of a row is bold."""
        return bool(self.bold) and row[self.bold] is True

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
        return [[text for text, _ in row] for row in self._shown]

    @cached_property
    def _shown(self) -> list[list[tuple[str, bool]]]:
        """Rows of text, and whether it is bold."""
        rows: list[Any] = self.frame.to_dict("records")
        return [[(one.cell(row), one.is_bold(row)) for one in self.columns] for row in rows]

    def styled(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Rows of escaped text, bold cells as the form `bold` writes them."""
        return [
            [bold.format(escape(text)) if marked else escape(text) for text, marked in row]
            for row in self._shown
        ]

    def markdown(self) -> str:
        """Heading, caption and a table as GitHub renders it."""
        head = [_markdown(column.title) for column in self.columns]
        rule = ["---:" if column.number else "---" for column in self.columns]
        rows = [head, rule, *self.styled(_markdown, "**{}**")]
        lines = ["| " + " | ".join(cells) + " |" for cells in rows]
        return "\n".join([f"## {self.title}", "", self.caption, "", *lines, ""])

    def latex(self) -> str:
        """A table environment with booktabs rules; the preamble needs that package only."""
        kinds = "".join("r" if column.number else "l" for column in self.columns)
        head = [_latex(column.title) for column in self.columns]
        rows = [" & ".join(cells) + r" \\" for cells in self.styled(_latex, r"\textbf{{{}}}")]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_latex(f'{self.title}. {self.caption}')}}}",
                rf"\label{{tab:{self.name}}}",
                rf"\begin{{tabular}}{{{kinds}}}",
                r"\toprule",
                " & ".join(head) + r" \\",
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def csv(self) -> str:
        """The numbers with all their digits; what is missing is empty."""
        fields = dict.fromkeys(field for column in self.columns for field in column.fields)
        return str(self.frame[list(fields)].to_csv(index=False, lineterminator="\n"))


def missing(value: Any) -> bool:
    """Whether a cell holds no value: None, NaN or NA."""
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def capital(text: str) -> str:
    """A sentence's first letter."""
    return text[:1].upper() + text[1:]


def digits(count: int) -> Callable[[float], str]:
    """A number with so many digits behind the point."""
    return lambda value: f"{value:,.{count}f}"


def whole(value: float) -> str:
    """A whole number with separators: 22,713,216."""
    return f"{int(value):,}"


def signed(form: str) -> Callable[..., str]:
    """A format whose minus is a minus, not a hyphen."""
    return lambda *values: form.format(*values).replace("-", "−")


def seeds_cell(mean: float, n: int | None, sd: float | None) -> str:
    """Mean, spread and n: 0.2400 ± 0.0069 (3); one seed is marked: 0.2143 ± – (1).

    A value that no seed touches, a reference's, stands alone.
    """
    if n is None:
        return f"{mean:.4f}"
    return f"{mean:.4f} ± {DASH if sd is None else f'{sd:.4f}'} ({n})"


def _markdown(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _latex(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in " ".join(text.split()))


LATEX = {character: rf"\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "→": r"$\to$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "²": "$^2$",
    "−": "$-$",
    "–": "--",
    "↓": r"$\downarrow$",
    "†": r"$^\dagger$",
    "*": "$^{*}$",
}
"""What plain LaTeX writes otherwise."""
