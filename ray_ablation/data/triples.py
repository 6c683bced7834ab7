"""Train sets: a deterministic, audited sample of (query, positive, negatives).

    <cache>/triples/<train set>-<key>/
        train.arrow, held_out.arrow   query, positive, negative_1, ...; in sample order
        manifest.json                 counts around each filter, sha256 of inputs and of the sample
        truncation/                   what tokens.py found to be cut, by tokenizer and length

The key is made of the trial's fields that pick the sample and of the contents of the input files.
The manifest's `sha256` is that of the texts themselves: equal rows are one sample, wherever and
from whatever files they were made.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ray_ablation.atomic import digest_of
from ray_ablation.data import docstrings, msmarco, pairs
from ray_ablation.data.cache import build, remembered_sha256
from ray_ablation.data.files import DataError
from ray_ablation.data.progress import Say
from ray_ablation.data.sampling import Ids, Picked, Row, pick
from ray_ablation.data.sources import Hub, Source
from ray_ablation.trial import Trial

ROWS_AT_A_TIME = 10_000

# Ids are sorted, so these many on each side are mostly of the same folder.
NEIGHBOURS = 4

# The fields of a trial that its sample depends on.
FIELDS = (
    "train_set",
    "train_set_revision",
    "samples",
    "sample_seed",
    "held_out",
    "negatives",
    "negative_systems",
)

Files = dict[str, Path]
Texts = dict[int, str]


@dataclass(frozen=True)
class Sample:
    """A sample on disk.

    Attributes:
        folder: Where it lies.
        manifest: `counts` around each filter, `systems` that mined the negatives, sha256 of the
            `inputs`, and `sha256` of the rows.
    """

    folder: Path
    manifest: dict[str, Any]

    def train(self) -> pa.Table:
        """Memory-mapped columns query, positive, negative_1, ..., in sample order."""
        return _read(self.folder / "train.arrow")

    def held_out(self) -> pa.Table:
        """The rows of the evaluation loss, in the same columns; may be empty."""
        return _read(self.folder / "held_out.arrow")


@dataclass(frozen=True)
class TrainSet:
    """How a train set is read.

    Attributes:
        files: (source, cache, say) -> name and path of the input files, fetched where need be.
        rows: Their rows by ids, in an order that only the contents decide.
        texts: (files, ids of queries, ids of passages) -> text of each.
        public: The source where the grid gives none.
    """

    files: Callable[[Any, Path, Say], Files]
    rows: Callable[[Files], Iterator[Row]]
    texts: Callable[[Files, set[int], set[int]], tuple[Texts, Texts]]
    public: Hub | None = None


def prepare(trial: Trial, source: Source | None, cache: Path, say: Say = print) -> Sample:
    """The trial's sample, drawn once; a second call finds it by its content.

    Args:
        trial: Says which train set and how much of it; one that is not registered is read as pairs.
        source: Where it lies; None is the public place, or this machine for one that is made here.
        cache: Folder of prepared data.
        say: Told how far downloads are.

    Raises:
        DataError: Its files are nowhere, cannot be read, or hold too few usable rows.
    """
    train_set = TRAIN_SETS.get(trial.train_set, TRAIN_SETS["pairs"])
    files = train_set.files(_pinned(source or train_set.public, trial), cache, say)
    fields = trial.model_dump(mode="json", include=set(FIELDS))
    inputs = {name: remembered_sha256(path, cache) for name, path in files.items()}
    key = digest_of({"fields": fields, "inputs": inputs})[:12]
    folder = cache / "triples" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', trial.train_set)}-{key}"

    def fill(temporary: Path) -> dict[str, Any]:
        picked = pick(train_set.rows(files), trial)
        return fields | {"inputs": inputs} | _write(temporary, picked, train_set, files)

    return Sample(folder, build(folder, fill, record="manifest.json"))


def _pinned(source: Source | None, trial: Trial) -> Source | None:
    """The source at the trial's revision, where it is of the hub."""
    if not isinstance(source, Hub) or not trial.train_set_revision:
        return source
    if source.revision not in (None, trial.train_set_revision):
        raise DataError(
            f"train set {trial.train_set!r}: paths says {source}, but train_set_revision is "
            f"{trial.train_set_revision}; keep one of the two"
        )
    return replace(source, revision=trial.train_set_revision)


