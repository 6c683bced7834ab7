"""A trial: one encoder fine-tuned once, and the id that content-addresses it.

`Trial` holds every field that can change a number; any of them can be an axis of a grid. The id
hashes the fields that differ from their defaults, so a field added later leaves the ids of old
trials alone as long as its default means the behaviour before it. `RECIPE` is raised by hand when
training code changes numbers. The id needs neither data nor torch.

A trial of zero steps is the untrained reference: fields that only training reads are put back to
their defaults, so references that differ only in those are one trial.
"""

import hashlib
import json
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ray_ablation.layers import STRATEGIES
from ray_ablation.problems import unknown

RECIPE = 1

# Frames hold 64-bit integers.
MOST = 2**63 - 1

# The fields that a reference of zero steps still depends on.
UNTRAINED_FIELDS = (
    "backbone",
    "backbone_revision",
    "depth",
    "keep",
    "pooling",
    "max_length",
    "steps",
)


class Strict(BaseModel):
    """Refuses unknown keys and converted types; attribute docstrings become the JSON schema's."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


def _keep(value: Any) -> Any:
    """A strategy name as it is; a list of indices as a tuple."""
    if isinstance(value, str):
        if value not in STRATEGIES:
            raise ValueError(unknown("strategy", value, STRATEGIES))
        return value
    if isinstance(value, list | tuple) and all(type(i) is int for i in value):
        return tuple(value)
    raise ValueError("expected the name of a strategy or a list of layer indices")


class Trial(Strict):
    """One point of the grid. Defaults are the depth study's recipe."""

    backbone: str = "bert-base-uncased"
    """Hub id, or a folder saved by transformers; `paths` in the grid may say where it lies."""
    backbone_revision: str | None = None
    """Commit of the hub repository; null takes its main branch."""
    depth: Annotated[int, Field(ge=1, le=MOST)]
    """How many encoder blocks are kept."""
    keep: Annotated[str | tuple[int, ...], BeforeValidator(_keep)] = "first"
    """Which blocks: first, last, alternate, or a list of `depth` indices (0 is next to the
    embeddings)."""
    pooling: Literal["mean", "cls", "max"] = "mean"
    """How token states become one vector."""
    train_set: str = "msmarco-hard-negatives"
    """Name of the (query, positive, negatives) triples to fine-tune on."""
    train_set_revision: str | None = None
    """Commit of the hub data set; null takes its main branch."""
    samples: Annotated[int, Field(ge=1, le=MOST)] = 500_000
    """How many triples are sampled to train on."""
    sample_seed: Annotated[int, Field(ge=0, le=MOST)] = 42
    """Which triples are sampled; `seed` orders them."""
    held_out: Annotated[int, Field(ge=0, le=MOST)] = 1_000
    """Rows set aside, before sampling, for the evaluation loss."""
    negatives: Annotated[int, Field(ge=0, le=MOST)] = 1
    """Hard negatives per query."""
    negative_systems: tuple[str, ...] = ()
    """Which systems' mined negatives may be drawn; empty takes all there are."""
    seed: Annotated[int, Field(ge=0, le=MOST)] = 42
    """Order of the batches and dropout."""
    batch: Annotated[int, Field(ge=1, le=MOST)] = 32
    """Queries per optimizer step, and so the source of in-batch negatives."""
    micro_batch: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """Queries embedded at a time (CachedMultipleNegativesRankingLoss); null embeds the batch."""
    steps: Annotated[int, Field(ge=0, le=MOST)] = 20_000
    """Optimizer steps; 0 is the untrained reference."""
    learning_rate: Annotated[float, Field(gt=0)] = 2e-5
    """Peak of the schedule."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """AdamW's, on all but biases and norms."""
    warmup_fraction: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Warm-up lasts ceil(warmup_fraction * steps) steps, then the rate falls linearly to 0."""
    clip: Annotated[float, Field(gt=0)] = 1.0
    """Largest gradient norm."""
    loss_scale: Annotated[float, Field(gt=0)] = 20.0
    """Cosine similarities are multiplied by this before the softmax (1 / temperature)."""
    max_length: Annotated[int, Field(ge=4)] = 128
    """Tokens per text, special tokens included."""
    precision: Literal["bf16", "fp32"] = "bf16"
    """bf16 is autocast over float32 weights."""
    checkpoint: Literal["last", "best"] = "last"
    """Which weights are kept: the last step's, or those with the lowest evaluation loss."""
    eval_every_steps: Annotated[int, Field(ge=1, le=MOST)] | None = None
    """Distance of evaluation losses; null means ten over the whole training."""

    @property
    def id(self) -> str:
        """Short label and hash, as in L6-b32-20k-s42-3f9ac1d2."""
        return f"{self.label}-{self.digest[:8]}"

    @property
    def digest(self) -> str:
        """Hex sha256 of RECIPE and the fields that differ from their defaults."""
        fields = self.model_dump(mode="json", exclude_defaults=True)
        text = json.dumps({"recipe": RECIPE, **fields}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def label(self) -> str:
        """What a person reads: depth, batch, steps, seed."""
        if self.steps == 0:
            return f"L{self.depth}-untrained"
        thousands, rest = divmod(self.steps, 1000)
        steps = f"{thousands}k" if rest == 0 else str(self.steps)
        return f"L{self.depth}-b{self.batch}-{steps}-s{self.seed}"

    @property
    def examples(self) -> int:
        """Queries seen in training, repeats counted."""
        return self.batch * self.steps

    @property
    def passes(self) -> float | None:
        """Examples over unique samples; None for an untrained reference."""
        return self.examples / self.samples if self.steps else None

    @property
    def in_batch_negatives(self) -> int | None:
        """Documents each query is contrasted with, 63 at batch 32 with one hard negative."""
        return self.batch * (1 + self.negatives) - 1 if self.steps else None

    @property
    def warmup_steps(self) -> int:
        """ceil(warmup_fraction * steps), in exact arithmetic on the decimal that was written."""
        numerator, denominator = _decimal(self.warmup_fraction)
        return -(-numerator * self.steps // denominator)

    @property
    def cost(self) -> float:
        """Layers x texts x their longest length: proportional to training time on one backbone."""
        return float(self.depth * self.examples * (2 + self.negatives) * self.max_length)

    def longest_first(self) -> tuple[float, str]:
        """Sort key: costly trials first, so that the last to end are short; equal ones by id."""
        return -self.cost, self.id

    @property
    def eval_interval(self) -> int:
        """Steps between evaluation losses."""
        return self.eval_every_steps or max(1, self.steps // 10)

    def reduced(self) -> "Trial":
        """Itself, or for zero steps the same with training-only fields at their defaults."""
        if self.steps:
            return self
        return Trial(**{name: getattr(self, name) for name in UNTRAINED_FIELDS})

    def fields(self) -> dict[str, Any]:
        """Every field as JSON; those without effect on an untrained reference are null."""
        values = self.model_dump(mode="json")
        if self.steps == 0:
            values |= {name: None for name in values if name not in UNTRAINED_FIELDS}
        return values


def _decimal(value: float) -> tuple[int, int]:
    # 0.1 * 30 is 3.0000000000000004 in floats, whose ceiling would be one step too many.
    return Fraction(str(value)).as_integer_ratio()
