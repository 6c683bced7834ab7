"""What is profiled: one encoder per architecture, in so many fresh processes; and the profile's id.

Weights do not matter to latency, nor does which of a backbone's equal blocks are kept. So trials
that agree in backbone, depth and pooling share one encoder, and one of them lends its model folder.
A profile is content-addressed like a trial: by the architectures, all fields of `latency` in the
grid, the class of the node, and `METHOD`.
"""

import hashlib
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ray_ablation.latency.estimate import MIN_PROCESSES
from ray_ablation.ledger import Ledger
from ray_ablation.settings import Latency
from ray_ablation.trial import Trial

METHOD = 2
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
CANARY, TWIN = CANARIES = ("canary", "canary-twin")
"""Names of the fixed encoder that is timed among the others, twice: the ratio of the two tells how
far a ratio may be off."""


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
) -> list[list[dict[str, Any]]]:
    """The units of every round that may be needed, each a fresh process, in the order drawn for it.

    A round is one paired unit, which interleaves all encoders and the canaries, and one solo unit
    an encoder. Seeds come from the profile's id, so a profile can be done again in the same order.
    """
    names = [architecture.name for architecture in found]
    alone = [[name] for name in names] if latency.solo else []
    rounds: list[list[dict[str, Any]]] = []
    for number in range(last_round(latency)):
        sets = [[*names, *CANARIES], *alone]
        random.Random(f"{identifier} {number}").shuffle(sets)
        begin = number * len(sets)
        rounds.append(
            [
                unit(identifier, begin + i, number, variants, latency, dtype, device)
                for i, variants in enumerate(sets)
            ]
        )
    return rounds


def last_round(latency: Latency) -> int:
    """How many rounds there may be."""
    if latency.rounds < MIN_PROCESSES:
        return latency.rounds
    return max(latency.rounds, latency.max_rounds)


def unit(
    identifier: str,
    number: int,
    round_number: int,
    variants: Sequence[str],
    latency: Latency,
    dtype: str,
    device: str,
) -> dict[str, Any]:
    """What one process is told, besides where the encoders lie."""
    return {
        "unit": number,
        "round": round_number,
        "kind": "solo" if len(variants) == 1 else "paired",
        "arm": ARM,
        "variants": list(variants),
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
