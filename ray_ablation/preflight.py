"""Can this cluster run the trials? Asked of every node, answered in seconds, before any is started.

    driver ── a probe file in the storage root ──> one task a node, which holds nothing and has a
           <── what the node found ──────────────  limit: storage, versions, code, sources, GPUs

What is wrong comes back as one sentence a node and cause, all of them together, each with what to
change. Nodes that an autoscaler has still to bring are waited for with a placement group that
spreads one trial over each of so many nodes: it is the demand an autoscaler answers to, and Ray
drops it with the driver, so that a killed driver leaves no machine running.
"""

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ray_ablation import backbones, cluster, provenance
from ray_ablation.cluster import ClusterError
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial

LIMIT_S = 30.0
COMPARED = ("python", "torch", "ray", "transformers")


@dataclass(frozen=True)
class Needed:
    """What every node must have.

    Attributes:
        ledger: At an absolute root.
        sources: Local folders and files that trials read, by name.
        hub: (backbone, revision) of backbones that come from the hub.
    """

    ledger: Ledger
    sources: Mapping[str, Path]
    hub: Sequence[tuple[str, str | None]] = ()


@dataclass(frozen=True)
class Found:
    """A sound cluster: how many trials it holds at a time, and a line that says so."""

    slots: int
    line: str


def needed(grid: Grid, pending: Sequence[Trial], ledger: Ledger) -> Needed:
    """What the pending trials need of a node."""
    sources, names = grid.sources(), {name for t in pending for name in (t.backbone, t.train_set)}
    hub = {
        (trial.backbone, trial.backbone_revision)
        for trial in pending
        if backbones.locate(trial.backbone, grid.path(trial.backbone)) is None
    }
    folders = {n: s for n, s in sources.items() if n in names and isinstance(s, Path)}
    return Needed(replace(ledger, root=ledger.root.resolve()), folders, sorted(hub, key=str))


def check(execution: Execution, needed: Needed, limit_s: float = LIMIT_S) -> Found:
    """Hold the cluster Ray is connected to against what trials need.

    Args:
        execution: Gives device and what a trial holds.
        needed: Storage and sources.
        limit_s: For all nodes to answer.

    Returns:
        What was found, when all is well.

    Raises:
        ClusterError: A sentence for each node and cause, or that no node has room for a trial.
    """
    settled = cluster.settle_device(execution)
    wanted = cluster.needs(settled)
    cluster.check_fits(wanted, cluster.nodes())
    nodes = [node for node in ray.nodes() if node["Alive"]]
    with _token(needed.ledger) as token:
        answers = _ask(nodes, needed, token, settled.device == "cuda", limit_s)
        needed.ledger.fetch(token)
        problems = [line for node in nodes for line in _problems(node, answers, needed, token)]
    if problems:
        raise ClusterError("\n".join(problems))
    count = f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
    at_a_time = cluster.slots(wanted, cluster.nodes())
    line = f"cluster: {count} sound, {at_a_time} trials at a time ({_held(wanted)} each)"
    return Found(at_a_time, line)


def wait_for_nodes(execution: Execution, count: int, limit_s: float) -> None:
    """Wait until so many nodes have room for a trial; an autoscaler is asked for them.

    Raises:
        ClusterError: There are fewer after `limit_s`.
    """
    wanted = cluster.needs(cluster.settle_device(execution))
    end = time.monotonic() + limit_s
    group = placement_group([wanted] * count, strategy="STRICT_SPREAD")
    try:
        while (found := _with_room(wanted)) < count:
            if time.monotonic() > end:
                raise ClusterError(
                    f"--wait-for-nodes {count}: after {limit_s:g} s {found} of "
                    f"{len(cluster.nodes())} nodes could hold a trial ({_held(wanted)}); start "
                    "more, or raise --wait-timeout-s, or lower --wait-for-nodes"
                )
            time.sleep(0.5)
    finally:
        remove_placement_group(group)


def _held(wanted: cluster.Resources) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in sorted(wanted.items()))


def _with_room(wanted: cluster.Resources) -> int:
    return sum(cluster.slots(wanted, [node]) > 0 for node in cluster.nodes())


# Asking


@contextmanager
def _token(ledger: Ledger) -> Iterator[Path]:
    """A folder of probes in the storage root, with the driver's in it."""
    folder = ledger.root / f".preflight-{secrets.token_hex(8)}"
    folder.mkdir(parents=True)
    (folder / "driver").write_text(folder.name)
    ledger.publish(folder)
    try:
        yield folder
    finally:
        ledger.withdraw(folder)


