"""An encoder ready to be timed: on its device, in eval mode, with its texts made beforehand.

The five stages of a call are methods, so that the end-to-end call and the staged one run the same
code.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from ray_ablation import encoder as encoders
from ray_ablation.latency import canary
from ray_ablation.latency.conditions import Conditions
from ray_ablation.latency.device import Graphs
from ray_ablation.latency.inputs import InputError, make_texts, texts_sha256
from ray_ablation.latency.plan import CANARIES

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

Features = dict[str, Tensor]


@dataclass
class Variant:
    """What is called and with which texts.

    Attributes:
        name: As samples call it.
        encoder: Transformer and Pooling, in eval mode, on the device.
        padding: The tokenizer's: "max_length", or True for the longest of the call.
        texts: Length asked -> the texts of each call.
        shapes: Length asked -> (texts, tokens) of each call.
        seen: How often it was called with each shape in this process.
        graphs: Its forward pass as CUDA graphs, where conditions ask for them.
    """

    name: str
    encoder: SentenceTransformer
    device: str
    padding: str | bool
    conditions: Conditions = field(default_factory=Conditions)
    texts: dict[int, list[list[str]]] = field(default_factory=dict)
    shapes: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    seen: Counter[tuple[int, ...]] = field(default_factory=Counter)
    graphs: Graphs | None = None

    def prepare(self, length: int, inputs: str, count: int, batch: int, seed: int) -> None:
        """Make the texts of `count` different calls of `batch` texts.

        Raises:
            InputError: There are none of that length.
            ValueError: The encoder has fewer positions.
        """
        tokens = self.tokens(length)
        positions = getattr(self.config, "max_position_embeddings", tokens)
        if tokens > positions:
            raise ValueError(f"{tokens} tokens asked; the encoder has {positions} positions")
        made = make_texts(self.encoder.tokenizer, inputs, tokens, count * batch, seed)
        if len(made) < count * batch:
            raise InputError(f"{len(made)} texts were made; {count * batch} are asked for")
        calls = [made[i : i + batch] for i in range(0, len(made), batch)]
        self.texts[length] = calls
        self.shapes[length] = [
            tuple(self.tokenise(texts, length)["input_ids"].shape) for texts in calls
        ]

    def tokens(self, length: int) -> int:
        """Tokens of its texts where `length` is asked; the canary's never change."""
        return canary.TOKENS if self.name in CANARIES else length

    @property
    def config(self) -> Any:
        """The transformer's."""
        transformer: Any = self.encoder[0]
        return transformer.auto_model.config

    def first_sight(self, length: int, text: int) -> bool:
        """Whether the shape of these texts is new to this encoder in this process."""
        shape = self.shapes[length][text]
        self.seen[shape] += 1
        return self.seen[shape] == 1

    def one_of_each_shape(self, length: int) -> list[int]:
        """A call for every shape there is."""
        return list({shape: index for index, shape in enumerate(self.shapes[length])}.values())

    # the stages of a call

    def tokenise(self, texts: list[str], length: int) -> Features:
        encoding = self.encoder.tokenizer(
            texts,
            padding=self.padding,
            truncation=True,
            max_length=self.tokens(length),
            return_tensors="pt",
        )
        return dict(encoding)

    def to_device(self, features: Features) -> Features:
        return {name: tensor.to(self.device) for name, tensor in features.items()}

    def forward(self, features: Features) -> Features:
        if self.graphs is not None:
            return self.graphs.forward(features)
        states: Features = self.encoder[0](features)
        return states

    def pool(self, states: Features) -> Tensor:
        vectors: Tensor = self.encoder[1](states)["sentence_embedding"]
        return torch.nn.functional.normalize(vectors, dim=1)

    def embed(self, texts: list[str], length: int) -> Tensor:
        """(B, D) on the CPU: the call that is timed. The copy back waits for the device."""
        return self.pool(self.forward(self.to_device(self.tokenise(texts, length)))).cpu()

    def call(self, texts: list[str], length: int) -> Tensor:
        """`embed`, or what conditions put in its place."""
        if self.conditions.encode:
            return self._encode(texts, length)
        if self.conditions.bar:
            [embedding] = [self.embed(batch, length) for batch in tqdm([texts], desc="Batches")]
            return embedding
        return self.embed(texts, length)

    def _encode(self, texts: list[str], length: int) -> Tensor:
        transformer: Any = self.encoder[0]
        width = {"padding": self.padding, "max_length": self.tokens(length)}
        transformer.processing_kwargs = {"text": width}
        embeddings: Any = self.encoder.encode(
            texts,
            batch_size=len(texts),
            show_progress_bar=self.conditions.bar,
            normalize_embeddings=True,
        )
        return torch.from_numpy(embeddings)

    def describe(self) -> dict[str, Any]:
        """What was timed, as the record keeps it."""
        parameter = next(self.encoder.parameters())
        return {
            "parameters": encoders.parameter_count(self.encoder),
            "dtype": next(name for name, kind in DTYPES.items() if kind == parameter.dtype),
            "attention": self.config._attn_implementation,
            "texts_sha256": {
                str(length): texts_sha256([text for call in calls for text in call])
                for length, calls in self.texts.items()
            },
        }


def load(name: str, spec: dict[str, Any], conditions: Conditions) -> Variant:
    """Load an encoder of a unit from its folder there, and make its texts.

    Raises:
        BackboneError, InputError, ValueError: It cannot be loaded, or not with such texts.
    """
    device = spec["device"]
    model = canary.build() if name in CANARIES else encoders.load(Path(spec["folders"][name]))
    model = model.to(device=device, dtype=DTYPES[spec["dtype"]]).eval()
    _check_ready(model)
    inputs, padding = ("exact", True) if name in CANARIES else _inputs(spec["inputs"], conditions)
    variant = Variant(name, model, device, padding, conditions)
    if conditions.compile:
        transformer: Any = model[0]
        transformer.auto_model.compile()
    if conditions.graph:
        variant.graphs = Graphs(variant)
    for length in spec["lengths"]:
        variant.prepare(length, inputs, spec["texts"], spec["batch"], spec["text_seed"])
    return variant


def _inputs(kind: str, conditions: Conditions) -> tuple[str, str | bool]:
    """Which texts are made, and how the tokenizer pads them."""
    if conditions.pad and kind == "exact":
        kind = "padded"
    return kind, "max_length" if conditions.pad or kind == "padded" else True


def _check_ready(model: SentenceTransformer) -> None:
    """Dropout or checkpointing left on would be timed without a word."""
    training = [name for name, module in model.named_modules() if module.training]
    if training:
        raise ValueError(f"modules in training mode: {', '.join(training[:3])}")
    if getattr(model[0].auto_model, "is_activation_checkpointing", False):
        raise ValueError("gradient checkpointing is on")
