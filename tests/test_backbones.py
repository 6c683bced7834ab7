"""Where a backbone lies and which weights it has."""

import dataclasses
import json

import pytest

from ray_ablation import backbones
from ray_ablation.atomic import sha256_file
from ray_ablation.backbones import PACKAGED, BackboneError, layer_count, locate

MINILM = "sentence-transformers/all-MiniLM-L6-v2"


def test_packaged_weights_are_the_hubs_own():
    folder = locate(MINILM)
    assert (folder / "model.safetensors").is_file()
    assert sha256_file(folder / "model.safetensors") == PACKAGED[MINILM].sha256
    assert (
        layer_count(MINILM) == json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    )


def test_weights_of_another_hash_are_refused(monkeypatch):
    other = dataclasses.replace(PACKAGED[MINILM], sha256="0" * 64)
    monkeypatch.setitem(PACKAGED, MINILM, other)
    with pytest.raises(BackboneError, match=r"not the published 000.*force-reinstall"):
        locate(MINILM)


def test_a_folder_without_weights_says_what_is_missing(tmp_path):
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 5}')
    assert layer_count("mine", tmp_path) == 5
    with pytest.raises(BackboneError, match=r"no model.safetensors"):
        backbones.content_sha256("mine", tmp_path)


def test_the_hub_out_of_reach_is_said(monkeypatch):
    assert locate("nobody/none") is None
    assert layer_count("nobody/none") is None
    with pytest.raises(BackboneError, match=r"paths: \{nobody/none: /folder\}"):
        backbones.fetch_config("nobody/none")
