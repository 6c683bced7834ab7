"""The measured process: `python -m ray_ablation.latency.child UNIT_FOLDER`.

A fresh process a unit, started with a clean environment, because a process that has trained or
evaluated carries a heap, threads and allocator state that show in the numbers. The order matters:
die with the parent, pin, and only then import torch, whose thread pools inherit the affinity.

It reads `spec.json` in its folder and leaves there samples.parquet, blocks.parquet,
environment.json and, last, result.json. A missing result.json means that it did not finish.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ray_ablation.atomic import read_json, write_frame, write_json
from ray_ablation.latency.nvml import open_gpu

PR_SET_PDEATHSIG = 1


def main(folder: Path) -> int:
    """Measure the unit of a folder; 0 when its result is written."""
    started = time.monotonic()
    spec = read_json(folder / "spec.json")
    if spec is None:
        print(f"no sound spec.json in {folder}", file=sys.stderr)
        return 2
    die_with_parent(spec["parent_pid"])
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    core = pin(spec) if spec.get("conditions", {}).get("pin", True) else None
    result = run(spec, folder, cores)
    result |= {"pid": os.getpid(), "core": core, "seconds": round(time.monotonic() - started, 3)}
    write_json(folder / "result.json", result)
    return 0


def run(spec: dict[str, Any], folder: Path, cores: list[int] | None) -> dict[str, Any]:
    """Load, measure, write samples, blocks and environment; the rest of the record."""
    import torch

    from ray_ablation.latency import environment
    from ray_ablation.latency.conditions import in_place
    from ray_ablation.latency.guards import Guards
    from ray_ablation.latency.measure import Session
    from ray_ablation.latency.samples import BLOCKS, SAMPLES, mark_clock, typed

    torch.set_num_threads(spec["threads"])
    torch.set_num_interop_threads(1)
    cuda = spec["device"] == "cuda"
    gpu = open_gpu(f"GPU-{torch.cuda.get_device_properties(0).uuid}") if cuda else None
    session = Session(spec, Guards(gpu))
    with in_place(session.conditions, cores, [variant.encoder for variant in session.variants]):
        session.run()
    samples = mark_clock(typed(session.timer.samples, SAMPLES))
    blocks = typed(session.blocks, BLOCKS)
    write_frame(folder / "samples.parquet", samples, {"unit": spec["unit"]})
    write_frame(folder / "blocks.parquet", blocks, {"unit": spec["unit"]})
    write_json(folder / "environment.json", environment.describe(spec["device"], gpu))
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


def pin(spec: dict[str, Any]) -> int | None:
    """Stay on the last core that is allowed, near the GPU; None where there is no affinity.

    The first ones get most interrupts and daemons. Pinning keeps this process there, it does not
    keep others away: guards tell whether they came. With several threads, as many cores are taken.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    allowed = os.sched_getaffinity(0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    gpu = open_gpu(visible) if spec["device"] == "cuda" else None
    near = allowed & (gpu.near_cores() or set()) if gpu else set()
    cores = sorted(near or allowed)[-spec["threads"] :]
    os.sched_setaffinity(0, cores)
    return cores[-1]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
