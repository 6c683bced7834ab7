"""What a grid says besides its trials: how encoders are scored and profiled, what they are shown
beside, and where work runs.

None of these fields is part of a trial's id. A change of `Evaluation` scores again, a change of
`Latency` profiles again, a change of `Execution` does neither.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from ray_ablation.atomic import digest_of
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


class Bm25(Strict):
    """BM25 as Lucene computes it, the reference that nothing is trained for.

    Source: Kamphuis et al. 2020, "Which BM25 do you mean?"; k1 and b are the defaults of Anserini,
    with which BEIR published its BM25.
    """

    name: Literal["bm25"] = "bm25"
    k1: Annotated[float, Field(gt=0)] = 0.9
    """How slowly repetitions of a word stop counting."""
    b: Annotated[float, Field(ge=0, le=1)] = 0.4
    """How much a long document is held against itself."""
    stemmer: Literal["english"] | None = "english"
    """english is Snowball's; null takes words as they are."""
    stopwords: Literal["english"] | None = "english"
    """english is the list of bm25s, which is Lucene's; null leaves no word out."""

    @property
    def id(self) -> str:
        """Name and hash of the settings, as in bm25-3f9ac1d2."""
        return f"{self.name}-{digest_of(self.model_dump())[:8]}"

    @property
    def label(self) -> str:
        """As tables name it: BM25 (k1 0.9, b 0.4); what is left out is said."""
        without = [f"no {n}" for n in ("stemmer", "stopwords") if getattr(self, n) is None]
        return f"BM25 ({', '.join([f'k1 {self.k1:g}', f'b {self.b:g}', *without])})"


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
    """Fresh processes at least; with fewer than five there is no interval, and none is added."""
    max_rounds: Annotated[int, Field(ge=1, le=30)] = 12
    """Processes are added up to this many until the interval of every p50 is tight."""
    solo: bool = True
    """Also measure every encoder alone in its process, for the absolute figure."""
    calls: Annotated[int, Field(ge=10)] = 500
    """Measured calls per encoder and process; p95 needs 500."""
    warmup_calls: Annotated[int, Field(ge=1)] = 50
    """Calls before the measured ones."""
    budget_s: Annotated[float, Field(gt=0)] | None = None
    """Stop adding measurements after this many seconds; what is missing then is null."""
    node: str | dict[str, str] | None = None
    """Where on a cluster: an accelerator type (H100) or labels that a node must have; null takes
    the node with most CPUs, with a GPU where there is one."""
    exclusive: Literal["node", "gpu"] = "node"
    """What is held on a cluster meanwhile: all of the node, or one GPU and a CPU of it."""


def _callback(entry: str | dict[str, Any]) -> str | dict[str, Any]:
    names = [entry] if isinstance(entry, str) else list(entry)
    sound = isinstance(entry, str) or all(isinstance(value, dict) for value in entry.values())
    if len(names) != 1 or not DOTTED.match(names[0]) or not sound:
        raise ValueError("expected a dotted name, or one dotted name with a mapping of arguments")
    return entry


DOTTED = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")
Callback = Annotated[str | dict[str, Any], AfterValidator(_callback)]


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
    """How often a trial is started again after an error of its own, from its last checkpoint. A
    node or a worker that is lost does not count."""
    stop_after_same_errors: Annotated[int, Field(ge=1)] = 3
    """After so many trials have failed of one error, none finished between, no more start."""
    max_concurrent: Annotated[int, Field(ge=1)] | None = None
    """Trials at a time; null fills the cluster as it grows and shrinks. More than it holds is what
    an autoscaler is asked for."""
    price_per_gpu_hour: Annotated[float, Field(gt=0)] | None = None
    """In any currency; the plan then says what the study costs."""
    callbacks: tuple[Callback, ...] = ()
    """Tune's callbacks by dotted name, or a name with arguments:
    {ray.air.integrations.wandb.WandbLoggerCallback: {project: depth}}."""
    evaluate: Literal["auto", "ray", "local"] = "auto"
    """Where corpora are embedded; auto takes this process for a few seconds of work."""
    shards: Annotated[int, Field(ge=1)] | None = None
    """Pieces a corpus is embedded in, more where one would exceed 25,000 documents; null
    chooses from its size."""
    evaluators: Annotated[int, Field(ge=1)] | None = None
    """Embedding actors at a time; null fills the cluster."""
