"""What a corpus is like, counted while it streams by.

To find repeats, ids and texts are kept as 64-bit hashes, 16 bytes a document, and not in memory:
sorted runs of them go to a temporary file, and repeats are counted one 256th of the range at a
time. Equal hashes lie in the same 256th, so nothing is missed, and 8.8 million passages of MS MARCO
take the memory that a small corpus takes. Among that many, two different texts share a hash with
probability 2e-6; a repeated id is looked up again before anyone is told of it.
"""

import hashlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ray_ablation.data.files import DataError, records

# Hashes held in memory, 1 MiB; fewer are never written to disk.
RUN = 1 << 17
# The first byte of a hash says in which of 256 equal slices of their range it lies.
EDGES = (np.arange(1, 256, dtype=np.uint64) << np.uint64(56)).astype(np.uint64)


class CorpusAudit:
    """Counts over documents handed in one at a time.

    Args:
        judged: Ids the qrels name as documents.
        query_ids: Ids of the judged queries.
    """

    def __init__(self, judged: set[str], query_ids: set[str]) -> None:
        self._ids, self._texts = _Hashes(), _Hashes()
        self._missing = set(judged)
        self._query_ids = query_ids
        self._empty = self._null_titles = self._shared = 0

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, doc_id: str, text: str, has_title: bool) -> None:
        """Count a document; raises UnicodeEncodeError where a text is no valid Unicode."""
        self._ids.add(_hash(doc_id))
        self._missing.discard(doc_id)
        self._shared += doc_id in self._query_ids
        self._null_titles += not has_title
        if text:
            self._texts.add(_hash(text))
        else:
            self._empty += 1

    def counts(self) -> dict[str, int]:
        """How many documents are out of the ordinary, and in which way."""
        distinct = sum(len(hashes) for hashes, _ in self._texts.distinct())
        return {
            "empty_texts": self._empty,
            "repeated_texts": len(self._texts) - distinct,
            "null_titles": self._null_titles,
            "ids_shared_with_queries": self._shared,
            "judged_documents_missing": len(self._missing),
        }

    def check_ids(self, paths: Sequence[Path]) -> None:
        """Refuse a corpus that names two documents alike.

        Raises:
            DataError: The id and the two lines it stands on.
        """
        suspects: set[int] = set()
        for hashes, times in self._ids.distinct():
            suspects.update(hashes[times > 1].tolist())
        if not suspects:
            return
        seen: dict[str, str] = {}
        for path in paths:
            for line, record in records(path):
                doc_id = record["_id"]
                if _hash(doc_id) not in suspects:
                    continue
                if doc_id in seen:
                    raise DataError(
                        f"{path}, line {line}: document id {doc_id!r} stands on {seen[doc_id]} "
                        "already; ids must be unique, or scores go to the wrong text. Rename or "
                        "drop one"
                    )
                seen[doc_id] = f"line {line}" + (f" of {path.name}" if len(paths) > 1 else "")


class _Hashes:
    """64-bit numbers: up to RUN of them in memory, the others on disk in sorted runs."""

    def __init__(self) -> None:
        self._newest = array("Q")
        self._file = SpooledTemporaryFile(max_size=8 * RUN)  # noqa: SIM115
        self._starts: list[NDArray[np.int64]] = []  # of a run's slices in the file, and its end
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, number: int) -> None:
        self._newest.append(number)
        self._count += 1
        if len(self._newest) == RUN:
            self._write()

    def distinct(self) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """All distinct numbers and how often each is there, slice by slice, ascending."""
        self._write()
        for which in range(len(EDGES) + 1):
            parts = [self._read(run[which], run[which + 1]) for run in self._starts]
            yield np.unique(np.concatenate([_NONE, *parts]), return_counts=True)

    def _write(self) -> None:
        run = np.sort(np.frombuffer(self._newest, dtype=np.uint64))
        before = self._file.seek(0, 2) // 8
        cuts = np.concatenate([[0], np.searchsorted(run, EDGES), [len(run)]])
        self._starts.append(before + cuts)
        self._file.write(run.tobytes())
        self._newest = array("Q")

    def _read(self, start: Any, stop: Any) -> NDArray[np.uint64]:
        self._file.seek(8 * int(start))
        return np.frombuffer(self._file.read(8 * int(stop - start)), dtype=np.uint64)


_NONE = np.empty(0, dtype=np.uint64)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
