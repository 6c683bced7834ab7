"""Texts of an exact length, checked by tokenising them again."""

import pytest
from transformers import AutoTokenizer

from ray_ablation.backbones import locate
from ray_ablation.latency import canary, inputs
from tiny import tiny_bert


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    minilm = locate("sentence-transformers/all-MiniLM-L6-v2")
    assert minilm is not None
    return {
        "tiny": AutoTokenizer.from_pretrained(tiny_bert(tmp_path_factory.mktemp("bert"))),
        "minilm": AutoTokenizer.from_pretrained(minilm),
        "canary": canary.build().tokenizer,
    }


@pytest.mark.parametrize("name", ["tiny", "minilm", "canary"])
@pytest.mark.parametrize("length", [3, 17, 64])
def test_exact_texts_have_exactly_that_many_tokens(tokenizers, name, length):
    texts = inputs.make_texts(tokenizers[name], "exact", length, 40, seed=0)
    counts = {len(tokenizers[name](text)["input_ids"]) for text in texts}
    assert counts == {length}
    unknown = tokenizers[name].unk_token_id
    assert all(unknown not in tokenizers[name](text)["input_ids"] for text in texts)
    assert len(set(texts)) > 1


def test_texts_depend_on_the_seed_alone(tokenizers):
    make = inputs.make_texts
    first = make(tokenizers["minilm"], "exact", 32, 5, seed=0)
    assert first == make(tokenizers["minilm"], "exact", 32, 5, seed=0)
    assert first != make(tokenizers["minilm"], "exact", 32, 5, seed=1)
    assert inputs.texts_sha256(["a", "b"]) != inputs.texts_sha256(["a b"])


def test_padded_texts_are_short_and_natural_ones_vary(tokenizers):
    count = inputs.token_count
    tokenizer = tokenizers["minilm"]
    padded = inputs.make_texts(tokenizer, "padded", 64, 20, seed=0)
    assert {count(tokenizer, text) for text in padded} == {16}
    natural = {
        count(tokenizer, text) for text in inputs.make_texts(tokenizer, "natural", 64, 200, seed=0)
    }
    assert len(natural) > 40
    assert (min(natural) >= 3, max(natural) <= 64) == (True, True)


def test_a_length_without_room_for_a_word_is_refused(tokenizers):
    with pytest.raises(inputs.InputError, match="2 tokens; 2 are special tokens"):
        inputs.make_texts(tokenizers["tiny"], "exact", 2, 1, seed=0)


def test_the_canary_is_the_same_everywhere():
    """Its weights are pinned: another canary would make older profiles incomparable."""
    import torch

    from ray_ablation.encoder import weights_sha256

    state = torch.random.get_rng_state()
    digest = weights_sha256(canary.build())
    assert digest == weights_sha256(canary.build())
    assert torch.equal(state, torch.random.get_rng_state())
