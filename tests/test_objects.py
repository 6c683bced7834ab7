"""Object storage, against moto's S3 server on loopback and, as the oracle, boto3's client."""

import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pytest

import s3_server
from ray_ablation.objects import AT_ONCE, Objects, ObjectsError, is_uri

BUCKET = s3_server.BUCKET
server, s3 = s3_server.server, s3_server.s3


@pytest.fixture
def objects(s3: Any, request: pytest.FixtureRequest) -> Objects:
    return Objects(f"s3://{BUCKET}/{request.node.name.partition('[')[0]}")


def key(objects: Objects, name: str) -> str:
    return f"{objects.uri.removeprefix(f's3://{BUCKET}/')}/{name}"


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_put_is_read_back_by_another_client(s3: Any, objects: Objects, tmp_path: Path) -> None:
    content = bytes(range(256)) * 50_000  # 12.8 MB: several parts
    objects.put(write(tmp_path / "run", content), "trials/a/runs/x.trec.gz")
    found = s3.get_object(Bucket=BUCKET, Key=key(objects, "trials/a/runs/x.trec.gz"))
    assert found["Body"].read() == content


def test_get_reads_what_another_client_put(s3: Any, objects: Objects, tmp_path: Path) -> None:
    s3.put_object(Bucket=BUCKET, Key=key(objects, "trials/a/trial.json"), Body=b"{}")
    objects.get("trials/a/trial.json", tmp_path / "deep" / "trial.json")
    assert (tmp_path / "deep" / "trial.json").read_bytes() == b"{}"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["trial.json"]


def test_list_is_below_the_prefix_alone(s3: Any, objects: Objects) -> None:
    for name in ("trials/a/x", "trials/a/y/z", "trials/ab/x"):
        s3.put_object(Bucket=BUCKET, Key=key(objects, name), Body=b"123")
    found = objects.list("trials/a")
    assert {name: stamp.size for name, stamp in found.items()} == {
        "trials/a/x": 3,
        "trials/a/y/z": 3,
    }
    assert objects.list("none") == {}


def test_push_puts_the_vouching_file_last_and_hidden_files_never(
    s3: Any, objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("trial.json", "model/weights", "zz", ".lock", ".tmp/part"):
        write(tmp_path / name, name.encode())
    order: list[str] = []
    put = Objects.put
    monkeypatch.setattr(Objects, "put", lambda self, f, k: (order.append(k), put(self, f, k))[1])
    objects.push(tmp_path, "trials/a", last=("trial.json",))
    assert order == ["trials/a/model/weights", "trials/a/zz", "trials/a/trial.json"]
    assert set(objects.list("trials/a")) == set(order)


def test_pull_brings_what_is_missing_or_another_and_leaves_what_is_only_here(
    objects: Objects, tmp_path: Path
) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for name in ("model/weights", "checkpoints/step", "trial.json"):
        write(there / name, b"theirs")
    objects.push(there, "trials/a")
    for name in ("model/weights", "only/here"):
        write(here / name, b"ours..")  # of the same size
    objects.pull(here, "trials/a", skip=("checkpoints",))
    found = {p.relative_to(here).as_posix(): p.read_bytes() for p in here.rglob("*") if p.is_file()}
    assert found == {"model/weights": b"theirs", "only/here": b"ours..", "trial.json": b"theirs"}
    assert "trials/a/only/here" not in objects.list()


def test_a_second_pull_moves_nothing(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.put(write(tmp_path / "f", b"1"), "trials/a/f")
    objects.pull(tmp_path / "here", "trials/a")
    monkeypatch.delattr(Objects, "get")
    objects.pull(tmp_path / "here", "trials/a")
    assert (tmp_path / "here" / "f").read_bytes() == b"1"


def test_prune_drops_what_was_dropped_here(objects: Objects, tmp_path: Path) -> None:
    for name in ("step-1/state.json", "step-2/state.json"):
        write(tmp_path / name, b"1")
    objects.push(tmp_path, "trials/a/checkpoints")
    (tmp_path / "step-1/state.json").unlink()
    objects.prune(tmp_path, "trials/a/checkpoints")
    assert list(objects.list("trials/a")) == ["trials/a/checkpoints/step-2/state.json"]


@pytest.mark.parametrize("there", [None, b"whole"])
def test_an_upload_that_is_interrupted_leaves_what_was_there(
    objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bytes | None
) -> None:
    if there is not None:
        objects.put(write(tmp_path / "old", there), "trials/a/model")

    def interrupted(*anything: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfileobj", interrupted)
    with pytest.raises(KeyboardInterrupt):
        objects.put(write(tmp_path / "new", bytes(AT_ONCE + 1)), "trials/a/model")
    found = objects.list("trials")
    assert [stamp.size for stamp in found.values()] == ([] if there is None else [len(there)])


def test_remove_leaves_the_neighbours(objects: Objects, tmp_path: Path) -> None:
    file = write(tmp_path / "f", b"1")
    for name in ("a/checkpoints/s", "a/trial.json", "b/checkpoints/s"):
        objects.put(file, f"trials/{name}")
    objects.remove("trials/a/checkpoints")
    objects.remove("trials/b/checkpoints/s")
    assert set(objects.list("trials")) == {"trials/a/trial.json"}


def put_many(uri: str, file: Path, times: int) -> None:
    for _ in range(times):
        Objects(uri).put(file, "trials/a/trial.json")


def test_a_reader_beside_two_writers_sees_whole_objects(objects: Objects, tmp_path: Path) -> None:
    content = b"0123456789" * 20_000
    file = write(tmp_path / "trial.json", content)
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=put_many, args=(objects.uri, file, 20)) for _ in range(2)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        if objects.list("trials"):
            objects.get("trials/a/trial.json", tmp_path / "read")
            assert (tmp_path / "read").read_bytes() == content
            seen += 1
    assert seen
    assert [writer.exitcode for writer in writers] == [0, 0]


def test_errors_name_the_object_and_what_to_check(objects: Objects, tmp_path: Path) -> None:
    with pytest.raises(ObjectsError, match=r"trials/none: .*Check the address, the credentials"):
        objects.get("trials/none", tmp_path / "x")
    with pytest.raises(ObjectsError, match="s3://no-such-bucket/x/trials"):
        Objects("s3://no-such-bucket/x").put(write(tmp_path / "f", b"1"), "trials/a")
    with pytest.raises(
        ObjectsError, match="give a folder, or a bucket and prefix as in s3://bucket/prefix"
    ):
        Objects("s4://bucket/x").list()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("s3://b/x", True), ("abfs://c@a/x", True), ("results", False), ("/a/s3", False)],
)
def test_is_uri(text: str, expected: bool) -> None:
    assert is_uri(text) is expected


@pytest.mark.parametrize(
    "text", ["s3://", "s3:///a", "S3://b/x", "s4://b/x", "s3:b/x", "https://h/x", "s3://b//a"]
)
def test_what_only_looks_like_an_address_is_refused(text: str) -> None:
    with pytest.raises(ObjectsError, match="is no address: give a folder"):
        is_uri(text)


def test_a_bucket_that_is_not_there_is_named(s3: Any) -> None:
    with pytest.raises(ObjectsError, match="there is no bucket 'nowhere'; make it"):
        Objects("s3://nowhere/study").check()
