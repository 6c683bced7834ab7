"""Real objects made tiny: a random BERT on disk, hard-negatives files, grids."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

WORDS = [f"{a}{b}" for a in "bcdfgklmnprst" for b in ("ada", "eso", "iru", "ole", "umi", "anto")]


WIDTH = 16
POSITIONS = 64


def tiny_bert(
    folder: Path,
    layers: int = 4,
    dropout: float = 0.0,
    words: Sequence[str] = WORDS,
    seed: int = 0,
    **config: float,
) -> Path:
    """Save a random BERT with a vocabulary of `words`; equal seeds give equal weights."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = BertTokenizerFast(
        vocab={word: i for i, word in enumerate(vocabulary)}, model_max_length=POSITIONS
    )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    model = BertModel(
        BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=WIDTH,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=2 * WIDTH,
            max_position_embeddings=POSITIONS,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            **config,
        )
    )
    model.save_pretrained(folder)
    return folder


def sentence(rng: random.Random, longest: int) -> str:
    """Between two and `longest` random WORDS."""
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(2, longest)))


def hard_negatives(folder: Path, rows: int = 60, passages: int = 200) -> Path:
    """MS MARCO files in the formats of its hard-negatives data set, one positive a query."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    collection = [f"{pid}\t{sentence(rng, 20)} p{pid}" for pid in range(passages)]
    (folder / "collection.tsv").write_text("\n".join(collection) + "\n")
    queries = [f"{1000 + i}\t{sentence(rng, 6)} q{i}" for i in range(rows)]
    (folder / "queries.train.tsv").write_text("\n".join(queries) + "\n")
    with (folder / "msmarco-hard-negatives.jsonl").open("w") as file:
        for i in range(rows):
            negatives = rng.sample([pid for pid in range(passages) if pid != i], 5)
            row = {"qid": 1000 + i, "pos": [i], "neg": {"bm25": negatives}}
            file.write(json.dumps(row) + "\n")
    return folder


def benchmark(folder: Path, documents: int = 30, queries: int = 8) -> Path:
    """A BEIR folder; each query is the first words of the document that answers it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "qrels").mkdir(exist_ok=True)
    rng = random.Random(11)
    texts = [sentence(rng, 12) for _ in range(documents)]
    corpus = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    asked = [{"_id": f"q{i}", "text": " ".join(texts[i].split()[:4])} for i in range(queries)]
    for name, rows in (("corpus", corpus), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = [f"q{i}\td{i}\t1\n" for i in range(queries)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged))
    return folder
