"""The canary: a fixed small encoder timed among the others, always on the same texts.

Its weights, vocabulary and texts depend on nothing of the study, so a change of its latency within
a process, or from one profile to the next, is the machine's. Two layers of 128 features cost a few
milliseconds a call on one core, little beside what is profiled.
"""

import tempfile
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules.pooling import Pooling
from transformers import BertConfig, BertModel, BertTokenizer

LAYERS, WIDTH, HEADS, WORDS = 2, 128, 2, 1000
TOKENS = 64
"""Of every text, whatever length the others are timed at."""


def build() -> SentenceTransformer:
    """The canary, equal in every process; the caller's random state is left alone."""
    with tempfile.TemporaryDirectory() as name, torch.random.fork_rng(devices=[]):
        folder = Path(name)
        torch.manual_seed(0)
        vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(_word, range(WORDS))]
        config = BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            intermediate_size=4 * WIDTH,
        )
        BertModel(config).save_pretrained(folder)
        tokens = {token: index for index, token in enumerate(vocabulary)}
        BertTokenizer(vocab=tokens).save_pretrained(folder)
        modules = [Transformer(str(folder)), Pooling(WIDTH, pooling_mode="mean")]
        return SentenceTransformer(modules=modules, device="cpu").eval()


def _word(number: int) -> str:
    """A word of three letters: aaa, aab, ..."""
    return "".join(chr(ord("a") + number // 26**place % 26) for place in (2, 1, 0))
