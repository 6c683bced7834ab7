"""What a trial was computed with: code, library versions, device, place."""

import hashlib
import importlib.metadata
import os
import platform
import socket
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# Everything in the package that a trained weight depends on. Code that only runs, scores or
# reports is left out: its changes make no encoder stale. So is code that samples: the sample has
# a hash of its own.
TRAINING_CODE = (
    "trial.py",
    "layers.py",
    "encoder.py",
    "batches.py",
    "fine_tune.py",
    "objective.py",
    "throughput.py",
    "train.py",
    "data/tokens.py",
)
LIBRARIES = ("torch", "transformers", "sentence-transformers", "tokenizers", "numpy", "ray")


@cache
def code() -> dict[str, Any]:
    """Hash of the training code, git commit ("+" marks local changes) and library versions."""
    return {
        "sha256": code_sha256(),
        "git_commit": _git_commit(),
        "versions": {"python": platform.python_version()} | {n: _version(n) for n in LIBRARIES},
    }


def code_sha256() -> str:
    """Hex sha256 over the names and bytes of TRAINING_CODE."""
    digest = hashlib.sha256()
    for name in TRAINING_CODE:
        digest.update(name.encode())
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()


def differences(recorded: dict[str, Any]) -> list[str]:
    """How what a trial was trained with differs from what is here, a phrase each.

    Args:
        recorded: `code()` as it was.
    """
    now = code()
    found = [
        f"{name} {recorded['versions'].get(name)}, here {version}"
        for name, version in now["versions"].items()
        if recorded["versions"].get(name) != version
    ]
    if recorded["sha256"] != now["sha256"]:
        found.append(f"training code {recorded['sha256'][:8]}, here {now['sha256'][:8]}")
    return found


def place(device: "torch.device") -> dict[str, Any]:
    """Device, host, process and threads; gpu_uuid is None on a CPU."""
    import torch

    on_gpu = device.type == "cuda"
    properties = torch.cuda.get_device_properties(device) if on_gpu else None
    return {
        "device": device.type,
        "device_name": properties.name if properties else _cpu_name(),
        "gpu_uuid": str(getattr(properties, "uuid", "")) or None if properties else None,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "threads": torch.get_num_threads(),
    }


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the checkout the package runs from; None outside of one."""
    here = Path(__file__).parent
    try:
        commit = _git(here, "rev-parse", "HEAD")
        return commit + ("+" if _git(here, "status", "--porcelain", "--", str(here)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
