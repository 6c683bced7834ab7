"""Pairs of anybody: the same rows in each form and from each place; roles by name, not by order."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

from hub_server import serving
from ray_ablation import run
from ray_ablation.data import triples
from ray_ablation.data.files import DataError
from ray_ablation.data.sources import Hub, Source, Url
from ray_ablation.trial import Trial
from tiny import WORDS, benchmark, tiny_bert

# Positive stands before the query, on purpose.
ROWS: list[dict[str, Any]] = [
    {"positive": "passage 1", "query": "query 1", "negative": "other 1"},
    {"positive": "", "query": "query 2", "negative": "other 2"},
    {"positive": "passage 3", "query": " \n", "negative": "other 3"},
    {"positive": " passage 4 ", "query": "query 4", "negative": "passage 4"},  # none is left
    {"positive": "passage 5", "query": "query 5", "negative": "other 5"},
    {"positive": "passage 6", "query": "query 6", "negative": None},
    # By the next row, passage 7b is relevant to query 7.
    {"positive": "passage 7", "query": "query 7", "negative": "passage 7b"},
    {"positive": "passage 7b", "query": "query 7", "negative": "other 7"},
]
SAMPLE = {
    ("query 1", "passage 1", "other 1"),
    ("query 5", "passage 5", "other 5"),
    ("query 7", "passage 7b", "other 7"),
}
NQ = [{"answer": f"answer {i}", "query": f"query {i}"} for i in range(6)]


def trial(**fields: Any) -> Trial:
    return Trial(**{"depth": 1, "train_set": "mine", "samples": 3, "held_out": 0} | fields)


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def prepare(tmp_path: Path, source: Source | None, **fields: Any) -> triples.Sample:
    return triples.prepare(trial(**fields), source, tmp_path / "cache")


def sampled(sample: triples.Sample) -> list[tuple[str, ...]]:
    return [tuple(row.values()) for row in sample.train().to_pylist()]


FORMS = {"jsonl": jsonl(ROWS), "jsonl.gz": gzip.compress(jsonl(ROWS)), "parquet": parquet(ROWS)}


@pytest.mark.parametrize("form", FORMS)
def test_the_sample_worked_by_hand(tmp_path: Path, form: str) -> None:
    sample = prepare(tmp_path, write(tmp_path / f"mine.{form}", FORMS[form]))
    assert set(sampled(sample)) == SAMPLE
    assert sample.train().column_names == ["query", "positive", "negative_1"]
    assert sample.manifest["counts"] == {
        "rows": 8,
        "rows_without_query": 1,
        "rows_without_positive": 1,
        "negatives_listed": 5,
        "negatives_dropped_as_relevant": 2,
        "rows_with_too_few_negatives": 3,
        "usable_rows": 3,
        "held_out_rows": 0,
        "sampled_rows": 3,
        "repeated_queries": 0,
        "repeated_positives": 0,
        "held_out_positives_in_train": 0,
        "empty_texts": 0,
    }
    assert sample.manifest["systems"] == {"negative": 7}


def test_the_form_and_the_split_into_files_change_no_row(tmp_path: Path) -> None:
    made = [prepare(tmp_path, write(tmp_path / f"one.{form}", FORMS[form])) for form in FORMS]
    write(tmp_path / "several" / "train-0.jsonl", jsonl(ROWS[:3]))
    write(tmp_path / "several" / "train-1.parquet", parquet(ROWS[3:]))
    write(tmp_path / "several" / "test-0.jsonl", jsonl(NQ))
    made.append(prepare(tmp_path, tmp_path / "several"))
    assert len({sample.manifest["sha256"] for sample in made}) == 1
    assert set(made[-1].manifest["inputs"]) == {"train-0.jsonl", "train-1.parquet"}


def test_pairs_need_no_negatives(tmp_path: Path) -> None:
    source = write(tmp_path / "nq.jsonl", jsonl(NQ))
    sample = prepare(tmp_path, source, negatives=0, samples=4, held_out=2)
    rows = sampled(sample) + [tuple(row.values()) for row in sample.held_out().to_pylist()]
    assert sorted(rows) == [(f"query {i}", f"answer {i}") for i in range(6)]
    with pytest.raises(
        DataError, match=r"'mine' lists no negatives, but negatives = 1; set negatives: 0 to train"
    ):
        prepare(tmp_path, source)


def test_negatives_of_each_column_are_drawn(tmp_path: Path) -> None:
    row = {"query": "q", "positive": "p", "negatives": ["a", "b", "", None]}
    row |= {"negative": "c", "negative_1": "d", "negative_2": "e"}
    source = write(tmp_path / "mine.jsonl", jsonl([row]))
    ((_, _, *drawn),) = sampled(prepare(tmp_path, source, samples=1, negatives=5))
    assert sorted(drawn) == ["a", "b", "c", "d", "e"]
    only = {"negative_systems": ("negatives", "negative_2"), "samples": 1, "negatives": 3}
    ((_, _, *drawn),) = sampled(prepare(tmp_path, source, **only))
    assert sorted(drawn) == ["a", "b", "e"]


def test_a_name_may_hold_what_a_folder_may_not(tmp_path: Path) -> None:
    source = write(tmp_path / "nq.jsonl", jsonl(NQ))
    sample = prepare(tmp_path, source, train_set="../a/b", negatives=0)
    assert sample.folder.parent == tmp_path / "cache" / "triples"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with serving() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        yield running


def test_a_file_behind_a_url(tmp_path: Path, server) -> None:
    server.files["/sets/mine.jsonl.gz"] = FORMS["jsonl.gz"]
    source = Url(f"{server.url}/sets/mine.jsonl.gz")
    assert set(sampled(prepare(tmp_path, source))) == SAMPLE
    prepare(tmp_path, source)
    assert server.got == {"/sets/mine.jsonl.gz": 1}


HUBS = {
    "whole": Hub("me/sets", None, "pair"),
    "file": Hub("me/sets", None, "pair/train-00000-of-00002.parquet"),
    "pinned": Hub("me/sets", "main", "pair"),
}


@pytest.mark.parametrize("case", HUBS)
def test_a_data_set_of_the_hub(tmp_path: Path, server, case: str) -> None:
    server.add_hub(
        "me/sets",
        {
            "README.md": b"#",
            "pair/train-00000-of-00002.parquet": parquet(NQ[:3]),
            "pair/train-00001-of-00002.parquet": parquet(NQ[3:]),
            "pair/test-00000-of-00001.parquet": parquet(ROWS),
            "triplet/train-00000-of-00001.parquet": parquet(ROWS),
        },
    )
    expected = 3 if case == "file" else 6
    sample = prepare(tmp_path, HUBS[case], negatives=0, samples=expected)
    assert sorted(sampled(sample)) == [(f"query {i}", f"answer {i}") for i in range(expected)]
    before = server.got.copy()
    prepare(tmp_path, HUBS[case], negatives=0, samples=expected)
    assert server.got == before
    with pytest.raises(
        DataError, match=r"holds files in several folders: pair, triplet; .*datasets/me/sets/trip"
    ):
        prepare(tmp_path, Hub("me/sets"))


GOOD = {"query": "q", "positive": "p"}
BAD = {
    "no query": (
        jsonl([{"text": "q", "positive": "p"}]),
        r"mine\.jsonl: no column is the query; it has the columns text, positive\. Call it query "
        r"\(anchor or question will do\)",
    ),
    "two positives": (
        jsonl([{"query": "q", "answer": "a", "document": "d"}]),
        r"answer and document may both be the positive; it has the columns query, answer, document",
    ),
    "a later line": (jsonl([GOOD, {"query": "q"}]), r"no column is the positive; .* query\. Call"),
    "a number": (jsonl([GOOD, {"query": 7, "positive": "p"}]), r"line 2: query is 7, where a text"),
    "half a pair": (
        b'{"query": "q", "positive": "\\ud83d x"}\n',
        r"mine\.jsonl, line 1: positive holds a NUL or half a surrogate pair; mend the text",
    ),
    "a nul": (jsonl([GOOD, GOOD | {"negatives": ["n", "a\0b"]}]), r"line 2: negatives holds a NUL"),
    "no line": (b"", r"has 0 usable rows of 0 .*samples = 3"),
    "not JSON": (b"query\tpositive\n", r"mine\.jsonl, line 1: not JSON"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named(tmp_path: Path, case: str) -> None:
    content, text = BAD[case]
    with pytest.raises(DataError, match=text):
        prepare(tmp_path, write(tmp_path / "mine.jsonl", content), negatives=0)


def test_a_parquet_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mine\.parquet cannot be read after row 0: .*Parquet"):
        prepare(tmp_path, write(tmp_path / "mine.parquet", b"PAR1 and more"))
    rows = [GOOD, {"query": "a\0b", "positive": "p"}]
    with pytest.raises(DataError, match=r"mine\.parquet, row 2: query holds a NUL"):
        prepare(tmp_path, write(tmp_path / "mine.parquet", parquet(rows)), negatives=0)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere is not there; a file or folder of them holds \{"):
        prepare(tmp_path, tmp_path / "nowhere")
    write(tmp_path / "set" / "mine.csv", b"query,positive\n")
    with pytest.raises(DataError, match=r"set holds no \.jsonl, .*; it holds mine\.csv\. One"):
        prepare(tmp_path, tmp_path / "set")
    with pytest.raises(DataError, match=r"http://x/mine\.zip holds no \.jsonl, .*; it holds mine"):
        prepare(tmp_path, Url("http://x/mine.zip"))
    with pytest.raises(DataError, match=r"say in the grid where they lie: paths: \{pairs: /file"):
        prepare(tmp_path, None, train_set="pairs")


GRID = """
name: own
axes: {depth: [2]}
fixed: {backbone: tiny, train_set: mine, samples: 20, held_out: 4, negatives: 0, batch: 4,
        steps: 2, max_length: 8, precision: fp32}
