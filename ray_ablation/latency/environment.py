"""What the machine and the libraries were, read in the measured process. None where unknown."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import psutil
import torch

from ray_ablation.latency import guards
from ray_ablation.latency.nvml import Gpu

PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "tokenizers",
    "numpy",
    "ray",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
)

VARIABLES = (
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "HF_HUB_OFFLINE",
    "LD_LIBRARY_PATH",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TOKENIZERS_PARALLELISM",
    "TORCH_CUDNN_SDPA_AVOID_RECOMPILE",
    "TORCH_CUDNN_SDPA_DEPRIORITIZED",
)


def describe(device: str, gpu: Gpu | None) -> dict[str, Any]:
    """Everything of this process and its machine that latency is known to depend on."""
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "cpu": _cpu(),
        "process": _process(),
        "torch": _torch(),
        "gpu": _gpu() if device == "cuda" else None,
        "nvml": gpu.describe() if gpu else None,
        "mps_daemon": _runs("nvidia-cuda-mps-control"),
        "ray_reporter_interval_ms": os.environ.get("REPORTER_UPDATE_INTERVAL_MS"),
    }


def _runs(program: str) -> bool:
    """Whether a program of that name runs; with MPS, others share the GPU unseen."""
    names = (process.info["name"] or "" for process in psutil.process_iter(["name"]))
    return any(program.startswith(name) for name in names if len(name) >= 15)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, Any]:
    cgroup = guards.cgroup_cpu_stat()
    return {
        "model": guards.cpu_model(),
        "cores_logical": os.cpu_count(),
        "cores_physical": psutil.cpu_count(logical=False),
        "smt": _text("/sys/devices/system/cpu/smt/active"),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "hypervisor": _text("/sys/class/dmi/id/sys_vendor"),
        "kernel": platform.release(),
        "cgroup_cpu_max": _text(cgroup.with_name("cpu.max")) if cgroup else None,
        "memory_bytes": psutil.virtual_memory().total,
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def _process() -> dict[str, Any]:
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "affinity": affinity,
        "nice": psutil.Process().nice(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }


def _torch() -> dict[str, Any]:
    backends: Any = torch.backends
    return {
        "flash_sdp": backends.cuda.flash_sdp_enabled(),
        "mem_efficient_sdp": backends.cuda.mem_efficient_sdp_enabled(),
        "math_sdp": backends.cuda.math_sdp_enabled(),
        "cudnn_sdp": backends.cuda.cudnn_sdp_enabled(),
        "tf32_matmul": backends.cuda.matmul.allow_tf32,
        "cuda": torch.version.cuda,
        "cudnn": backends.cudnn.version(),
        # A system CUDA on LD_LIBRARY_PATH can shadow the wheel's cuDNN and change the backend.
        "libcudnn": _loaded("libcudnn"),
        "mkldnn": backends.mkldnn.is_available(),
    }


def _gpu() -> dict[str, Any]:
    facts = torch.cuda.get_device_properties(0)
    return {
        "name": facts.name,
        "uuid": f"GPU-{facts.uuid}",
        "memory_bytes": facts.total_memory,
        "multiprocessors": facts.multi_processor_count,
        "capability": f"{facts.major}.{facts.minor}",
        "driver": _text("/sys/module/nvidia/version"),
    }


def _loaded(library: str) -> list[str]:
    """Files of a library that this process has mapped."""
    lines = (_text("/proc/self/maps") or "").splitlines()
    files = {line.split()[-1] for line in lines if library in line}
    return sorted(files)


def _text(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
