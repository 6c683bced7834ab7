"""Counts of a corpus that does not fit in memory, against sets that do."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from ray_ablation.data import audit
from ray_ablation.data.audit import CorpusAudit
from ray_ablation.data.files import DataError


@pytest.mark.parametrize("run", [1, 7, 64, 1000, 10_000])
def test_counts_do_not_depend_on_the_length_of_a_run(monkeypatch, run: int) -> None:
    monkeypatch.setattr(audit, "RUN", run)
    rng = random.Random(run)
    texts = [rng.choice(["", *map(str, range(300))]) for _ in range(1000)]
    judged = {str(i) for i in range(990, 1005)}
    found = CorpusAudit(judged, {"3", "5", "nowhere"})
    for i, text in enumerate(texts):
        found.add(str(i), text, has_title=i % 4 > 0)
    assert len(found) == 1000
    full = [text for text in texts if text]
    assert found.counts() == {
        "empty_texts": texts.count(""),
        "repeated_texts": len(full) - len(set(full)),
        "null_titles": 250,
        "ids_shared_with_queries": 2,
        "judged_documents_missing": 5,
    }
    assert found.counts()["repeated_texts"] == len(full) - len(set(full))  # asked again


@pytest.mark.parametrize("run", [3, 10_000])
def test_every_number_is_counted_once_in_order(monkeypatch, run: int) -> None:
    monkeypatch.setattr(audit, "RUN", run)
    edge = 1 << 56
    numbers = [0, edge - 1, edge, edge, edge + 1, 255 * edge, 2**64 - 1, 2**64 - 1, 0, 0]
    hashes = audit._Hashes()
    for number in numbers:
        hashes.add(number)
    pairs = [p for both in hashes.distinct() for p in zip(*map(list, both), strict=True)]
    assert pairs == sorted(Counter(numbers).items())


def test_a_repeated_id_in_another_run_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(audit, "RUN", 4)
    file = tmp_path / "corpus.jsonl"
    ids = [f"d{i}" for i in range(30)] + ["d2"]
    file.write_text("".join(json.dumps({"_id": i}) + "\n" for i in ids))
    found = CorpusAudit(set(), set())
    for doc_id in ids:
        found.add(doc_id, "text", has_title=True)
    with pytest.raises(DataError, match=r"line 31: document id 'd2' stands on line 3 already"):
        found.check_ids([file])
