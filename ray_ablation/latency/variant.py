"""An encoder ready to be timed: on its device, in eval mode, with its texts made beforehand.

The five stages of a call are methods, so that the end-to-end call and the staged one run the same
code.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from ray_ablation import encoder as encoders
from ray_ablation.latency import canary
from ray_ablation.latency.inputs import make_texts, texts_sha256
from ray_ablation.latency.plan import CANARY

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
        seen: Shapes it was called with in this process.
    """

    name: str
    encoder: SentenceTransformer
    device: str
    padding: str | bool
    texts: dict[int, list[list[str]]] = field(default_factory=dict)
    shapes: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    seen: set[tuple[int, ...]] = field(default_factory=set)

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
        calls = [made[i : i + batch] for i in range(0, len(made), batch)]
        self.texts[length] = calls
        self.shapes[length] = [
            tuple(self.tokenise(texts, length)["input_ids"].shape) for texts in calls
        ]

    def tokens(self, length: int) -> int:
        """Tokens of its texts where `length` is asked; the canary's never change."""
        return canary.TOKENS if self.name == CANARY else length

    @property
    def config(self) -> Any:
        """The transformer's."""
        transformer: Any = self.encoder[0]
        return transformer.auto_model.config

    def first_sight(self, length: int, text: int) -> bool:
        """Whether the shape of these texts is new to this encoder in this process."""
        shape = self.shapes[length][text]
        new = shape not in self.seen
        self.seen.add(shape)
        return new

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
        states: Features = self.encoder[0](features)
        return states

    def pool(self, states: Features) -> Tensor:
        vectors: Tensor = self.encoder[1](states)["sentence_embedding"]
        return torch.nn.functional.normalize(vectors, dim=1)

    def embed(self, texts: list[str], length: int) -> Tensor:
        """(B, D) on the CPU: the call that is timed. The copy back waits for the device."""
        return self.pool(self.forward(self.to_device(self.tokenise(texts, length)))).cpu()

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


def load(name: str, spec: dict[str, Any]) -> Variant:
    """Load an encoder of a unit from its folder there, and make its texts.

    Raises:
        BackboneError, InputError, ValueError: It cannot be loaded, or not with such texts.
    """
    device = spec["device"]
    model = canary.build() if name == CANARY else encoders.load(Path(spec["folders"][name]))
    model = model.to(device=device, dtype=DTYPES[spec["dtype"]]).eval()
    _check_ready(model)
    inputs = "exact" if name == CANARY else spec["inputs"]
    variant = Variant(name, model, device, "max_length" if inputs == "padded" else True)
    for length in spec["lengths"]:
        variant.prepare(length, inputs, spec["texts"], spec["batch"], spec["text_seed"])
    return variant


def _check_ready(model: SentenceTransformer) -> None:
    """Dropout or checkpointing left on would be timed without a word."""
    training = [name for name, module in model.named_modules() if module.training]
    if training:
        raise ValueError(f"modules in training mode: {', '.join(training[:3])}")
    if getattr(model[0].auto_model, "is_gradient_checkpointing", False):
        raise ValueError("gradient checkpointing is on")
