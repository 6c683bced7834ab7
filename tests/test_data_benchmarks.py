"""Benchmarks by name, URL and hub, from a server of this machine; samples of them."""

import csv
import gzip
import hashlib
import io
import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from beir.datasets.data_loader import GenericDataLoader
from beir.retrieval.models.util import extract_corpus_sentences

from hub_server import Server, online, serving
from ray_ablation.data import beir, patience, public
from ray_ablation.data.beir import BENCHMARKS, Benchmark, Prepared, prepare
from ray_ablation.data.files import DataError
from ray_ablation.data.public import NOT_GIVEN_AWAY, PUBLIC, Public
from ray_ablation.data.sources import Hub, Source, Url

CORPUS = [
    {"_id": f"d{i}", "title": "Title" if i % 3 else "", "text": f" text {i} "} for i in range(60)
]
QUERIES = [{"_id": f"q{i}", "text": f"query {i}"} for i in range(6)]
QRELS = [("q1", "d3", 1), ("q1", "d50", 1), ("q4", "d50", 1), ("q4", "gone", 1), ("q2", "d9", 1)]


def lines(records: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def tsv(rows: list[tuple[str, str, int]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t", quoting=csv.QUOTE_MINIMAL)
    writer.writerows([("query-id", "corpus-id", "score"), *rows])
    return text.getvalue().encode()


def parquet(records: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), file)
    return file.getvalue()


FILES = {
    "corpus.jsonl": lines(CORPUS),
    "queries.jsonl": lines(QUERIES),
    "qrels/test.tsv": tsv(QRELS),
    "qrels/dev.tsv": tsv(QRELS[:1]),
}


def packed(folders: dict[str, dict[str, bytes]]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for folder, files in folders.items():
            for name, content in files.items():
                archive.writestr(f"{folder}/{name}", content)
    return file.getvalue()


def written(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def content(prepared: Prepared) -> tuple[list[tuple[str, str]], dict[str, str], dict]:
    """What is compared: documents, queries, qrels."""
    rows = [row for shard in prepared.shards for row in pq.read_table(shard).to_pylist()]
    queries = dict(zip(*prepared.queries().to_pydict().values(), strict=True))
    return [(row["doc_id"], row["text"]) for row in rows], queries, prepared.qrels()


def oracle(folder: Path, split: str = "test") -> tuple[list[tuple[str, str]], dict[str, str], dict]:
    """The same as beir's own loader reads it."""
    corpus, queries, qrels = GenericDataLoader(str(folder)).load(split=split)
    texts = extract_corpus_sentences(list(corpus.values()), " ")
    return list(zip(corpus, texts, strict=True)), queries, qrels


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(patience, "WAITS_S", (0.01,))
    with serving() as server:
        online(server, monkeypatch)
        monkeypatch.setenv("BEIR_MIRROR", f"{server.url}/BEIR/")
        yield server


def publish(server: Server, monkeypatch, name: str, archive: bytes, **changes: Any) -> Benchmark:
    """Let the mirror have a zip, and the registry its md5 and counts."""
    known = PUBLIC[name]
    about = {
        "md5": (hashlib.md5(archive).hexdigest(),),
        "documents": 60,
        "queries": 3,
        "folder": known.folder,
    }
    monkeypatch.setitem(public.PUBLIC, name, Public(known.archive, **about | changes))
    server.files[f"/BEIR/{known.archive}.zip"] = archive
    return BENCHMARKS[name]


# By name


def test_a_public_set_is_fetched_by_name(server, tmp_path: Path, monkeypatch) -> None:
    benchmark = publish(server, monkeypatch, "scifact", packed({"scifact": FILES}))
    said: list[str] = []
    for _ in range(2):
        prepared = prepare(benchmark, None, tmp_path / "cache", said.append)
        assert content(prepared) == oracle(written(tmp_path / "scifact"))
    assert server.got["/BEIR/scifact.zip"] == 1
    assert said == ["fetching scifact.zip (0.0 MB)", "fetched scifact.zip: 0.0 MB"]


def test_msmarco_is_scored_on_dev(server, tmp_path: Path, monkeypatch) -> None:
    archive = packed({"msmarco": FILES})
    benchmark = publish(server, monkeypatch, "msmarco", archive, queries=1)
    prepared = prepare(benchmark, None, tmp_path / "cache")
    assert prepared.qrels() == {"q1": {"d3": 1}}


def test_a_forum_is_its_folder_of_the_one_zip(server, tmp_path: Path, monkeypatch) -> None:
    other = FILES | {"qrels/test.tsv": tsv(QRELS[:3])}
    archive = packed({"cqadupstack/android": FILES, "cqadupstack/tex": other})
    for name, queries in (("cqadupstack-android", 3), ("cqadupstack-tex", 2)):
        benchmark = publish(server, monkeypatch, name, archive, queries=queries)
        prepared = prepare(benchmark, None, tmp_path / "cache")
        assert prepared.about["queries"] == queries
    assert server.got["/BEIR/cqadupstack.zip"] == 1


def test_a_set_that_is_not_the_published_one_is_refused(
    server, tmp_path: Path, monkeypatch
) -> None:
    archive = packed({"scifact": FILES})
    benchmark = publish(server, monkeypatch, "scifact", archive, documents=5183, queries=300)
    text = (
        r"scifact was fetched, but it has 60 documents and 3 queries, where scifact as BEIR "
        r"publishes it has 5,183 documents and 300 queries; .*paths: \{scifact: /folder\}"
    )
    with pytest.raises(DataError, match=text):
        prepare(benchmark, None, tmp_path / "cache")
    # The user's own folder is the user's own business, but it is said.
    prepared = prepare(benchmark, written(tmp_path / "scifact"), tmp_path / "cache")
    assert beir.describe(prepared) == (
        "benchmark scifact: 60 documents, 3 queries, 5 judged pairs (1 judged documents missing); "
        "note: it has 60 documents and 3 queries, where scifact as BEIR publishes it has 5,183 "
        "documents and 300 queries"
    )


def test_of_two_lists_the_one_that_fits_is_told(server, tmp_path: Path, monkeypatch) -> None:
    archive = packed({"fever": FILES})
    md5 = hashlib.md5(archive).hexdigest()
    for hashes, which in (((md5, "0" * 32), "present"), (("0" * 32, md5), "earlier")):
        said: list[str] = []
        benchmark = publish(server, monkeypatch, "fever", archive, md5=hashes)
        prepare(benchmark, None, tmp_path / "cache", said.append)
        assert said[-1] == f"benchmark fever: its zip is that of BEIR's {which} list, md5 {md5}"


@pytest.mark.parametrize("name", NOT_GIVEN_AWAY)
def test_what_is_not_given_away_says_how_to_come_by_it(tmp_path: Path, name: str) -> None:
    text = rf"'{name}' has no public download.*examples/dataset tells.*paths: {{{name}: /folder}}"
    with pytest.raises(DataError, match=text):
        prepare(BENCHMARKS[name], None, tmp_path)


def test_every_other_public_set_has_a_download() -> None:
    made_here = {name for name in BENCHMARKS if name.startswith("docstrings-")}
    assert set(PUBLIC) | made_here | set(NOT_GIVEN_AWAY) == set(BENCHMARKS)
    # BEIR's table: 13,145 queries and 457 thousand documents in all of CQADupStack.
    forums = [PUBLIC[b.name] for b in beir.GROUPS["cqadupstack"]]
    assert len(forums) == 12
    assert sum(forum.queries for forum in forums) == 13_145
    assert round(sum(forum.documents for forum in forums), -3) == 457_000
    for name, known in PUBLIC.items():
        assert all(len(md5) == 32 and set(md5) <= set("0123456789abcdef") for md5 in known.md5)
        assert known.url.endswith(f"/BEIR/datasets/{name.split('-')[0]}.zip") or not known.folder


# By URL, folder and hub


def test_a_zip_by_url(server, tmp_path: Path) -> None:
    server.files["/own/mine.zip"] = packed({"whatever": FILES})
    source = Url(f"{server.url}/own/mine.zip")
    prepared = prepare(Benchmark(name="mine"), source, tmp_path / "cache")
    assert content(prepared) == oracle(written(tmp_path / "set"))


def test_an_archive_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "mine.zip").write_bytes(packed({"mine": FILES}))
    prepared = prepare(Benchmark(name="mine"), tmp_path / "mine.zip", tmp_path / "cache")
    assert content(prepared) == oracle(written(tmp_path / "set"))


def test_a_zip_without_a_set_is_named(server, tmp_path: Path) -> None:
    server.files["/own/mine.zip"] = packed({"whatever": {"readme.txt": b"text"}})
    text = r"/own/mine\.zip lacks corpus\.jsonl .*; it holds whatever/readme\.txt\. A BEIR"
    with pytest.raises(DataError, match=text):
        prepare(Benchmark(name="mine"), Url(f"{server.url}/own/mine.zip"), tmp_path / "cache")


def test_several_sets_in_a_folder_are_told_apart_by_name(tmp_path: Path) -> None:
    for name in ("one", "two"):
        written(tmp_path / "sets" / name)
    assert prepare(Benchmark(name="two"), tmp_path / "sets", tmp_path / "cache").about["queries"]
    with pytest.raises(DataError, match="several sets, but none called 'three': one, two"):
        prepare(Benchmark(name="three"), tmp_path / "sets", tmp_path / "cache")


@pytest.mark.parametrize("where", ["hub", "folder"])
def test_a_set_as_nanobeir_keeps_it(server, tmp_path: Path, where: str) -> None:
    """Three folders of parquet; no titles, no scores, and one split called train."""
    corpus = [{"_id": row["_id"], "text": row["text"]} for row in CORPUS]
    pairs = [{"query-id": q, "corpus-id": d} for q, d, _ in QRELS]
    files = {
        "README.md": b"---",
        # In two pieces, as large sets are.
        "corpus/train-00000-of-00002.parquet": parquet(corpus[:40]),
        "corpus/train-00001-of-00002.parquet": parquet(corpus[40:]),
        "queries/train-00000-of-00001.parquet": parquet(QUERIES),
        "qrels/train-00000-of-00001.parquet": parquet(pairs),
    }
    server.add_hub("zeta-alpha-ai/NanoSciFact", files)
    source: Source = Hub("zeta-alpha-ai/NanoSciFact")
    if where == "folder":
        source = written(tmp_path / "nano", files)
    nano = Benchmark(name="nano-scifact", split="train")
    prepared = prepare(nano, source, tmp_path / "cache")
    # beir reads no corpus without titles.
    titled = [row | {"title": ""} for row in corpus]
    plain = {"corpus.jsonl": lines(titled), "queries.jsonl": lines(QUERIES)}
    folder = written(tmp_path / "plain", plain | {"qrels/train.tsv": tsv(QRELS)})
    assert content(prepared) == oracle(folder, "train")
    assert prepared.about["audit"]["null_titles"] == len(corpus)


def test_a_set_as_beir_keeps_it_on_the_hub(server, tmp_path: Path) -> None:
    """Compressed lines, and the judgements in a data set of their own."""
    plain = ("corpus.jsonl", "queries.jsonl")
    compressed = {f"{name}.gz": gzip.compress(FILES[name]) for name in plain}
    server.add_hub("BeIR/scifact", compressed | {"scifact.py": b"code"})
    server.add_hub("BeIR/scifact-qrels", {"test.tsv": FILES["qrels/test.tsv"], "README.md": b""})
    prepared = prepare(Benchmark(name="mine"), Hub("BeIR/scifact"), tmp_path / "cache")
    assert content(prepared) == oracle(written(tmp_path / "set"))


def test_a_split_that_the_hub_lacks_is_named(server, tmp_path: Path) -> None:
    server.add_hub("a/b", FILES)
    text = (
        r"hf://datasets/a/b lacks qrels/x\.tsv .*it holds qrels/dev\.tsv, qrels/test\.tsv\. .*split"
    )
    with pytest.raises(DataError, match=text):
        prepare(Benchmark(name="mine", split="x"), Hub("a/b"), tmp_path / "cache")


def test_no_data_set_of_the_hub_is_named(server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"hf://datasets/no/where cannot be had .*HTTP 404"):
        prepare(Benchmark(name="mine"), Hub("no/where"), tmp_path / "cache")


BAD_ROWS = {
    "number for id": ("corpus", [{"_id": 7, "text": "x"}], r"_id is 7; expected a string"),
    "no column": ("corpus", [{"id": "d1", "text": "x"}], r"line 1: _id is None"),
    "part of a score": (
        "qrels",
        [{"query-id": "q1", "corpus-id": "d1", "score": 0.5}],
        r"score is 0\.5; expected a whole",
    ),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_bad_rows_of_parquet_are_named(tmp_path: Path, case: str) -> None:
    part, rows, text = BAD_ROWS[case]
    names = {"corpus": "corpus/train-0.parquet", "qrels": "qrels/test-0.parquet"}
    dropped = {"corpus": "corpus.jsonl", "qrels": "qrels/test.tsv"}[part]
    files = {name: body for name, body in FILES.items() if name != dropped}
    folder = written(tmp_path / "set", files | {names[part]: parquet(rows)})
    with pytest.raises(DataError, match=text):
        prepare(Benchmark(name="mine"), folder, tmp_path / "cache")


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    files = FILES | {"corpus/train-0.parquet": parquet(CORPUS)[:-9]}
    del files["corpus.jsonl"]
    with pytest.raises(DataError, match=r"train-0\.parquet cannot be read after row 0: .*again"):
        prepare(Benchmark(name="mine"), written(tmp_path / "set", files), tmp_path / "cache")


# Samples


def test_a_sample_has_all_judged_and_the_smallest_hashes(tmp_path: Path) -> None:
    folder = written(tmp_path / "set")
    small = Benchmark(name="small", of="mine", others=10)
    prepared = prepare(small, folder, tmp_path / "cache")
    judged = {"d3", "d9", "d50"}  # "gone" is not there
    unjudged = [row["_id"] for row in CORPUS if row["_id"] not in judged]
    by_hash = sorted(unjudged, key=lambda doc_id: hashlib.sha256(doc_id.encode()).hexdigest())
    documents, queries, qrels = content(prepared)
    kept = judged | set(by_hash[:10])
    whole, all_queries, all_qrels = oracle(folder)
    assert documents == [row for row in whole if row[0] in kept]
    assert (queries, qrels) == (all_queries, all_qrels)
    assert prepared.about["sample"] == {"judged": 3, "sampled": 10, "of": 60}
    assert beir.describe(prepared) == (
        "benchmark small: 13 documents, 3 queries, 5 judged pairs (1 judged documents missing); "
        "3 judged + 10 sampled of 60; not comparable with the full collection"
    )


def test_samples_are_nested_and_have_digests_of_their_own(tmp_path: Path) -> None:
    folder = written(tmp_path / "set")
    found = [
        prepare(Benchmark(name="small", of="mine", others=n), folder, tmp_path / "cache")
        for n in (0, 5, 20, 1000)
    ]
    ids = [{doc_id for doc_id, _ in content(one)[0]} for one in found]
    assert ids[0] < ids[1] < ids[2] < ids[3] == {row["_id"] for row in CORPUS}
    whole = prepare(Benchmark(name="mine"), folder, tmp_path / "cache")
    assert len({one.about["sha256"] for one in [*found, whole]}) == 5


def test_a_sample_of_a_public_set_is_checked_as_a_whole(
    server, tmp_path: Path, monkeypatch
) -> None:
    archive = packed({"msmarco": FILES})
    publish(server, monkeypatch, "msmarco", archive, queries=1)
    small = Benchmark(name="msmarco-small", of="msmarco", others=4, split="dev")
    assert prepare(small, None, tmp_path / "cache").about["documents"] == 5
    publish(server, monkeypatch, "msmarco", archive, documents=61, queries=1)
    with pytest.raises(DataError, match="it has 60 documents and 1 queries, where msmarco as"):
        prepare(small, None, tmp_path / "cache")


def test_drawing_a_sample_does_not_hold_the_ids_of_the_whole(tmp_path: Path) -> None:
    peaks = []
    for count in (2_000, 40_000):
        path = tmp_path / f"{count}.jsonl"
        path.write_bytes(lines([{"_id": f"document-{i}"} for i in range(count)]))
        tracemalloc.start()
        chosen, found = beir._choose((path,), set(), 100)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (len(chosen), found) == (100, count)
    # 38,000 more ids would be some 2.5 MB.
    assert peaks[1] - peaks[0] < 100_000
