"""Where a study comes from: the ledger's grid of that name, or rows that were imported under it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from analysis.imported_study import study_of
from analysis.study import Study, StudyError
from ray_ablation import frames
from ray_ablation import grid as grids
from ray_ablation.atomic import read_frame, read_json, sha256_file
from ray_ablation.grid import Grid
from ray_ablation.latency.frame import latency_frame
from ray_ablation.ledger import Ledger
from ray_ablation.problems import unknown

T = TypeVar("T")


def read_study(name: str, ledger: Ledger) -> Study:
    """Read a study: one that was run, or one that was imported.

    Raises:
        StudyError: There is no study of that name, or what was imported is damaged.
        GridError: Its grid.yaml is damaged.
    """
    if ledger.study_grid(name).is_file():
        return _of_grid(grids.load(ledger.study_grid(name), here=False), ledger)
    if study_json(ledger.study_dir(name)).is_file():
        return _of_rows(ledger.study_dir(name))
    raise StudyError(_no_study(name, ledger))


def study_json(folder: Path) -> Path:
    """What an imported study says of itself; written last, so it is the done mark."""
    return folder / "study.json"


def imported_parquet(folder: Path) -> Path:
    """The rows of an imported study."""
    return folder / "imported.parquet"


def _of_rows(folder: Path) -> Study:
    about, file = read_json(study_json(folder)), imported_parquet(folder)
    found = read_frame(file)
    if about is None or found is None or about["parquet_sha256"] != sha256_file(file):
        raise StudyError(
            f"{folder}: study.json and imported.parquet are damaged or do not belong together; "
            f"import again: python -m analysis.import_results FILE --study {folder.name} --replace"
        )
    source = f"{about['file']} (sha256 {about['file_sha256'][:12]}, {about['rows']} rows)"
    return study_of(found[0], name=about["name"], description=about["description"], source=source)


def _of_grid(grid: Grid, ledger: Ledger) -> Study:
    once = Once(ledger.root)
    records = {trial.id: frames.finished_record(trial, once) for trial in grid.trials}
    return Study(
        name=grid.name,
        description=grid.description,
        product=grid.product,
        axes=grid.axes,
        common=grid.common(),
        benchmarks=tuple(benchmark.name for benchmark in grid.benchmarks),
        measures=grid.measures,
        trials=frames.trials_frame(grid, once),
        results=frames.results_frame(grid, once),
        training=frames.training_frame(grid, once),
        latency=latency_frame(grid, once),
        audit=frames.audit_frame(grid, once),
        references=frames.references_frame(grid, once),
        versions={id: r["code"].get("versions", {}) for id, r in records.items() if r},
        claims=tuple(grid.claims),
        groups={b.name: b.group for b in grid.benchmarks if b.group},
        notes=tuple(f"{b.note}." for b in grid.benchmarks if b.note),
        registered=once.registered_claims(grid.name),
        load_queries=lambda measure: _queries(grid, once, measure),
    )


class Once(Ledger):
    """A ledger that reads each file of scores and each record once, however often it is asked."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        object.__setattr__(self, "_found", {})  # the dataclass is frozen

    def _once(self, read: Callable[..., T], *key: Any) -> T:
        found: dict[Any, T] = self._found  # type: ignore[attr-defined]
        place = (read.__name__, *key)
        if place not in found:
            found[place] = read(*key)
        return found[place]

    def read_trial(self, trial_id: str) -> dict[str, Any] | None:
        """See `Ledger.read_trial`."""
        return self._once(super().read_trial, trial_id)

    def read_frame(self, file: Path) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """See `Ledger.read_frame`."""
        return self._once(super().read_frame, file)

    def study_benchmarks(self, name: str) -> dict[str, str]:
        """See `Ledger.study_benchmarks`."""
        return self._once(super().study_benchmarks, name)


def _queries(grid: Grid, ledger: Ledger, measure: str) -> pd.DataFrame:
    """Per-query scores of a measure: trial, benchmark, query_id, value; text as categories."""
    parts = []
    for trial in grid.trials:
        for benchmark in grid.benchmarks:
            found = frames.scored(grid, trial, benchmark, ledger)
            if found and measure in found[0]:
                parts.append((trial.id, benchmark.name, found[0]))
    counts = [len(frame) for _, _, frame in parts]
    columns = {
        "trial": _repeated([trial for trial, _, _ in parts], counts),
        "benchmark": _repeated([benchmark for _, benchmark, _ in parts], counts),
        "query_id": _joined([frame["query_id"] for _, _, frame in parts]),
        "value": _joined([frame[measure] for _, _, frame in parts]),
    }
    return pd.DataFrame(columns).astype({"query_id": "category", "value": "float64"})


def _repeated(values: list[str], counts: list[int]) -> pd.Categorical:
    codes, names = pd.factorize(pd.Series(values, dtype="str"))
    return pd.Categorical.from_codes(pd.Series(codes).repeat(counts).to_numpy(), names)


def _joined(parts: list[Any]) -> Any:
    return pd.concat(parts, ignore_index=True) if parts else pd.Series(dtype="str")


def _no_study(name: str, ledger: Ledger) -> str:
    folders = [
        *ledger.root.glob("studies/*/grid.yaml"),
        *ledger.root.glob("studies/*/study.json"),
    ]
    if found := sorted({file.parent.name for file in folders}):
        return f"{ledger.root}: {unknown('study', name, found)}"
    return (
        f"{ledger.root} holds no study at all; run one: python -m ray_ablation.run "
        "grids/quickstart.yaml, or say where the results lie: --root FOLDER"
    )
