"""What may move a latency: two levels each, the controlled one and the one met in the wild.

The wild levels together are a script that times encoders where it has just trained them: all
threads, nothing pinned, texts as they come, a fixed warm-up, `encode` with its bar, neighbours at
work. A registry, so that a suspect is added in one place.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Factor:
    """One suspect.

    Attributes:
        says: Controlled level / wild level, in words.
        wild: What the wild level changes in a unit's conditions.
        controlled: What the controlled level changes in them, where the default is wild.
        unit: What the wild level changes in the unit itself; "cpus" stands for their number.
        variables: Environment of the controlled level, where the default is wild.
        cuda: It exists on a GPU only.
        known_wild: The wild script had it. Where it had not, the factor is compared with the
            controlled base alone.
    """

    says: str
    wild: dict[str, Any] = field(default_factory=dict)
    controlled: dict[str, Any] = field(default_factory=dict)
    unit: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    cuda: bool = False
    known_wild: bool = True


def applicable(device: str) -> list[str]:
    """Names of the factors that exist on a device."""
    return [name for name, factor in FACTORS.items() if device == "cuda" or not factor.cuda]


def screened(device: str) -> list[str]:
    """Those that are screened together; a graph or a compiled model admits not all the others."""
    return [name for name in applicable(device) if FACTORS[name].known_wild]


def unit_with(unit: dict[str, Any], wild: Iterable[str], device: str, cpus: int) -> dict[str, Any]:
    """A unit with the named factors at their wild level and all others controlled."""
    wild = set(wild)
    conditions: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    variables: dict[str, str] = {}
    for name in applicable(device):
        factor = FACTORS[name]
        conditions |= factor.wild if name in wild else factor.controlled
        changes |= factor.unit if name in wild else {}
        variables |= {} if name in wild else factor.variables
    named = {"cpus": cpus}
    return {
        **unit,
        **{name: named.get(value, value) for name, value in changes.items()},
        "conditions": {name: named.get(value, value) for name, value in conditions.items()},
        "variables": variables,
    }


FACTORS = {
    "process": Factor("a fresh process / one that has trained", wild={"used": True}),
    "gc": Factor(
        "collections off / as by default, with a heap of 2 million objects", wild={"heap": True}
    ),
    "threads": Factor("one thread / one per core", unit={"threads": "cpus"}),
    "pin": Factor("pinned to a core / on any", wild={"pin": False}),
    "cotenants": Factor("a quiet host / as many busy processes as cores", {"cotenants": "cpus"}),
    "inputs": Factor("texts of one exact length / as they come", unit={"inputs": "natural"}),
    "pad": Factor("no padding / texts padded to the length", wild={"pad": True}),
    "warmup": Factor(
        "until steady, every shape seen twice / a fixed number of calls", wild={"steady": False}
    ),
    "path": Factor("the bare stages / SentenceTransformer.encode", wild={"encode": True}),
    "bar": Factor("no progress bar / one drawn around every call", wild={"bar": True}),
    "idle": Factor("calls back to back / 50 ms apart", wild={"idle_ms": 50.0}),
    "gpu_cotenant": Factor(
        "the GPU alone / with another process computing", {"gpu_cotenant": True}, cuda=True
    ),
    "monitor": Factor(
        "no monitor / one that reads NVML ten times a second", {"monitor": True}, cuda=True
    ),
    "sdpa": Factor(
        "attention without cuDNN / with it, as by default", controlled={"cudnn": False}, cuda=True
    ),
    "loading": Factor(
        "CUDA modules loaded eagerly / lazily, as by default",
        variables={"CUDA_MODULE_LOADING": "EAGER"},
        cuda=True,
    ),
    "graph": Factor(
        "kernels launched one by one / as a CUDA graph",
        wild={"graph": True},
        cuda=True,
        known_wild=False,
    ),
    "compile": Factor("eager / torch.compile", wild={"compile": True}, cuda=True, known_wild=False),
}
