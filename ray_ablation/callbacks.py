"""Tune's own callbacks, named in the grid: Weights & Biases, MLflow, Comet, Aim or your own.

    execution:
      callbacks:
        - ray.tune.logger.csv.CSVLoggerCallback
        - ray.air.integrations.wandb.WandbLoggerCallback: {project: depth}

They are imported when the command starts, so that a name that is wrong, or a library that is not
installed, is said before anything is trained. A grid that is only read imports none.
"""

import importlib
from collections.abc import Sequence
from typing import Any

from ray_ablation.problems import UserError, one_line

Entry = str | dict[str, Any]


def check(entries: Sequence[Entry]) -> None:
    """Import what is named.

    Raises:
        UserError: A name leads nowhere, or not to a callback of Tune.
    """
    for entry in entries:
        _find(_parts(entry)[0])


def make(entries: Sequence[Entry]) -> list[Any]:
    """The callbacks, made with their arguments.

    Raises:
        UserError: As `check`, or a callback refuses its arguments.
    """
    return [_make(*_parts(entry)) for entry in entries]


def _parts(entry: Entry) -> tuple[str, dict[str, Any]]:
    return (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))


def _find(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"execution.callbacks: {name} cannot be imported ({one_line(error)}); give the dotted "
            "name of a tune.Callback, as in ray.tune.logger.csv.CSVLoggerCallback"
        ) from error
    callback = importlib.import_module("ray.tune").Callback
    if not (isinstance(found, type) and issubclass(found, callback)):
        raise UserError(f"execution.callbacks: {name} is no class derived from ray.tune.Callback")
    return found


def _make(name: str, arguments: dict[str, Any]) -> Any:
    found = _find(name)
    try:
        return found(**arguments)
    except Exception as error:  # of a library we do not know
        raise UserError(
            f"execution.callbacks: {name} cannot be made from {arguments}: {one_line(error)}"
        ) from error