benchmarks: [words]
measures: [nDCG@10]
latency: null
execution: {device: cpu}
paths: {tiny: ./tiny, mine: ./mine.jsonl, words: ./words}
"""


def test_a_study_trains_on_pairs_of_ones_own(tmp_path, monkeypatch, capsys, caplog) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_bert(tmp_path / "tiny", layers=2)
    benchmark(tmp_path / "words")
    # Every second positive has more than the six words that stand between [CLS] and [SEP].
    rows = [{"query": WORDS[i], "positive": " ".join(WORDS[i : i + 3])} for i in range(24)]
    for row in rows[::2]:
        row["positive"] += " and" * 6
    write(tmp_path / "mine.jsonl", jsonl([*rows, {"query": "", "positive": "p"}]))
    Path("own.yaml").write_text(GRID)
    assert run.main(["own.yaml", "--local", "--phase", "train"]) == 0
    told = capsys.readouterr().out
    assert (
        "train set mine: 20 rows with 0 negatives each, 4 held out, of 24 usable of 25 "
        "(1 rows without query); sample "
    ) in told
    assert "truncated" not in told
    (record,) = (json.loads(p.read_text()) for p in Path("results/trials").glob("*/trial.json"))
    cut = record["data"]["truncated"]
    assert cut["query"] == 0
    assert 8 / 20 <= cut["positive"] <= 12 / 20  # four of the 24 are held out
    line = f"truncated at 8 tokens: query 0.0 %, positive {100 * cut['positive']:.1f} %"
    assert line in caplog.messages
    assert run.main(["own.yaml", "--local", "--phase", "train"]) == 0
    assert f"train set mine: {line}" in capsys.readouterr().out
    Path("own.yaml").write_text(GRID.replace("mine: ./mine.jsonl, ", ""))
    assert run.main(["own.yaml", "--local"]) == 2
    error = capsys.readouterr().err
    assert "unknown train set 'mine'" in error
    assert "or give pairs of your own: paths: {mine: ./pairs.jsonl}" in error
