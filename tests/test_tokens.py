"""Tokenised triples against the tokenizer itself, one text at a time."""

import numpy as np
import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from ray_ablation.data import tokens
from ray_ablation.data.triples import Sample
from tiny import WORDS, tiny_bert

MAX_LENGTH = 6


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return AutoTokenizer.from_pretrained(tiny_bert(tmp_path_factory.mktemp("tiny")))


@pytest.fixture
def sample(tmp_path):
    rows = [
        {"query": WORDS[0], "positive": " ".join(WORDS[:9]), "negative_1": "unknown words"},
        {"query": " ".join(WORDS[2:4]), "positive": WORDS[5], "negative_1": WORDS[0]},
        {"query": "", "positive": WORDS[7], "negative_1": " ".join(WORDS[:4])},
    ]
    table = pa.Table.from_pylist(rows)

    class InMemory(Sample):
        def train(self):
            return table

        def held_out(self):
            return table.slice(0, 0)

    return InMemory(tmp_path, {"sha256": "one"})


def test_ids_are_the_tokenizers_own(sample, tokenizer, tmp_path):
    made = tokens.tokenise(sample, "train", tokenizer, MAX_LENGTH, tmp_path)
    rows = np.array([2, 0])
    starts, lengths = made.texts(rows)
    found = [made.values[a : a + n].tolist() for a, n in zip(starts, lengths, strict=True)]
    columns = [column.to_pylist() for column in sample.train().columns]
    texts = [column[row] for column in columns for row in rows]  # column by column
    cut = {"truncation": True, "max_length": MAX_LENGTH}
    assert found == [tokenizer(text, **cut)["input_ids"] for text in texts]
    # Only the positive of the first row is longer than four words between [CLS] and [SEP].
    assert made.truncated == {"query": 0, "positive": 1 / 3, "negative_1": 0}


def test_equal_texts_have_equal_keys(sample, tokenizer, tmp_path):
    keys = tokens.tokenise(sample, "train", tokenizer, MAX_LENGTH, tmp_path).keys_RC
    assert keys[0, 0] == keys[1, 2] == tokens.text_key(WORDS[0])
    assert len(np.unique(keys)) == 8


def test_nothing_held_out_is_nothing(sample, tokenizer, tmp_path):
    made = tokens.tokenise(sample, "held_out", tokenizer, MAX_LENGTH, tmp_path)
    assert len(made) == 0


def test_tokenised_once_and_healed(sample, tokenizer, tmp_path):
    tokens.tokenise(sample, "train", tokenizer, MAX_LENGTH, tmp_path)
    (file,) = tmp_path.glob("tokens/*/values.int32")
    before = file.stat().st_mtime_ns
    tokens.tokenise(sample, "train", tokenizer, MAX_LENGTH, tmp_path)
    assert file.stat().st_mtime_ns == before
    whole = file.read_bytes()
    file.write_bytes(whole[:-4])
    tokens.tokenise(sample, "train", tokenizer, MAX_LENGTH, tmp_path)
    assert file.read_bytes() == whole
