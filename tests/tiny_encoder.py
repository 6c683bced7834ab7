"""A random BERT encoder of some thousand parameters, with a real WordPiece tokenizer."""

import string
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules.pooling import Pooling
from transformers import BertConfig, BertModel, BertTokenizer

PIECES = [
    *string.ascii_lowercase,
    *string.digits,
    *(f"##{letter}" for letter in string.ascii_lowercase),
]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES]


def tiny_encoder(
    folder: Path, *, seed: int = 0, layers: int = 2, pooling: str = "mean", positions: int = 64
) -> SentenceTransformer:
    """Build in `folder`, which must be empty or absent, and load from there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    BertTokenizer(vocab=str(folder / "vocab.txt"), model_max_length=positions).save_pretrained(
        folder
    )
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=positions,
        initializer_range=0.5,  # the usual 0.02 makes all texts nearly alike
    )
    BertModel(config).save_pretrained(folder)
    transformer = Transformer(str(folder), max_seq_length=positions)
    pool = Pooling(config.hidden_size, pooling_mode=pooling)
    return SentenceTransformer(modules=[transformer, pool], device="cpu").eval()
