"""What a corpus is like, counted while it streams by.

Ids and texts are kept as 64-bit hashes, 16 bytes a document: 141 MB for the 8.8 million passages
of MS MARCO, where a set of strings would take gigabytes. Among that many, two different texts share
a hash with probability 2e-6; a repeated id is looked up again before anyone is told of it.
"""

import hashlib
from array import array
from pathlib import Path

import numpy as np

from ray_ablation.data.files import DataError, records


class CorpusAudit:
    """Counts over documents handed in one at a time.

    Args:
        judged: Ids the qrels name as documents.
        query_ids: Ids of the judged queries.
    """

    def __init__(self, judged: set[str], query_ids: set[str]) -> None:
        self._ids, self._texts = array("Q"), array("Q")
        self._missing = set(judged)
        self._query_ids = query_ids
        self._empty = self._null_titles = self._shared = 0

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, doc_id: str, text: str, has_title: bool) -> None:
        """Count a document; raises UnicodeEncodeError where a text is no valid Unicode."""
        self._ids.append(_hash(doc_id))
        self._missing.discard(doc_id)
        self._shared += doc_id in self._query_ids
        self._null_titles += not has_title
        if text:
            self._texts.append(_hash(text))
        else:
            self._empty += 1

    def counts(self) -> dict[str, int]:
        """How many documents are out of the ordinary, and in which way."""
        distinct = len(np.unique(np.array(self._texts, dtype=np.uint64)))
        return {
            "empty_texts": self._empty,
            "repeated_texts": len(self._texts) - distinct,
            "null_titles": self._null_titles,
            "ids_shared_with_queries": self._shared,
            "judged_documents_missing": len(self._missing),
        }

    def check_ids(self, path: Path) -> None:
        """Refuse a corpus that names two documents alike.

        Raises:
            DataError: The id and the two lines it stands on.
        """
        hashes, times = np.unique(np.array(self._ids, dtype=np.uint64), return_counts=True)
        suspects = set(hashes[times > 1].tolist())
        if not suspects:
            return
        seen: dict[str, int] = {}
        for line, record in records(path):
            doc_id = record["_id"]
            if _hash(doc_id) in suspects and (first := seen.setdefault(doc_id, line)) != line:
                raise DataError(
                    f"{path}, line {line}: document id {doc_id!r} stands on line {first} already; "
                    "ids must be unique, or scores go to the wrong text. Rename or drop one"
                )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