def _ask(
    nodes: Sequence[dict[str, Any]], needed: Needed, token: Path, cuda: bool, limit_s: float
) -> dict[str, Any]:
    """What each node answered, or the error it answered with, by node id; silent ones left out."""
    # Ray would hide the GPUs from a task that holds none.
    seeing = {"env_vars": {cluster.NO_GPU_WITHOUT_ASKING: "0"}} if cuda else {}
    asked = {}
    for node in nodes:
        gpus = int(node["Resources"].get("GPU", 0)) if cuda else 0
        task = ray.remote(look).options(
            num_cpus=0,
            max_retries=0,
            runtime_env=seeing,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        )
        asked[task.remote(needed, token, node["NodeID"], gpus)] = node["NodeID"]
    ready, silent = ray.wait(list(asked), num_returns=len(asked), timeout=limit_s)
    for task in silent:
        ray.cancel(task, force=True)
    return {asked[task]: _answer(task) for task in ready}


def _answer(task: Any) -> Any:
    try:
        return ray.get(task)
    except ray.exceptions.RayError as error:
        return error


def look(needed: Needed, token: Path, name: str, gpus: int) -> dict[str, Any]:
    """What a node finds; runs on it.

    Args:
        needed: What it must have.
        token: Where the driver left its probe.
        name: Of this node's own probe.
        gpus: How many GPUs must compute.

    Returns:
        `code` as `provenance.code()`; `storage`, `sources`, `gpus`: what is wrong, None if nothing.
    """
    return {
        "code": provenance.code(),
        "storage": _try_storage(needed.ledger, token, name),
        "sources": _try_sources(needed),
        "gpus": _try_gpus(gpus) if gpus else None,
    }


def _try_storage(ledger: Ledger, token: Path, name: str) -> str | None:
    try:
        ledger.fetch(token)
        if (token / "driver").read_text() != token.name:
            return "reads something else there than this process wrote"
    except OSError as error:
        return f"does not see what this process wrote there ({error.strerror})"
    except UserError as error:
        return f"cannot read there ({error})"
    try:
        (token / name).write_text(name)
        ledger.publish(token / name)
    except OSError as error:
        return f"cannot write there ({error.strerror})"
    except UserError as error:
        return f"cannot write there ({error})"
    return None


def _try_sources(needed: Needed) -> str | None:
    for name, path in needed.sources.items():
        if not path.exists():
            return f"{path} ({name})"
    for name, revision in needed.hub:
        try:
            backbones.fetch_config(name, revision)
        except backbones.BackboneError:
            return f"{name} from the hub"
    return None


def _try_gpus(count: int) -> str | None:
    import torch

    if torch.cuda.device_count() < count:
        return f"torch {torch.__version__} sees {torch.cuda.device_count()} of its {count} GPUs"
    for index in range(count):
        try:
            torch.ones(8, device=f"cuda:{index}").sum().item()
        except RuntimeError as error:
            return f"GPU {index} does not compute: {str(error).splitlines()[0]}"
    return None


# Judging


def _problems(
    node: dict[str, Any], answers: Mapping[str, Any], needed: Needed, token: Path
) -> Iterator[str]:
    """A sentence for each thing that is wrong with a node."""
    found = answers.get(node["NodeID"])
    where = f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"
    objects = needed.ledger.objects
    root = objects.uri if objects else needed.ledger.root
    if found is None:
        yield f"{where} did not answer in time; look at it with `ray status`, or take it away"
        return
    if isinstance(found, ray.exceptions.RayError):
        reason = str(found).strip().splitlines()[-1]
        yield f"{where} cannot run our code: {reason}; install the project there, at the same path"
        return
    mount = "mount one folder on all nodes, or name a place they share: --storage FOLDER or URI"
    if found["storage"]:
        yield f"{where} {found['storage']}: storage root {root}; {mount}"
    elif not (token / node["NodeID"]).is_file():
        yield f"{where} writes to another {root} than this process reads; {mount}"
    for name, other, here in _differences(found):
        yield f"{where} has {name} {other}, here is {here}; install the same on all nodes"
    if found["sources"]:
        yield f"{where} cannot reach {found['sources']}; give a place under paths that it sees"
    if found["gpus"]:
        yield f"{where}: {found['gpus']}; mend its driver, or set execution.device to cpu"


def _differences(found: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, what the node has, what this process has."""
    there, here = found["code"], provenance.code()
    for name in COMPARED:
        # A head without GPUs may have torch's CPU build of the same version.
        other, own = (str(code["versions"][name]).partition("+")[0] for code in (there, here))
        if other != own:
            yield name, other, own
    if there["sha256"] != here["sha256"]:
        yield "training code", there["sha256"][:8], here["sha256"][:8]
