"""Ray itself: started here or connected to, with workers that compute reproducibly, and what fits.

Without an address the command starts a cluster of this machine and takes it down again. With one
(--address, RAY_ADDRESS) it uses that cluster and leaves it running. Either way the code is not
uploaded as a working_dir: that would send results and environments along, and put the workers into
a copy where relative paths mean something else. All nodes have the repository at the same path, or
the package installed.
"""

import logging
import os
import secrets
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from ray_ablation.problems import UserError
from ray_ablation.settings import Execution

Resources = Mapping[str, float]

# The kernel kills one worker that takes too much memory, and its work is done again. Ray's own
# memory monitor would raise an error that Tune does not know and that ends the whole session.
# The core's own log goes to files; on the terminal it would stand between our lines.
CORE = {"RAY_memory_monitor_refresh_ms": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
KNOCK_S = 5.0
# The head is gone after two knocks in vain, a second apart: sooner than Ray ends the process.
WATCH_S, KNOCKS_IN_VAIN = 1.0, 2
# Ray leaves all GPUs of a node visible to a task that holds none, unless this is set.
NO_GPU_WITHOUT_ASKING = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
SETTINGS = {"CPU": "execution.cpus_per_trial", "GPU": "execution.gpus_per_trial"}


class ClusterError(UserError):
    """The cluster cannot run what is asked; the text names the resource and the setting."""


@contextmanager
def start_ray(
    execution: Execution, *, address: str | None = None, dashboard: bool = False
) -> Iterator[str | None]:
    """Be connected to Ray inside; whatever is connected already is used as it is.

    Args:
        execution: Gives the threads of the workers.
        address: Of a running cluster; None takes RAY_ADDRESS, else starts one on this machine.
        dashboard: Serve Ray's dashboard; only where a cluster is started.

    Yields:
        Where the dashboard answers, host and port; None when there is none.

    Raises:
        ClusterError: No cluster answers at the address.
    """
    if ray.is_initialized():
        yield None
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    own: dict[str, Any] = {}
    if address == "local":
        own = {"num_cpus": usable_cpus(), "include_dashboard": dashboard}
        _give_token()
    # Ray sets RAY_AUTH_MODE when it starts a cluster; it is put back with the rest.
    with environment({**CORE, "RAY_AUTH_MODE": os.environ.get("RAY_AUTH_MODE")}), quiet():
        try:
            _knock(address)
            with _without_the_line_on_log_levels():
                context = ray.init(
                    address=address,
                    logging_level=logging.CRITICAL,
                    log_to_driver=False,
                    runtime_env={"env_vars": worker_environment(execution)},
                    **own,
                )
        except OSError as error:
            raise ClusterError(
                f"no Ray cluster answers at {address} ({' '.join(str(error).split())}); start it, "
                "or leave out --address and unset RAY_ADDRESS to start one on this machine"
            ) from error
        try:
            with _watched_head(context.address_info["gcs_address"]):
                yield context.dashboard_url or None
        finally:
            ray.shutdown()


def dashboard_line(url: str | None) -> str:
    """Where the dashboard answers, and the token it asks for where we made one."""
    if url is None:
        return "dashboard: this cluster was not started here; ray dashboard cluster.yaml opens its"
    token = os.environ.get("RAY_AUTH_TOKEN")
    disabled = os.environ.get("RAY_AUTH_MODE") == "disabled"
    return f"dashboard: http://{url}" + (f" (token {token})" if token and not disabled else "")


def worker_environment(execution: Execution) -> dict[str, str]:
    """Environment of every worker, so that equal seeds give equal bits wherever a trial runs."""
    root = str(Path(__file__).resolve().parents[1])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    passed = ("HF_HUB_OFFLINE", "RAY_AUTH_MODE")
    return {
        "PYTHONHASHSEED": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # deterministic matrix products on a GPU
        "OMP_NUM_THREADS": str(execution.cpus_per_trial),  # `ray up` exports 1 everywhere
        NO_GPU_WITHOUT_ASKING: "1",
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        **{name: os.environ[name] for name in passed if name in os.environ},
    }


def usable_cpus() -> int:
    """CPUs this process may run on, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def settle_device(execution: Execution) -> Execution:
    """`device: auto` decided by whether the cluster has a GPU."""
    if execution.device != "auto":
        return execution
    device = "cuda" if ray.cluster_resources().get("GPU", 0) else "cpu"
    return execution.model_copy(update={"device": device})


def needs(execution: Execution) -> dict[str, float]:
    """What a trial holds while it runs, in Ray's names."""
    cpus = {"CPU": float(execution.cpus_per_trial)}
    return cpus | ({"GPU": execution.gpus_per_trial} if execution.device == "cuda" else {})


def nodes() -> list[Resources]:
    """The resources of each node that is up."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def check_fits(wanted: Resources, nodes: Sequence[Resources]) -> None:
    """Refuse at once what would wait for ever.

    Raises:
        ClusterError: No node has all of `wanted`.
    """
    among = _count(nodes, "")
    for resource in sorted(wanted, reverse=True):  # GPUs first: they are the fewer
        most = max((node.get(resource, 0) for node in nodes), default=0)
        nodes = [node for node in nodes if node.get(resource, 0) >= wanted[resource]]
        if not nodes:
            raise ClusterError(_too_much(resource, wanted[resource], most, among))
        among = _count(nodes, f" with enough {resource}s")


def slots(wanted: Resources, nodes: Sequence[Resources]) -> int:
    """How many trials fit on the cluster at a time."""
    return sum(
        min(int(node.get(resource, 0) / amount) for resource, amount in wanted.items())
        for node in nodes
    )


@contextmanager
def environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables set inside (None: as it is) and put back afterwards."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: value for name, value in values.items() if value is not None})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Ray's loggers inside: what matters is shown by the view or raised."""
    logger = logging.getLogger("ray")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def quiet_data() -> Iterator[None]:
    """No progress bars and no chatter of Ray Data inside; settings are put back."""
    import ray.data

    context = ray.data.DataContext.get_current()
    off = dict.fromkeys(("enable_progress_bars", "print_on_execution_start"), False)
    before = {name: getattr(context, name) for name in off}
    logger = logging.getLogger("ray.data")
    level = logger.level
    for name, value in off.items():
        setattr(context, name, value)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
        logger.setLevel(level)


@contextmanager
def _watched_head(address: str) -> Iterator[None]:
    """End this process with a sentence when the head is gone; Ray itself would end it without."""
    over = threading.Event()

    def watch() -> None:
        missed = 0.0
        while missed < KNOCKS_IN_VAIN:
            if over.wait(WATCH_S):
                return
            try:
                _knock(address)
                missed = 0.0
            except ConnectionRefusedError:
                missed += 1.0
            except OSError:  # silent or out of reach, which may pass; Ray waits for a minute
                missed += KNOCKS_IN_VAIN / 8
        shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # the cursor that a live view hides
        print(
            f"{shown}\nthe head of the Ray cluster at {address} is gone. What is done is kept; run "
            "the same command again, on this cluster once it is back or on another",
            file=sys.stderr,
            flush=True,
        )
        os._exit(1)

    threading.Thread(target=watch, name="head", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _knock(address: str) -> None:
    # Ray itself waits for minutes at a closed port.
    host, colon, port = address.rpartition(":")
    if colon and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=KNOCK_S).close()


@contextmanager
def _without_the_line_on_log_levels() -> Iterator[None]:
    """Pass on what is written to stderr inside, but for the core's note that CORE was heard."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            caught.seek(0)
            for line in caught:
                if b"RAY_BACKEND_LOG_LEVEL" not in line:
                    os.write(2, line)


def _give_token() -> None:
    # A local cluster listens on all interfaces, so it needs a token. Ray would keep one in the home
    # folder, where it turns authentication on for every cluster started on this machine later. Ray
    # reads the token once a process, so it stays the same for as long as this one lives.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def _count(nodes: Sequence[Resources], which: str) -> str:
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)}{which}"


def _too_much(resource: str, wanted: float, most: float, among: str) -> str:
    setting = SETTINGS[resource]
    if resource == "GPU" and not most:
        return (
            f"execution.device is cuda, but no node of this cluster ({among}) has a GPU; "
            "set execution.device to cpu, or start nodes with GPUs (where an autoscaler brings "
            "them: --wait-for-nodes 1)"
        )
    return (
        f"a trial holds {wanted:g} {resource}s ({setting}), but the biggest of {among} has "
        f"{most:g}; set {setting} to at most {most:g}, or start a bigger node"
    )
