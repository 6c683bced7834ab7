"""BM25 against Lucene's formula by hand, against bm25s over the whole corpus, and in a study."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import pandas as pd
import pytest
import Stemmer

from analysis.anchors import anchors
from ray_ablation import bm25, frames, metrics
from ray_ablation import grid as grids
from ray_ablation.atomic import read_frame, write_frame
from ray_ablation.data import beir
from ray_ablation.data.beir import BENCHMARKS, Benchmark, Prepared, prepare
from ray_ablation.evaluate import evaluate
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.problems import Failure, GridError
from ray_ablation.settings import Bm25
from test_evaluate import write_benchmark

DOCUMENTS = {
    "d1": "The cats of the harbour sleep in the harbour.",
    "d2": "A cat sleeping",
    "d3": "",
    "d4": "Ships sail from one harbour to another harbour, and to the next harbour.",
    "d5": "Dogs bark; the dog of the captain barks at ships.",
    "d6": "a cat sleeping",
}
QUERIES = {"q1": "sleeping cats", "q2": "harbour harbour ship", "q3": "unheard-of zeppelins"}
QRELS = {"q1": {"d2": 2, "d1": 1}, "q2": {"d4": 1}, "q3": {"d5": 1}}
# What the English Snowball stemmer makes of them, stop words left out.
STEMS = {
    "d1": "cat harbour sleep harbour",
    "d2": "cat sleep",
    "d3": "",
    "d4": "ship sail from one harbour anoth harbour next harbour",
    "d5": "dog bark dog captain bark ship",
    "d6": "cat sleep",
}
ASKED = {"q1": "sleep cat", "q2": "harbour harbour ship", "q3": "unheard zeppelin"}


def lucene(k1: float, b: float, query: str, document: str) -> float:
    """A sum over the words of the query, repeated ones included."""
    words = {doc_id: text.split() for doc_id, text in STEMS.items()}
    average = sum(map(len, words.values())) / len(words)
    score = 0.0
    for term in ASKED[query].split():
        df = sum(term in found for found in words.values())
        idf = math.log(1 + (len(words) - df + 0.5) / (df + 0.5))
        if tf := words[document].count(term):
            score += idf * tf / (tf + k1 * (1 - b + b * len(words[document]) / average))
    return score


def prepared(folder: Path, documents: dict[str, str] = DOCUMENTS) -> Prepared:
    if not (folder / "mine").exists():
        write_benchmark(folder / "mine", documents, QUERIES, QRELS)
    return prepare(Benchmark(name="mine"), folder / "mine", folder / "cache")


def cut_small(monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    monkeypatch.setattr(beir, "GROUP_DOCUMENTS", group)
    monkeypatch.setattr(beir, "SHARD_DOCUMENTS", 2 * group)


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (2.0, 0.0), (0.5, 1.0)])
@pytest.mark.parametrize("group", [1, 2, 5000])
def test_scores_are_lucenes_however_the_corpus_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, k1: float, b: float, group: int
) -> None:
    cut_small(monkeypatch, group)
    run = bm25.search(Bm25(k1=k1, b=b), prepared(tmp_path), 6)
    for query_id in QUERIES:
        scores = {doc_id: lucene(k1, b, query_id, doc_id) for doc_id in DOCUMENTS}
        positive = {doc_id: score for doc_id, score in scores.items() if score > 0}
        assert run[query_id] == pytest.approx(positive, abs=1e-5)
        assert list(run[query_id]) == metrics.ranking(run[query_id])
    assert run["q3"] == {}
    # Equal texts tie, also from different parts, and the larger id comes first.
    assert run["q1"]["d6"] == run["q1"]["d2"]
    assert list(run["q1"])[:2] == ["d6", "d2"]


def random_corpus() -> dict[str, str]:
    rng = np.random.default_rng(3)
    words = ["harbour", "ships", "sailing", "cats", "sleep", *(f"word{i}s" for i in range(60))]
    weights = 1 / np.arange(1, len(words) + 1)
    sizes = rng.integers(0, 40, 300)
    return {
        f"{i}": " ".join(rng.choice(words, size, p=weights / weights.sum()))
        for i, size in enumerate(sizes)
    }


@pytest.mark.parametrize("reference", [Bm25(), Bm25(k1=1.2, stemmer=None, stopwords=None)])
def test_parts_score_as_bm25s_over_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: Bm25
) -> None:
    cut_small(monkeypatch, 17)
    documents = random_corpus()
    run = bm25.search(reference, prepared(tmp_path, documents), 20)
    stemmer = Stemmer.Stemmer("english") if reference.stemmer else None

    def words(texts: Any) -> Any:
        found = list(texts)
        options = {"stopwords": reference.stopwords, "stemmer": stemmer, "show_progress": False}
        return bm25s.tokenize(found, return_ids=False, **options)

    index = bm25s.BM25(k1=reference.k1, b=reference.b, method="lucene")
    index.index(words(documents.values()), show_progress=False)
    for query_id, text in QUERIES.items():
        (asked,) = words([text])
        scores = index.get_scores_from_ids(index.get_tokens_ids(asked))
        expected = np.sort(scores[scores > 0])[::-1][:20]
        np.testing.assert_allclose(list(run[query_id].values()), expected, atol=1e-5)
        for doc_id, score in run[query_id].items():
            assert score == pytest.approx(scores[int(doc_id)], abs=1e-5)
    assert len(run["q2"]) == 20


def test_what_cuts_words_is_lucenes_list() -> None:
    (words,) = bm25._words(Bm25(), ["The cat is not in their boxes, x 42"])
    assert words == ["cat", "box", "42"]
    (words,) = bm25._words(Bm25(stemmer=None, stopwords=None), ["The boxes"])
    assert words == ["the", "boxes"]


# In a study


def write_grid(folder: Path, reference: str = "bm25", more: str = "evaluation: {k: 5}") -> Grid:
    file = folder / "grid.yaml"
    file.write_text(
        "name: small\naxes: {depth: [1]}\nfixed: {backbone: tiny, steps: 0}\nbenchmarks: [mine]\n"
        f"measures: [nDCG@3, R@5]\nreference: [{reference}]\n{more}\n"
        f"paths: {{mine: {folder / 'mine'}}}\n"
    )
    return grids.load(file, here=False)


def score(grid: Grid, ledger: Ledger) -> tuple[list[Failure], list[str]]:
    lines: list[str] = []
    found = evaluate(grid, [], ledger, benchmarks=grid.benchmarks, say=lines.append)
    return found, lines


@pytest.fixture
def study(tmp_path: Path) -> tuple[Path, Grid, Ledger]:
    prepared(tmp_path)
    return tmp_path, write_grid(tmp_path), Ledger(tmp_path / "results")


def test_a_reference_is_scored_once_and_redone_when_damaged(study: Any) -> None:
    folder, grid, ledger = study
    failures, lines = score(grid, ledger)
    assert failures == []
    # q1: gains 0, 2, 1 found, 2, 1 ideal; q2 finds its document first; q3 finds nothing.
    gains = 2 / math.log2(3) + 1 / math.log2(4)
    mean = (gains / (2 + 1 / math.log2(3)) + 1 + 0) / 3
    assert len(lines) == 1
    assert re.fullmatch(
        rf"scored BM25 \(k1 0\.9, b 0\.4\) on mine: nDCG@3 {mean:.4f} \(6 documents, \d\.\d s\)",
        lines[0],
    )
    (reference,) = grid.references
    scores = ledger.reference_scores_parquet(reference.id, "mine")
    run = ledger.reference_run_trec(reference.id, "mine")
    assert scores.parent.parent == ledger.root / "references" / reference.id
    before = scores.read_bytes(), run.read_bytes()
    assert score(grid, ledger) == ([], [])
    assert (scores.read_bytes(), run.read_bytes()) == before
    for file in (scores, run):
        os.truncate(file, 40)
        assert len(score(grid, ledger)[1]) == 1
        assert run.read_bytes() == before[1]
    assert len(score(write_grid(folder, more="evaluation: {k: 6}"), ledger)[1]) == 1
    with (folder / "mine" / "corpus.jsonl").open("a") as file:
        file.write('\n{"_id": "d7", "text": "cat"}\n')
    assert "(7 documents" in score(write_grid(folder), ledger)[1][0]


def test_the_record_names_every_setting(study: Any) -> None:
    _, grid, ledger = study
    score(grid, ledger)
    (reference,) = grid.references
    found = read_frame(ledger.reference_scores_parquet(reference.id, "mine"))
    assert found is not None
    assert found[1]["what"]["reference"] == {
        "name": "bm25",
        "method": "lucene",
        "k1": 0.9,
        "b": 0.4,
        "stemmer": "english",
        "stopwords": "english",
    }
    assert found[1]["versions"].keys() == {"bm25s", "PyStemmer"}
    assert (found[1]["queries"], found[1]["queries_without_match"]) == (3, 1)
    assert found[0]["R@5"].tolist() == [1.0, 1.0, 0.0]


def test_the_frame_has_a_row_a_value_and_nulls_for_what_is_missing(study: Any) -> None:
    folder, _, ledger = study
    grid = write_grid(folder, "bm25, {name: bm25, k1: 1.2, b: 0.75, stemmer: null}")
    empty = frames.references_frame(grid, ledger)
    assert len(empty) == 2 * 2 * 2
    assert empty["value"].isna().all()
    score(grid, ledger)
    frame = frames.references_frame(grid, ledger)
    columns = ["reference", "benchmark", "measure", "value", "n_queries", "source"]
    assert frame.columns.tolist() == columns
    labels = ["BM25 (k1 0.9, b 0.4)", "BM25 (k1 1.2, b 0.75, no stemmer)"]
    assert frame["reference"].unique().tolist() == labels
    assert set(frame["source"]) == {"scored here"}
    for reference in grid.references:
        stored = pd.read_parquet(ledger.reference_scores_parquet(reference.id, "mine"))
        own = frame[frame["reference"] == reference.label].set_index(["benchmark", "measure"])
        for measure in grid.measures:
            assert own.loc[("mine", measure), "value"] == stored[measure].mean()
            assert own.loc[("mine", measure), "n_queries"] == 3
            assert own.loc[("mean", measure), "value"] == stored[measure].mean()
    other = frames.references_frame(write_grid(folder, more="evaluation: {k: 6}"), ledger)
    assert other["value"].isna().all()


def test_a_group_has_a_row_of_its_own(tmp_path: Path) -> None:
    text = write_grid(tmp_path).text.replace("[mine]", "[cqadupstack]")
    (tmp_path / "group.yaml").write_text(text)
    grid, ledger = grids.load(tmp_path / "group.yaml", here=False), Ledger(tmp_path / "results")
    (reference,) = grid.references
    for i, benchmark in enumerate(grid.benchmarks):
        what = {"split": benchmark.split, "self_ids": benchmark.self_ids, "k": 5}
        scores = pd.DataFrame({"query_id": ["q"], "nDCG@3": [i / 10], "R@5": [1.0]})
        write_frame(
            ledger.reference_scores_parquet(reference.id, benchmark.name), scores, {"what": what}
        )
    frame = frames.references_frame(grid, ledger).set_index(["benchmark", "measure"])["value"]
    assert len(frame) == 2 * (12 + 2)
    for name in ("cqadupstack", "mean"):
        assert frame[name, "nDCG@3"] == pytest.approx(sum(range(12)) / 120)


def test_a_failing_reference_has_a_name_and_the_others_go_on(
    study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, ledger = study
    grid = write_grid(folder, "{name: bm25, k1: 1.2}, bm25")
    search = bm25.search

    def fail_once(reference: Bm25, *others: Any) -> Any:
        if reference.k1 == 1.2:
            raise MemoryError("no room")
        return search(reference, *others)

    monkeypatch.setattr(bm25, "search", fail_once)
    failures, lines = score(grid, ledger)
    assert failures == [Failure(f"{grid.references[0].id} / mine", "MemoryError: no room")]
    assert lines[0].startswith("scored BM25 (k1 0.9, b 0.4) on mine")


def test_the_benchmarks_rule_on_own_ids_holds(tmp_path: Path) -> None:
    documents = {"q1": "sleeping cats", **DOCUMENTS}
    write_benchmark(tmp_path / "mine", documents, QUERIES, QRELS)
    found = {}
    for name in ("fiqa", "arguana"):
        text = (
            write_grid(tmp_path).text.replace("mine: ", f"{name}: ").replace("[mine]", f"[{name}]")
        )
        (tmp_path / "own.yaml").write_text(text)
        grid, ledger = grids.load(tmp_path / "own.yaml", here=False), Ledger(tmp_path / name)
        score(grid, ledger)
        key = grid.references[0].id, name
        run = metrics.from_trec(ledger.reference_run_trec(*key).read_bytes())
        about = read_frame(ledger.reference_scores_parquet(*key))[1]
        found[name] = about["self_ids_dropped"], list(run["q1"])
    # d1 has the words of q1 among others; d6 and d2 have those of the document q1 and no more.
    assert found == {"fiqa": (0, ["q1", "d6", "d2", "d1"]), "arguana": (1, ["d6", "d2", "d1"])}


BAD = {
    "bm52": r"reference\[0\]: 'bm52'; unknown reference 'bm52'; known: bm25\. Did you mean 'bm25'",
    "{name: tfidf}": r"reference\[0\]: .*; unknown reference 'tfidf'; known: bm25\.$",
    "{name: bm25, k: 2}": r"reference\[0\]\.k: unknown key 'k'; known: b, k1, name, ",
    "{name: bm25, b: 1.5}": r"reference\[0\]\.b: 1\.5; it should be less than or equal to 1",
    "{name: bm25, k1: 0}": r"reference\[0\]\.k1: 0.*; it should be greater than 0",
    "{name: bm25, stemmer: german}": r"reference\[0\]\.stemmer.*: 'german'; it should be 'english'",
    "bm25, {k1: 0.9, name: bm25}": r"reference: .*; BM25 \(k1 0\.9, b 0\.4\) stands there twice",
}


@pytest.mark.parametrize("written", BAD)
def test_bad_references_are_named(tmp_path: Path, written: str) -> None:
    with pytest.raises(GridError) as error:
        write_grid(tmp_path, written)
    assert re.search(BAD[written], str(error.value), re.MULTILINE), error.value


def test_neither_ray_nor_torch_is_needed(study: Any) -> None:
    folder, _, _ = study
    script = (
        "import sys; from pathlib import Path; from ray_ablation import grid\n"
        "from ray_ablation.evaluate import evaluate; from ray_ablation.ledger import Ledger\n"
        f"g = grid.load({str(folder / 'grid.yaml')!r}, here=False)\n"
        f"evaluate(g, [], Ledger(Path({str(folder / 'r')!r})), benchmarks=g.benchmarks)\n"
        "print([name for name in ('ray', 'torch', 'transformers') if name in sys.modules])"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True)
    assert done.stdout.startswith("scored BM25 (k1 0.9, b 0.4) on mine"), done.stderr
    assert done.stdout.endswith("[]\n")
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.skipif("SCIFACT" not in os.environ, reason="SCIFACT names no BEIR folder")
@pytest.mark.parametrize(("k1", "b", "published"), [(0.9, 0.4, 0.676), (1.2, 0.75, 0.679)])
def test_scifact_is_what_others_find(tmp_path: Path, k1: float, b: float, published: float) -> None:
    one = prepare(BENCHMARKS["scifact"], Path(os.environ["SCIFACT"]), tmp_path)
    run = bm25.search(Bm25(k1=k1, b=b), one, 101)
    scores = metrics.score(run, one.qrels(), ["nDCG@10"])
    assert scores["nDCG@10"].mean() == pytest.approx(published, abs=5e-4)


def test_anchors_are_of_known_benchmarks_and_cover_beir() -> None:
    found = anchors()
    assert found.columns.tolist() == ["benchmark", "measure", "value", "source"]
    assert not found.duplicated(["benchmark", "measure"]).any()
    # MS MARCO and the 18 others of the paper, in which CQADupStack is one.
    ours = {name for name in BENCHMARKS if not name.startswith(("docstrings-", "cqadupstack"))}
    assert set(found["benchmark"]) == ours | {"cqadupstack"}
    assert len(found) == 19
    assert found["value"].between(0.1, 0.8).all()
