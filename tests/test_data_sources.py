from pathlib import Path

import pytest

from ray_ablation.data.sources import Hub, Url, local, parse_source
from ray_ablation.problems import UserError

GOOD = {
    "/sets/scifact": Path("/sets/scifact"),
    "./mine": Path("mine"),
    "mine@2": Path("mine@2"),
    "https://host/a/b.zip": Url("https://host/a/b.zip"),
    "http://127.0.0.1:80/sets/": Url("http://127.0.0.1:80/sets"),
    "hf://datasets/zeta-alpha-ai/NanoSciFact": Hub("zeta-alpha-ai/NanoSciFact"),
    "hf://datasets/a/b@main": Hub("a/b", "main"),
    "hf://datasets/a/b@refs/pr/3/in/it": Hub("a/b", "refs/pr/3", "in/it"),
    "hf://datasets/a/b.c/in/it/": Hub("a/b.c", None, "in/it"),
    "hf://datasets/a/b@v1.0/in": Hub("a/b", "v1.0", "in"),
}
BAD = ["hf://a/b", "hf://datasets/a", "hf://models/a/b", "s3://bucket/x", "ftp://x/y", "https://"]


@pytest.mark.parametrize("text", GOOD)
def test_a_text_names_its_source(text: str) -> None:
    assert parse_source(text) == GOOD[text]


@pytest.mark.parametrize("text", GOOD)
def test_a_source_spells_itself(text: str) -> None:
    source = GOOD[text]
    assert parse_source(str(source)) == source


@pytest.mark.parametrize("text", BAD)
def test_other_schemes_are_named(text: str) -> None:
    with pytest.raises(UserError, match=r"none of a folder of this machine, https://.*hf://data"):
        parse_source(text)


def test_an_empty_text_is_no_folder() -> None:
    with pytest.raises(UserError, match="names nothing; give a folder"):
        parse_source(" ")


def test_home_is_expanded_and_only_paths_are_local(monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert local(parse_source("~/sets")) == Path("/home/me/sets")
    assert local(Url("https://x/y")) is local(Hub("a/b")) is local(None) is None
