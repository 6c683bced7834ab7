import gzip
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ray_ablation.data import docstrings, triples
from ray_ablation.data.files import DataError
from ray_ablation.data.sampling import Row, pick, seeded
from ray_ablation.trial import Trial

# Query 1 is ordinary; 2 has no positive; of 3's negatives one is its positive and one is relevant
# by the qrels; 4 has a second system; 5 and 6 share a positive.
ROWS = [
    {"qid": 1, "pos": [10], "neg": {"bm25": [20, 21, 22]}},
    {"qid": 2, "pos": [], "neg": {"bm25": [20, 21, 22]}},
    {"qid": 3, "pos": [11, 12], "neg": {"bm25": [11, 20, 13]}},
    {"qid": 4, "pos": [14], "neg": {"bm25": [21], "dense": [23, 21, 24]}},
    {"qid": 5, "pos": [15], "neg": {"bm25": [22, 23]}},
    {"qid": "6", "pos": ["15"], "neg": {"bm25": ["24", "20"]}},
]
QRELS = [(3, 11, 1), (3, 13, 1), (1, 20, 0)]
POSITIVES = {1: {10}, 3: {11, 12}, 4: {14}, 5: {15}, 6: {15}}
NEGATIVES = {1: {20, 21, 22}, 3: {20}, 4: {21, 23, 24}, 5: {22, 23}, 6: {24, 20}}


def write_folder(folder: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "msmarco-hard-negatives.jsonl").write_text(text)
    # Microsoft's passages hold characters that text mode takes for line ends.
    passages = "".join(f"{i}\tpassage {i} \x85 on\n" for i in range(10, 30))
    (folder / "collection.tsv").write_text(passages, encoding="utf-8")
    (folder / "queries.train.tsv").write_text("".join(f"{i}\tquery {i}\n" for i in range(1, 9)))
    qrels = "".join(f"{query}\t0\t{passage}\t{score}\n" for query, passage, score in QRELS)
    (folder / "qrels.train.tsv").write_text(qrels)
    return folder


def trial(**fields: Any) -> Trial:
    return Trial(**{"depth": 1, "samples": 4, "held_out": 1, "negatives": 1} | fields)


def number(text: str) -> int:
    return int(text.split()[1])


def test_rows_are_what_the_files_say(tmp_path: Path) -> None:
    sample = triples.prepare(trial(), write_folder(tmp_path / "set"), tmp_path / "cache")
    train, held_out = sample.train(), sample.held_out()
    assert (len(train), len(held_out)) == (4, 1)
    assert train.column_names == ["query", "positive", "negative_1"]
    queries = []
    for row in train.to_pylist() + held_out.to_pylist():
        query = number(row["query"])
        queries.append(query)
        assert row["query"] == f"query {query}"
        assert row["positive"] in {f"passage {i} \x85 on" for i in POSITIVES[query]}
        assert number(row["negative_1"]) in NEGATIVES[query]
    assert sorted(queries) == [1, 3, 4, 5, 6]


def test_manifest_counts_around_each_filter(tmp_path: Path) -> None:
    sample = triples.prepare(
        trial(held_out=0, samples=5), write_folder(tmp_path / "set"), tmp_path / "cache"
    )
    assert sample.manifest["counts"] == {
        "rows": 6,
        "rows_without_query": 0,
        "rows_without_positive": 1,
        # 3 + 3 + 3 (21 is listed by both systems) + 2 + 2, the row without a positive left out.
        "negatives_listed": 13,
        "negatives_dropped_as_relevant": 2,
        "rows_with_too_few_negatives": 0,
        "usable_rows": 5,
        "held_out_rows": 0,
        "sampled_rows": 5,
        "repeated_queries": 0,
        "repeated_positives": 1,
        "held_out_positives_in_train": 0,
        "empty_texts": 0,
    }
    assert sample.manifest["systems"] == {"bm25": 14, "dense": 3}
    rows = (tmp_path / "set" / "msmarco-hard-negatives.jsonl").read_bytes()
    expected = hashlib.sha256(rows).hexdigest()
    assert sample.manifest["inputs"]["msmarco-hard-negatives.jsonl"] == expected
    assert sample.held_out().column_names == sample.train().column_names


