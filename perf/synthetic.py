"""A random two-layer BERT of width 16, and triples in made-up words.

So small a model multiplies next to nothing: on sentences, what a training step takes is mostly what
the loop around it costs. On passages, about half of it is drawing the random numbers of attention
dropout, which grow with the square of the padded length. Every word is one token, the cheapest text
there is for an arm that tokenises in each step.
"""

import json
import random
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizer
from transformers.utils import logging as transformers_logging

WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("da", "ro", "mi", "nel")]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

# Fewest and most. A query of MS MARCO has 6 words on average and a passage 57; a pair of sentences,
# as in NLI, has 8 to 14 each.
QUERY_WORDS = (3, 9)
PASSAGE_WORDS = {"passages": (20, 95), "sentences": (5, 20)}


def write_backbone(folder: Path) -> Path:
    """Save the BERT and its tokenizer; the same weights every time."""
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=128,
    )
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    return folder


def write_triples(folder: Path, rows: int, passage_words: tuple[int, int]) -> Path:
    """Save `rows` queries with one positive and one hard negative, in MS MARCO's files."""
    folder.mkdir(parents=True)
    rng = random.Random(0)
    passages = (f"{i}\t{_words(rng, passage_words)}\n" for i in range(2 * rows))
    (folder / "collection.tsv").write_text("".join(passages))
    queries = (f"{i}\t{_words(rng, QUERY_WORDS)}\n" for i in range(rows))
    (folder / "queries.train.tsv").write_text("".join(queries))
    lines = ({"qid": i, "pos": [2 * i], "neg": {"bm25": [2 * i + 1]}} for i in range(rows))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "msmarco-hard-negatives.jsonl").write_text(text)
    return folder


def _words(rng: random.Random, between: tuple[int, int]) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(*between)))
