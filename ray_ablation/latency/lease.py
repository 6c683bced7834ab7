"""The lease: a whole node is held, and one fresh child process runs on it at a time.

With Ray, the lease is an actor in a placement group of all the node's CPUs and GPUs, or of one GPU
where the grid says so, so that Ray runs nothing else there. It never touches CUDA: a second context
on the GPU would itself disturb. Ray's resources are bookkeeping; whether others use the device all
the same is read from NVML and /proc before each child.
Without Ray the same class works in this process and holds nothing.

Every wait has a limit. A child that runs past its own is killed with its process group and
recorded; the next one starts. When the driver goes (Ctrl-C, kill -9), so does the actor, and the
kernel kills the child with it (`child.die_with_parent`).
"""

import glob
import importlib.metadata
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ray_ablation.atomic import read_json, write_json
from ray_ablation.latency import guards
from ray_ablation.latency.nvml import open_gpu
from ray_ablation.latency.process import Outcome, run_child
from ray_ablation.ledger import Ledger

Node = str | dict[str, str] | None
"""Which node: an accelerator type, labels it must have, or any."""

HOLD_LIMIT_S = 60.0
"""To get all of a node; what still runs on it should have ended before."""
START_LIMIT_S = 60.0
"""For the actor's process to answer at all."""
ACCELERATOR = "accelerator_type:"
"""How Ray names the resource of a kind of GPU."""
PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])

# The whole environment of a child; nothing else is inherited, so that a shell's settings cannot
# change a number unseen. PATH and HOME are for libraries that look for caches and compilers.
INHERITED = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
INHERITED_PREFIXES = ("CUDA_MODULE_LOADING", "TORCH_CUDNN_")


class LeaseError(RuntimeError):
    """A node could not be held, or was lost; the text says which."""


class Holder(Protocol):
    """What a profile needs of a held node, in this process or in an actor."""

    def node(self) -> dict[str, Any]:
        """Device and class of the node."""

    def wait_quiet(self, limit_s: float) -> dict[str, Any]:
        """As `guards.wait_quiet`."""

    def run(self, folder: str, spec: dict[str, Any], limit_s: float, soft_s: float) -> Outcome:
        """As `Lease.run`."""


class Lease:
    """Starts one child at a time on this node; `ledger` is how a node without shared folders gets
    encoders and hands on what was measured."""

    def __init__(self, device: str, ledger: Ledger | None = None) -> None:
        self.device, self._ledger = device, ledger

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
        """Wait at most `limit_s` for the host to be quiet and the GPU to be nobody's."""
        gpu = open_gpu(self._visible()) if self.device == "cuda" else None
        return guards.wait_quiet(limit_s, gpu)

    def run(self, folder: str, spec: dict[str, Any], limit_s: float, soft_s: float) -> Outcome:
        """Run one unit in a fresh process.

        Args:
            folder: Empty folder for its files.
            spec: The unit; deadline and parent are added here, on the clock of this machine.
            limit_s: Killed after this.
            soft_s: The child itself stops measuring then.
        """
        if self._ledger is not None:
            for encoder in spec.get("folders", {}).values():
                self._ledger.fetch(Path(encoder))
        deadline_s = time.monotonic() + soft_s
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_json(
            Path(folder) / "spec.json",
            spec | {"deadline_s": deadline_s, "parent_pid": os.getpid()},
        )
        command = [sys.executable, "-m", "ray_ablation.latency.child", folder]
        environment = self._environment(spec.get("threads", 1)) | spec.get("variables", {})
        outcome = run_child(command, environment, limit_s, Path(folder) / "log.txt")
        if self._ledger is not None:
            self._ledger.publish(Path(folder))
        if outcome.error is None and read_json(Path(folder) / "result.json") is None:
            return Outcome("ended without a result", outcome.seconds)
        return outcome

    def _visible(self) -> str:
        return os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]

    def _environment(self, threads: int = 1) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in INHERITED or name.startswith(INHERITED_PREFIXES)
        }
        return kept | {
            # As NVML counts them; CUDA's own order puts the fastest first.
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": self._visible() if self.device == "cuda" else "",
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "MKL_NUM_THREADS": str(threads),
            "OMP_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": str(threads),
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": PACKAGE_ROOT,
            "TOKENIZERS_PARALLELISM": "false",
        }


