"""Downloads by the real client libraries, from a server of this machine."""

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from hub_server import ROOT, Server, kill, serving, start
from ray_ablation.data import progress
from ray_ablation.data.download import fetch, known_md5, unpack
from ray_ablation.data.files import DataError

BODY = bytes(range(256)) * 800
MD5 = hashlib.md5(BODY).hexdigest()
SHA256 = hashlib.sha256(BODY).hexdigest()
FEW = (0.01, 0.01)


@pytest.fixture
def server():
    with serving() as server:
        server.files["/sets/set.zip"] = BODY
        yield server


def get(server: Server, folder: Path, said: list[str] | None = None, **kwargs) -> Path:
    say = (lambda _: None) if said is None else said.append
    return fetch(f"{server.url}/sets/set.zip", folder, say=say, waits=FEW, **kwargs)


# From a URL


def test_fetched_once_and_known_by_its_hash(server, tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        path = get(server, tmp_path, said, md5=("0" * 32, MD5), sha256=SHA256, size=len(BODY))
        assert path == tmp_path / "set.zip"
        assert path.read_bytes() == BODY
    assert server.got["/sets/set.zip"] == 1
    assert known_md5(path) == MD5
    assert said == ["fetching set.zip (0.2 MB)", "fetched set.zip: 0.2 MB"]


def test_a_long_download_says_how_far_it_is(server, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    said: list[str] = []
    get(server, tmp_path, said)
    assert any("MB (" in line and line.endswith("%)") for line in said), said


def test_what_is_not_there_fails_at_once(server, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"no\.zip cannot be had from http.*/sets/no\.zip: HTTP 404"
    ):
        fetch(f"{server.url}/sets/no.zip", tmp_path, waits=(60,))
    assert server.got["/sets/no.zip"] == 1


@pytest.mark.parametrize("fault", [500, 503, 429, "cut"])
def test_a_passing_fault_is_tried_again(server, tmp_path: Path, fault) -> None:
    server.faults["/sets/set.zip"] = [fault]
    said: list[str] = []
    assert get(server, tmp_path, said, md5=(MD5,)).read_bytes() == BODY
    assert server.got["/sets/set.zip"] == 2
    assert any("trying again in 0.01 s" in line for line in said)


@pytest.mark.parametrize(("fault", "text"), [(500, "HTTP 500"), ("cut", "IncompleteRead")])
def test_a_lasting_fault_names_the_file_and_the_way_round(
    server, tmp_path: Path, fault, text
) -> None:
    server.faults["/sets/set.zip"] = [fault] * 3
    with pytest.raises(DataError, match=rf"expected md5 {MD5}.*({text}).*paths: {{name: /folder}}"):
        get(server, tmp_path, md5=(MD5,))
    assert server.got["/sets/set.zip"] == 3
    assert [path.name for path in tmp_path.iterdir()] == [".set.zip.lock"]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"md5": ("0" * 32, "1" * 32)}, f"md5 {'0' * 32} or md5 {'1' * 32}.*has md5 {MD5}"),
        ({"sha256": "0" * 64}, f"expected sha256 {'0' * 64}.*has sha256 {SHA256}"),
        ({"size": 7}, "204,800 bytes arrived of 7"),
    ],
)
def test_the_wrong_file_is_not_kept(server, tmp_path: Path, wanted, text) -> None:
    with pytest.raises(DataError, match=text):
        get(server, tmp_path, **wanted)
    assert not (tmp_path / "set.zip").exists()


def test_a_file_that_changed_on_disk_is_fetched_again(server, tmp_path: Path) -> None:
    path = get(server, tmp_path)
    path.write_bytes(BODY[:-1] + b"!")
    assert get(server, tmp_path).read_bytes() == BODY
    assert server.got["/sets/set.zip"] == 2


def test_another_url_of_the_name_is_another_file(server, tmp_path: Path) -> None:
    server.files["/other/set.zip"] = b"other"
    get(server, tmp_path)
    assert fetch(f"{server.url}/other/set.zip", tmp_path).read_bytes() == b"other"


def test_a_mirror_is_believed_by_the_hash(server, tmp_path: Path) -> None:
    get(server, tmp_path, md5=(MD5,))
    path = fetch("http://127.0.0.1:9/moved/set.zip", tmp_path, md5=(MD5,), waits=())
    assert path.read_bytes() == BODY


