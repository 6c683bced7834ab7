"""Which encoder blocks a truncated backbone keeps.

Index 0 is next to the embeddings. A strategy maps (layers the backbone has, depth wanted) to
strictly increasing indices; an explicit list in the grid bypasses the strategies. `first` is what
the literature calls top-layer dropping (Sajjad et al. 2023, arXiv:2004.03844).
"""

from collections.abc import Callable, Sequence


def keep_first(layers: int, depth: int) -> tuple[int, ...]:
    """The blocks next to the embeddings: 0, 1, ..., depth - 1."""
    return tuple(range(depth))


def keep_last(layers: int, depth: int) -> tuple[int, ...]:
    """The blocks next to the output: layers - depth, ..., layers - 1."""
    return tuple(range(layers - depth, layers))


def keep_alternate(layers: int, depth: int) -> tuple[int, ...]:
    """Evenly spread blocks, floor(i * layers / depth): 0, 2, 4, ... when half of them stay."""
    return tuple(i * layers // depth for i in range(depth))


def kept_layers(keep: str | Sequence[int], depth: int, layers: int) -> tuple[int, ...]:
    """Indices of the blocks that stay.

    Args:
        keep: A name in `STRATEGIES`, or the indices themselves.
        depth: How many blocks stay, 1..layers.
        layers: How many blocks the backbone has.

    Returns:
        `depth` strictly increasing indices in 0..layers - 1.

    Raises:
        ValueError: The request does not fit the backbone; the text says what would.
    """
    if not 1 <= depth <= layers:
        raise ValueError(f"depth {depth}; the backbone has {layers} layers, so 1..{layers}")
    if isinstance(keep, str):
        if keep not in STRATEGIES:
            raise ValueError(f"unknown strategy {keep!r}; known: {', '.join(sorted(STRATEGIES))}")
        return STRATEGIES[keep](layers, depth)
    indices = tuple(keep)
    if len(indices) != depth:
        raise ValueError(f"keep lists {len(indices)} layers {list(indices)} but depth is {depth}")
    if sorted(set(indices)) != list(indices) or not 0 <= indices[0] <= indices[-1] < layers:
        raise ValueError(
            f"keep {list(indices)}; indices must increase strictly and lie in 0..{layers - 1}"
        )
    return indices


STRATEGIES: dict[str, Callable[[int, int], tuple[int, ...]]] = {
    "first": keep_first,
    "last": keep_last,
    "alternate": keep_alternate,
}