def test_a_row_is_dropped_only_when_too_few_negatives_are_left(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    two = triples.prepare(trial(negatives=2, samples=4, held_out=0), folder, tmp_path / "cache")
    assert two.manifest["counts"]["rows_with_too_few_negatives"] == 1  # query 3 has one left
    for row in two.train().to_pylist():
        assert number(row["query"]) != 3
        assert row["negative_1"] != row["negative_2"]
        chosen = {number(row["negative_1"]), number(row["negative_2"])}
        assert chosen <= NEGATIVES[number(row["query"])]


def test_without_qrels_only_the_row_itself_tells_what_is_relevant(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    (folder / "qrels.train.tsv").unlink()
    sample = triples.prepare(trial(), folder, tmp_path / "cache")
    assert sample.manifest["counts"]["negatives_dropped_as_relevant"] == 1
    assert "qrels.train.tsv" not in sample.manifest["inputs"]


def test_systems_restrict_what_is_drawn(tmp_path: Path) -> None:
    sample = triples.prepare(
        trial(negative_systems=("dense",), samples=1, held_out=0, negatives=3),
        write_folder(tmp_path / "set"),
        tmp_path / "cache",
    )
    (row,) = sample.train().to_pylist()
    assert {number(row[f"negative_{i}"]) for i in (1, 2, 3)} == {21, 23, 24}
    assert sample.manifest["counts"]["rows_with_too_few_negatives"] == 4


def test_no_negatives(tmp_path: Path) -> None:
    rows = [{"qid": 1, "pos": [10], "neg": {}}]
    sample = triples.prepare(
        trial(negatives=0, samples=1, held_out=0),
        write_folder(tmp_path / "set", rows),
        tmp_path / "cache",
    )
    assert sample.train().to_pylist() == [{"query": "query 1", "positive": "passage 10 \x85 on"}]


def test_compressed_files_give_the_same_sample(tmp_path: Path) -> None:
    plain, packed = write_folder(tmp_path / "plain"), write_folder(tmp_path / "packed")
    for path in list(packed.iterdir()):
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    first, second = (
        triples.prepare(trial(), folder, tmp_path / "cache") for folder in (plain, packed)
    )
    assert first.manifest["sha256"] == second.manifest["sha256"]
    assert first.folder != second.folder


def test_the_digest_is_that_of_the_rows(tmp_path: Path) -> None:
    sample = triples.prepare(trial(), write_folder(tmp_path / "set"), tmp_path / "cache")
    parts = []
    for name, table in (("train", sample.train()), ("held_out", sample.held_out())):
        parts.append(f"{name} {table.shape}".encode())
        for row in table.to_pylist():
            for text in row.values():
                parts += [len(text.encode()).to_bytes(8, "little"), text.encode()]
    assert sample.manifest["sha256"] == hashlib.sha256(b"".join(parts)).hexdigest()


def test_every_field_that_picks_rows_makes_another_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    changes = [
        {},
        {"samples": 3},
        {"sample_seed": 7},
        {"held_out": 0},
        {"negatives": 0},
        {"negative_systems": ("bm25",)},
        {"train_set_revision": "abc"},
    ]
    samples = [triples.prepare(trial(**change), folder, tmp_path / "cache") for change in changes]
    assert len({sample.folder for sample in samples}) == len(changes)
    # A field of training alone does not.
    other = triples.prepare(trial(seed=9, batch=8), folder, tmp_path / "cache")
    assert other == samples[0]


def test_found_again_and_healed(tmp_path: Path, monkeypatch) -> None:
    folder = write_folder(tmp_path / "set")
    first = triples.prepare(trial(), folder, tmp_path / "cache")
    expected = first.train().to_pylist()
    with monkeypatch.context() as patch:
        patch.setattr(triples, "pick", None)
        assert triples.prepare(trial(), folder, tmp_path / "cache") == first
    os.truncate(first.folder / "train.arrow", 50)
    healed = triples.prepare(trial(), folder, tmp_path / "cache")
    assert healed.train().to_pylist() == expected
    assert healed.manifest == first.manifest


def test_rows_are_mapped_not_loaded(tmp_path: Path) -> None:
    sample = triples.prepare(trial(), write_folder(tmp_path / "set"), tmp_path / "cache")
    before = pa.total_allocated_bytes()
    table = sample.train()
    assert pa.total_allocated_bytes() == before
    assert len(table) == 4


def edit(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


BAD = {
    "no collection": (
        lambda folder: (folder / "collection.tsv").unlink(),
        r"lacks collection\.tsv .*A folder of this train set has",
    ),
    "no positives key": (
        edit("msmarco-hard-negatives.jsonl", '{"qid": 1, "neg": {}}'),
        r"negatives\.jsonl, line 1: expected \{\"qid\": 1, .*KeyError\('pos'\)",
    ),
    "id is no number": (
        edit("msmarco-hard-negatives.jsonl", '{"qid": "x", "pos": [], "neg": {}}'),
        r"line 1: expected .*whole numbers as ids .*'x'",
    ),
    "scored positives": (
        edit("msmarco-hard-negatives.jsonl", '{"qid": 1, "pos": [{"pid": 3}], "neg": {}}'),
        r"line 1: expected .*TypeError",
    ),
    "three columns": (
        edit("collection.tsv", "10\ta\tb\n"),
        r"collection\.tsv, line 1: 3 tab-separated fields, expected id, text; found '10\\ta\\tb'",
    ),
    "passage id": (edit("collection.tsv", "D10\ta\n"), r"line 1: 'D10' where a whole number"),
    "passages missing": (
        edit("collection.tsv", "10\ta\n11\tb\n"),
        r"collection\.tsv lacks \d+ of the ids that msmarco-hard-negatives\.jsonl names: ",
    ),
    "queries missing": (
        edit("queries.train.tsv", "1\tone\n"),
        r"queries\.train\.tsv lacks 4 of the ids .*: 3, 4, 5, 6; both must be of one set",
    ),
    "qrels in BEIR's form": (
        edit("qrels.train.tsv", "query-id\tcorpus-id\tscore\n"),
        r"qrels\.train\.tsv, line 1: 3 tab-separated fields, expected qid, 0, pid, relevance",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(tmp_path: Path, case: str) -> None:
    damage, text = BAD[case]
    folder = write_folder(tmp_path / "set")
    damage(folder)
    with pytest.raises(DataError, match=text):
        triples.prepare(trial(), folder, tmp_path / "cache")


def test_too_few_usable_rows_says_how_many_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"has 4 usable rows of 6 \(1 without a query or a positive, 1 with fewer than 2 "
        r"negatives left\), but samples = 4 and held_out = 1 need 5; samples can be at most 3",
    ):
        triples.prepare(trial(negatives=2), write_folder(tmp_path / "set"), tmp_path / "cache")


def test_unknown_mining_system(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"unknown mining system 'bm52'; known: bm25, dense\. Did"):
        triples.prepare(
            trial(negative_systems=("bm52",)), write_folder(tmp_path / "set"), tmp_path / "cache"
        )


# Sampling alone.

MANY = [
    Row(query, [query + 1000], {"x": list(range(query, query + 50))}, frozenset({query + 1}))
    for query in range(500)
]


def test_a_smaller_sample_is_the_head_of_a_larger_one() -> None:
    small, large = (pick(MANY, trial(samples=n, held_out=20, negatives=3)) for n in (100, 400))
    assert (large.train[:100] == small.train).all()
    assert (large.held_out == small.held_out).all()
    assert not set(large.train[:, 0]) & set(large.held_out[:, 0])


def test_seeds_pick_other_rows_and_draws() -> None:
    one, two = (pick(MANY, trial(samples=100, sample_seed=seed)) for seed in (1, 2))
    assert (one.train[:, 0] != two.train[:, 0]).any()
    shared = set(one.train[:, 0]) & set(two.train[:, 0])
    draws = [{row[0]: row[2] for row in picked.train} for picked in (one, two)]
    assert any(draws[0][query] != draws[1][query] for query in shared)


def test_draws_are_even() -> None:
    """Each of 49 places is drawn by a share of 6 / 49 of 500 rows: 61 times, sd 7.3."""
    picked = pick(MANY, trial(samples=500, held_out=0, negatives=6))
    places = (picked.train[:, 2:] - picked.train[:, :1]).ravel()
    counts = np.bincount(places, minlength=50)
    # Place 1 is relevant by Row.relevant.
    assert counts[1] == 0
    assert abs(np.delete(counts, 1) - 500 * 6 / 49).max() < 5 * 7.3


def test_a_generator_of_its_own_for_each_key() -> None:
    first = {seeded(*key).integers(2**62) for key in ((1, 23), (12, 3), (1, "row", 23))}
    assert len(first) == 3
    assert seeded(42, "order").integers(2**62) == seeded(42, "order").integers(2**62)


# The docstrings' train set, on a pool as data/docstrings.py writes it.


@pytest.fixture
def pool(tmp_path: Path, monkeypatch) -> list[dict[str, str]]:
    ids = [f"lib/a.py:f{i}" for i in range(4)] + ["lib/b.py:g"] + ["lib/c.py:h1", "lib/c.py:h2"]
    rows = [{"id": name, "query": f"{name} query", "document": f"{name} rest"} for name in ids]
    file = tmp_path / "train.parquet"
    triples.pq.write_table(pa.Table.from_pylist(rows), file)
    monkeypatch.setattr(docstrings, "train_file", lambda cache: file)
    return rows


def test_hard_negatives_come_from_the_same_file(tmp_path: Path, pool) -> None:
    sample = triples.prepare(
        trial(train_set="docstrings", samples=7, held_out=0), None, tmp_path / "cache"
    )
    rows = sample.train().to_pylist()
    assert sorted(row["query"] for row in rows) == [row["query"] for row in pool]
    for row in rows:
        own = row["query"].split()[0]
        other = row["negative_1"].split()[0]
        assert row["positive"] == f"{own} rest"
        assert other != own
        # b.py has no other docstring, so its negative comes from a neighbouring file.
        assert own == "lib/b.py:g" or other.partition(":")[0] == own.partition(":")[0]
    assert sample.manifest["systems"] == {"file": 4 * 3 + 2 * 1, "neighbours": 6}


def test_docstrings_take_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="take docstrings out of paths"):
        triples.prepare(trial(train_set="docstrings"), tmp_path, tmp_path / "cache")
