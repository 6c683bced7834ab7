"""The lease: a whole node is held, and one fresh child process runs on it at a time.

With Ray, the lease is an actor in a placement group of all the node's CPUs and GPUs, so that Ray
runs nothing else there. It never touches CUDA: a second context on the GPU would itself disturb.
Without Ray the same class works in this process and holds nothing.

Every wait has a limit. A child that runs past its own is killed with its process group and
recorded; the next one starts. When the driver goes (Ctrl-C, kill -9), so does the actor, and the
kernel kills the child with it (`child.die_with_parent`).
"""

import glob
import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ray_ablation.atomic import read_json, write_json
from ray_ablation.latency import guards

HOLD_LIMIT_S = 60.0
"""To get all of a node; what still runs on it should have ended before."""
START_LIMIT_S = 60.0
"""For the actor's process to answer at all."""
PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])

# The whole environment of a child; nothing else is inherited, so that a shell's settings cannot
# change a number unseen. PATH and HOME are for libraries that look for caches and compilers.
INHERITED = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
INHERITED_PREFIXES = ("CUDA_MODULE_LOADING", "TORCH_CUDNN_")


class LeaseError(RuntimeError):
    """A node could not be held, or was lost; the text says which."""


@dataclass(frozen=True)
class Outcome:
    """How a child ended.

    Attributes:
        error: One line; None when its result is there.
        seconds: Wall time from its start to its end.
    """

    error: str | None
    seconds: float


class Holder(Protocol):
    """What a profile needs of a held node, in this process or in an actor."""

    def node(self) -> dict[str, Any]:
        """Device and class of the node."""

    def wait_quiet(self, limit_s: float) -> dict[str, Any]:
        """As `guards.wait_quiet`."""

    def run(self, folder: str, spec: dict[str, Any], limit_s: float, soft_s: float) -> Outcome:
        """As `Lease.run`."""


class Lease:
    """Starts one child at a time on this node."""

    def __init__(self, device: str) -> None:
        self.device = device

    def node(self) -> dict[str, Any]:
        """What makes figures comparable: device, processor, GPU and how many there are."""
        gpus = guards.gpu_names() if self.device == "cuda" else []
        return {
            "device": self.device,
            "cpu": guards.cpu_model(),
            "cpus": os.cpu_count(),
            "gpu": gpus[0] if gpus else None,
            "gpus": len(gpus) or None,
        }

    def wait_quiet(self, limit_s: float) -> dict[str, Any]:
        """Wait at most `limit_s` for the host to be quiet."""
        return guards.wait_quiet(limit_s)

    def run(self, folder: str, spec: dict[str, Any], limit_s: float, soft_s: float) -> Outcome:
        """Run one unit in a fresh process.

        Args:
            folder: Empty folder for its files.
            spec: The unit; deadline and parent are added here, on the clock of this machine.
            limit_s: Killed after this.
            soft_s: The child itself stops measuring then.
        """
        deadline_s = time.monotonic() + soft_s
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_json(
            Path(folder) / "spec.json",
            spec | {"deadline_s": deadline_s, "parent_pid": os.getpid()},
        )
        command = [sys.executable, "-m", "ray_ablation.latency.child", folder]
        outcome = run_child(command, self._environment(), limit_s, Path(folder) / "log.txt")
        if outcome.error is None and read_json(Path(folder) / "result.json") is None:
            return Outcome("ended without a result", outcome.seconds)
        return outcome

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in INHERITED or name.startswith(INHERITED_PREFIXES)
        }
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        return kept | {
            "CUDA_VISIBLE_DEVICES": visible if self.device == "cuda" else "",
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "MKL_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": PACKAGE_ROOT,
            "TOKENIZERS_PARALLELISM": "false",
        }


def run_child(
    command: list[str], environment: dict[str, str], limit_s: float, log: Path
) -> Outcome:
    """Run a command in its own process group; kill the group after `limit_s`, or on any error here.

    Its output goes to `log`. Being in another session than a terminal's, it does not get Ctrl-C
    itself; this process does, and kills it on the way out.
    """
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
        error = None
        try:
            # Waiting for the end of its output, which it does not write, sleeps in the kernel;
            # Popen.wait with a limit would poll, and wake a core while the child is timed.
            process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            error = f"killed after {limit_s:.0f} s, its limit"
        finally:
            _kill_group(process)
    if error is None and process.returncode != 0:
        error = f"{_how_it_ended(process.returncode)}: {_last_line(log)}"
    return Outcome(error, round(time.monotonic() - started, 3))


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def _how_it_ended(returncode: int) -> str:
    if returncode < 0:
        return f"killed by {signal.Signals(-returncode).name}"
    return f"ended with exit code {returncode}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


