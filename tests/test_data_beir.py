import csv
import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from beir.datasets.data_loader import GenericDataLoader
from beir.retrieval.models.util import extract_corpus_sentences

from ray_ablation.data import beir
from ray_ablation.data.beir import BENCHMARKS, Benchmark, prepare
from ray_ablation.data.files import DataError

CORPUS = [
    {"_id": "d1", "title": "Wings", "text": "  How birds fly. "},
    {"_id": "d2", "title": "", "text": "Passages end\u2028where lines end, not at \x85 or \x0b."},
    {"_id": "d3", "title": "Nur ein Titel", "text": ""},
    {"_id": '"d4"_quoted', "title": "Quoted", "text": "An id with quotation marks."},
]
QUERIES = [
    {"_id": "q2", "text": "what are wings for"},
    {"_id": "q9", "text": ""},
    {"_id": "q1", "text": " titles "},
]
QRELS = [("q1", "d3", 2), ("q1", "d1", 0), ("q2", "d1", 1), ("q2", '"d4"_quoted', 1)]


def write_folder(
    folder: Path,
    corpus: list[dict[str, Any]] | None = None,
    queries: list[dict[str, Any]] | None = None,
    qrels: list[tuple[Any, ...]] | None = None,
    split: str = "test",
) -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = CORPUS if corpus is None else corpus
    queries = QUERIES if queries is None else queries
    qrels = QRELS if qrels is None else qrels
    for name, records in (("corpus", corpus), ("queries", queries)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(text)
    # As BEIR writes them, with csv's quoting.
    with (folder / "qrels" / f"{split}.tsv").open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_MINIMAL)
        writer.writerows([("query-id", "corpus-id", "score"), *qrels])
    return folder


def documents(prepared: beir.Prepared) -> list[dict[str, Any]]:
    return [row for shard in prepared.shards for row in pq.read_table(shard).to_pylist()]


MINE = Benchmark(name="mine")