def test_without_a_network_a_warm_cache_serves(tmp_path: Path) -> None:
    with serving() as server:
        server.files["/sets/set.zip"] = BODY
        get(server, tmp_path)
    assert get(server, tmp_path).read_bytes() == BODY


def test_without_a_network_a_cold_cache_says_what_to_do(tmp_path: Path) -> None:
    with serving() as server:
        url = f"{server.url}/sets/set.zip"
    text = rf"set\.zip cannot be had from {url} \(expected md5 {MD5}\): .*refused.*paths: "
    with pytest.raises(DataError, match=text):
        get(server, tmp_path, md5=(MD5,))


# Killed, and several at once

FETCH = """
import sys
from pathlib import Path
from ray_ablation.data.download import fetch
print("go", flush=True)
sys.stdin.readline()
fetch(sys.argv[1], Path(sys.argv[2]), md5=(sys.argv[3],))
"""
UNPACK = """
import os, signal, sys, zipfile
from pathlib import Path
from ray_ablation.data.download import unpack

def half(self, folder):
    self.extract(self.namelist()[0], folder)
    os.kill(os.getpid(), signal.SIGKILL)

zipfile.ZipFile.extractall = half
unpack(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_killed_download_heals(server, tmp_path: Path) -> None:
    server.faults["/sets/set.zip"] = ["stall"]
    process = start(FETCH, f"{server.url}/sets/set.zip", tmp_path, MD5)
    process.stdin.write("go\n")
    process.stdin.flush()
    assert server.stalling.wait(30)
    kill(process)
    assert (tmp_path / ".set.zip.tmp").is_dir()
    assert not (tmp_path / "set.zip").exists()
    assert get(server, tmp_path, md5=(MD5,)).read_bytes() == BODY
    assert not (tmp_path / ".set.zip.tmp").exists()


def test_of_two_processes_one_fetches(server, tmp_path: Path) -> None:
    arguments = (f"{server.url}/sets/set.zip", tmp_path, MD5)
    processes = [start(FETCH, *arguments) for _ in range(2)]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.communicate("go\n", timeout=30)
        assert process.returncode == 0
    assert server.got["/sets/set.zip"] == 1


# Archives


def pack_zip(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def pack_tar(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize(("pack", "name"), [(pack_zip, "set.zip"), (pack_tar, "set.tar.gz")])
def test_an_archive_is_unpacked_once(tmp_path: Path, pack, name) -> None:
    archive = pack(tmp_path / name, {"set/a.txt": "a", "set/b/c.txt": "c"})
    folder = unpack(archive, tmp_path / "cache")
    assert folder.parent.name.startswith("set-")
    assert (folder / "set/b/c.txt").read_text() == "c"
    before = (folder / "set/a.txt").stat().st_mtime_ns
    assert unpack(archive, tmp_path / "cache") == folder
    assert (folder / "set/a.txt").stat().st_mtime_ns == before


@pytest.mark.parametrize("pack", [pack_zip, pack_tar])
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, pack) -> None:
    archive = pack(tmp_path / "set", {"set/a.txt": "a", "../out.txt": "b"})
    with pytest.raises(DataError, match=r"out\.txt"):
        unpack(archive, tmp_path / "cache" / "deep")
    assert not list(tmp_path.rglob("out.txt"))
    assert not list(tmp_path.rglob("a.txt"))


def test_a_page_in_place_of_an_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "set.zip").write_text("<html>not found</html>")
    with pytest.raises(DataError, match=r"set\.zip cannot be unpacked: .*fetched again.*paths: "):
        unpack(tmp_path / "set.zip", tmp_path / "cache")


def test_a_killed_unzip_is_not_trusted(tmp_path: Path) -> None:
    archive = pack_zip(tmp_path / "set.zip", {"set/a.txt": "a", "set/b.txt": "b"})
    process = start(UNPACK, archive, tmp_path / "cache")
    assert process.wait(timeout=30) == -9
    process.stdin.close()
    process.stdout.close()
    assert list(tmp_path.glob("cache/unpacked/.*.tmp/files/set/a.txt"))
    folder = unpack(archive, tmp_path / "cache")
    assert sorted(path.name for path in (folder / "set").iterdir()) == ["a.txt", "b.txt"]


def test_importing_is_light() -> None:
    script = (
        "import sys, ray_ablation.data.download\n"
        "print([n for n in ('pooch', 'huggingface_hub', 'requests', 'rich') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