@contextmanager
def hold(
    device: str,
    local: bool,
    limit_s: float = HOLD_LIMIT_S,
    node: Node = None,
    exclusive: str = "node",
    ledger: Ledger | None = None,
) -> Iterator[Holder]:
    """Hold a node for as long as the block lasts.

    Args:
        device: auto, cuda or cpu.
        local: In this process, without Ray; else a Ray cluster must be connected.
        limit_s: To get hold of it.
        node: Which, on a cluster.
        exclusive: node for all of it, gpu for one of its GPUs and a CPU.
        ledger: Holds the encoders.

    Raises:
        LeaseError: No such node, or not within the limit.
    """
    if local:
        yield Lease(_local_device(device), ledger)
    else:
        with _hold_with_ray(device, limit_s, node, exclusive, ledger) as held:
            yield held


def _local_device(device: str) -> str:
    """auto is cuda with a GPU's device file, not hidden, and a torch that is not built for CPUs."""
    if device != "auto":
        return device
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1")
    built = not importlib.metadata.version("torch").endswith("+cpu")
    return "cuda" if glob.glob("/dev/nvidia[0-9]*") and built and not hidden else "cpu"


@contextmanager
def _hold_with_ray(
    device: str, limit_s: float, wanted: Node, exclusive: str, ledger: Ledger | None
) -> Iterator[Holder]:
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    node = _choose_node(ray.nodes(), device, wanted)
    held = _what_to_hold(node["Resources"], exclusive)
    group = placement_group(
        [held],
        strategy="STRICT_PACK",
        bundle_label_selector=[{"ray.io/node-id": node["NodeID"]}],
    )
    actor = None
    try:
        if not group.wait(limit_s):
            free = {name: ray.available_resources().get(name, 0.0) for name in held}
            raise LeaseError(
                f"node {node['NodeManagerAddress']} was not free within {limit_s:.0f} s: {held} "
                f"is needed, {free} is free in the cluster"
            )
        actor = (
            ray.remote(Lease)
            .options(
                num_cpus=held.get("CPU", 0),
                num_gpus=held.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0),
            )
            .remote("cuda" if device != "cpu" and held.get("GPU") else "cpu", ledger)
        )
        yield _Remote(actor)
    finally:
        if actor is not None:
            ray.kill(actor)
        remove_placement_group(group)


def _what_to_hold(resources: dict[str, float], exclusive: str) -> dict[str, float]:
    """All CPUs and GPUs of a node, or one of each; without a GPU it is all in any case."""
    if exclusive == "gpu" and resources.get("GPU"):
        return {"CPU": 1.0, "GPU": 1.0}
    return {name: resources[name] for name in ("CPU", "GPU") if name in resources}


def _choose_node(nodes: list[dict[str, Any]], device: str, wanted: Node = None) -> dict[str, Any]:
    """The node under test: as wanted, with a GPU unless the device is cpu; the most CPUs, then by
    address."""
    alive = [node for node in nodes if node["Alive"] and node["Resources"].get("CPU")]
    found = [node for node in alive if _is_wanted(node, wanted)]
    if not found:
        raise LeaseError(_none_wanted(alive, wanted))
    with_gpu = [node for node in found if node["Resources"].get("GPU")]
    if device == "cuda" and not with_gpu:
        raise LeaseError(
            f"execution.device is cuda and none of the cluster's {len(found)} nodes has a GPU; "
            "set it to auto or cpu, or add a GPU node"
        )
    fit = with_gpu if device != "cpu" and with_gpu else found
    return min(fit, key=lambda n: (-n["Resources"]["CPU"], n["NodeManagerAddress"], n["NodeID"]))


def _is_wanted(node: dict[str, Any], wanted: Node) -> bool:
    labels = node.get("Labels") or {}
    if isinstance(wanted, str):
        named = labels.get("ray.io/accelerator-type")
        return named == wanted or f"{ACCELERATOR}{wanted}" in node["Resources"]
    return all(labels.get(name) == value for name, value in (wanted or {}).items())


def _none_wanted(alive: list[dict[str, Any]], wanted: Node) -> str:
    if not alive:
        return "the cluster has no node with CPUs"
    types = {
        name[len(ACCELERATOR) :]
        for n in alive
        for name in n["Resources"]
        if name.startswith(ACCELERATOR)
    }
    known = [f"accelerator type {name}" for name in sorted(types)]
    labels = {f"{k}: {v}" for node in alive for k, v in (node.get("Labels") or {}).items()}
    known += sorted(label for label in labels if "node-id" not in label)
    return (
        f"latency.node is {wanted}, which none of the cluster's {len(alive)} nodes has; "
        f"there is {', '.join(known) or 'neither an accelerator nor a label'}"
    )


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