def test_equals_what_beir_reads(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    corpus, queries, qrels = GenericDataLoader(str(folder)).load(split="test")
    prepared = prepare(MINE, folder, tmp_path / "cache")

    found = documents(prepared)
    assert [row["doc_id"] for row in found] == list(corpus)
    assert [row["text"] for row in found] == extract_corpus_sentences(list(corpus.values()), " ")
    assert [row["row"] for row in found] == list(range(len(corpus)))
    assert prepared.qrels() == qrels
    table = prepared.queries()
    assert dict(zip(*table.to_pydict().values(), strict=True)) == queries
    assert table["query_id"].to_pylist() == ["q2", "q1"]


def test_audit_counts_what_is_odd(tmp_path: Path) -> None:
    corpus = [
        {"_id": "a", "title": None, "text": "same"},
        {"_id": "b", "text": "same"},
        {"_id": "c", "title": "", "text": None},
        {"_id": "d", "title": "", "text": " "},
        {"_id": "q1", "title": "", "text": "own id"},
    ]
    queries = [{"_id": "q1", "text": "x"}, {"_id": "q2", "text": "y"}, {"_id": "a", "text": "z"}]
    qrels = [("q1", "a", 1), ("q1", "gone", 1), ("q1", "a", 2), ("q2", "b", 0), ("q2", "c", -1)]
    prepared = prepare(
        MINE, write_folder(tmp_path / "set", corpus, queries, qrels), tmp_path / "cache"
    )
    about = prepared.about
    assert [about[key] for key in ("documents", "queries", "judged_pairs")] == [5, 2, 4]
    assert about["audit"] == {
        "empty_texts": 2,
        "repeated_texts": 1,
        "null_titles": 2,
        # The query called "a" is judged in no row, so only q1 can meet itself.
        "ids_shared_with_queries": 1,
        "judged_documents_missing": 1,
        "repeated_judgements": 1,
        "queries_without_positive": 1,
    }
    assert [row["text"] for row in documents(prepared)] == ["same", "same", "", "", "own id"]
    # The last judgement of a pair holds, as in BEIR.
    assert prepared.qrels() == {"q1": {"a": 2, "gone": 1}, "q2": {"b": 0, "c": -1}}


@pytest.mark.parametrize(("count", "sizes"), [(4, [4]), (5, [4, 1]), (8, [4, 4]), (11, [4, 4, 3])])
def test_shards_continue_each_other(tmp_path: Path, monkeypatch, count, sizes) -> None:
    monkeypatch.setattr(beir, "SHARD_DOCUMENTS", 4)
    monkeypatch.setattr(beir, "GROUP_DOCUMENTS", 2)
    corpus = [{"_id": f"d{i}", "title": "", "text": str(i)} for i in range(count)]
    prepared = prepare(MINE, write_folder(tmp_path / "set", corpus), tmp_path / "cache")
    assert [pq.read_metadata(shard).num_rows for shard in prepared.shards] == sizes
    assert documents(prepared) == [
        {"row": i, "doc_id": f"d{i}", "text": str(i)} for i in range(count)
    ]


def test_a_compressed_corpus_reads_the_same(tmp_path: Path) -> None:
    plain = write_folder(tmp_path / "plain")
    packed = write_folder(tmp_path / "packed")
    with gzip.open(packed / "corpus.jsonl.gz", "wb") as file:
        file.write((packed / "corpus.jsonl").read_bytes())
    (packed / "corpus.jsonl").unlink()
    first, second = (prepare(MINE, folder, tmp_path / "cache") for folder in (plain, packed))
    assert documents(first) == documents(second)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    (folder / "corpus.jsonl").write_bytes(b"\xef\xbb\xbf" + (folder / "corpus.jsonl").read_bytes())
    assert documents(prepare(MINE, folder, tmp_path / "cache"))[0]["doc_id"] == "d1"


def test_found_again_by_content_alone(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = prepare(MINE, write_folder(tmp_path / "set"), cache)
    before = (first.folder / "about.json").stat().st_mtime_ns
    shutil.copytree(tmp_path / "set", tmp_path / "copy")
    again = prepare(MINE, tmp_path / "copy", cache)
    assert again == first
    assert (again.folder / "about.json").stat().st_mtime_ns == before
    assert again.folder.name == f"mine-{again.about['sha256'][:12]}"


def test_content_and_split_decide_the_digest(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    write_folder(folder, split="dev")
    digests = [prepare(MINE, folder, tmp_path / "cache").about["sha256"]]
    dev = Benchmark(name="mine", split="dev")
    digests.append(prepare(dev, folder, tmp_path / "cache").about["sha256"])
    for changed in (
        {"corpus": [*CORPUS, {"_id": "d5", "text": "new"}]},
        {"queries": [*QUERIES, {"_id": "q5", "text": "new"}]},
        {"qrels": [*QRELS, ("q1", "d2", 1)]},
    ):
        write_folder(folder, **changed)
        digests.append(prepare(MINE, folder, tmp_path / "cache").about["sha256"])
    assert len(set(digests)) == 5


def test_a_truncated_shard_heals(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    prepared = prepare(MINE, folder, tmp_path / "cache")
    expected = documents(prepared)
    os.truncate(prepared.shards[0], 100)
    assert documents(prepare(MINE, folder, tmp_path / "cache")) == expected


def edit(name: str, change):
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_text(change(path.read_text()))

    return apply


def append(name: str, text: str):
    return edit(name, lambda before: before + text)


def remove(name: str):
    return lambda folder: (folder / name).unlink()


BAD = {
    "no corpus": (
        remove("corpus.jsonl"),
        r"set lacks corpus\.jsonl \(or .*\.gz.*\); it holds qrels/test\.tsv, queries\.jsonl\. A",
    ),
    "no queries": (remove("queries.jsonl"), r"lacks queries\.jsonl"),
    "no split": (
        lambda folder: (folder / "qrels/test.tsv").rename(folder / "qrels/dev.tsv"),
        r"lacks qrels/test\.tsv .*; it holds qrels/dev\.tsv\. .*`split` in the grid",
    ),
    "no qrels": (
        lambda folder: shutil.rmtree(folder / "qrels"),
        r"lacks qrels/test\.tsv .*; it holds corpus\.jsonl, queries\.jsonl\. A BEIR",
    ),
    "empty corpus": (edit("corpus.jsonl", lambda _: "\n"), r"corpus\.jsonl holds no document"),
    "not JSON": (
        append("corpus.jsonl", "{'_id': 1}\n"),
        r"corpus\.jsonl, line 5: not JSON .*'_id'",
    ),
    "not an object": (append("queries.jsonl", "[1]\n"), r"line 4: expected a JSON object, .*\[1\]"),
    "not UTF-8": (
        lambda folder: (folder / "corpus.jsonl").write_bytes(b'{"_id": "\xff"}\n'),
        r"corpus\.jsonl, line 1: not UTF-8",
    ),
    "number for id": (append("corpus.jsonl", '{"_id": 7}\n'), r"line 5: _id is 7; expected a str"),
    "space in id": (append("corpus.jsonl", '{"_id": "a b"}\n'), r"_id is 'a b'; .*without spaces"),
    "no id": (append("corpus.jsonl", "{}\n"), r"line 5: _id is None"),
    "number for text": (
        append("corpus.jsonl", '{"_id": "n", "text": 3}\n'),
        r"text is 3; expected",
    ),
    "half a surrogate": (
        append("corpus.jsonl", '{"_id": "s", "text": "\\ud800"}\n'),
        r"line 5: text holds half a surrogate pair",
    ),
    "repeated document": (
        append("corpus.jsonl", '{"_id": "d2", "text": "again"}\n'),
        r"corpus\.jsonl, line 5: document id 'd2' stands on line 2 already",
    ),
    "repeated query": (
        append("queries.jsonl", '{"_id": "q9", "text": "again"}\n'),
        r"queries\.jsonl, line 4: query id 'q9' stands on line 2 already",
    ),
    "query without text": (
        append("qrels/test.tsv", "q9\td1\t1\n"),
        r"queries\.jsonl, line 2: query 'q9' has no text, and test\.tsv judges it",
    ),
    "unknown queries": (
        append("qrels/test.tsv", "x1\td1\t1\nx2\td1\t1\n"),
        r"test\.tsv judges 2 queries that queries\.jsonl lacks: x1, x2",
    ),
    "score with a point": (
        append("qrels/test.tsv", "q1\td2\t1.0\n"),
        r"test\.tsv, line 6: found \['q1', 'd2', '1\.0'\]; .*the score a whole number",
    ),
    "TREC's four columns": (
        append("qrels/test.tsv", "q1\t0\td2\t1\n"),
        r"line 6: found \['q1', '0', 'd2', '1'\]; expected query-id<TAB>corpus-id<TAB>score",
    ),
    "no header": (
        edit("qrels/test.tsv", lambda text: text.partition("\n")[2]),
        r"line 1: found \['q1', 'd3', '2'\], but the first line must be the header",
    ),
    "no judgements": (
        edit("qrels/test.tsv", lambda text: text.partition("\n")[0]),
        r"test\.tsv judges nothing",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(tmp_path: Path, case: str) -> None:
    damage, text = BAD[case]
    folder = write_folder(tmp_path / "set")
    damage(folder)
    with pytest.raises(DataError, match=text):
        prepare(MINE, folder, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("benchmarks/mine-*"))


def test_a_cut_off_archive_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    packed = gzip.compress((folder / "corpus.jsonl").read_bytes())
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(packed[:-12])
    with pytest.raises(DataError, match=r"corpus\.jsonl\.gz cannot be read after line .*fetch it"):
        prepare(MINE, folder, tmp_path / "cache")


def test_a_name_that_is_no_file_name_is_refused() -> None:
    with pytest.raises(ValueError, match="pattern"):
        Benchmark(name="../elsewhere")


def test_registry() -> None:
    assert all(name == benchmark.name for name, benchmark in BENCHMARKS.items())
    # The sets of BEIR whose queries are documents themselves.
    drops = {name for name, benchmark in BENCHMARKS.items() if benchmark.self_ids == "drop"}
    assert drops == {"arguana", "quora"}
    assert {n: b.split for n, b in BENCHMARKS.items() if b.split != "test"} == {"msmarco": "dev"}
    # BEIR: MS MARCO and 18 more (Thakur et al. 2021), of which CQADupStack has 12 forums.
    made_here = [name for name in BENCHMARKS if name.startswith("docstrings-")]
    assert len(BENCHMARKS) - len(made_here) == 1 + 17 + 12