@contextmanager
def hold(device: str, local: bool, limit_s: float = HOLD_LIMIT_S) -> Iterator[Holder]:
    """Hold a node for as long as the block lasts.

    Args:
        device: auto, cuda or cpu.
        local: In this process, without Ray; else a Ray cluster must be connected.
        limit_s: To get hold of it.

    Raises:
        LeaseError: No such node, or not within the limit.
    """
    if local:
        yield Lease(_local_device(device))
    else:
        with _hold_with_ray(device, limit_s) as held:
            yield held


def _local_device(device: str) -> str:
    """auto is cuda with a GPU's device file, not hidden, and a torch that is not built for CPUs."""
    if device != "auto":
        return device
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    built = not importlib.metadata.version("torch").endswith("+cpu")
    return "cuda" if glob.glob("/dev/nvidia[0-9]*") and built and not hidden else "cpu"


@contextmanager
def _hold_with_ray(device: str, limit_s: float) -> Iterator[Holder]:
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    node = _choose_node(ray.nodes(), device)
    whole = {name: node["Resources"][name] for name in ("CPU", "GPU") if name in node["Resources"]}
    group = placement_group(
        [whole],
        strategy="STRICT_PACK",
        bundle_label_selector=[{"ray.io/node-id": node["NodeID"]}],
    )
    actor = None
    try:
        if not group.wait(limit_s):
            free = {name: ray.available_resources().get(name, 0.0) for name in whole}
            raise LeaseError(
                f"node {node['NodeManagerAddress']} was not free within {limit_s:.0f} s: {whole} "
                f"is needed, {free} is free in the cluster"
            )
        actor = (
            ray.remote(Lease)
            .options(
                num_cpus=whole.get("CPU", 0),
                num_gpus=whole.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
            )
            .remote("cuda" if device != "cpu" and whole.get("GPU") else "cpu")
        )
        yield _Remote(actor)
    finally:
        if actor is not None:
            ray.kill(actor)
        remove_placement_group(group)


def _choose_node(nodes: list[dict[str, Any]], device: str) -> dict[str, Any]:
    """The node under test: with a GPU unless the device is cpu; the most CPUs, then by address."""
    alive = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU")]
    with_gpu = [node for node in alive if node["Resources"].get("GPU")]
    if device == "cuda" and not with_gpu:
        raise LeaseError(
            f"execution.device is cuda and none of the cluster's {len(alive)} nodes has a GPU; "
            "set it to auto or cpu, or add a GPU node"
        )
    fit = with_gpu if device != "cpu" and with_gpu else alive
    if not fit:
        raise LeaseError("the cluster has no node with CPUs")
    return min(fit, key=lambda n: (-n["Resources"]["CPU"], n["NodeManagerAddress"], n["NodeID"]))


class _Remote:
    """The actor's methods as plain calls, each with a limit."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def node(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get(self._actor.node.remote(), START_LIMIT_S)
        return found

    def wait_quiet(self, limit_s: float) -> dict[str, Any]:
        gate: dict[str, Any] = self._get(
            self._actor.wait_quiet.remote(limit_s), limit_s + START_LIMIT_S
        )
        return gate

    def run(self, folder: str, spec: dict[str, Any], limit_s: float, soft_s: float) -> Outcome:
        call = self._actor.run.remote(folder, spec, limit_s, soft_s)
        outcome: Outcome = self._get(call, limit_s + START_LIMIT_S)
        return outcome

    def _get(self, call: Any, limit_s: float) -> Any:
        import ray

        try:
            return ray.get(call, timeout=limit_s)
        except ray.exceptions.GetTimeoutError:
            raise LeaseError(f"the lease did not answer within {limit_s:.0f} s") from None
        except ray.exceptions.RayActorError as error:
            raise LeaseError(f"the lease was lost: {str(error).splitlines()[0]}") from error
