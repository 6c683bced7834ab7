"""MS MARCO's hard negatives in each form and from each place that they are published in.

The sample of `ROWS` is worked by hand: of each usable row the filters leave one negative.
"""

import gzip
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from huggingface_hub import constants

from hub_server import COMMIT, serving
from ray_ablation.data import msmarco, triples
from ray_ablation.data.files import DataError
from ray_ablation.data.sources import Hub, Url
from ray_ablation.trial import Trial

ROWS = [
    {"qid": 1, "pos": [10], "neg": {"bm25": [10, 20]}},  # its own positive goes
    {"qid": 2, "pos": [], "neg": {"bm25": [20, 21]}},  # no positive
    {"qid": 3, "pos": [11], "neg": {"bm25": [12, 21]}},  # 12 is relevant by the qrels
    {"qid": 4, "pos": [13], "neg": {"other": [23], "dense": [22, 22]}},  # other is not asked for
    {"qid": 5, "pos": [14], "neg": {"dense": [14]}},  # none is left
]
SAMPLE = {
    ("query 1", "passage 10", "passage 20"),
    ("query 3", "passage 11", "passage 21"),
    ("query 4", "passage 13", "passage 22"),
}
COUNTS = {
    "rows": 5,
    "rows_without_query": 0,
    "rows_without_positive": 1,
    "negatives_listed": 2 + 2 + 1 + 1,
    "negatives_dropped_as_relevant": 3,
    "rows_with_too_few_negatives": 1,
    "usable_rows": 3,
    "held_out_rows": 1,
    "sampled_rows": 2,
    "repeated_queries": 0,
    "repeated_positives": 0,
    "held_out_positives_in_train": 0,
    "empty_texts": 0,
}
PLAIN = {
    "msmarco-hard-negatives.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    "collection.tsv": "".join(f"{i}\tpassage {i}\n" for i in range(10, 25)).encode(),
    "queries.train.tsv": "".join(f"{i}\tquery {i}\n" for i in range(1, 6)).encode(),
    "qrels.train.tsv": b"3\t0\t12\t1\n1\t0\t20\t0\n",
}
TRIAL = Trial(depth=1, samples=2, held_out=1, negatives=1, negative_systems=("bm25", "dense"))