def _write(folder: Path, picked: Picked, train_set: TrainSet, files: Files) -> dict[str, Any]:
    ids = np.concatenate([picked.train, picked.held_out])
    texts = train_set.texts(files, _unique(ids[:, 0]), _unique(ids[:, 1:]))
    digest = hashlib.sha256()
    for name, part in (("train", picked.train), ("held_out", picked.held_out)):
        digest.update(f"{name} {part.shape}".encode())
        _write_part(folder / f"{name}.arrow", part, texts, digest)
    return {
        "counts": picked.counts | _repeats(picked, texts),
        "systems": picked.systems,
        "sha256": digest.hexdigest(),
    }


def _write_part(path: Path, ids: Ids, texts: tuple[Texts, Texts], digest: Any) -> None:
    queries, passages = texts
    negatives = [f"negative_{i}" for i in range(1, ids.shape[1] - 1)]
    schema = pa.schema([(name, pa.string()) for name in ("query", "positive", *negatives)])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for start in range(0, len(ids), ROWS_AT_A_TIME):
            first, *others = ids[start : start + ROWS_AT_A_TIME].T.tolist()
            columns = [[queries[i] for i in first]]
            columns += [[passages[i] for i in column] for column in others]
            for row in zip(*columns, strict=True):
                for text in row:
                    encoded = text.encode()
                    # The length tells ("ab", "c") from ("a", "bc").
                    digest.update(len(encoded).to_bytes(8, "little") + encoded)
            writer.write_batch(pa.record_batch([pa.array(c, pa.string()) for c in columns], schema))


def _repeats(picked: Picked, texts: tuple[Texts, Texts]) -> dict[str, int]:
    """Texts that stand in several rows: each may be a false negative of the other's batch."""
    queries = [texts[0][i] for i in picked.train[:, 0].tolist()]
    positives = [texts[1][i] for i in picked.train[:, 1].tolist()]
    held_out = {texts[1][i] for i in picked.held_out[:, 1].tolist()}
    return {
        "repeated_queries": len(queries) - len(set(queries)),
        "repeated_positives": len(positives) - len(set(positives)),
        "held_out_positives_in_train": len(held_out & set(positives)),
        "empty_texts": sum(not text for part in texts for text in part.values()),
    }


def _unique(ids: Ids) -> set[int]:
    return set(np.unique(ids).tolist())


def _read(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _docstring_files(source: Source | None, cache: Path, _: Say) -> Files:
    if source is not None:
        raise DataError(
            f"train set 'docstrings' is made of the installed libraries, but paths gives {source}; "
            "take docstrings out of paths"
        )
    return {"train.parquet": docstrings.train_file(cache)}


def _docstring_rows(files: Files) -> Iterator[Row]:
    """Hard negatives are the file's other docstrings; where it has none, the nearest by id."""
    ids = pq.read_table(files["train.parquet"], columns=["id"])["id"].to_pylist()
    by_file = groupby(range(len(ids)), key=lambda row: ids[row].rpartition(":")[0])
    for _, group in by_file:
        rows = list(group)
        for row in rows:
            near = range(max(0, row - NEIGHBOURS), min(len(ids), row + NEIGHBOURS + 1))
            system, candidates = ("file", rows) if len(rows) > 1 else ("neighbours", list(near))
            yield Row(row, [row], {system: [other for other in candidates if other != row]})


def _docstring_texts(files: Files, queries: set[int], passages: set[int]) -> tuple[Texts, Texts]:
    table = pq.read_table(files["train.parquet"])
    query, document = table["query"].to_pylist(), table["document"].to_pylist()
    return {row: query[row] for row in queries}, {row: document[row] for row in passages}


TRAIN_SETS: dict[str, TrainSet] = {
    "docstrings": TrainSet(_docstring_files, _docstring_rows, _docstring_texts),
    "msmarco-hard-negatives": TrainSet(
        msmarco.files, msmarco.rows, msmarco.texts, public=msmarco.HUB
    ),
    "pairs": TrainSet(pairs.files, pairs.rows, pairs.texts),
}
