"""Random encoders of a few sizes, so that timing needs no download: weights do not matter to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules.pooling import Pooling
from transformers import BertConfig, BertModel, BertTokenizer
from transformers.utils import logging as transformers_logging

from perf.synthetic import SPECIAL, WORDS
from ray_ablation import encoder

SMALL = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024}
BASE = {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
# A tenth more multiplications: 160 of 1024 + 2 x 256 columns' worth, in steps that kernels like.
SLOWER = {"intermediate_size": 1184}

CPU_LADDER: dict[str, dict[str, Any]] = {
    "L6": SMALL | {"num_hidden_layers": 6},
    "L6-twin": SMALL | {"num_hidden_layers": 6},
    "L6-slower": SMALL | SLOWER | {"num_hidden_layers": 6},
    "L3": SMALL | {"num_hidden_layers": 3},
}


def write_encoders(folder: Path, ladder: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Save one encoder a name; where each lies."""
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return {name: str(_write(folder / name, config)) for name, config in ladder.items()}


def _write(folder: Path, config: Mapping[str, Any]) -> Path:
    vocabulary = {word: i for i, word in enumerate([*SPECIAL, *WORDS])}
    torch.manual_seed(0)
    backbone = folder.with_name(f"{folder.name}-backbone")
    BertModel(BertConfig(vocab_size=len(vocabulary), **config)).save_pretrained(backbone)
    BertTokenizer(vocab=vocabulary).save_pretrained(backbone)
    modules = [Transformer(str(backbone)), Pooling(config["hidden_size"], pooling_mode="mean")]
    encoder.save(SentenceTransformer(modules=modules, device="cpu"), folder)
    return folder
