import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from beir.datasets.data_loader import GenericDataLoader

from ray_ablation.data import beir, docstrings
from ray_ablation.data.docstrings import Library
from ray_ablation.data.files import DataError

FRUITS = ["apple", "banana", "cherry", "damson", "elder", "fig", "grape", "hazel", "iris", "kiwi"]

SCRIPT = '''
"""The module's own docstring is long enough, but a module is no definition of this kind.

It is left out, however many words there are in it, and there are many indeed here.
"""
raise RuntimeError("nothing may be imported")

def short():
    """Two words.

    The summary of this one has too few words to stand for a question of any kind.
    """

def one_line():
    """There is nothing below this summary line."""

def boilerplate():
    """See the base class for details.

    The summary names no content of its own, so it is not a question at all, is it.
    """

class Basket:
    """Hold fruits in a basket. Order is kept,
    and repeats are allowed.

    A basket is never full; whoever carries it will know when it becomes too heavy.
    """

    @property
    def weight(self):
        """Return the weight of everything inside.

        The getter's text, which counts the basket itself and all of the fruits in it.
        """

    @weight.setter
    def weight(self, value):
        """Change the weight of everything inside.

        The setter's text, which stands later in the file under the same qualified name.
        """
'''


def definition(name: str, summary: str, rest: str) -> str:
    return f'def {name}():\n    """{summary}\n\n    {rest}\n    """\n'


def sentence(word: str, count: int = 12) -> str:
    return " ".join(f"{word}{'abcdefghijklm'[i]}x" for i in range(count))


def write_library(root: Path, name: str, fruits: list[str]) -> None:
    (root / name / "inner").mkdir(parents=True)
    (root / name / "tests").mkdir()
    (root / name / "__init__.py").write_text("raise RuntimeError('nothing may be imported')")
    (root / name / "broken.py").write_text("def broken(:")
    texts = [
        definition(fruit, f"Peel one {fruit} for {name}.", sentence(name + fruit))
        for fruit in fruits
    ]
    (root / name / "inner" / "fruits.py").write_text("\n".join(texts))
    (root / name / "tests" / "test.py").write_text(
        definition("t", "Test that peeling works well.", sentence("test"))
    )


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch) -> Path:
    """Two libraries to train on and two to score on, none of which can be imported."""
    root = tmp_path / "site"
    names = ["trainone", "traintwo", "scoreone", "scoretwo"]
    for name in names:
        write_library(root, name, FRUITS)
    (root / "scoreone" / "basket.py").write_text(SCRIPT)
    # Two texts that training has seen, one as a query and one as a document, spelt another way.
    (root / "scoreone" / "leak.py").write_text(
        definition("a", "PEEL one `fig`, for TrainOne!", sentence("unseen"))
        + definition("b", "Something that was never seen.", sentence("trainonefig").upper())
        + definition("c", "Peel one fig for scoreone.", sentence("again"))
    )
    monkeypatch.syspath_prepend(root)
    monkeypatch.setattr(docstrings, "TRAIN", (Library("trainone"), Library("traintwo")))
    scored = {f"docstrings-{name}": Library(name) for name in ("scoreone", "scoretwo")}
    monkeypatch.setattr(docstrings, "BENCHMARKS", scored)
    return root


def load(folder: Path) -> tuple[dict, dict, dict]:
    return GenericDataLoader(str(folder)).load(split="test")


def test_a_benchmark_holds_each_usable_docstring(libraries: Path, tmp_path: Path) -> None:
    folder = docstrings.benchmark_folder("docstrings-scoreone", tmp_path / "cache")
    corpus, queries, qrels = load(folder)
    fruits = {f"scoreone/inner/fruits.py:{fruit}" for fruit in FRUITS}
    own = {"scoreone/basket.py:Basket", "scoreone/basket.py:Basket.weight"}
    assert set(corpus) == fruits | own
    basket = "scoreone/basket.py:Basket"
    assert queries[f"q-{basket}"] == "Hold fruits in a basket."
    assert corpus[basket] == {
        "title": "",
        "text": "Order is kept, and repeats are allowed.\n\nA basket is never full; whoever "
        "carries it will know when it becomes too heavy.",
    }
    assert queries[f"q-{basket}.weight"].startswith("Return the weight")
    assert qrels == {f"q-{doc_id}": {doc_id: 1} for doc_id in corpus}
    assert not set(queries) & set(corpus)


