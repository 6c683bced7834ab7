"""Existing results as a study of their own, so that a report, its tests and its claims work on it.

    python -m analysis.import_results mine.csv --study mine [--root results]
    python -m analysis.report --study mine

A table is tidy (columns benchmark, measure, value) or wide (a column a measure, as nDCG@10; with
--measure, a column a benchmark), beside any fields of a trial: depth, seed, batch, steps, ... An
empty value is a missing cell. What is not stated stays unknown. The mean over benchmarks may be
stated too, as benchmark "mean".

Rows are written to studies/<study>/imported.parquet and then study.json, which names the parquet by
its sha256, so a half-written import is never read as a whole one. Exit codes: 0 done, 2 bad input.
"""

import argparse
import csv
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa

from analysis.imported import RowsError, tidy
from analysis.readers import imported_parquet, study_json
from analysis.study import StudyError
from ray_ablation.atomic import read_json, sha256_file, write_frame, write_json
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError
from ray_ablation.settings import canonical_measure

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")


def import_results(
    file: Path,
    study: str,
    ledger: Ledger,
    *,
    description: str = "",
    measure: str | None = None,
    benchmarks: Sequence[str] = (),
    replace: bool = False,
) -> int:
    """Bring a table in as a study; how many cells it holds.

    Args:
        file: CSV or parquet.
        study: Name of the study; an import of the same columns is replaced.
        ledger: Where it is stored.
        description: What the study asks.
        measure: What the values are, for a table with a column a benchmark.
        benchmarks: Names of own benchmarks that are columns of it.
        replace: Replace an import of other columns too.

    Raises:
        RowsError: The table has problems; all of them are named.
        StudyError: The name is taken, or is no name of a folder; the ledger's root is a file.
    """
    if ledger.root.exists() and not ledger.root.is_dir():
        raise StudyError(f"--root {ledger.root} is a file; name the folder where results lie")
    rows = tidy(read_table(file), file.name, _measure(measure), benchmarks)
    _check_name(study, ledger, rows.columns.tolist(), replace)
    folder = ledger.study_dir(study)
    write_frame(imported_parquet(folder), rows, {"study": study})
    about = {
        "format": 1,
        "name": study,
        "description": description,
        "file": file.name,
        "file_sha256": sha256_file(file),
        "rows": len(rows),
        "columns": rows.columns.tolist(),
        "parquet_sha256": sha256_file(imported_parquet(folder)),
    }
    write_json(study_json(folder), about)
    return len(rows)


def read_table(file: Path) -> pd.DataFrame:
    """A CSV or parquet file as it is.

    Raises:
        RowsError: It cannot be read, or a row is longer than the head.
    """
    try:
        if file.suffix == ".parquet":
            return pd.read_parquet(file)
        if found := list(_long_rows(file)):
            raise RowsError(file.name, found)
        return pd.read_csv(file, encoding="utf-8-sig", index_col=False)
    except (OSError, ValueError, csv.Error, pa.ArrowException) as error:
        text = " ".join(str(error).split())
        hint = "expected a CSV with a head, or a .parquet file"
        raise RowsError(str(file), [f"cannot be read: {text}; {hint}"]) from None


def _long_rows(file: Path) -> Iterator[str]:
    """Rows of a CSV with more fields than its head, which pandas shifts or cuts silently."""
    with file.open(encoding="utf-8-sig", newline="") as lines:
        rows = (row for row in csv.reader(lines) if row)  # pandas skips empty lines too
        head = next(rows, [])
        for number, row in enumerate(rows, start=1):
            if len(row) > len(head):
                comma = "take out the comma too many, or quote a text that holds one"
                other = "separate fields by commas, and write numbers with a point"
                yield (
                    f"row {number} has {len(row)} fields, the head {len(head)}; "
                    f"{comma if len(head) > 1 else other}"
                )


def _measure(text: str | None) -> str | None:
    try:
        return None if text is None else canonical_measure(text)
    except ValueError as error:
        raise StudyError(f"--measure {text}: {error}") from None


def _check_name(study: str, ledger: Ledger, columns: list[str], replace: bool) -> None:
    if not NAME.match(study):
        raise StudyError(f"--study {study!r}: expected letters, digits, '.', '_' or '-'")
    if ledger.study_grid(study).exists():
        raise StudyError(
            f"{ledger.study_dir(study)} holds a study that was run; import under another name"
        )
    before = read_json(study_json(ledger.study_dir(study)))
    if before is None or replace or before["columns"] == columns:
        return
    raise StudyError(
        f"{ledger.study_dir(study)} was imported from {before['file']} with the columns "
        f"{', '.join(before['columns'])}; this table has {', '.join(columns)}. Replace it with "
        "--replace, or import under another name"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m analysis.import_results", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path, help="CSV or parquet")
    parser.add_argument("--study", required=True, help="name of the study to make")
    parser.add_argument("--root", type=Path, default=Path("results"), help="where results lie")
    parser.add_argument("--description", default="", help="what the study asks")
    parser.add_argument("--measure", help="what the values are, for a column a benchmark")
    parser.add_argument("--benchmarks", default="", help="own benchmarks among the columns: a,b")
    parser.add_argument("--replace", action="store_true", help="replace an import of other columns")
    options = parser.parse_args(arguments)
    try:
        count = import_results(
            options.file,
            options.study,
            Ledger(options.root),
            description=options.description,
            measure=options.measure,
            benchmarks=[name for name in options.benchmarks.split(",") if name],
            replace=options.replace,
        )
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"{count} cells imported; now: python -m analysis.report --study {options.study} "
        f"--root {options.root}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
