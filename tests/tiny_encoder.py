"""A random encoder of some thousand parameters that tells any two texts apart."""

import string
from pathlib import Path

from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules.pooling import Pooling

from tiny import POSITIONS, WIDTH, tiny_bert

PIECES = [
    *string.ascii_lowercase,
    *string.digits,
    *(f"##{letter}" for letter in string.ascii_lowercase),
]


def tiny_encoder(folder: Path, *, seed: int = 0, pooling: str = "mean") -> SentenceTransformer:
    """Build in `folder` and load from there."""
    # The usual initializer_range of 0.02 makes all texts nearly alike.
    tiny_bert(folder, layers=2, words=PIECES, seed=seed, initializer_range=0.5)
    transformer = Transformer(str(folder), max_seq_length=POSITIONS)
    pool = Pooling(WIDTH, pooling_mode=pooling)
    return SentenceTransformer(modules=[transformer, pool], device="cpu").eval()
