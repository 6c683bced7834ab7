"""What a grid says besides its trials: how encoders are scored and profiled, and where work runs.

None of these fields is part of a trial's id. A change of `Evaluation` scores again, a change of
`Latency` profiles again, a change of `Execution` does neither.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ray_ablation.trial import Strict

MEASURE = re.compile(r"^(nDCG|RR|R|P|AP|Success)@([1-9]\d*)$")
ALIASES = {"NDCG": "nDCG", "ndcg": "nDCG", "MRR": "RR", "Recall": "R", "MAP": "AP"}


def canonical_measure(text: Any) -> str:
    """A measure as ir_measures spells it: MRR@10 becomes RR@10."""
    name, at, cutoff = str(text).partition("@")
    measure = f"{ALIASES.get(name, name)}{at}{cutoff}"
    if not MEASURE.match(measure):
        raise ValueError("expected nDCG, RR, R, P, AP or Success with a cut-off, as in nDCG@10")
    return measure


Measure = Annotated[str, BeforeValidator(canonical_measure)]


class Evaluation(Strict):
    """How encoders are scored. A change here scores again and trains nothing."""

    max_length: Annotated[int, Field(ge=4)] | None = None
    """Tokens per text; null takes the trial's own max_length."""
    batch: Annotated[int, Field(ge=1)] = 64
    """Texts embedded at a time."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Of the forward pass; embeddings are stored and scored in float32 whatever it is."""
    k: Annotated[int, Field(ge=1)] = 100
    """Documents kept per query, at least the largest cut-off of the measures."""


class Latency(Strict):
    """How latency is profiled."""

    lengths: Annotated[tuple[Annotated[int, Field(ge=4)], ...], Field(min_length=1)] = (128,)
    """Tokens per text, each profiled on its own."""
    batch: Annotated[int, Field(ge=1)] = 1
    """Texts per call."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp16"
    """Of weights and arithmetic; a CPU profiles fp32 and says so."""
    inputs: Literal["exact", "padded", "natural"] = "exact"
    """exact: every text has exactly the length; padded: short texts padded to it; natural: as
    they come."""
    rounds: Annotated[int, Field(ge=1, le=12)] = 5
    """Fresh processes at least."""
    calls: Annotated[int, Field(ge=10)] = 500
    """Measured calls per encoder and process; p95 needs 500."""
    warmup_calls: Annotated[int, Field(ge=1)] = 50
    """Calls before the measured ones."""
    budget_s: Annotated[float, Field(gt=0)] | None = None
    """Stop adding measurements after this many seconds; what is missing then is null."""


class Execution(Strict):
    """Where and how the work runs. Recorded with each trial, never hashed: no number of a study
    depends on it beyond the last bits that thread counts and devices move."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """auto is cuda where there is one."""
    gpus_per_trial: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of a GPU that a trial holds on a cuda device; a trial never spans several."""
    cpus_per_trial: Annotated[int, Field(ge=1)] = 1
    """CPUs a trial holds, and the threads it computes with."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass to save memory."""
    storage: str = "results"
    """Root of the ledger; every node must see it."""
    cache: str | None = None
    """Where prepared data lies; null is a folder under storage."""
    checkpoint_every_steps: Annotated[int, Field(ge=1)] | None = None
    """null means twenty over the whole training."""
    log_every_steps: Annotated[int, Field(ge=1)] | None = None
    """null means a hundred over the whole training."""
    max_failures: Annotated[int, Field(ge=0)] = 2
    """How often a trial is started again after an error, from its last checkpoint."""
    max_concurrent: Annotated[int, Field(ge=1)] | None = None
    """Trials at a time; null fills the cluster."""
    evaluate: Literal["auto", "ray", "local"] = "auto"
    """Where corpora are embedded; auto takes this process for a few seconds of work."""
    shards: Annotated[int, Field(ge=1)] | None = None
    """Pieces a corpus is embedded in; null chooses from its size."""
    evaluators: Annotated[int, Field(ge=1)] | None = None
    """Embedding actors at a time; null fills the cluster."""
