"""Truncation, saving, reloading."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import AutoModel

from ray_ablation import encoder as encoders
from ray_ablation.backbones import BackboneError
from ray_ablation.trial import Trial
from tiny import WORDS, tiny_bert

LAYERS = 4
TEXTS = [" ".join(WORDS[i : i + 3 + i]) for i in range(5)]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("backbone") / "tiny", layers=LAYERS)


def build(backbone, depth, **fields):
    trial = Trial(backbone="tiny", depth=depth, steps=0, max_length=32, **fields)
    return encoders.build(trial, backbone)


def token_states(encoder, texts):
    features = encoder.preprocess(texts)
    with torch.inference_mode():
        return encoder[0](dict(features))["token_embeddings"], features


@pytest.mark.parametrize("depth", range(1, LAYERS + 1))
def test_first_layers_give_the_whole_models_hidden_states(backbone, depth):
    states, features = token_states(build(backbone, depth), TEXTS)
    whole = AutoModel.from_pretrained(backbone).eval()
    inputs = {key: features[key] for key in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        hidden = whole(**inputs, output_hidden_states=True).hidden_states
    assert torch.allclose(states, hidden[depth], atol=1e-6)


def test_other_layers_are_those_asked_for(backbone):
    whole = AutoModel.from_pretrained(backbone).encoder.layer
    for keep, expected in (("last", (2, 3)), ("alternate", (0, 2)), ((1, 3), (1, 3))):
        cut = build(backbone, 2, keep=keep)[0].auto_model
        assert cut.config.num_hidden_layers == 2
        for block, index in zip(cut.encoder.layer, expected, strict=True):
            assert encoders.weights_sha256(block) == encoders.weights_sha256(whole[index])


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_fresh_process_reloads_the_same_encoder(backbone, tmp_path, pooling):
    encoder = build(backbone, 2, keep="alternate", pooling=pooling)
    encoders.save(encoder, tmp_path / "model")
    script = (
        "import json, sys; from pathlib import Path; from ray_ablation import encoder as e;"
        "m = e.load(Path(sys.argv[1])); v = m.encode(json.loads(sys.argv[2]));"
        "print(json.dumps([e.weights_sha256(m), e.parameter_count(m), v.tolist()]))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "model"), json.dumps(TEXTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sha256, parameters, vectors = json.loads(done.stdout.splitlines()[-1])
    assert sha256 == encoders.weights_sha256(encoder)
    assert parameters == encoders.parameter_count(encoder)
    assert torch.equal(torch.tensor(vectors), torch.tensor(encoder.encode(TEXTS)))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["num_hidden_layers"] == 2


def test_parameters_shrink_by_the_blocks_cut(backbone):
    whole, cut = build(backbone, LAYERS), build(backbone, 1)
    block = encoders.parameter_count(whole[0].auto_model.encoder.layer[0])
    lost = encoders.parameter_count(whole) - encoders.parameter_count(cut)
    assert lost == (LAYERS - 1) * block


def test_a_save_that_would_reload_otherwise_is_refused(backbone, tmp_path):
    encoder = build(backbone, 2)
    encoder[0].auto_model.config.num_hidden_layers = 3  # the config lies
    with pytest.raises(RuntimeError, match="reloads with other weights"):
        encoders.save(encoder, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_missing_and_damaged_models_are_named(backbone, tmp_path):
    with pytest.raises(BackboneError, match=r"no config.json in .*none"):
        encoders.build(Trial(backbone="tiny", depth=1), tmp_path / "none")
    with pytest.raises(BackboneError, match="'nobody/none' cannot be loaded from the hub"):
        encoders.build(Trial(backbone="nobody/none", depth=1))
    encoders.save(build(backbone, 1), tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(BackboneError, match=r"encoder in .* cannot be loaded"):
        encoders.load(tmp_path / "model")
