"""Tokenised triples against the tokenizer itself, one text at a time."""

import shutil

import numpy as np
import pyarrow as pa
import pytest
from transformers import AutoTokenizer

from ray_ablation.data import tokens, triples
from ray_ablation.data.triples import Sample
from ray_ablation.trial import Trial
from tiny import WORDS, hard_negatives, tiny_bert

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


def test_what_is_cut_is_noted_beside_the_sample(tokenizer, tmp_path):
    trial = Trial(depth=1, samples=20, held_out=5)
    folder = hard_negatives(tmp_path / "set", rows=30)
    made = triples.prepare(trial, folder, tmp_path)
    assert tokens.truncation(made, 12) == []
    tokens.tokenise(made, "train", tokenizer, 12, tmp_path)
    table = made.train()
    cut = {
        name: np.mean([len(tokenizer(text)["input_ids"]) > 12 for text in table[name].to_pylist()])
        for name in table.column_names
    }
    assert cut["query"] == 0 < cut["positive"] < 1
    parts = [f"{name} {100 * share:.1f} %" for name, share in cut.items()]
    line = f"truncated at 12 tokens: {', '.join(parts)}"
    assert tokens.truncation(made, 12) == [line]
    assert tokens.truncation(made, 2) == tokens.truncation(made, 128) == []
    # The note is no part of the sample: it is sound as before, and found with it.
    file = made.folder / "train.arrow"
    before = file.stat().st_mtime_ns
    again = triples.prepare(trial, folder, tmp_path)
    assert file.stat().st_mtime_ns == before
    assert tokens.truncation(again, 12) == [line]
    # It comes back with the tokens that are there when it is lost.
    shutil.rmtree(made.folder / "truncation")
    tokens.tokenise(made, "train", tokenizer, 12, tmp_path)
    assert tokens.truncation(again, 12) == [line]
