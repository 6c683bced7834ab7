"""Texts to unit vectors, faster than `SentenceTransformer.encode` and with counts beside them.

Three differences from the library. Texts are sorted by their number of tokens, not of characters,
so batches carry less padding. The tokenizer is called without the layer that builds Python lists of
masks and types for every batch; a batch is cut from one flat array of tokens. And nothing waits for
the device until the last batch is on its way.

Only the transformer runs under autocast: states are pooled and normalised in float32.

Shapes: N texts, B texts of a batch, L tokens, D dimensions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor

from ray_ablation.problems import UserError

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}

# Texts tokenised at a time: the tokenizer keeps some 100 bytes a token until they are copied out.
TOKENIZED_AT_A_TIME = 4096


class EmbedError(UserError):
    """Texts that cannot be embedded as asked; the text says which and why."""


@dataclass(frozen=True)
class Embedded:
    """Vectors and what they cost.

    Attributes:
        vectors: (N, D) float32, L2-normalised, in the order of the texts.
        truncated: Texts longer than max_length.
        tokens: Tokens embedded, special ones included, padding not.
        padded_tokens: The same with padding.
    """

    vectors: NDArray[np.float32]
    truncated: int
    tokens: int
    padded_tokens: int


def embed(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    *,
    batch: int,
    max_length: int | None,
    dtype: str,
) -> NDArray[np.float32]:
    """(N, D) float32 unit vectors; see `embed_counted`."""
    embedded = embed_counted(encoder, texts, batch=batch, max_length=max_length, dtype=dtype)
    return embedded.vectors


def embed_counted(
    encoder: SentenceTransformer,
    texts: Sequence[str],
    *,
    batch: int,
    max_length: int | None,
    dtype: str,
) -> Embedded:
    """Embed texts on the encoder's device.

    Args:
        encoder: A transformer, then pooling.
        texts: Any strings; an empty one is embedded as its special tokens.
        batch: Texts embedded at a time.
        max_length: Tokens per text, special ones included; None takes the encoder's own.
        dtype: fp32, or bf16 or fp16 for autocast.

    Raises:
        EmbedError: A vector is not finite, or max_length is beyond the encoder's positions.
    """
    lengths_N, values, truncated = _tokenize(encoder, texts, _limit(encoder, max_length))
    order = np.argsort(-lengths_N, kind="stable")
    lengths, values = lengths_N[order], _gather(values, lengths_N, order)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    dimension = encoder.get_embedding_dimension()
    vectors_ND = torch.empty((len(texts), dimension or 0), device=encoder.device)
    pad_id, padded_tokens = _transformer(encoder).tokenizer.pad_token_id, 0
    with _inference(encoder):
        for start in range(0, len(texts), batch):
            stop = min(start + batch, len(texts))
            tokens = values[ends[start] : ends[stop]]
            features = _pad(tokens, lengths[start:stop], pad_id)
            padded_tokens += features["input_ids"].numel()
            vectors_ND[start:stop] = _forward(encoder, features, DTYPES[dtype])
    vectors = np.empty(vectors_ND.shape, dtype=np.float32)
    vectors[order] = vectors_ND.cpu().numpy()
    _refuse_nonfinite(vectors, texts)
    return Embedded(vectors, truncated, int(ends[-1]), padded_tokens)


def _transformer(encoder: SentenceTransformer) -> Any:
    return encoder[0]


def _limit(encoder: SentenceTransformer, max_length: int | None) -> int:
    positions = getattr(_transformer(encoder).auto_model.config, "max_position_embeddings", None)
    limit = max_length or encoder.max_seq_length or positions
    if limit is None or (positions is not None and limit > positions):
        raise EmbedError(
            f"max_length {limit}; the encoder has {positions} positions, so at most that many "
            "tokens per text: lower max_length"
        )
    return limit


def _tokenize(
    encoder: SentenceTransformer, texts: Sequence[str], limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Tokens of each text (N,), all tokens end to end, and how many texts were cut."""
    lengths, values, truncated = [], [], 0
    with _truncating(_transformer(encoder).tokenizer.backend_tokenizer, limit) as tokenizer:
        for start in range(0, len(texts), TOKENIZED_AT_A_TIME):
            group = tokenizer.encode_batch_fast(list(texts[start : start + TOKENIZED_AT_A_TIME]))
            counts = np.fromiter(map(len, group), dtype=np.int64, count=len(group))
            ids = chain.from_iterable(encoding.ids for encoding in group)
            lengths.append(counts)
            values.append(np.fromiter(ids, dtype=np.int64, count=int(counts.sum())))
            truncated += sum(bool(encoding.overflowing) for encoding in group)
    empty = np.empty(0, dtype=np.int64)
    return np.concatenate([empty, *lengths]), np.concatenate([empty, *values]), truncated


@contextmanager
def _truncating(tokenizer: Any, limit: int) -> Iterator[Any]:
    """A `tokenizers.Tokenizer` that truncates and does not pad, afterwards as it was."""
    truncation, padding = tokenizer.truncation, tokenizer.padding
    tokenizer.enable_truncation(limit)
    tokenizer.no_padding()
    try:
        yield tokenizer
    finally:
        if truncation is None:
            tokenizer.no_truncation()
        else:
            tokenizer.enable_truncation(**truncation)
        if padding is not None:
            tokenizer.enable_padding(**padding)


def _gather(
    values: NDArray[np.int64], lengths_N: NDArray[np.int64], order: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The tokens end to end, texts in another order."""
    starts = np.cumsum(lengths_N) - lengths_N
    lengths = lengths_N[order]
    new_starts = np.cumsum(lengths) - lengths
    moves = np.repeat(starts[order] - new_starts, lengths)
    moved: NDArray[np.int64] = values[np.arange(len(values)) + moves]
    return moved


def _pad(tokens: NDArray[np.int64], lengths_B: NDArray[np.int64], pad_id: int) -> dict[str, Tensor]:
    mask_BL = np.arange(lengths_B.max()) < lengths_B[:, None]
    ids_BL = np.full(mask_BL.shape, pad_id, dtype=np.int64)
    ids_BL[mask_BL] = tokens
    mask = torch.from_numpy(mask_BL.astype(np.int64))
    return {"input_ids": torch.from_numpy(ids_BL), "attention_mask": mask}


@contextmanager
def _inference(encoder: SentenceTransformer) -> Iterator[None]:
    training = encoder.training
    encoder.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        encoder.train(training)


def _forward(
    encoder: SentenceTransformer, features: dict[str, Tensor], autocast: torch.dtype | None
) -> Tensor:
    """Unit vectors (B, D) float32. Token types are left out: zeros are what models assume."""
    device = encoder.device
    features = {name: tensor.to(device, non_blocking=True) for name, tensor in features.items()}
    transformer, *others = encoder
    with torch.autocast(device.type, dtype=autocast, enabled=autocast is not None):
        features = transformer(features)
    features["token_embeddings"] = features["token_embeddings"].float()
    for module in others:
        features = module(features)
    return torch.nn.functional.normalize(features["sentence_embedding"].float(), dim=1)


def _refuse_nonfinite(vectors: NDArray[np.float32], texts: Sequence[str]) -> None:
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        first = int(bad[0])
        raise EmbedError(
            f"{len(bad)} of {len(texts)} embeddings are not finite (NaN or infinite), the first "
            f"for text {first}: {texts[first][:60]!r}. The weights are damaged or training "
            "diverged; train this trial again, or with a lower learning_rate or in fp32"
        )
