"""The state of a process that is measured: as controlled as can be, or as it is met in the wild.

The defaults are the controlled state and make a profile. The other levels are what
`latency.diagnose` compares with them, one by one and together, to tell which of them moves a
figure. What is beside the process (busy cores, another user of the GPU) is started by it, after
loading, and ends with it.
"""

import copy
import gc
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

HEAP_OBJECTS = 2_000_000
"""A full collection of so many takes about 0.2 s."""
USED_STEPS = 6
"""Training steps after which a process counts as used."""

# Each ends by itself when the process that started it is gone.
SPIN = "import os\np = os.getppid()\nwhile os.getppid() == p: sum(range(100_000))"
POLL = """import os, sys, time, pynvml
pynvml.nvmlInit()
device, p = pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1]), os.getppid()
while os.getppid() == p:
    pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    pynvml.nvmlDeviceGetUtilizationRates(device)
    time.sleep(0.1)"""
MULTIPLY = """import os, torch
x, p = torch.randn(4096, 4096, device="cuda", dtype=torch.half), os.getppid()
while os.getppid() == p:
    for _ in range(50): y = x @ x
    torch.cuda.synchronize()"""


@dataclass(frozen=True)
class Conditions:
    """Departures from the controlled state.

    Attributes:
        used: The process has trained before and keeps its optimizer.
        heap: Garbage is collected as by default, with a heap of `HEAP_OBJECTS`.
        pin: It stays on one core.
        cotenants: Processes that compute all the time, on any core.
        gpu_cotenant: Another process computes on the GPU.
        monitor: Another process reads NVML ten times a second.
        pad: Texts are padded to the length.
        cudnn: Attention may be cuDNN's, as by default.
        graph: The forward pass is a CUDA graph.
        compile: The transformer is compiled.
        steady: The warm-up lasts until it is steady, each shape seen twice; else a fixed number.
        encode: The call is `SentenceTransformer.encode`, not the loop's own.
        bar: A progress bar is drawn around every call, as `encode` does by default.
        idle_ms: Pause before every call.
    """

    used: bool = False
    heap: bool = False
    pin: bool = True
    cotenants: int = 0
    gpu_cotenant: bool = False
    monitor: bool = False
    pad: bool = False
    cudnn: bool = True
    graph: bool = False
    compile: bool = False
    steady: bool = True
    encode: bool = False
    bar: bool = False
    idle_ms: float = 0.0


@contextmanager
def in_place(
    conditions: Conditions, cores: Sequence[int] | None, encoders: Sequence[SentenceTransformer]
) -> Iterator[None]:
    """Have the conditions of process and machine hold; those of a call are the caller's.

    Args:
        cores: Those that co-tenants may use; None for any.
        encoders: As loaded; none is changed.
    """
    kept: list[Any] = []
    if not conditions.cudnn:
        torch.backends.cuda.enable_cudnn_sdp(False)
    if conditions.used and encoders:
        kept.append(_train(encoders[0]))
    if conditions.heap:
        kept.append([[index] for index in range(HEAP_OBJECTS)])
    else:
        # What loading left is kept out of all later collections; the loop makes no cycles.
        gc.collect()
        gc.freeze()
        gc.disable()
    with ExitStack() as stack:
        stack.enter_context(running(SPIN, conditions.cotenants, cores))
        stack.enter_context(running(MULTIPLY, int(conditions.gpu_cotenant), cores))
        if conditions.monitor:
            uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
            stack.enter_context(running(POLL, 1, cores, uuid))
        yield


@contextmanager
def running(
    code: str, count: int, cores: Sequence[int] | None = None, *arguments: str
) -> Iterator[None]:
    """Processes that run a piece of Python while the block lasts.

    Args:
        cores: Where they may run, whatever this process is pinned to; None for any.
    """
    spread = f"import os; os.sched_setaffinity(0, {list(cores)})\n" if cores else ""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            command = [sys.executable, "-c", spread + code, *arguments]
            processes.append(subprocess.Popen(command))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def spinning(count: int) -> Any:
    """Keep so many cores busy while the block lasts."""
    return running(SPIN, count)


def _train(encoder: SentenceTransformer) -> Any:
    """Train a copy with gradient checkpointing; what a trainer leaves in memory."""
    student = copy.deepcopy(encoder).float().train()
    transformer: Any = student[0].auto_model
    transformer.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(student.parameters())
    ids = torch.randint(5, transformer.config.vocab_size, (8, 32), device=student.device)
    for _ in range(USED_STEPS):
        features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        states = transformer(**features).last_hidden_state
        states.float().pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return student, optimizer
