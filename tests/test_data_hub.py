"""Data sets of the hub by the real client library, from a server of this machine."""

from pathlib import Path

import pytest

from hub_server import COMMIT, kill, online, serving, start
from ray_ablation.data.files import DataError
from ray_ablation.data.hub import fetch_hub, hub_files
from ray_ablation.data.sources import Hub

BODY = bytes(range(256)) * 800
HUB = Hub("owner/name")
FILE = "corpus/train-00000-of-00001.parquet"
RESOLVED = f"/datasets/owner/name/resolve/{COMMIT}/{FILE}"
FEW = (0.01, 0.01)


@pytest.fixture
def server(monkeypatch):
    with serving() as server:
        server.add_hub("owner/name", {FILE: BODY, "README.md": b"text"})
        online(server, monkeypatch)
        yield server


def get_hub(cache: Path, said: list[str] | None = None) -> Path:
    return fetch_hub(HUB, FILE, cache, (lambda _: None) if said is None else said.append, FEW)


def test_a_file_of_the_hub_is_fetched_once(server, tmp_path: Path) -> None:
    said: list[str] = []
    assert hub_files(HUB, tmp_path) == ["README.md", FILE]
    assert hub_files(Hub("owner/name", path="corpus"), tmp_path) == [FILE.removeprefix("corpus/")]
    for _ in range(2):
        assert get_hub(tmp_path, said).read_bytes() == BODY
    assert server.got[RESOLVED] == 1
    assert said == [f"fetching {FILE} (0.2 MB)", f"fetched {FILE}: 0.2 MB"]


def test_all_files_are_of_the_commit_first_seen(server, tmp_path: Path) -> None:
    hub_files(HUB, tmp_path)
    server.add_hub("owner/name", {FILE: b"new"}, commit="f" * 40)
    assert get_hub(tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("fault", [500, "cut", "damage"])
def test_a_passing_fault_of_the_hub_is_tried_again(server, tmp_path: Path, fault) -> None:
    server.faults[RESOLVED] = [fault]
    assert get_hub(tmp_path).read_bytes() == BODY
    assert server.got[RESOLVED] == 2


def test_a_listing_is_tried_again(server, tmp_path: Path) -> None:
    server.faults["/api/datasets/owner/name"] = [503]
    assert get_hub(tmp_path).read_bytes() == BODY


def test_a_damaged_file_of_the_hub_is_fetched_again(server, tmp_path: Path) -> None:
    path = get_hub(tmp_path)
    path.resolve().write_bytes(b"x" * len(BODY))
    assert get_hub(tmp_path).read_bytes() == BODY


def test_what_the_hub_has_not_is_named(server, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"the list of files of hf://datasets/no/where cannot .*404"
    ):
        hub_files(Hub("no/where"), tmp_path, waits=(60,))
    with pytest.raises(DataError, match=r"hf://datasets/owner/name lacks x; it holds README\.md"):
        fetch_hub(HUB, "x", tmp_path)


def test_without_a_network_a_warm_cache_serves(tmp_path: Path, monkeypatch) -> None:
    with serving() as server:
        server.add_hub("owner/name", {FILE: BODY})
        online(server, monkeypatch)
        get_hub(tmp_path)
    assert get_hub(tmp_path).read_bytes() == BODY
    assert hub_files(HUB, tmp_path) == [FILE]


def test_without_a_network_a_cold_cache_says_what_to_do(tmp_path: Path, monkeypatch) -> None:
    with serving() as server:
        online(server, monkeypatch)
    text = rf"of hf://datasets/owner/name cannot be had from {server.url}: ConnectError.*paths: "
    with pytest.raises(DataError, match=text):
        get_hub(tmp_path)


@pytest.mark.parametrize("repo", ["owner/na--me", "owner/page"])
def test_what_is_no_data_set_is_named(server, tmp_path: Path, repo: str) -> None:
    server.files["/api/datasets/owner/page"] = b"<html>log in</html>"
    with pytest.raises(DataError, match=rf"of hf://datasets/{repo} cannot be had from .*Error: "):
        hub_files(Hub(repo), tmp_path, waits=(60,))


def test_offline_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be had from .*: HF_HUB_OFFLINE is set"):
        fetch_hub(HUB, FILE, tmp_path, waits=(60,))


FETCH_HUB = """
import sys
from pathlib import Path
from ray_ablation.data.download import fetch_hub
from ray_ablation.data.sources import Hub
fetch_hub(Hub("owner/name"), sys.argv[1], Path(sys.argv[2]))
"""


def test_a_killed_download_of_the_hub_heals(server, tmp_path: Path) -> None:
    server.faults[RESOLVED] = ["stall"]
    process = start(FETCH_HUB, FILE, tmp_path)
    assert server.stalling.wait(30)
    kill(process)
    assert list(tmp_path.glob("hub/*/blobs/*.incomplete"))
    assert get_hub(tmp_path).read_bytes() == BODY
    assert not list(tmp_path.glob("hub/*/blobs/*.incomplete"))
