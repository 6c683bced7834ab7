"""The measured process: `python -m ray_ablation.latency.child UNIT_FOLDER`.

A fresh process a unit, started with a clean environment, because a process that has trained or
evaluated carries a heap, threads and allocator state that show in the numbers. The order matters:
die with the parent, pin, and only then import torch, whose thread pools inherit the affinity.

It reads `spec.json` in its folder and leaves there samples.parquet, blocks.parquet,
environment.json and, last, result.json. A missing result.json means that it did not finish.
"""

import ctypes
import gc
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ray_ablation.atomic import read_json, write_frame, write_json

PR_SET_PDEATHSIG = 1


def main(folder: Path) -> int:
    """Measure the unit of a folder; 0 when its result is written."""
    started = time.monotonic()
    spec = read_json(folder / "spec.json")
    if spec is None:
        print(f"no sound spec.json in {folder}", file=sys.stderr)
        return 2
    die_with_parent(spec["parent_pid"])
    core = pin()
    result = run(spec, folder)
    result |= {"pid": os.getpid(), "core": core, "seconds": round(time.monotonic() - started, 3)}
    write_json(folder / "result.json", result)
    return 0


def run(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Load, measure, write samples, blocks and environment; the rest of the record."""
    import torch

    from ray_ablation.latency import environment
    from ray_ablation.latency.measure import Session
    from ray_ablation.latency.samples import BLOCKS, SAMPLES, mark_clock, typed

    torch.set_num_threads(spec["threads"])
    torch.set_num_interop_threads(1)
    session = Session(spec)
    # What loading left is kept out of all later collections; the loop makes no cycles of its own.
    gc.collect()
    gc.freeze()
    gc.disable()
    session.run()
    samples = mark_clock(typed(session.samples, SAMPLES))
    blocks = typed(session.blocks, BLOCKS)
    write_frame(folder / "samples.parquet", samples, {"unit": spec["unit"]})
    write_frame(folder / "blocks.parquet", blocks, {"unit": spec["unit"]})
    write_json(folder / "environment.json", environment.describe(spec["device"]))
    return session.describe()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, however that dies.

    A Ctrl-C or a time limit is the parent's to handle, and it kills the process group; a parent
    that is itself killed cannot. Linux alone has this; elsewhere an orphan ends at its deadline.
    The signal follows the parent's thread, so a child must be started from a thread that lasts.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it died before the call above
            os.kill(os.getpid(), signal.SIGKILL)


def pin() -> int | None:
    """Stay on the last core that is allowed; None where the system has no affinity.

    The first ones get most interrupts and daemons. Pinning keeps this process there, it does not
    keep others away: guards tell whether they came.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
