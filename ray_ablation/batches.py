"""Which rows make which batch, and how a batch is laid out for the forward pass.

Order. Each epoch is a permutation seeded from sha256(seed, epoch). Adding the two, as libraries do,
makes epoch 1 of seed 42 the order of epoch 0 of seed 43, so seeds would share orders. A batch holds
no text twice, in any column: a repeated positive would be a false negative. A row that would repeat
one waits for the next batch; rows left over at the end of an epoch are dropped.

Layout. All texts of a batch are sorted by length and cut into chunks, each padded to its own
longest text. Cuts minimise the price of all chunks, so a GPU, where a launch costs as much as
thousands of tokens, gets fewer and larger ones than a CPU.

Shapes: R rows, C columns (query, positive, negatives), B batch, S batches of an epoch, N texts of
a batch (B * C, column by column), L tokens.
"""

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ray_ablation.problems import UserError

Ints = NDArray[np.int64]

# Chunks begin at multiples of this many texts: finer cuts save no padding worth their search.
CHUNK_STEP = 8


class TooFewTextsError(UserError):
    """No batch without a repeated text can be made."""


def seeded_generator(*parts: int | str) -> np.random.Generator:
    """A generator seeded from sha256 of its parts."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))


def epoch_batches(keys_RC: Ints, batch: int, seed: int, epoch: int) -> Ints:
    """The batches of one epoch.

    Args:
        keys_RC: Identity of each text; equal numbers are equal texts.
        batch: Rows a batch.
        seed: The trial's.
        epoch: From 0.

    Returns:
        (S, B) row numbers; within a batch no text stands twice.

    Raises:
        TooFewTextsError: Not one batch could be filled.
    """
    rows = seeded_generator(seed, epoch).permutation(len(keys_RC))
    texts = [set(row) for row in keys_RC[rows].tolist()]
    waiting: list[int] = []
    batches: list[list[int]] = []
    upcoming = iter(range(len(rows)))
    while (picked := _fill(batch, texts, waiting, upcoming)) is not None:
        batches.append(picked)
    if not batches:
        distinct = len(np.unique(keys_RC))
        raise TooFewTextsError(
            f"{len(keys_RC)} training rows with {distinct} distinct texts fill no batch of {batch} "
            "in which every text stands once; lower `batch` or raise `samples`"
        )
    order: Ints = rows[np.array(batches)]
    return order


def _fill(
    batch: int, texts: list[set[int]], waiting: list[int], upcoming: Iterator[int]
) -> list[int] | None:
    """Positions of the next batch, or None at the end; `waiting` is updated in place."""
    used: set[int] = set()
    picked: list[int] = []
    still: list[int] = []
    first = iter(list(waiting))
    for position in itertools.chain(first, upcoming):
        if not used.isdisjoint(texts[position]):
            still.append(position)
            continue
        used |= texts[position]
        picked.append(position)
        if len(picked) == batch:
            waiting[:] = [*still, *first]
            return picked
    return None


def order_sha256(batches_SB: Ints) -> str:
    """Hex sha256 of an epoch's row numbers, equal for equal orders on any machine."""
    return hashlib.sha256(batches_SB.astype("<i8").tobytes()).hexdigest()


class Schedule:
    """Batches by step over as many epochs as it takes; any step can be the first one asked for."""

    def __init__(self, keys_RC: Ints, batch: int, seed: int) -> None:
        self._keys, self._batch, self._seed = keys_RC, batch, seed
        self._epoch, self._first_step = -1, 0
        self._batches: Ints = np.empty((0, batch), dtype=np.int64)
        self.orders: list[str] = []

    def rows(self, step: int) -> tuple[int, Ints]:
        """Epoch and row numbers (B,) of the step, from 0; steps must not go back an epoch."""
        while step >= self._first_step + len(self._batches):
            self._first_step += len(self._batches)
            self._epoch += 1
            self._batches = epoch_batches(self._keys, self._batch, self._seed, self._epoch)
            self.orders.append(order_sha256(self._batches))
        return self._epoch, self._batches[step - self._first_step]


@dataclass(frozen=True)
class Chunk:
    """Texts that go through the encoder together.

    Attributes:
        texts: (n,) which of the batch's N texts these are.
        input_ids: (n, L) int64, padded on the right.
        attention_mask: (n, L) int64, 1 for a token.
    """

    texts: Ints
    input_ids: Ints
    attention_mask: Ints


@dataclass(frozen=True)
class ChunkPrice:
    """What a chunk costs: fixed + texts x longest x (1 + per_length x longest), in tokens.

    Attributes:
        fixed: Whatever is in it.
        per_length: Share that attention adds to a token, per token of the longest text.
    """

    fixed: float
    per_length: float = 0.0


def chunk_bounds(lengths_N: Ints, price: ChunkPrice) -> list[tuple[int, int]]:
    """Where to cut texts sorted longest first, [start, stop) each, for the least total price.

    Dynamic programming over cuts at multiples of CHUNK_STEP.
    """
    count = len(lengths_N)
    cuts = [*range(0, count, CHUNK_STEP), count]
    longest = lengths_N[cuts[:-1]]
    per_text = longest * (1 + price.per_length * longest)
    starts = np.array(cuts)
    best = np.zeros(len(cuts))
    came_from = np.zeros(len(cuts), dtype=np.int64)
    for end in range(1, len(cuts)):
        costs = best[:end] + price.fixed + (starts[end] - starts[:end]) * per_text[:end]
        came_from[end] = costs.argmin()
        best[end] = costs[came_from[end]]
    bounds: list[tuple[int, int]] = []
    end = len(cuts) - 1
    while end > 0:
        start = int(came_from[end])
        bounds.append((cuts[start], cuts[end]))
        end = start
    return bounds[::-1]


def lay_out(
    values: NDArray[np.int32], starts_N: Ints, lengths_N: Ints, pad_id: int, price: ChunkPrice
) -> list[Chunk]:
    """Chunks that cover the N texts whose tokens lie at values[start : start + length]."""
    order = np.argsort(-lengths_N, kind="stable")
    bounds = chunk_bounds(lengths_N[order], price)
    return [pad(values, starts_N, lengths_N, order[a:b], pad_id) for a, b in bounds]


def pad(
    values: NDArray[np.int32], starts_N: Ints, lengths_N: Ints, texts: Ints, pad_id: int
) -> Chunk:
    """One chunk of the named texts, in the order given."""
    starts, lengths = starts_N[texts], lengths_N[texts]
    columns = np.arange(lengths.max())
    mask = columns < lengths[:, None]
    input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
    input_ids[mask] = values[(starts[:, None] + columns)[mask]]
    return Chunk(texts, input_ids, mask.astype(np.int64))
