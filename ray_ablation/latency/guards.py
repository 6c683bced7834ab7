"""Read-only counters of host and GPU: who else was busy while an encoder was timed?

Counters are read between blocks, never inside a timed call, and nothing is set. What a machine does
not offer (NVML, cgroups, steal time) is None.

Pinning and holding a Ray node are not exclusion: other processes of the host run on. These
counters are how a profile knows.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ray_ablation.latency.nvml import Gpu, GpuReading

QUIET_CORES = 0.1
"""Other-busy cores at or below which a host counts as quiet."""
QUIET_WINDOW_S = 1.5
"""Over which that is measured."""


@dataclass(frozen=True)
class Reading:
    """Counters at one moment. All but `load1` and those of the GPU only grow.

    Attributes:
        time_ns: time.perf_counter_ns.
        own_cpu_ns: CPU time of this process.
        host_busy_ns: CPU time of all processes of the host, summed over cores, 10 ms steps.
        steal_ns: Time the hypervisor ran somebody else.
        nr_throttled: Periods in which the cgroup's CPU quota ran out.
        load1: Load average over a minute.
        gpu: The device, all None without one.
    """

    time_ns: int
    own_cpu_ns: int
    host_busy_ns: int
    steal_ns: int | None
    nr_throttled: int | None
    throttled_us: int | None
    load1: float | None
    gpu: GpuReading


class Guards:
    """Reads the counters, with those of a GPU when one is given."""

    def __init__(self, gpu: Gpu | None = None) -> None:
        self._cgroup = cgroup_cpu_stat()
        self._gpu = gpu

    def read(self) -> Reading:
        """All counters now; a fraction of a millisecond without a GPU."""
        times = psutil.cpu_times()._asdict()
        busy = sum(times.get(name, 0.0) for name in ("user", "nice", "system", "irq", "softirq"))
        throttled = _read_cpu_stat(self._cgroup)
        return Reading(
            time_ns=time.perf_counter_ns(),
            own_cpu_ns=time.process_time_ns(),
            host_busy_ns=round(busy * 1e9),
            steal_ns=round(times["steal"] * 1e9) if "steal" in times else None,
            nr_throttled=throttled.get("nr_throttled"),
            throttled_us=throttled.get("throttled_usec"),
            load1=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
            gpu=self._gpu.read() if self._gpu else GpuReading(),
        )


def other_busy_cores(before: Reading, after: Reading) -> float:
    """Cores that processes other than this one kept busy between two readings."""
    others = after.host_busy_ns - before.host_busy_ns - (after.own_cpu_ns - before.own_cpu_ns)
    return max(0.0, others / max(1, after.time_ns - before.time_ns))


def wait_quiet(limit_s: float, gpu: Gpu | None = None) -> dict[str, Any]:
    """Wait until the host is quiet and the GPU is nobody's, at most `limit_s`.

    Returns:
        waited_s; accepted, whether it became so; other_busy_cores and gpu_processes in the last
        window, None when there was no time for a window or the machine does not tell.
    """
    guards, started = Guards(gpu), time.monotonic()
    busy, processes, quiet = None, None, False
    while not quiet and time.monotonic() - started + QUIET_WINDOW_S <= limit_s:
        before = guards.read()
        time.sleep(QUIET_WINDOW_S)
        after = guards.read()
        busy, processes = other_busy_cores(before, after), after.gpu.processes
        quiet = busy <= QUIET_CORES and not processes and not after.gpu.utilisation
    return {
        "waited_s": round(time.monotonic() - started, 3),
        "accepted": quiet,
        "other_busy_cores": None if busy is None else round(busy, 3),
        "gpu_processes": processes,
    }


def cpu_model() -> str:
    """The processor's name, "unknown" where /proc/cpuinfo does not tell."""
    lines = _read(Path("/proc/cpuinfo")).splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def gpu_names() -> list[str]:
    """Models of the GPUs the driver knows, without touching CUDA."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    lines = [line for file in files for line in _read(file).splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def cgroup_cpu_stat() -> Path | None:
    """The cpu.stat of this process's control group, None without one."""
    own = [line.split(":", 2)[2] for line in _read(Path("/proc/self/cgroup")).splitlines()]
    v2 = [Path("/sys/fs/cgroup") / path.lstrip("/") / "cpu.stat" for path in own]
    found = [*v2, Path("/sys/fs/cgroup/cpu.stat"), Path("/sys/fs/cgroup/cpu/cpu.stat")]
    return next((file for file in found if "nr_throttled" in _read(file)), None)


def _read_cpu_stat(file: Path | None) -> dict[str, int]:
    if file is None:
        return {}
    rows = [line.split() for line in _read(file).splitlines()]
    stat = {row[0]: int(row[1]) for row in rows if len(row) == 2}
    if "throttled_time" in stat:  # version 1 of the interface counts nanoseconds
        stat["throttled_usec"] = stat["throttled_time"] // 1000
    return stat


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
