"""Figures as PNG, where a Chrome is found.

Kaleido drives a Chrome, which in a container can hang for ever, so a child process does it and is
ended when its time is up. Chrome is the one that BROWSER_PATH names, or one that kaleido installed
(`kaleido_get_chrome`), or one on the PATH. A report is complete without it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

TIME_LIMIT_S = 60.0
SCALE = 2
"""Pixels per point: 1800 x 1040 for a figure of 900 x 520."""


def write_pngs(figures: Mapping[Path, str], limit_s: float = TIME_LIMIT_S) -> str | None:
    """Draw figures as PNG.

    Args:
        figures: Where to -> the figure as plotly's JSON.
        limit_s: For all of them together.

    Returns:
        Why there are none, in a line; None when all were drawn.
    """
    if not figures:
        return None
    with tempfile.TemporaryDirectory() as folder:
        jobs = {str(Path(folder) / path.name): text for path, text in figures.items()}
        failure = _in_child(jobs, limit_s)
        for path in figures:
            drawn = Path(folder) / path.name
            if drawn.is_file() and drawn.stat().st_size:
                _move(drawn, path)
            else:
                failure = failure or "Chrome drew nothing"
    return failure


def _in_child(jobs: dict[str, str], limit_s: float) -> str | None:
    root = Path(__file__).parent.parent
    child = subprocess.Popen(
        [sys.executable, "-m", "analysis.images"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
    )
    try:
        _, errors = child.communicate(json.dumps(jobs), timeout=limit_s)
    except subprocess.TimeoutExpired:
        _end(child.pid)
        child.communicate()
        return f"Chrome took longer than {limit_s:.0f} s"
    lines = [line for line in errors.splitlines() if line.strip()]
    return (
        (lines[-1].strip() if lines else f"exit {child.returncode}") if child.returncode else None
    )


def _end(pid: int) -> None:
    """End the child and the Chrome it started, which has a session of its own."""
    child = psutil.Process(pid)
    child.suspend()  # so that it starts nothing while its family is listed
    family = child.children(recursive=True)
    for process in [*family, child]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, timeout=2)


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    temporary.write_bytes(source.read_bytes())
    os.replace(temporary, target)


def _draw(jobs: dict[str, str]) -> None:
    """The child's work: every figure in one Chrome."""
    import kaleido

    kaleido.write_fig_from_object_sync(
        [
            {"fig": json.loads(text), "path": path, "opts": {"format": "png", "scale": SCALE}}
            for path, text in jobs.items()
        ],
        cancel_on_error=True,
        # No MathJax, which kaleido would load from the network; and a proxy that is not there
        # keeps what Chrome asks for on its own on this machine.
        kopts={"mathjax": False, "proxy_server": "127.0.0.1:9"},
    )


if __name__ == "__main__":
    _draw(json.load(sys.stdin))
