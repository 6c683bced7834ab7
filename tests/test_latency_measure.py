"""The measuring loop in this process: warm-up, paths of a call, a planted cause of stalls."""

import time
from pathlib import Path

import pandas as pd
import pytest
import torch

from ray_ablation import encoder
from ray_ablation.latency import device
from ray_ablation.latency.conditions import Conditions, spinning
from ray_ablation.latency.guards import Guards, other_busy_cores
from ray_ablation.latency.inputs import InputError
from ray_ablation.latency.measure import Session
from ray_ablation.latency.samples import SAMPLES, mark_clock, typed
from ray_ablation.latency.stalls import stalls_of
from ray_ablation.latency.variant import Variant, load
from ray_ablation.trial import Trial
from tiny import tiny_bert


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    top = tmp_path_factory.mktemp("encoder")
    bert = tiny_bert(top / "bert", layers=2)
    encoder.save(encoder.build(Trial(backbone=str(bert), depth=2, steps=0)), top / "L2")
    return top / "L2"


def spec(folder: Path, **given) -> dict:
    unit = {
        "unit": 0,
        "round": 0,
        "kind": "solo",
        "arm": "default",
        "variants": ["L2"],
        "folders": {"L2": str(folder)},
        "seed": 1,
        "device": "cpu",
        "threads": 1,
        "dtype": "fp32",
        "batch": 1,
        "inputs": "exact",
        "lengths": [48],
        "calls": 300,
        "warmup_calls": 10,
        "block": 5,
        "text_seed": 0,
        "texts": 60,
        "deadline_s": time.monotonic() + 60,
    }
    return unit | given


def measured(session: Session) -> pd.DataFrame:
    session.run()
    samples = mark_clock(typed(session.timer.samples, SAMPLES))
    samples = samples[samples["phase"] == "measured"]
    return samples.assign(wall_ms=samples["wall_ns"] / 1e6).reset_index(drop=True)


def slow_encoder(session: Session) -> list[int]:
    """Have a call take 20 ms, and 20 times as long on each length met for the first time.

    It sleeps, so that a busy test machine hardly moves either. The lengths it has met.
    """
    [variant] = session.variants
    seen: list[int] = []

    def wait(module, inputs):
        length = inputs[0]["input_ids"].shape[1]
        time.sleep(0.02 if length in seen else 0.4)
        seen.append(length)

    variant.encoder[0].register_forward_pre_hook(wait)
    return seen


NATURAL = {"inputs": "natural", "lengths": [24], "calls": 100, "texts": 20}


def test_stalls_on_first_seen_lengths_are_named_and_their_share_is_the_truth(folder):
    """The warm-up is a fixed number of calls, as in the wild, so some lengths are new after it."""
    session = Session(spec(folder, **NATURAL, conditions={"steady": False}), Guards())
    seen = slow_encoder(session)
    calls = measured(session)
    found = stalls_of(calls)
    in_warmup = {s["tokens"] for s in session.timer.samples if s["phase"] == "warmup"}
    truth = len(set(seen) - in_warmup) / len(calls)
    assert truth >= 0.03
    assert found.cause == "first_shape"
    assert found.share == pytest.approx(truth, abs=0.0101)


@pytest.mark.parametrize("inputs", ["exact", "natural"])
def test_they_are_gone_where_every_shape_was_seen_twice(folder, inputs):
    session = Session(spec(folder, **NATURAL | {"inputs": inputs}), Guards())
    slow_encoder(session)
    calls = measured(session)
    assert not (calls["wall_ms"] > 400).any()
    warm = [s["tokens"] for s in session.timer.samples if s["phase"] == "warmup"]
    assert pd.Series(warm).value_counts()[list(set(calls["tokens"]))].min() >= 2


@pytest.fixture(scope="module")
def variants(folder):
    one = spec(folder, inputs="padded", texts=3)
    return {
        name: load("L2", one, Conditions(**given))
        for name, given in {"bare": {}, "encode": {"encode": True}, "bar": {"bar": True}}.items()
    }


def test_all_paths_give_the_same_embedding_and_see_the_same_width(variants):
    texts = variants["bare"].texts[48][0]
    widths = []
    for variant in variants.values():
        variant.encoder[0].register_forward_pre_hook(
            lambda module, inputs: widths.append(tuple(inputs[0]["input_ids"].shape))
        )
    with torch.inference_mode():
        found = {name: variant.call(texts, 48) for name, variant in variants.items()}
    assert set(widths) == {(1, 48)}
    for embedding in found.values():
        assert torch.allclose(embedding, found["bare"], atol=1e-6)
        assert embedding.norm().item() == pytest.approx(1.0, abs=1e-5)


def test_the_profiler_names_what_computed_attention(variants):
    with torch.inference_mode():
        names = device.attention_kernels(variants["bare"], 48)
    assert any("scaled_dot_product" in name for name in names)


def test_states_without_a_mask_are_those_with_a_full_one(folder):
    """What a CUDA graph computes: the same states, for inputs that are not padded."""
    variant = load("L2", spec(folder, texts=2), Conditions())
    features = variant.tokenise(variant.texts[48][0], 48)
    assert features["attention_mask"].all()
    with torch.inference_mode():
        model = variant.encoder[0].auto_model
        bare = {name: tensor for name, tensor in features.items() if name != "attention_mask"}
        states = model(**bare).last_hidden_state
        wanted = variant.forward(dict(features))["token_embeddings"]
    assert torch.allclose(states, wanted, atol=1e-6)


def test_a_list_of_texts_shorter_than_asked_is_refused(folder, monkeypatch):
    from ray_ablation.latency import variant as module

    monkeypatch.setattr(module, "make_texts", lambda *arguments: ["a"] * 7)
    built = Variant("L2", encoder.load(folder), "cpu", True)
    with pytest.raises(InputError, match="7 texts were made; 10 are asked for"):
        built.prepare(48, "exact", 5, 2, 0)


def test_conditions_of_a_used_process_with_a_heap_are_measured_too(folder):
    from ray_ablation.latency import conditions as module

    given = {"used": True, "heap": True, "pad": True, "encode": True, "idle_ms": 1.0}
    session = Session(spec(folder, calls=10, texts=2, conditions=given), Guards())
    before = encoder.weights_sha256(session.variants[0].encoder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "HEAP_OBJECTS", 1000)
        with module.in_place(session.conditions, None, [session.variants[0].encoder]):
            calls = measured(session)
    assert len(calls) == 10
    assert encoder.weights_sha256(session.variants[0].encoder) == before
    assert set(calls["tokens"]) == {48}


def test_planted_spinners_are_seen_and_end_with_the_block():
    guards = Guards()
    with spinning(1):
        time.sleep(0.5)
        before = guards.read()
        time.sleep(1.0)
        busy = other_busy_cores(before, guards.read())
    assert busy > 0.5
