"""Order, repeats, and the layout of a batch."""

import itertools

import numpy as np
import pytest

from ray_ablation.batches import (
    ChunkPrice,
    Schedule,
    TooFewTextsError,
    chunk_bounds,
    epoch_batches,
    lay_out,
)


def test_no_text_twice_in_a_batch_and_no_row_twice_in_an_epoch():
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 150, size=(200, 3))  # many repeats, within rows and between them
    batches = epoch_batches(keys, 8, seed=1, epoch=0)
    assert len(np.unique(batches)) == batches.size
    for rows in batches:
        sets = [set(keys[row]) for row in rows]
        assert len(set().union(*sets)) == sum(len(texts) for texts in sets)


def test_without_repeats_only_the_last_partial_batch_is_dropped():
    keys = np.arange(90).reshape(30, 3)
    assert epoch_batches(keys, 8, seed=1, epoch=0).shape == (3, 8)


def test_seeds_and_epochs_share_no_order():
    """Adding seed and epoch would make (42, 1) equal (43, 0)."""
    keys = np.arange(300).reshape(100, 3)
    orders = [epoch_batches(keys, 10, seed, epoch) for seed in (42, 43) for epoch in (0, 1)]
    for a, b in itertools.combinations(orders, 2):
        assert not np.array_equal(a, b)
    assert np.array_equal(orders[0], epoch_batches(keys, 10, 42, 0))


def test_any_step_can_come_first():
    keys = np.arange(60).reshape(20, 3)
    whole = Schedule(keys, 4, seed=5)
    expected = [whole.rows(step) for step in range(13)]
    late = Schedule(keys, 4, seed=5)
    epoch, rows = late.rows(12)
    assert epoch == expected[12][0] == 2
    assert np.array_equal(rows, expected[12][1])
    assert late.orders == whole.orders
    assert len(set(whole.orders)) == 3


def test_too_few_distinct_texts_say_how_many():
    keys = np.zeros((50, 3), dtype=np.int64)
    with pytest.raises(TooFewTextsError, match="50 training rows with 1 distinct texts fill no"):
        epoch_batches(keys, 2, seed=0, epoch=0)


@pytest.mark.parametrize("fixed", [0, 10, 1_000, 100_000])
@pytest.mark.parametrize("per_length", [0.0, 0.04])
def test_cuts_are_the_cheapest(fixed, per_length):
    """Against all subsets of cuts, tried one by one."""
    lengths = np.sort(np.random.default_rng(3).integers(4, 128, size=60))[::-1]
    inner = range(8, 60, 8)

    def price(cuts):
        edges = [0, *cuts, 60]
        pairs = itertools.pairwise(edges)
        return sum(fixed + (b - a) * lengths[a] * (1 + per_length * lengths[a]) for a, b in pairs)

    subsets = itertools.chain.from_iterable(itertools.combinations(inner, n) for n in range(8))
    best = min(price(cuts) for cuts in subsets)
    bounds = chunk_bounds(lengths, ChunkPrice(fixed, per_length))
    assert price([start for start, _ in bounds[1:]]) == pytest.approx(best)


def test_layout_holds_every_token_once():
    rng = np.random.default_rng(4)
    lengths = rng.integers(2, 20, size=21)
    starts = np.concatenate([[0], lengths.cumsum()[:-1]])
    values = rng.integers(1, 1000, size=lengths.sum()).astype(np.int32)
    chunks = lay_out(values, starts, lengths, pad_id=0, price=ChunkPrice(16))
    assert sorted(np.concatenate([c.texts for c in chunks])) == list(range(21))
    for chunk in chunks:
        for text, ids, mask in zip(chunk.texts, chunk.input_ids, chunk.attention_mask, strict=True):
            expected = values[starts[text] : starts[text] + lengths[text]]
            assert np.array_equal(ids[mask == 1], expected)
            assert mask.sum() == lengths[text]
            assert (ids[lengths[text] :] == 0).all()
