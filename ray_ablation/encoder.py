"""The encoder: a backbone cut to the kept layers, with pooling, as a `SentenceTransformer`.

Cutting removes the blocks, renumbers nothing, and writes the new count into the config, so that a
saved encoder reloads with exactly the blocks it was trained with. That it does is checked where it
is saved: a config left at 12 layers would give 12 blocks, some of them random, without a word.

Every encoder is Transformer + Pooling. Similarity is the cosine everywhere, so a backbone that
brings a normalising module loses nothing without it.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.transformer import Transformer
from sentence_transformers.sentence_transformer.modules.pooling import Pooling
from torch import nn
from transformers.utils import logging as transformers_logging

from ray_ablation.backbones import BackboneError, locate
from ray_ablation.layers import kept_layers
from ray_ablation.trial import Trial

# How configs of the encoders on the hub call their number of blocks.
LAYER_COUNTS = ("num_hidden_layers", "n_layers", "num_layers")


def build(trial: Trial, source: Path | None = None) -> SentenceTransformer:
    """The untrained encoder of a trial; `cut` after `load_backbone`."""
    return cut(load_backbone(trial, source), trial)


def load_backbone(trial: Trial, source: Path | None = None) -> Transformer:
    """All of a trial's backbone, in float32 on the CPU.

    Args:
        trial: Its backbone, backbone_revision and max_length are read.
        source: Local folder of the backbone, as the grid's `paths` gives it.

    Raises:
        BackboneError: It cannot be loaded; the text says how to pass a local copy.
    """
    _silence_bars()
    folder = locate(trial.backbone, source)
    revision = {} if folder else {"revision": trial.backbone_revision}
    try:
        backbone: Transformer = Transformer(
            str(folder or trial.backbone),
            max_seq_length=trial.max_length,
            model_kwargs={"dtype": torch.float32, **revision},
            config_kwargs=dict(revision),
            processor_kwargs=dict(revision),
        )
        return backbone
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise BackboneError(
            f"backbone {trial.backbone!r} cannot be loaded from {folder or 'the hub'}: {reason} "
            f"A local copy is used with  paths: {{{trial.backbone}: /folder}}"
        ) from error


def cut(backbone: Transformer, trial: Trial) -> SentenceTransformer:
    """The encoder of a trial out of its whole backbone, which is changed in place; eval mode."""
    truncate(backbone.auto_model, trial.keep, trial.depth)
    pooling = Pooling(backbone.get_embedding_dimension(), pooling_mode=trial.pooling)
    return SentenceTransformer(modules=[backbone, pooling], device="cpu").eval()


def truncate(model: nn.Module, keep: str | tuple[int, ...], depth: int) -> None:
    """Cut a transformer to its kept blocks, in place, config included.

    Raises:
        BackboneError: The model's stack of blocks cannot be told from its config.
    """
    count_name, blocks_name, blocks = _stack(model)
    kept = kept_layers(keep, depth, len(blocks))
    removed = sum(_count(block) for i, block in enumerate(blocks) if i not in kept)
    before = _count(model)
    parent = model.get_submodule(blocks_name.rpartition(".")[0])
    setattr(parent, blocks_name.rpartition(".")[2], nn.ModuleList([blocks[i] for i in kept]))
    config: Any = model.config
    setattr(config, count_name, depth)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[i] for i in kept]
    if _count(model) != before - removed:
        raise BackboneError(f"cutting to {depth} layers left {_count(model)} parameters")


def save(encoder: SentenceTransformer, folder: Path) -> None:
    """Save an encoder, reload it, and refuse to go on unless both have the same weights.

    The folder appears whole or not at all.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    encoder.save(str(temporary), create_model_card=False)
    saved, reloaded = weights_sha256(encoder), weights_sha256(load(temporary))
    if saved != reloaded:
        raise RuntimeError(f"{temporary} reloads with other weights: {reloaded}, not {saved}")
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)


def load(folder: Path, device: str = "cpu") -> SentenceTransformer:
    """A saved encoder in float32 and eval mode.

    Raises:
        BackboneError: The folder holds no encoder that can be loaded.
    """
    _silence_bars()
    try:
        return SentenceTransformer(
            str(folder), device=device, local_files_only=True, model_kwargs={"dtype": torch.float32}
        ).eval()
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise BackboneError(f"encoder in {folder} cannot be loaded: {reason}") from error


def parameter_count(encoder: nn.Module) -> int:
    """Parameters, embeddings included."""
    return _count(encoder)


def weights_sha256(module: nn.Module) -> str:
    """Hex sha256 over names, dtypes, shapes and bytes of all weights, in name order."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        data = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {data.dtype} {tuple(data.shape)}".encode())
        digest.update(data.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _silence_bars() -> None:
    # A bar for each load and save would bury what the command says about a study.
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def _stack(model: nn.Module) -> tuple[str, str, nn.ModuleList]:
    """Where the config counts the blocks, where the blocks are, and the blocks."""
    for count_name in LAYER_COUNTS:
        count = getattr(model.config, count_name, None)
        stacks = [
            (name, module)
            for name, module in model.named_modules()
            if isinstance(module, nn.ModuleList) and len(module) == count
        ]
        if len(stacks) == 1:
            return count_name, *stacks[0]
    kind = type(model).__name__
    raise BackboneError(f"{kind} has no single stack of blocks that its config counts")


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
