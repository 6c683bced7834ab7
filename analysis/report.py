"""A study's report: RESULTS.md, report.html, results.parquet, figures and tables, from the ledger.

    python -m analysis.report --study quickstart [--root results]

writes into studies/<study>/ under the root. It needs neither Ray nor torch, no model and no data,
only the ledger's JSON and parquet. The same ledger gives the same bytes, wherever its folder lies:
no path and no time of writing stands in a report. Pictures (PNG) are the exception; they depend on
the Chrome that draws them, and are left out where there is none.

--published writes that of a study whose figures are part of the project. Exit codes: 0 when a
report was written, also of a study that is not finished; with --strict, 1 when one of its claims
does not hold; 2 for bad input.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plotly.offline import get_plotlyjs

from analysis.claims import Answer
from analysis.content import Content, make
from analysis.images import write_pngs
from analysis.page import figure_html, page
from analysis.plots.drawing import Drawing
from analysis.published_study import find_published, read_published
from analysis.readers import read_study, study_json
from analysis.study import Study, StudyError
from analysis.table import Table
from ray_ablation.atomic import write_frame, write_text
from ray_ablation.grid_file import read_claims
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError


@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        folder: studies/<study>/.
        findings: The sentences at its head.
        answers: What became of the study's claims.
        notes: What it lacks and why, one line each.
    """

    folder: Path
    findings: tuple[str, ...]
    answers: tuple[Answer, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """What a terminal shows: the findings, the verdicts, what is missing, where to look."""
        claims = [f"claim {one.name}: {one.verdict}" for one in self.answers]
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([*self.findings, *claims, *notes, str(self.markdown), str(self.html)])

    @property
    def markdown(self) -> Path:
        """RESULTS.md."""
        return self.folder / "RESULTS.md"

    @property
    def html(self) -> Path:
        """report.html."""
        return self.folder / "report.html"


def write_report(
    name: str, ledger: Ledger, *, png: bool = True, claims: Path | None = None
) -> Report:
    """Write the report of a study, finished or not.

    Args:
        name: The study.
        ledger: Where it lies.
        png: Whether figures are also drawn as PNG.
        claims: A file of claims to answer instead of the study's own.

    Raises:
        StudyError: There is no study of that name.
        GridError: Its grid.yaml is damaged, or a claim speaks of what it does not have.
    """
    return write(read_study(name, ledger), ledger.study_dir(name), png=png, claims=claims)


def write_published(
    name: str, ledger: Ledger, *, png: bool = True, claims: Path | None = None
) -> Report:
    """Write the report of a published study, see `published_study`, under the study's own name.

    Raises:
        StudyError: There is none, or the ledger has another study of that name.
    """
    study = read_published(find_published(name))
    folder = ledger.study_dir(study.name)
    if ledger.study_grid(study.name).exists() or study_json(folder).exists():
        raise StudyError(f"{folder} holds another study of that name; give another --root")
    return write(study, folder, png=png, claims=claims)


def write(study: Study, folder: Path, *, png: bool = True, claims: Path | None = None) -> Report:
    """Write a study's report into a folder, see `write_report`."""
    if claims is not None:
        study = replace(study, claims=tuple(read_claims(claims)))
    content = make(study)
    write_text(folder / "RESULTS.md", markdown(content))
    write_text(folder / "report.html", page(content))
    rows = study.results.assign(imported=True) if study.imported else study.results
    write_frame(folder / "results.parquet", rows, {"study": study.name})
    _write_tables(folder / "tables", content.tables)
    notes = [f"{d.title}: {d.caption}" for d in content.drawings.values() if d.figure is None]
    pictures = _write_figures(folder / "figures", content.drawings, png)
    return Report(folder, tuple(content.findings), content.answers, (*notes, *pictures))


def markdown(content: Content) -> str:
    """RESULTS.md."""
    parts = [f"# {content.title}", content.description]
    parts.append("\n".join(f"- {name}: {text}" for name, text in content.facts))
    parts += ["## What was found", _bullets(content.findings)]
    if content.answers:
        parts += ["## Verdicts", _bullets(map(_verdict, content.answers))]
    parts += ["## Figures", "\n".join(_figure_lines(content.drawings))]
    parts += [table.markdown().rstrip() for table in content.tables]
    parts += ["## What this does not claim", _bullets(content.limits)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _verdict(answer: Answer) -> str:
    return f"**{answer.says or answer.name}** {answer.sentence}"


def _figure_lines(drawings: Mapping[str, Drawing]) -> list[str]:
    return [
        f"- [{drawing.title}](figures/{name}.html): {drawing.caption}"
        if drawing.figure is not None
        else f"- {drawing.title}: {drawing.caption}"
        for name, drawing in drawings.items()
    ]


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in sentences)


def _write_tables(folder: Path, tables: Sequence[Table]) -> None:
    for table in tables:
        write_text(folder / f"{table.name}.csv", table.csv())
        write_text(folder / f"{table.name}.tex", table.latex())
    _keep_only(folder, {f"{table.name}.{end}" for table in tables for end in ("csv", "tex")})


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
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--study", help="name of the grid that was run, or of an import")
    what.add_argument("--published", help="name of a published study, or a folder with study.yaml")
    parser.add_argument("--root", type=Path, default=Path("results"), help="where results lie")
    parser.add_argument("--claims", type=Path, help="claims to answer instead of the study's own")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a claim does not hold")
    parser.add_argument("--no-png", action="store_true", help="leave out the pictures")
    options = parser.parse_args(arguments)
    ledger, how = Ledger(options.root), {"png": not options.no_png, "claims": options.claims}
    try:
        if options.published is not None:
            report = write_published(options.published, ledger, **how)
        else:
            report = write_report(options.study, ledger, **how)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(report)
    held = all(answer.holds for answer in report.answers)
    return 0 if held or not options.strict else 1


if __name__ == "__main__":
    sys.exit(main())
