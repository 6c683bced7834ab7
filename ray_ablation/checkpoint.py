"""Checkpoints that exact resume needs, and nothing pickled in them.

    checkpoints/step-00000020/  encoder.safetensors, optimizer.safetensors, best.safetensors,
                                rows.json, state.json (written last, with the others' sha256)
                attempts.json   which steps each attempt executed

Batches and dropout are functions of (seed, step), so no generator state is stored. A checkpoint
counts only when every hash agrees and it was made by the same trial from the same data, code,
versions, device type and threads; the newest that does is resumed, else the one before.
"""

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ray_ablation.atomic import read_json, sha256_file, write_json

KEPT = 2
Weights = dict[str, Tensor]


@dataclass
class State:
    """Where a training stands after `step` steps.

    Attributes:
        step: Steps done.
        encoder: Weights by name.
        optimizer: State tensors by "<parameter index>.<name>".
        rows: Logged rows so far.
        counts: Work and time so far, as throughput.Meter counts them.
        best: Weights with the lowest evaluation loss, empty unless they are to be kept.
    """

    step: int
    encoder: Weights
    optimizer: Weights
    rows: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    best: Weights = field(default_factory=dict)


def save(folder: Path, state: State, fingerprint: dict[str, Any]) -> Path:
    """Write a checkpoint whole or not at all, then drop all but the newest KEPT; its folder."""
    final = folder / f"step-{state.step:08d}"
    temporary = folder / f".{final.name}.{os.getpid()}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name in ("encoder", "optimizer", "best"):
        tensors = {key: t.detach().cpu().contiguous() for key, t in getattr(state, name).items()}
        save_file(tensors, temporary / f"{name}.safetensors")
    (temporary / "rows.json").write_text(json.dumps(state.rows))
    hashes = {path.name: sha256_file(path) for path in sorted(temporary.iterdir())}
    about = {"step": state.step, "counts": state.counts, "files": hashes}
    write_json(temporary / "state.json", about | {"fingerprint": fingerprint})
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    for old in _newest_first(folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load_newest(folder: Path, fingerprint: dict[str, Any]) -> tuple[State | None, list[str]]:
    """The newest valid checkpoint, and why newer ones were passed over."""
    skipped: list[str] = []
    for path in _newest_first(folder):
        reason = _invalid(path, fingerprint)
        if reason is None:
            return _load(path), skipped
        skipped.append(f"{path.name}: {reason}")
    return None, skipped


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"), reverse=True)


def _invalid(path: Path, fingerprint: dict[str, Any]) -> str | None:
    about = read_json(path / "state.json")
    if about is None:
        return "state.json is missing or damaged"
    for name, expected in about["files"].items():
        if not (path / name).is_file() or sha256_file(path / name) != expected:
            return f"{name} is missing or damaged"
    for key in sorted(fingerprint.keys() | about["fingerprint"].keys()):
        made, now = about["fingerprint"].get(key), fingerprint.get(key)
        if made != now:
            return f"made with {key} {made}, now {now}"
    return None


def _load(path: Path) -> State:
    about = read_json(path / "state.json") or {}
    return State(
        step=about["step"],
        encoder=load_file(path / "encoder.safetensors"),
        optimizer=load_file(path / "optimizer.safetensors"),
        rows=json.loads((path / "rows.json").read_text()),
        counts=about["counts"],
        best=load_file(path / "best.safetensors"),
    )


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Weights:
    """An optimizer's state as flat named tensors."""
    return {
        f"{index}.{name}": value
        for index, entries in optimizer.state_dict()["state"].items()
        for name, value in entries.items()
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Weights) -> None:
    """Put `optimizer_tensors` back."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


class Attempts:
    """The steps each attempt executed, on disk as they are, so that a killed attempt counts."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "attempts.json"
        self.all: list[dict[str, Any]] = (read_json(self.file) or {"attempts": []})["attempts"]

    def begin(self, step: int, where: dict[str, Any]) -> None:
        """A new attempt starts from `step`."""
        self.all.append({"from_step": step, "to_step": step, "seconds": 0.0, **where})
        self._write()

    def reached(self, step: int, seconds: float) -> None:
        """The current attempt has executed up to `step`."""
        self.all[-1] |= {"to_step": step, "seconds": seconds}
        self._write()

    def _write(self) -> None:
        write_json(self.file, {"attempts": self.all})
