"""What is profiled: one encoder per architecture, in so many fresh processes; and the profile's id.

Weights do not matter to latency, nor does which of a backbone's equal blocks are kept. So trials
that agree in backbone, depth and pooling share one encoder, and one of them lends its model folder.
A profile is content-addressed like a trial: by the architectures, all fields of `latency` in the
grid, the class of the node, and `METHOD`.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ray_ablation.ledger import Ledger
from ray_ablation.settings import Latency
from ray_ablation.trial import Trial

METHOD = 1
"""Raised by hand when measuring code changes numbers."""
IDENTITY = ("backbone", "backbone_revision", "depth", "pooling")
"""Fields of a trial that make an architecture."""
BLOCK = 5
"""Calls of one encoder in a row."""
PASSES = 5
"""How often the list of texts is gone through, in another order each time."""
TEXT_SEED = 0
"""The texts are the same in every process; only their order is not."""
ARM = "default"
"""Attention and graphs as the libraries choose them; an arm is a departure from that."""
THREADS = 1
"""Of the measured process: with more, one preempted thread holds up all others."""
CANARY = "canary"
"""Name of the fixed encoder that is timed among the others."""


@dataclass(frozen=True)
class Architecture:
    """An encoder without its weights.

    Attributes:
        name: Short and unique in its profile: L6, or L6-cls where pooling varies.
        identity: Its values of IDENTITY.
        trial: Whose model folder is loaded, the first trained one.
        trials: All that it stands for.
        parameters, model_sha256: Of the model that is loaded, as its trial recorded them.
    """

    name: str
    identity: dict[str, Any]
    trial: str
    trials: tuple[str, ...]
    parameters: int | None
    model_sha256: str | None

    @property
    def depth(self) -> int:
        """Encoder blocks."""
        return int(self.identity["depth"])


def architectures(trials: Iterable[Trial], ledger: Ledger) -> list[Architecture]:
    """The distinct architectures of the trials that are trained, the deepest first."""
    groups: dict[str, list[tuple[Trial, dict[str, Any]]]] = {}
    for trial in trials:
        if (record := ledger.read_trial(trial.id)) is not None:
            groups.setdefault(json.dumps(_identity(trial)), []).append((trial, record))
    identities = [json.loads(key) for key in groups]
    found = []
    for identity, members in zip(identities, groups.values(), strict=True):
        first, record = members[0]
        result = record.get("result", {})
        found.append(
            Architecture(
                name=_name(identity, identities),
                identity=identity,
                trial=first.id,
                trials=tuple(trial.id for trial, _ in members),
                parameters=result.get("parameters"),
                model_sha256=result.get("encoder_sha256"),
            )
        )
    return sorted(found, key=lambda architecture: (-architecture.depth, architecture.name))


def what(found: Sequence[Architecture], latency: Latency) -> dict[str, Any]:
    """All that a profile's numbers depend on, besides the node."""
    return {
        "method": METHOD,
        "architectures": [architecture.identity for architecture in found],
        "latency": latency.model_dump(mode="json"),
    }


def profile_id(asked: dict[str, Any], node: dict[str, Any]) -> str:
    """Twelve hex digits of the sha256 of what is profiled and where."""
    text = json.dumps({"what": asked, "node": node}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def units(
    identifier: str, found: Sequence[Architecture], latency: Latency, dtype: str, device: str
) -> list[dict[str, Any]]:
    """One paired unit a round: a fresh process that interleaves all encoders and the canary.

    Seeds come from the profile's id, so a profile can be done again in the same order.
    """
    return [
        {
            "unit": number,
            "round": number,
            "kind": "paired",
            "arm": ARM,
            "variants": [*(architecture.name for architecture in found), CANARY],
            "seed": int(hashlib.sha256(f"{identifier} {number}".encode()).hexdigest()[:8], 16),
            "device": device,
            "threads": THREADS,
            "dtype": dtype,
            "batch": latency.batch,
            "inputs": latency.inputs,
            "lengths": list(latency.lengths),
            "calls": latency.calls,
            "warmup_calls": latency.warmup_calls,
            "block": BLOCK,
            "text_seed": TEXT_SEED,
            "texts": math.ceil(latency.calls / PASSES),
        }
        for number in range(latency.rounds)
    ]


def _identity(trial: Trial) -> dict[str, Any]:
    return {name: getattr(trial, name) for name in IDENTITY}


def _name(identity: dict[str, Any], all_of_them: list[dict[str, Any]]) -> str:
    """L and depth, then what else tells the profile's encoders apart."""
    parts = [f"L{identity['depth']}"]
    for field in IDENTITY:
        values = {json.dumps(other[field]) for other in all_of_them}
        if field != "depth" and len(values) > 1:
            parts.append(identity[field] or "main")
    return "-".join(parts)