def test_nothing_trained_on_is_scored(libraries: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    folder = docstrings.benchmark_folder("docstrings-scoreone", cache)
    about = json.loads((folder.parent / "about.json").read_text())
    # The query of `a`, the document of `b`; `c` repeats a query of its own library.
    assert about["benchmarks"]["docstrings-scoreone"] == {
        "usable": len(FRUITS) + 2 + 3,
        "in_train_set": 2,
        "repeated": 1,
        "documents": len(FRUITS) + 2,
    }
    assert about["libraries"]["trainone"] == {
        "files": 3,
        "unreadable": 1,
        "docstrings": len(FRUITS),
        "usable": len(FRUITS),
    }
    assert about["train"] == {"usable": 2 * len(FRUITS), "repeated": 0, "pairs": 2 * len(FRUITS)}
    pool = pq.read_table(docstrings.train_file(cache)).to_pylist()
    assert [row["id"] for row in pool] == sorted(row["id"] for row in pool)
    trained = {docstrings.normal(row[key]) for row in pool for key in ("query", "document")}
    for name in docstrings.BENCHMARKS:
        corpus, queries, _ = load(docstrings.benchmark_folder(name, cache))
        texts = [document["text"] for document in corpus.values()] + list(queries.values())
        assert not trained & {docstrings.normal(text) for text in texts}


def test_a_cap_chooses_by_hash(libraries: Path, tmp_path: Path, monkeypatch) -> None:
    name = "docstrings-scoretwo"
    all_ids = set(load(docstrings.benchmark_folder(name, tmp_path / "all"))[0])
    monkeypatch.setattr(docstrings, "BENCHMARK_DOCUMENTS", 5)
    few = set(load(docstrings.benchmark_folder(name, tmp_path / "few"))[0])
    assert few == set(sorted(all_ids, key=docstrings._hash)[:5])
    # One document less in the library, one less or none in the benchmark.
    (gone,) = sorted(few)[:1]
    file = libraries / "scoretwo" / "inner" / "fruits.py"
    file.write_text(file.read_text().replace(f"def {gone.partition(':')[2]}()", "def renamed()"))
    after = set(load(docstrings.benchmark_folder(name, tmp_path / "few"))[0])
    assert len(few - after) <= 2
    assert len(after) == 5


def test_prepared_like_any_benchmark(libraries: Path, tmp_path: Path) -> None:
    benchmark = beir.Benchmark(name="docstrings-scoretwo")
    prepared = beir.prepare(benchmark, None, tmp_path / "cache")
    assert prepared.about["documents"] == prepared.about["queries"] == len(FRUITS)
    assert not any(prepared.about["audit"].values())


def test_a_changed_source_is_read_again(libraries: Path, tmp_path: Path, monkeypatch) -> None:
    cache = tmp_path / "cache"
    first = docstrings.train_file(cache)
    with monkeypatch.context() as patch:
        patch.setattr(docstrings, "read_library", None)
        assert docstrings.train_file(cache) == first
    more = definition("new", "Plant one more fruit tree.", sentence("tree"))
    with (libraries / "trainone" / "inner" / "fruits.py").open("a") as file:
        file.write(more)
    assert len(pq.read_table(docstrings.train_file(cache))) == len(pq.read_table(first)) + 1
    # Of equal size, only later.
    fruits = libraries / "traintwo" / "inner" / "fruits.py"
    fruits.write_text(fruits.read_text().replace("Peel", "Pare"))
    queries = pq.read_table(docstrings.train_file(cache))["query"].to_pylist()
    assert sum(query.startswith("Pare") for query in queries) == len(FRUITS)


def test_links_and_test_suites_are_left_out(libraries: Path) -> None:
    os.symlink(libraries / "trainone", libraries / "traintwo" / "linked")
    library = Library("traintwo", skipped=frozenset({"inner"}))
    names = [source.name for source in docstrings.find_sources(library, libraries / "traintwo")]
    assert names == ["__init__.py", "broken.py"]


def test_a_missing_library_is_named(libraries: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(docstrings, "TRAIN", (Library("nowhere"),))
    with pytest.raises(DataError, match="nowhere is not there; install it: pip install nowhere"):
        docstrings.train_file(tmp_path)


# On what is really installed.


def read(library: Library) -> list[docstrings.Passage]:
    root = docstrings._root(library)
    return docstrings.read_library(library, root, list(docstrings.find_sources(library, root)))[0]


def test_numpy_says_what_inspect_says() -> None:
    passages = {passage.id: passage for passage in read(docstrings.BENCHMARKS["docstrings-numpy"])}
    for name, function in (("svd", np.linalg.svd), ("qr", np.linalg.qr)):
        summary, _, rest = (inspect.getdoc(function) or "").partition("\n\n")
        passage = passages[f"numpy/linalg/_linalg.py:{name}"]
        assert (passage.query, passage.document) == (" ".join(summary.split()), rest.strip())
    assert all(
        passage.id.startswith("numpy/") and " " not in passage.id for passage in passages.values()
    )
    assert len(passages) > docstrings.BENCHMARK_DOCUMENTS


HASHES = """
import hashlib, sys
from ray_ablation.data import docstrings as d
library = d.BENCHMARKS["docstrings-stdlib"]
root = d._root(library)
files = [source for source in d.find_sources(library, root) if source.name < "c"]
passages = d.read_library(library, root, files)[0]
folder = d.Path(sys.argv[1])
d.write_benchmark(folder, sorted(passages), set())
print(len(passages), hashlib.sha256((folder / "corpus.jsonl").read_bytes()).hexdigest())
"""


def test_equal_under_any_hash_seed(tmp_path: Path) -> None:
    root = Path(docstrings.__file__).parents[2]
    found = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", HASHES, str(tmp_path / seed)],
            env=os.environ | {"PYTHONPATH": str(root), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


@pytest.mark.parametrize(
    "docstring",
    [
        "Two words.\n\n" + sentence("rest"),
        "Return the sum.\n\nToo short a rest.",
        "Args:\n    many: words that would be counted as a summary.\n\n" + sentence("rest"),
        "frobnicate(value, other) takes two values\n\n" + sentence("rest"),
        "Deprecated since a long time.\n\n" + sentence("rest"),
        "A list of many things follows:\n\n" + sentence("rest"),
        " ".join(["word"] * 41) + "\n\n" + sentence("rest"),
        "Code alone makes no document.\n\n" + ">>> " + sentence("code"),
        "",
    ],
)
def test_no_pair(docstring: str) -> None:
    assert docstrings.split(docstring) is None


def test_the_rest_keeps_its_lines() -> None:
    rest = "First paragraph of the rest, on\ntwo lines.\n\n    >>> code()\n\nA last one, so long."
    found = docstrings.split("    Explain the rest.\n\n" + inspect.cleandoc(rest))
    assert found == ("Explain the rest.", rest)
