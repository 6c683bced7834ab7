"""Training texts, tokenised once and memory-mapped by every trial of a node.

A sample of triples becomes flat arrays of token ids, keyed by the sample, the tokenizer and the
length. Beside the tokens stands a 64-bit identity of each text, by which batches avoid repeats
without ever reading a string. Ids are a raw file, since how many there will be is known only at
the end; they are never loaded, a batch reads its own pages.

Shapes: R rows, C columns (query, positive, negatives), B batch, N = B * C texts column by column.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ray_ablation.atomic import read_json, write_json
from ray_ablation.data.cache import build
from ray_ablation.data.sampling import text_key
from ray_ablation.data.triples import Sample

ROWS_AT_A_TIME = 10_000
TRUNCATION = "truncation"  # a folder beside the sample
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tokens:
    """Tokenised rows.

    Attributes:
        values: Token ids of all texts, row after row, memory-mapped.
        offsets: (R * C + 1,) where in `values` each text begins; the next one's is its end.
        keys_RC: Identity of each text.
        truncated: Share of texts cut at the length, by column.
    """

    values: NDArray[np.int32]
    offsets: Ints
    keys_RC: Ints
    truncated: dict[str, float]

    def __len__(self) -> int:
        return len(self.keys_RC)

    def texts(self, rows_B: Ints) -> tuple[Ints, Ints]:
        """Starts and lengths (N,) of the rows' texts in `values`, column by column."""
        columns = self.keys_RC.shape[1]
        texts = (rows_B * columns + np.arange(columns)[:, None]).reshape(-1)
        starts = self.offsets[texts]
        return starts, self.offsets[texts + 1] - starts


def tokenise(sample: Sample, part: str, tokenizer: Any, max_length: int, cache: Path) -> Tokens:
    """Token ids of a sample's `train` or `held_out` part.

    Args:
        sample: The triples.
        part: "train" or "held_out".
        tokenizer: A fast tokenizer of transformers.
        max_length: Tokens per text, special tokens included; longer texts are cut.
        cache: Folder of prepared data.
    """
    vocabulary = _vocabulary(tokenizer)
    text = f"{sample.manifest['sha256']}/{part}/{max_length}/{vocabulary}"
    folder = cache / "tokens" / hashlib.sha256(text.encode()).hexdigest()[:16]

    def fill(into: Path) -> dict[str, Any]:
        table = sample.train() if part == "train" else sample.held_out()
        return _write(table, tokenizer, max_length, into)

    about = build(folder, fill)
    if part == "train":
        digest = hashlib.sha256(vocabulary.encode()).hexdigest()[:12]
        note = sample.folder / TRUNCATION / f"{digest}-{max_length}.json"
        if read_json(note) is None:
            write_json(note, about["truncated"])
    return _read(folder, about["truncated"])


def truncation(sample: Sample, max_length: int) -> list[str]:
    """What is cut at a length of the texts trained on, a sentence for each tokenizer tried so far.

    As in "truncated at 128 tokens: query 0.0 %, positive 3.1 %, negative_1 2.9 %".
    """
    notes = sorted((sample.folder / TRUNCATION).glob(f"*-{max_length}.json"))
    found = [read_json(note) for note in notes]
    return list(dict.fromkeys(truncated_line(note, max_length) for note in found if note))


def truncated_line(shares: dict[str, float], max_length: int) -> str:
    """The shares of texts cut at a length as a sentence."""
    parts = (f"{column} {100 * share:.1f} %" for column, share in shares.items())
    return f"truncated at {max_length} tokens: {', '.join(parts)}"


def _vocabulary(tokenizer: Any) -> str:
    # Truncation and padding are settings of the last call, not of the tokenizer.
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    return json.dumps(state | {"truncation": None, "padding": None}, sort_keys=True)


def _write(table: pa.Table, tokenizer: Any, max_length: int, folder: Path) -> dict[str, Any]:
    names = table.column_names
    cut = np.zeros(len(names), dtype=np.int64)
    lengths: list[Ints] = []
    keys: list[Ints] = []
    with (folder / "values.int32").open("wb") as file:
        for batch in table.to_batches(max_chunksize=ROWS_AT_A_TIME):
            rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
            texts = [text for row in rows for text in row]
            encodings = tokenizer(texts, truncation=True, max_length=max_length).encodings
            # Padding is not asked for, so ids are the text's own.
            ids = [np.array(encoding.ids, dtype=np.int32) for encoding in encodings]
            np.concatenate(ids).tofile(file)
            lengths.append(np.array([len(text) for text in ids]))
            keys.append(np.array([text_key(text) for text in texts]).reshape(len(rows), -1))
            over = [bool(encoding.overflowing) for encoding in encodings]
            cut += np.array(over).reshape(len(rows), -1).sum(axis=0)
    np.save(folder / "offsets.npy", np.concatenate([[0], *lengths]).cumsum())
    np.save(folder / "keys.npy", np.concatenate([np.empty((0, len(names)), np.int64), *keys]))
    shares = {name: int(n) / max(1, len(table)) for name, n in zip(names, cut, strict=True)}
    return {"truncated": shares}


def _read(folder: Path, truncated: dict[str, float]) -> Tokens:
    offsets = np.load(folder / "offsets.npy", mmap_mode="r")
    file = folder / "values.int32"
    # An empty file cannot be mapped.
    values = np.memmap(file, dtype=np.int32, mode="r") if offsets[-1] else np.empty(0, np.int32)
    return Tokens(values, offsets, np.load(folder / "keys.npy", mmap_mode="r"), truncated)
