import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ray_ablation.data import cache
from ray_ablation.data.files import DataError


def fill(folder: Path) -> dict:
    (folder / "inside").mkdir()
    (folder / "inside" / "numbers.txt").write_text("123")
    return {"count": 3}


def refuse(folder: Path) -> dict:
    raise AssertionError("built again")


def truncate(folder: Path) -> None:
    (folder / "inside" / "numbers.txt").write_text("12")


def delete_file(folder: Path) -> None:
    (folder / "inside" / "numbers.txt").unlink()


def delete_record(folder: Path) -> None:
    (folder / "about.json").unlink()


def change_count(folder: Path) -> None:
    record = folder / "about.json"
    record.write_text(record.read_text().replace('"count": 3', '"count": 4'))


def cut_record(folder: Path) -> None:
    os.truncate(folder / "about.json", 20)


def list_for_record(folder: Path) -> None:
    (folder / "about.json").write_text("[]")


def test_a_sound_folder_is_not_built_again(tmp_path: Path) -> None:
    built = cache.build(tmp_path / "set", fill)
    assert built["count"] == 3
    assert built["files"] == {"inside/numbers.txt": hashlib.sha256(b"123").hexdigest()}
    assert cache.build(tmp_path / "set", refuse) == built


@pytest.mark.parametrize(
    "damage",
    [truncate, delete_file, delete_record, change_count, cut_record, list_for_record],
)
def test_a_damaged_folder_heals(tmp_path: Path, damage) -> None:
    folder = tmp_path / "set"
    built = cache.build(folder, fill)
    damage(folder)
    assert cache.build(folder, fill) == built
    assert (folder / "inside" / "numbers.txt").read_text() == "123"


def test_a_folder_of_another_format_is_built_again(tmp_path: Path, monkeypatch) -> None:
    cache.build(tmp_path / "set", fill)
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    assert cache.build(tmp_path / "set", lambda _: {"count": 5})["count"] == 5


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> dict:
        fill(folder)
        raise DataError("bad line")

    with pytest.raises(DataError, match="bad line"):
        cache.build(tmp_path / "set", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".set.lock"]


KILLED = """
import os, signal, sys
from pathlib import Path
from ray_ablation.data import cache

def fill(folder):
    (folder / "half").write_text("written")
    os.kill(os.getpid(), signal.SIGKILL)

cache.build(Path(sys.argv[1]), fill)
"""


def test_a_killed_build_is_not_trusted_and_holds_no_lock(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    root = Path(cache.__file__).parents[2]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)], env=os.environ | {"PYTHONPATH": str(root)}
    )
    assert killed.returncode == -9
    assert (tmp_path / ".set.tmp" / "half").exists()
    cache.build(folder, fill)
    assert sorted(path.name for path in folder.iterdir()) == ["about.json", "inside"]
    assert not (tmp_path / ".set.tmp").exists()


def test_of_many_at_once_one_builds(tmp_path: Path) -> None:
    builds, records = [], []

    def slow(folder: Path) -> dict:
        builds.append(folder)
        threading.Event().wait(0.2)
        return fill(folder)

    threads = [
        threading.Thread(target=lambda: records.append(cache.build(tmp_path / "set", slow)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert len(records) == 4


def test_a_held_lock_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(cache, "LOCK_TIMEOUT_S", 0.1)
    with (
        cache.FileLock(tmp_path / ".set.lock"),
        pytest.raises(DataError, match=r"prepared by another process \(lock .*\.set\.lock\)"),
    ):
        cache.build(tmp_path / "set", fill)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"file/set cannot be prepared: .*execution\.cache"):
        cache.build(tmp_path / "file" / "set", fill)


def aged(path: Path, text: str) -> Path:
    """A file whose times lie in the past as far as they can be set."""
    path.write_text(text)
    os.utime(path, ns=(10**18, 10**18))
    return path


@pytest.fixture
def hashed(monkeypatch) -> list[Path]:
    """The files that were read to be hashed; any file counts as settled."""
    read: list[Path] = []
    monkeypatch.setattr(cache, "SETTLED_NS", -(10**18))
    real = cache.sha256_file
    monkeypatch.setattr(cache, "sha256_file", lambda path: read.append(path) or real(path))
    return read


def test_a_digest_is_remembered(tmp_path: Path, hashed: list[Path]) -> None:
    file = aged(tmp_path / "data", "abc")
    # sha256 of "abc", FIPS 180-2, appendix B.1.
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert [cache.remembered_sha256(file, tmp_path / "cache") for _ in range(3)] == [expected] * 3
    assert hashed == [file]


def test_a_change_is_seen_behind_equal_size_and_time(tmp_path: Path, hashed: list[Path]) -> None:
    file = aged(tmp_path / "data", "abc")
    before = cache.remembered_sha256(file, tmp_path / "cache")
    aged(file, "abd")
    assert cache.remembered_sha256(file, tmp_path / "cache") != before
    assert len(hashed) == 2


def test_a_copy_is_hashed_on_its_own(tmp_path: Path, hashed: list[Path]) -> None:
    file = aged(tmp_path / "data", "abc")
    other = tmp_path / "other"
    shutil.copy2(file, other)
    digests = {cache.remembered_sha256(path, tmp_path / "cache") for path in (file, other)}
    assert len(digests) == 1
    assert len(hashed) == 2


def test_a_fresh_file_is_not_trusted_by_its_times(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("abc")
    cache.remembered_sha256(file, tmp_path / "cache")
    assert not (tmp_path / "cache" / "digests").exists()


def test_a_damaged_note_is_not_believed(tmp_path: Path, hashed: list[Path]) -> None:
    file = aged(tmp_path / "data", "abc")
    before = cache.remembered_sha256(file, tmp_path / "cache")
    (note,) = (tmp_path / "cache" / "digests").iterdir()
    note.write_text(json.dumps({"sha256": "0" * 64, "checksum": "0" * 64}))
    assert cache.remembered_sha256(file, tmp_path / "cache") == before
