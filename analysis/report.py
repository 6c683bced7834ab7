"""A study's report: RESULTS.md, report.html, results.parquet, figures and tables, from the ledger.

    python -m analysis.report --study quickstart [--root results]

writes into studies/<study>/ under the root. It needs neither Ray nor torch, no model and no data,
only the ledger's JSON and parquet. The same ledger gives the same bytes, wherever its folder lies:
no path and no time of writing stands in a report. Pictures (PNG) are the exception; they depend on
the Chrome that draws them, and are left out where there is none.

Exit codes: 0 when a report was written, also of a study that is not finished; 2 for bad input.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plotly.offline import get_plotlyjs

from analysis import headline
from analysis.figures import draw
from analysis.images import write_pngs
from analysis.page import figure_html, page
from analysis.plots.drawing import Drawing
from analysis.study import Study, read_study
from analysis.table import Table
from analysis.tables import all_tables
from ray_ablation.atomic import write_frame, write_text
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        folder: studies/<study>/.
        findings: The sentences at its head.
        notes: What it lacks and why, one line each.
    """

    folder: Path
    findings: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """What a terminal shows: the findings, what is missing, and where to look."""
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([*self.findings, *notes, str(self.markdown), str(self.html)])

    @property
    def markdown(self) -> Path:
        """RESULTS.md."""
        return self.folder / "RESULTS.md"

    @property
    def html(self) -> Path:
        """report.html."""
        return self.folder / "report.html"


def write_report(name: str, ledger: Ledger, *, png: bool = True) -> Report:
    """Write the report of a study, finished or not.

    Args:
        name: The study.
        ledger: Where it lies.
        png: Whether figures are also drawn as PNG.

    Raises:
        StudyError: There is no study of that name.
        GridError: Its grid.yaml is damaged.
    """
    study = read_study(name, ledger)
    folder = ledger.study_dir(name)
    drawings, tables = draw(study), all_tables(study)
    findings = headline.findings(study)
    write_text(folder / "RESULTS.md", markdown(study, drawings, tables))
    write_text(
        folder / "report.html",
        page(
            title=study.grid.name,
            description=study.grid.description,
            findings=findings,
            limits=headline.limits(study),
            facts=headline.facts(study),
            drawings=drawings,
            tables=tables,
        ),
    )
    write_frame(folder / "results.parquet", study.results, {"study": name})
    _write_tables(folder / "tables", tables)
    notes = [f"{d.title}: {d.caption}" for d in drawings.values() if d.figure is None]
    pictures = _write_figures(folder / "figures", drawings, png)
    return Report(folder, tuple(findings), (*notes, *pictures))


def markdown(study: Study, drawings: Mapping[str, Drawing], tables: Sequence[Table]) -> str:
    """RESULTS.md."""
    parts = [f"# {study.grid.name}", study.grid.description]
    parts.append("\n".join(f"- {name}: {text}" for name, text in headline.facts(study)))
    parts += ["## What was found", _bullets(headline.findings(study))]
    parts += ["## Figures", "\n".join(_figure_lines(drawings))]
    parts += [table.markdown().rstrip() for table in tables]
    parts += ["## What this does not show", _bullets(headline.limits(study))]
    return "\n\n".join(part for part in parts if part) + "\n"


def _figure_lines(drawings: Mapping[str, Drawing]) -> list[str]:
    return [
        f"- [{drawing.title}](figures/{name}.html): {drawing.caption}"
        if drawing.figure is not None
        else f"- {drawing.title}: {drawing.caption}"
        for name, drawing in drawings.items()
    ]


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in sentences)


def _write_tables(folder: Path, tables: Sequence[Table]) -> None:
    for table in tables:
        write_text(folder / f"{table.name}.csv", table.csv())
    _keep_only(folder, {f"{table.name}.csv" for table in tables})


def _write_figures(folder: Path, drawings: Mapping[str, Drawing], png: bool) -> list[str]:
    """Each figure as a page, and as a picture where that is new or missing; notes."""
    drawn = {name: drawing for name, drawing in drawings.items() if drawing.figure is not None}
    names = {f"{name}.{ending}" for name in drawn for ending in ("html", "png")}
    _keep_only(folder, names | {"plotly.min.js"} if drawn else set())
    pictures: dict[Path, str] = {}
    for name, drawing in drawn.items():
        file, picture = folder / f"{name}.html", folder / f"{name}.png"
        text = figure_html(name, drawing, script="directory")
        if not picture.exists() or not file.exists() or file.read_text(encoding="utf-8") != text:
            picture.unlink(missing_ok=True)
            pictures[picture] = drawing.figure.to_json() if drawing.figure else ""
        write_text(file, text)
    if drawn:
        write_text(folder / "plotly.min.js", get_plotlyjs())
    reason = write_pngs(pictures) if png else None
    return [f"figures as PNG were not drawn: {reason}"] if reason else []


def _keep_only(folder: Path, names: set[str]) -> None:
    """Remove what an earlier report left and this one does not have."""
    for path in folder.glob("*"):
        if path.name not in names:
            path.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m analysis.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--study", required=True, help="name of the grid that was run")
    parser.add_argument("--root", type=Path, default=Path("results"), help="where results lie")
    parser.add_argument("--no-png", action="store_true", help="leave out the pictures")
    options = parser.parse_args(arguments)
    try:
        report = write_report(options.study, Ledger(options.root), png=not options.no_png)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
