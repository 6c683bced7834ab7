"""The ledger: what was computed, content-addressed, under one storage root.

    trials/<id>/trial.json            the done mark, written last
                train.parquet         one row a logged step
                model/                the encoder as sentence-transformers saves it
                checkpoints/          only while training
                scores/<benchmark>.parquet, runs/<benchmark>.trec.gz
    latency/<profile id>/             one profile: plan, samples, blocks, environment, latency.json
    studies/<name>/                   grid.yaml, tune/<n>/, and the report
    cache/                            prepared data, rebuilt when missing

This class owns every file name. No pickles and no absolute paths: a moved folder still reports,
without Ray or torch.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock, Timeout

from ray_ablation.atomic import (
    read_frame,
    read_json,
    sha256_file,
    write_frame,
    write_json,
    write_text,
)
from ray_ablation.grid import Grid
from ray_ablation.problems import UserError
from ray_ablation.trial import Trial


class LedgerError(UserError):
    """The storage root cannot be used as asked; the text says what to do."""


class HeldError(LedgerError):
    """Another process is at it."""


@dataclass(frozen=True)
class Ledger:
    """All file names under `root`."""

    root: Path

    def trial_dir(self, trial_id: str) -> Path:
        return self.root / "trials" / trial_id

    def trial_json(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "trial.json"

    def train_parquet(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "train.parquet"

    def model_dir(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "model"

    def checkpoints_dir(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "checkpoints"

    def failure_json(self, trial_id: str) -> Path:
        return self.trial_dir(trial_id) / "failure.json"

    def scores_parquet(self, trial_id: str, benchmark: str) -> Path:
        return self.trial_dir(trial_id) / "scores" / f"{benchmark}.parquet"

    def run_trec(self, trial_id: str, benchmark: str) -> Path:
        return self.trial_dir(trial_id) / "runs" / f"{benchmark}.trec.gz"

    def latency_dir(self, profile_id: str) -> Path:
        return self.root / "latency" / profile_id

    def latency_json(self, profile_id: str) -> Path:
        return self.latency_dir(profile_id) / "latency.json"

    def study_dir(self, name: str) -> Path:
        return self.root / "studies" / name

    def study_grid(self, name: str) -> Path:
        return self.study_dir(name) / "grid.yaml"

    def profile_json(self, name: str) -> Path:
        return self.study_dir(name) / "profile.json"

    def study_profile(self, name: str) -> dict[str, Any] | None:
        """The latency.json that a study points to; None when there is none or it is damaged."""
        pointer = read_json(self.profile_json(name))
        return None if pointer is None else read_json(self.latency_json(pointer["profile_id"]))

    def benchmarks_json(self, name: str) -> Path:
        return self.study_dir(name) / "benchmarks.json"

    def study_benchmarks(self, name: str) -> dict[str, str]:
        """sha256 of the contents that a study scores, by benchmark; those it has met so far."""
        return read_json(self.benchmarks_json(name)) or {}

    def new_tune_dir(self, name: str) -> Path:
        """An unused studies/<name>/tune/<n>, n counting Tune's sessions from 1."""
        parent = self.study_dir(name) / "tune"
        used = (
            [int(p.name) for p in parent.glob("*") if p.name.isdigit()] if parent.exists() else []
        )
        return parent / str(max(used, default=0) + 1)

    def cache_dir(self, cache: str | None = None) -> Path:
        return Path(cache).expanduser() if cache else self.root / "cache"

    # trials

    def read_trial(self, trial_id: str) -> dict[str, Any] | None:
        """The record of a finished trial, None when there is none or it is damaged."""
        return read_json(self.trial_json(trial_id))

    def trained(self, trial: Trial) -> dict[str, Any] | None:
        """The record of a trial whose record and files are all sound, else None.

        Every model file is hashed, so a flipped bit in the weights counts as not trained.
        """
        record = self.read_trial(trial.id)
        if record is None or record["trial"] != trial.model_dump(mode="json"):
            return None
        model = self.model_dir(trial.id)
        sound = all(_same_file(model / name, file) for name, file in record["files"].items())
        return record if sound and read_frame(self.train_parquet(trial.id)) is not None else None

    def finish_trial(self, trial: Trial, record: dict[str, Any]) -> dict[str, Any]:
        """Write the done mark of a trial whose model and train.parquet are in place."""
        model = self.model_dir(trial.id)
        files = {
            str(path.relative_to(model)): {
                "bytes": path.stat().st_size,
                "sha256": sha256_file(path),
            }
            for path in sorted(model.rglob("*"))
            if path.is_file()
        }
        record = {"format": 1, "id": trial.id, "trial": trial.model_dump(mode="json")} | record
        record["files"] = files
        write_json(self.trial_json(trial.id), record)
        self.failure_json(trial.id).unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints_dir(trial.id), ignore_errors=True)
        return record

    def newest_checkpoint(self, trial_id: str) -> int | None:
        """The step of a stopped trial's newest checkpoint, sound or not."""
        steps = [int(p.name[5:]) for p in self.checkpoints_dir(trial_id).glob("step-*")]
        return max(steps, default=None)

    def fail_trial(self, trial: Trial, reason: str, traceback: str) -> None:
        """Note why a trial failed; a later success removes the note."""
        text = {"id": trial.id, "reason": reason, "traceback": traceback}
        write_json(self.failure_json(trial.id), text)

    def failure(self, trial_id: str) -> dict[str, Any] | None:
        return read_json(self.failure_json(trial_id))

    @contextmanager
    def trial_lock(self, trial_id: str, timeout_s: float = 60.0) -> Iterator[None]:
        """Hold a trial for writing. A worker can outlive its killed driver by seconds."""
        self.trial_dir(trial_id).mkdir(parents=True, exist_ok=True)
        lock = self.trial_dir(trial_id) / ".lock"
        with _locked(lock, timeout_s, f"trial {trial_id} is being written by another process"):
            yield

    # scores

    def read_scores(
        self, trial_id: str, benchmark: str, what: dict[str, Any] | None = None
    ) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """Per-query scores and what was scored; None when missing, damaged or of another `what`.

        The frame has a row a query: `query_id`, then a column a measure.
        """
        found = read_frame(self.scores_parquet(trial_id, benchmark))
        if found is None or (what is not None and found[1].get("what") != what):
            return None
        return found

    def write_scores(
        self, trial_id: str, benchmark: str, frame: pd.DataFrame, about: dict[str, Any]
    ) -> None:
        """`about` has the key `what`, all that a score depends on, and counts beside it."""
        write_frame(self.scores_parquet(trial_id, benchmark), frame, about)

    # studies

    def open_study(self, grid: Grid, trial_ids: list[str] | None = None) -> None:
        """Store the grid beside its report.

        Raises:
            LedgerError: The folder holds a study of that name with no trial in common.
        """
        stored = self.study_grid(grid.name)
        ids = read_json(self.study_dir(grid.name) / "trials.json")
        mine = [trial.id for trial in grid.trials]
        if ids is not None and not set(ids["ids"]) & set(mine):
            raise LedgerError(
                f"{stored.parent} holds another study called {grid.name!r}: none of its "
                f"{len(ids['ids'])} trials is in {grid.file}. Give the grid another name, or move "
                f"that folder away (trained encoders lie under trials/ and are kept)."
            )
        write_text(stored, grid.text)
        write_json(self.study_dir(grid.name) / "trials.json", {"ids": mine})

    @contextmanager
    def study_lock(self, name: str) -> Iterator[None]:
        """Refuse a second run of one study; a killed run lets go by itself."""
        self.study_dir(name).mkdir(parents=True, exist_ok=True)
        lock = self.study_dir(name) / ".lock"
        with _locked(lock, 0.0, f"study {name!r} is running in another process"):
            yield

    def check_writable(self) -> None:
        """Write, read and remove a probe.

        Raises:
            LedgerError: The folder cannot be made or written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.root, prefix=".probe-") as probe:
                probe.write(b"probe")
                probe.flush()
        except OSError as error:
            raise LedgerError(
                f"results folder {self.root} cannot be written: {error.strerror}. Free some space "
                "or give another folder: --storage FOLDER"
            ) from None


def _same_file(path: Path, expected: dict[str, Any]) -> bool:
    try:
        same_size = path.stat().st_size == expected["bytes"]
        return bool(same_size and sha256_file(path) == expected["sha256"])
    except OSError:
        return False


@contextmanager
def _locked(path: Path, timeout_s: float, otherwise: str) -> Iterator[None]:
    try:
        with FileLock(path, timeout=timeout_s):
            yield
    except Timeout:
        raise HeldError(f"{otherwise} (lock {path}); wait for it, or stop it") from None
