"""One live trial a GPU: a lock file in the node's temporary folder, named after the GPU.

Ray gives a GPU to one trial at a time, but it does not know of a worker that outlives its killed
driver, of a second Ray on the same machine, or of a shell. The kernel drops the lock with the
process that holds it, however that ends. A GPU is known by its UUID where NVML can be asked
(package nvidia-ml-py), else by Ray's node and the device Ray names.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ray_ablation.ledger import HeldError

# A worker outlives its killed driver by two seconds or so.
WAIT_S = 30.0


@contextmanager
def hold(gpus: Sequence[str], node: str, share: float, timeout_s: float = WAIT_S) -> Iterator[None]:
    """Hold the GPU of a trial for as long as the block lasts.

    Args:
        gpus: Device ids as Ray gives them to this process; none on a CPU, then nothing is held.
        node: Ray's id of the node.
        share: Of the GPU; trials that share one take a lock each, 1 / share of them.
        timeout_s: How long to wait for a holder to go.

    Raises:
        HeldError: As many trials as the GPU holds are alive on it already.
    """
    if not gpus:
        yield
        return
    key = uuid(gpus[0]) or f"{node[:16]}-{gpus[0]}"
    places = [_path(key, place) for place in range(max(1, int(1 / share)))]
    with _first_free(places, key, timeout_s):
        yield


def uuid(gpu: str) -> str | None:
    """The UUID of a GPU by its index or UUID; None where NVML is not to be had."""
    if gpu.startswith("GPU-"):
        return gpu
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(int(gpu))))
    except (ValueError, pynvml.NVMLError):
        return None


def _path(key: str, place: int) -> Path:
    return Path(tempfile.gettempdir()) / f"ray-ablation-{key}-{place}.lock"


@contextmanager
def _first_free(places: Sequence[Path], key: str, timeout_s: float) -> Iterator[None]:
    for place in places:
        last = place == places[-1]
        try:
            lock = FileLock(place, timeout=timeout_s if last else 0, mode=0o666)
            lock.acquire()
        except Timeout:
            continue
        try:
            yield
        finally:
            lock.release()
        return
    raise HeldError(
        f"GPU {key} is in use by another live trial (lock {places[-1]}); wait for it, or stop it: "
        f"fuser {places[-1]} names its process"
    )
