from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from ray_ablation.embed import EmbedError, embed, embed_counted
from tiny_encoder import tiny_encoder

TEXTS = [
    "hello world",
    "",
    "a much longer text that has many more pieces than the others do",
    "b",
    "x y z " * 40,
    "hello",
    "éü ??? 日本",
    "hello world",
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformer:
    return tiny_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("batch", [1, 3, 64])
def test_equals_the_library(pooling: str, batch: int, tmp_path: Path) -> None:
    encoder = tiny_encoder(tmp_path, pooling=pooling)
    ours = embed(encoder, TEXTS, batch=batch, max_length=None, dtype="fp32")
    theirs = encoder.encode(TEXTS, normalize_embeddings=True, batch_size=2)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-6)


def test_max_length_equals_the_librarys_and_truncation_is_counted(tmp_path: Path) -> None:
    encoder = tiny_encoder(tmp_path)
    ours = embed_counted(encoder, TEXTS, batch=4, max_length=12, dtype="fp32")
    encoder.max_seq_length = 12
    theirs = encoder.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(ours.vectors, theirs, atol=1e-5)
    # Pieces are single letters: "hello world" is 10 and 2 special ones, so it just fits in 12.
    assert ours.truncated == 2
    lengths = sorted([12, 2, 12, 3, 12, 7, len(encoder.tokenizer(TEXTS[6])["input_ids"]), 12])
    assert ours.tokens == sum(lengths)
    assert ours.padded_tokens == 4 * lengths[-1] + 4 * lengths[3]


def test_the_tokenizer_is_left_as_it_was(encoder: SentenceTransformer) -> None:
    tokenizer = encoder.tokenizer.backend_tokenizer
    tokenizer.enable_truncation(9, stride=2)
    tokenizer.enable_padding(pad_id=0, length=33)
    before = (tokenizer.truncation, tokenizer.padding, encoder.max_seq_length, encoder.training)
    embed(encoder, TEXTS, batch=4, max_length=20, dtype="fp32")
    after = (tokenizer.truncation, tokenizer.padding, encoder.max_seq_length, encoder.training)
    assert before == after
    tokenizer.no_truncation()
    tokenizer.no_padding()
    embed(encoder, TEXTS, batch=4, max_length=20, dtype="fp32")
    assert (tokenizer.truncation, tokenizer.padding) == (None, None)


def test_dropout_is_off_even_in_training_mode(encoder: SentenceTransformer) -> None:
    expected = embed(encoder, TEXTS, batch=4, max_length=None, dtype="fp32")
    encoder.train()
    try:
        found = embed(encoder, TEXTS, batch=4, max_length=None, dtype="fp32")
        assert encoder.training
    finally:
        encoder.eval()
    np.testing.assert_array_equal(found, expected)


def test_no_texts(encoder: SentenceTransformer) -> None:
    embedded = embed_counted(encoder, [], batch=4, max_length=None, dtype="fp32")
    assert embedded.vectors.shape == (0, 16)
    assert embedded.vectors.dtype == np.float32
    assert (embedded.truncated, embedded.tokens, embedded.padded_tokens) == (0, 0, 0)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_coarse_arithmetic_gives_float32_vectors_nearby(
    encoder: SentenceTransformer, dtype: str
) -> None:
    fine = embed(encoder, TEXTS, batch=4, max_length=None, dtype="fp32")
    coarse = embed(encoder, TEXTS, batch=4, max_length=None, dtype=dtype)
    assert coarse.dtype == np.float32
    assert not np.array_equal(coarse, fine)
    np.testing.assert_allclose((coarse * fine).sum(axis=1), 1, atol=2e-3)
    # Pooled in float32: coarse arithmetic would leave at most 8 or 11 bits in each number.
    assert not np.array_equal(coarse, coarse.astype(np.float16).astype(np.float32))


def test_nan_weights_are_refused_by_count_and_first_text(tmp_path: Path) -> None:
    encoder = tiny_encoder(tmp_path)
    with torch.no_grad():
        encoder[0].auto_model.embeddings.word_embeddings.weight[31] = float("nan")  # "0"
    texts = ["fine", "also fine", "a 0 in it", "good", "0"]
    with pytest.raises(EmbedError) as caught:
        embed(encoder, texts, batch=1, max_length=None, dtype="fp32")
    assert "2 of 5 embeddings are not finite" in str(caught.value)
    assert "the first for text 2: 'a 0 in it'" in str(caught.value)


def test_a_length_beyond_the_positions_is_refused(encoder: SentenceTransformer) -> None:
    with pytest.raises(EmbedError, match="max_length 65; the encoder has 64 positions"):
        embed(encoder, TEXTS, batch=4, max_length=65, dtype="fp32")