def tar(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


PACKED = {
    "msmarco-hard-negatives.jsonl.gz": gzip.compress(PLAIN["msmarco-hard-negatives.jsonl"]),
    "collection.tar.gz": tar({"./collection.tsv": PLAIN["collection.tsv"]}),
    # As in the archive itself, the other splits stand around.
    "queries.tar.gz": tar(
        {"queries.dev.tsv": b"6\tno\n", "queries.train.tsv": PLAIN["queries.train.tsv"]}
        | {"queries.eval.tsv": b"7\tno\n"}
    ),
    "qrels.train.tsv": PLAIN["qrels.train.tsv"],
}


def folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


@pytest.fixture
def plain(tmp_path: Path) -> triples.Sample:
    return triples.prepare(TRIAL, folder(tmp_path / "plain", PLAIN), tmp_path / "cache")


def test_the_sample_worked_by_hand(plain: triples.Sample) -> None:
    train, held_out = plain.train().to_pylist(), plain.held_out().to_pylist()
    assert {tuple(row.values()) for row in train + held_out} == SAMPLE
    assert (len(train), len(held_out)) == (2, 1)
    assert plain.manifest["counts"] == COUNTS
    assert plain.manifest["systems"] == {"bm25": 6, "dense": 3, "other": 1}


def test_compressed_and_archived_files_give_the_same_sample(plain, tmp_path: Path) -> None:
    each = {f"{name}.gz": gzip.compress(content) for name, content in PLAIN.items()}
    for name, files in (("gz", each), ("tar", PACKED)):
        sample = triples.prepare(TRIAL, folder(tmp_path / name, files), tmp_path / "cache")
        assert sample.manifest["sha256"] == plain.manifest["sha256"]
        assert sample.folder != plain.folder


def test_an_archive_without_its_file(tmp_path: Path) -> None:
    files = PACKED | {"queries.tar.gz": tar({"queries.dev.tsv": b"6\tno\n"})}
    with pytest.raises(
        DataError, match=r"queries\.tar\.gz lacks queries\.train\.tsv; it holds queries\.dev\.tsv"
    ):
        triples.prepare(TRIAL, folder(tmp_path / "set", files), tmp_path / "cache")


def test_damage_in_an_archive_is_seen_by_its_checksum(tmp_path: Path) -> None:
    # Level 0 stores bytes as they are: a changed one is a text like any other.
    content = PLAIN["collection.tsv"].ljust(20_000, b"\n")
    whole = gzip.compress(gzip.decompress(tar({"collection.tsv": content})), compresslevel=0)
    damaged = whole.replace(b"passage 11", b"passage 99")
    assert damaged != whole
    files = PACKED | {"collection.tar.gz": damaged}
    with pytest.raises(DataError, match=r"collection\.tar\.gz cannot be read.*CRC.*fetch it again"):
        triples.prepare(TRIAL, folder(tmp_path / "set", files), tmp_path / "cache")


def test_a_folder_behind_a_url(plain, tmp_path: Path) -> None:
    with serving() as server:
        server.files = {f"/sets/{name}": content for name, content in PACKED.items()}
        source, cache = Url(f"{server.url}/sets"), tmp_path / "other"
        sample = triples.prepare(TRIAL, source, cache)
        assert sample.manifest["sha256"] == plain.manifest["sha256"]
        triples.prepare(TRIAL, source, cache)
        assert set(server.got.values()) == {1}
        del server.files["/sets/qrels.train.tsv"]
        with pytest.raises(DataError, match=r"qrels\.train\.tsv cannot be had from .*404"):
            triples.prepare(TRIAL, source, tmp_path / "third")


@pytest.fixture
def public(monkeypatch):
    """Both public places, with files of their own; what is published elsewhere has other hashes."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    rows = "msmarco-hard-negatives.jsonl.gz"
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("MSMARCO_MIRROR", f"{server.url}/ranking/")
        server.add_hub(msmarco.HUB.repo, {rows: PACKED[rows], "README.md": b"#"})
        server.files |= {f"/ranking/{name}": content for name, content in PACKED.items()}
        yield server


def test_without_a_path_it_comes_from_the_public_places(
    plain, public, monkeypatch, tmp_path: Path
) -> None:
    published = {name: PACKED[msmarco.PUBLISHED[name]] for name in msmarco.MD5}
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in published.items()}
    monkeypatch.setattr(msmarco, "MD5", md5)
    cache = tmp_path / "public"
    sample = triples.prepare(TRIAL, None, cache)
    assert sample.manifest["sha256"] == plain.manifest["sha256"]
    assert all(not path.startswith("/ranking/msmarco-hard") for path in public.got)
    before = public.got.copy()
    triples.prepare(TRIAL, None, cache)
    assert public.got == before
    # The same commit, named: another source, the same rows.
    pinned = TRIAL.model_copy(update={"train_set_revision": COMMIT})
    assert triples.prepare(pinned, None, cache).manifest["sha256"] == plain.manifest["sha256"]


def test_other_bytes_than_the_published_ones_are_refused(public, tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"collection\.tar\.gz cannot be had from .*expected md5 87dd01826da3e2ad45447ba5af57"
        r"7628\).*has md5 [0-9a-f]{32}.*paths: ",
    ):
        triples.prepare(TRIAL, None, tmp_path / "public")


def test_two_revisions_are_one_too_many(tmp_path: Path) -> None:
    trial = TRIAL.model_copy(update={"train_set_revision": "v1"})
    with pytest.raises(DataError, match=r"@v2, but train_set_revision is v1; keep one"):
        triples.prepare(trial, Hub("a/b", "v2"), tmp_path)


# The public size: 808,731 rows, of which 305,792 have no positive.

SIZE = int(os.environ.get("TRIPLES_SIZE", "800000"))
SHARE_WITHOUT = 305_792 / 808_731
LIMIT_BYTES = 2 << 30

SAMPLING = """
import sys, time
from pathlib import Path
from ray_ablation.data import triples
from ray_ablation.trial import Trial
folder, samples = Path(sys.argv[1]), int(sys.argv[2])
trial = Trial(depth=1, samples=samples, negative_systems=("bm25", "dense"))
print(triples.prepare(trial, folder / "set", folder / "cache").manifest["counts"])
"""


def write_large(folder: Path, rows: int) -> None:
    """Two systems of 50 negatives a row, 300 bytes a passage, as the public set has on average."""
    folder.mkdir()
    passages, rng = 2 * rows, random.Random(3)
    filler = "".join(rng.choices("abcdefgh ", k=10_000))
    with (folder / "collection.tsv").open("w") as file:
        for pid in range(passages):
            start = pid % 9_600
            file.write(f"{pid}\t{pid} {filler[start : start + 300]}\n")
    with (folder / "queries.train.tsv").open("w") as file:
        file.writelines(f"{qid}\tquery {qid} {filler[qid % 9_900 :][:35]}\n" for qid in range(rows))
    with (folder / "qrels.train.tsv").open("w") as file:
        file.writelines(f"{qid}\t0\t{2 * qid}\t1\n" for qid in range(rows))
    # Neighbours in a shuffled list: nearly all that are drawn are distinct, as in the public set.
    pool = [str(pid) for pid in rng.sample(range(passages), passages)]
    with (folder / "msmarco-hard-negatives.jsonl").open("w") as file:
        for qid in range(rows):
            positive = "" if rng.random() < SHARE_WITHOUT else 2 * qid
            at = rng.randrange(passages - 100)
            bm25, dense = ", ".join(pool[at : at + 50]), ", ".join(pool[at + 50 : at + 100])
            file.write(
                f'{{"qid": {qid}, "pos": [{positive}], '
                f'"neg": {{"bm25": [{bm25}], "dense": [{dense}]}}}}\n'
            )


def peak_bytes(process: subprocess.Popen[Any]) -> int:
    """Largest sum of what the process and its children hold for themselves, until it ends."""
    peak, root = 0, psutil.Process(process.pid)
    while process.poll() is None:
        total = 0
        for one in [root, *root.children(recursive=True)]:
            try:
                total += one.memory_full_info().uss
            except psutil.Error:
                continue
        peak = max(peak, total)
        time.sleep(0.05)
    return peak


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_the_public_size_is_sampled_in_bounded_memory(tmp_path: Path, capfd) -> None:
    """TRIPLES_SIZE in the environment takes fewer rows."""
    samples = SIZE * 450 // 800
    write_large(tmp_path / "set", SIZE)
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", SAMPLING, str(tmp_path), str(samples)],
        stdout=subprocess.PIPE,
        text=True,
    )
    peaks: list[int] = []
    watch = threading.Thread(target=lambda: peaks.append(peak_bytes(process)))
    watch.start()
    out, _ = process.communicate()
    watch.join()
    seconds = time.perf_counter() - started
    assert process.returncode == 0
    counts = json.loads(out.replace("'", '"'))
    assert (counts["rows"], counts["sampled_rows"]) == (SIZE, samples)
    assert counts["rows_without_positive"] == pytest.approx(SIZE * SHARE_WITHOUT, rel=0.02)
    with capfd.disabled():
        print(f"\n{samples:,} of {SIZE:,} rows: {seconds:.0f} s, {peaks[0] / 2**20:,.0f} MiB")
    assert peaks[0] < LIMIT_BYTES
