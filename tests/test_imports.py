"""The house: a module imports only what its row names, and Ray stays at the rim.

The rows are the decision; a new import is a change of the architecture and is made here first.
Leaves (names, settings, errors) are open to all and left out of the rows.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LEAVES = {"atomic", "trial", "settings", "claim", "problems", "layers", "backbones"}
DATA = {"data"}

ROWS = {
    "atomic": set(),
    "trial": {"layers", "problems"},
    "settings": {"atomic", "trial"},
    "problems": set(),
    "layers": set(),
    "backbones": {"atomic", "problems"},
    "claim": {"problems", "settings", "trial"},
    "claim_world": set(),
    "grid_file": DATA,
    "entries": DATA,
    # Registries of data, so that unknown names are reported at the door.
    "grid": {"claim_world", "entries", "grid_file", *DATA},
    "layout": set(),
    "objects": set(),
    "ledger": {"grid", "layout", "objects"},
    "frames": {"grid", "ledger", *DATA},
    "data": DATA,
    "encoder": set(),
    "batches": set(),
    "throughput": {"batches"},
    "provenance": set(),
    "checkpoint": {"ledger"},
    "objective": set(),
    "fine_tune": {"batches", "checkpoint", "objective", "throughput", *DATA},
    "train": {"checkpoint", "provenance", "encoder", "fine_tune", "ledger", *DATA},
    "plan": {"grid", "ledger", "provenance", *DATA},
    "search": set(),
    "metrics": set(),
    "embed": set(),
    "retrieve": {"embed", "encoder", "search", *DATA},
    "scores": {"metrics", *DATA},
    "bm25": {"grid", "ledger", "metrics", "scores", *DATA},
    "cells": {"grid", "ledger", "metrics", "retrieve", "scores", "search", *DATA},
    "evaluate": {"bm25", "cells", "cluster", "grid", "ledger", "retrieve", "telemetry", *DATA},
    "cluster": set(),
    "cost": set(),
    "failures": set(),
    "callbacks": set(),
    "slot": {"ledger"},
    "preflight": {"cluster", "grid", "ledger", "provenance"},
    "options": set(),
    "study": {"cluster", "cost", "grid", "ledger", "plan", "preflight", "telemetry", *DATA},
    "telemetry": set(),
    "progress": set(),
    "views": {"progress"},
    "watch": {"failures", "progress", "telemetry", "views"},
    "tune": {
        *("callbacks", "cluster", "failures", "grid", "ledger", "progress", "slot", "train"),
        *("views", "watch"),
    },
    "latency": {"cluster", "encoder", "frames", "grid", "latency", "ledger"},
    "analysis": {
        *("analysis", "claim_world", "frames", "grid", "grid_file", "latency", "ledger"),
        *DATA,
    },
}
RAY = {"cluster", "preflight", "tune", "watch", "evaluate", "telemetry", "latency/lease"}


def modules() -> dict[str, Path]:
    files = [p for top in ("ray_ablation", "analysis") for p in (ROOT / top).rglob("*.py")]
    return {
        str(p.relative_to(ROOT).with_suffix("")).removeprefix("ray_ablation/"): p
        for p in files
        if p.name != "__init__.py"
    }


def room(name: str) -> str:
    return name.split("/")[0]


def imported(path: Path) -> set[str]:
    """Dotted names of everything imported anywhere in a file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own(names: set[str]) -> set[str]:
    """Rooms of ours among them."""
    found = {name.split(".")[1] for name in names if name.startswith("ray_ablation.")}
    return found | {"analysis" for name in names if name.split(".")[0] == "analysis"}


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_module_imports_only_what_its_row_names(name):
    if name == "run":
        return  # the command may name every room
    open_to_it = set() if name in LEAVES else LEAVES
    extra = own(imported(modules()[name])) - open_to_it - ROWS[room(name)]
    assert not extra, f"{name} imports {sorted(extra)}"


@pytest.mark.parametrize("name", sorted(modules()))
def test_ray_stays_at_the_rim(name):
    uses = any(found.split(".")[0] == "ray" for found in imported(modules()[name]))
    assert uses <= (name in RAY)


def test_the_graph_has_no_cycle():
    graph = {name: own(imported(path)) - {room(name)} for name, path in modules().items()}
    by_room: dict[str, set[str]] = {}
    for name, targets in graph.items():
        by_room.setdefault(room(name), set()).update(targets)
    done: set[str] = set()
    while len(done) < len(by_room):
        free = {r for r in by_room if r not in done and by_room[r] <= done | {r}}
        assert free, f"cycle among {sorted(set(by_room) - done)}"
        done |= free


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("ray_ablation.run", ("ray", "torch", "transformers")),
        ("ray_ablation.ledger", ("ray", "torch")),
        ("analysis.report", ("ray", "torch")),
        ("analysis.comparisons", ("ray", "torch", "statsmodels", "scipy.stats", "scipy.optimize")),
    ],
)
def test_light_modules_stay_light(module, absent):
    script = f"import sys, {module}; print([n for n in {absent!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
