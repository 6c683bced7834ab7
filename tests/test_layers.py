"""Which blocks stay."""

import pytest

from ray_ablation.layers import STRATEGIES, kept_layers


@pytest.mark.parametrize(
    ("keep", "depth", "layers", "expected"),
    [
        ("first", 3, 12, (0, 1, 2)),
        ("last", 3, 12, (9, 10, 11)),
        ("alternate", 6, 12, (0, 2, 4, 6, 8, 10)),  # the study's open question 4
        ("alternate", 5, 12, (0, 2, 4, 7, 9)),
        ((0, 5, 11), 3, 12, (0, 5, 11)),
    ],
)
def test_by_hand(keep, depth, layers, expected):
    assert kept_layers(keep, depth, layers) == expected


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("layers", [1, 6, 12, 24])
def test_every_strategy_keeps_depth_increasing_layers(name, layers):
    for depth in range(1, layers + 1):
        kept = kept_layers(name, depth, layers)
        assert len(kept) == depth
        assert sorted(set(kept)) == list(kept)
        assert set(kept) <= set(range(layers))
    assert kept_layers(name, layers, layers) == tuple(range(layers))


@pytest.mark.parametrize(
    ("keep", "depth", "text"),
    [
        ("first", 13, "depth 13; the backbone has 12 layers, so 1..12"),
        ("frist", 3, "unknown strategy 'frist'; known: alternate, first, last"),
        ((0, 1), 3, r"keep lists 2 layers \[0, 1\] but depth is 3"),
        ((2, 1, 0), 3, "must increase strictly and lie in 0..11"),
        ((0, 1, 12), 3, "must increase strictly and lie in 0..11"),
    ],
)
def test_bad_requests_say_what_would_fit(keep, depth, text):
    with pytest.raises(ValueError, match=text):
        kept_layers(keep, depth, 12)
