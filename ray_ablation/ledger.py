"""The ledger: what was computed, content-addressed, under one storage root.

Its files lie as `layout.py` says. No pickles and no absolute paths: a moved folder still reports,
without Ray or torch.

Nodes that share no folder share objects (`objects.py`): then each node's root is a copy, filled by
`fetch` before work begins and told on by `publish` when a piece is done. Both do nothing without.
"""

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
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
from ray_ablation.layout import CHECKPOINTS, MARKS, Layout
from ray_ablation.objects import Objects, is_uri
from ray_ablation.problems import UserError
from ray_ablation.trial import Trial


class LedgerError(UserError):
    """The storage root cannot be used as asked; the text says what to do."""


class HeldError(LedgerError):
    """Another process is at it."""


@dataclass(frozen=True)
class Ledger(Layout):
    """What is kept under `root`, and shared through `objects` where nodes share no folder."""

    objects: Objects | None = None

    def publish(self, path: Path, skip: Collection[str] = ()) -> None:
        """Put a file or folder of the ledger into object storage, its done mark at the end."""
        if self.objects is not None and path.is_dir():
            self.objects.push(path, self._key(path), skip, MARKS)
        elif self.objects is not None and path.is_file():
            self.objects.put(path, self._key(path))

    def fetch(self, path: Path, skip: Collection[str] = ()) -> None:
        """Bring a folder of the ledger from object storage, what is missing or another here."""
        if self.objects is not None:
            self.objects.pull(path, self._key(path), skip)

    def fetch_trial(self, trial_id: str) -> None:
        """Fetch a trial but for its checkpoints, which only who trains it needs.

        One that was finished here by a process that did not come to upload it is handed on.
        """
        if self.objects is None:
            return
        folder, done = self.trial_dir(trial_id), self.trial_json(trial_id)
        if done.exists() and self._key(done) not in self.objects.list(self._key(folder)):
            self._publish_trial(trial_id)
        self.fetch(folder, skip=(CHECKPOINTS,))

    def _publish_trial(self, trial_id: str) -> None:
        failure = self.failure_json(trial_id).name
        self.publish(self.trial_dir(trial_id), skip=(CHECKPOINTS, failure))

    def publish_checkpoint(self, folder: Path) -> None:
        """Put a checkpoint into object storage and drop there what was dropped here."""
        self.publish(folder)
        if self.objects is not None:
            self.objects.prune(folder.parent, self._key(folder.parent))

    def withdraw(self, path: Path) -> None:
        """Delete a file or folder of the ledger here and in object storage."""
        path.unlink(missing_ok=True) if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        if self.objects is not None:
            self.objects.remove(self._key(path))

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def study_profile(self, name: str) -> dict[str, Any] | None:
        """The latency.json that a study points to; None when there is none or it is damaged."""
        pointer = read_json(self.profile_json(name))
        return None if pointer is None else read_json(self.latency_json(pointer["profile_id"]))

    def registered_claims(self, name: str) -> dict[str, str]:
        """Digest of a claim -> when a run of the study first saw it, ISO 8601."""
        return read_json(self.claims_json(name)) or {}

    def study_benchmarks(self, name: str) -> dict[str, str]:
        """sha256 of the contents that a study scores, by benchmark; those it has met so far."""
        return read_json(self.benchmarks_json(name)) or {}

    # trials

    def read_trial(self, trial_id: str) -> dict[str, Any] | None:
        """The record of a finished trial, None when there is none or it is damaged."""
        return read_json(self.trial_json(trial_id))

    def records(self) -> Iterator[dict[str, Any]]:
        """The record of every finished trial under the root, of whatever study."""
        for file in sorted((self.root / "trials").glob("*/trial.json")):
            if record := read_json(file):
                yield record

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
        self._publish_trial(trial.id)
        self.withdraw(self.checkpoints_dir(trial.id))
        self.withdraw(self.failure_json(trial.id))
        return record

    def newest_checkpoint(self, trial_id: str) -> int | None:
        """The step of a stopped trial's newest checkpoint, sound or not."""
        steps = [int(p.name[5:]) for p in self.checkpoints_dir(trial_id).glob("step-*")]
        return max(steps, default=None)

    def fail_trial(self, trial: Trial, reason: str, traceback: str) -> None:
        """Note why a trial failed; a later success removes the note."""
        text = {"id": trial.id, "reason": reason, "traceback": traceback}
        write_json(self.failure_json(trial.id), text)
        self.publish(self.failure_json(trial.id))

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

    def read_frame(self, file: Path) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """A parquet file with what it says of itself, None when missing or damaged."""
        return read_frame(file)

    def read_scores(
        self, trial_id: str, benchmark: str, what: dict[str, Any] | None = None
    ) -> tuple[pd.DataFrame, dict[str, Any]] | None:
        """Per-query scores and what was scored; None when missing, damaged or of another `what`.

        The frame has a row a query: `query_id`, then a column a measure.
        """
        found = self.read_frame(self.scores_parquet(trial_id, benchmark))
        if found is None or (what is not None and found[1].get("what") != what):
            return None
        return found

    def write_scores(
        self, trial_id: str, benchmark: str, frame: pd.DataFrame, about: dict[str, Any]
    ) -> None:
        """`about` has the key `what`, all that a score depends on, and counts beside it."""
        write_frame(self.scores_parquet(trial_id, benchmark), frame, about)

    # studies

    def open_study(self, grid: Grid) -> None:
        """Store the grid beside its report, and note the claims that are new.

        Raises:
            LedgerError: The folder holds a study of that name with no trial in common, or an
                imported one.
        """
        stored = self.study_grid(grid.name)
        if stored.with_name("study.json").exists():
            raise LedgerError(f"{stored.parent} holds imported results; give the grid another name")
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
        self._register(grid)
        for file in self.study_files(grid.name):
            self.publish(file)

    def _register(self, grid: Grid) -> None:
        """Note when each claim was first seen; what was noted is never written again."""
        known = self.registered_claims(grid.name)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        seen = {claim.digest: now for claim in grid.claims} | known
        if seen != known:
            write_json(self.claims_json(grid.name), seen)

    def fetch_study(self, grid: Grid) -> None:
        """Bring all that object storage has of a grid; ObjectsError where it does not answer."""
        if self.objects is None:
            return
        self.objects.check()
        for trial in grid.trials:
            self.fetch_trial(trial.id)
        for reference in grid.references:
            self.fetch(self.root / "references" / reference.id)
        there = self.objects.list(self._key(self.study_dir(grid.name)))
        for file in self.study_files(grid.name):
            if self._key(file) in there:
                self.objects.get(self._key(file), file)
        if pointer := read_json(self.profile_json(grid.name)):
            self.fetch(self.latency_dir(pointer["profile_id"]))

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


def open_ledger(storage: str) -> Ledger:
    """The ledger of `execution.storage`: a folder, or a URI of object storage.

    A URI's local copy lies under results/objects/, apart from what other storage left there.

    Raises:
        ObjectsError: It has the form of a URI, but of no known object storage.
    """
    if not is_uri(storage):
        return Ledger(Path(storage))
    scheme, _, place = storage.rstrip("/").partition("://")
    return Ledger(Path("results") / "objects" / scheme / place, Objects(f"{scheme}://{place}"))


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
