"""Errors that finish the reader's sentence: what was found, what is allowed, what to do."""

import difflib
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml.error import MarkedYAMLError, YAMLError


class UserError(Exception):
    """Bad input: the command prints the text and exits with 2."""


class GridError(UserError):
    """All problems of one grid file at once."""

    def __init__(self, file: str, found: list[str]) -> None:
        self.file, self.found = file, found
        count = f"{len(found)} problem{'s' * (len(found) != 1)}"
        super().__init__(f"{file} has {count}:\n" + "\n".join(f"  {line}" for line in found))


def unknown(kind: str, found: str, allowed: Iterable[str]) -> str:
    """'unknown KIND FOUND; known: ...', with the nearest one when there is one."""
    names = sorted(allowed)
    text = f"unknown {kind} {found!r}; known: {', '.join(names)}."
    near = difflib.get_close_matches(found, names, n=1)
    return f"{text} Did you mean {near[0]!r}?" if near else text


def from_yaml(error: YAMLError) -> str:
    """A YAML error with its line, without ruamel's advice on its own API."""
    if not isinstance(error, MarkedYAMLError) or error.problem_mark is None:
        return f"not YAML: {error}"
    mark = error.problem_mark
    problem = " ".join(str(error.problem).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"


def from_pydantic(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """One line a problem: dotted path, what was found, what is allowed."""
    lines = [_line(detail, model) for detail in error.errors(include_url=False)]
    return list(dict.fromkeys(lines))


def _line(detail: ErrorDetails, model: type[BaseModel]) -> str:
    where = _dotted(_path(model, detail["loc"]))
    if detail["type"] == "extra_forbidden":
        allowed = _keys(model, list(detail["loc"][:-1]))
        return f"{where}: {unknown('key', str(detail['loc'][-1]), allowed)}"
    if detail["type"] == "missing":
        return f"{where}: missing"
    if detail["type"] == "union_tag_not_found":
        return f"{where}.kind: missing"
    if detail["type"] == "union_tag_invalid":
        tags = str(detail["ctx"]["expected_tags"]).replace("'", "").split(", ")
        return f"{where}.kind: {unknown('kind', str(detail['ctx']['tag']), tags)}"
    message = detail["msg"].removeprefix("Value error, ").replace("Input should", "it should")
    return f"{where}: {detail['input']!r}; {message}"


def _path(model: type[BaseModel], loc: Iterable[int | str]) -> list[int | str]:
    """A place of the file: without the tag that says which model of a union was meant."""
    kind: Any = model
    path: list[int | str] = []
    for part in loc:
        if not _tagged(kind, part):
            path.append(part)
        kind = _step(kind, part)
    return path


def _dotted(loc: Iterable[int | str]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _keys(model: type[BaseModel], loc: list[int | str]) -> list[str]:
    """The keys allowed at a place of the file, found by walking the models' annotations."""
    kind: Any = model
    for part in loc:
        kind = _step(kind, part)
    found = _model_of(kind)
    return list(found.model_fields) if found else []


def _step(kind: Any, part: int | str) -> Any:
    """The annotation one step further into a file."""
    if tagged := _tagged(kind, part):
        return tagged
    inner = _model_of(kind)
    if inner is None:
        return _inside(kind)
    info = inner.model_fields.get(str(part))
    return info.annotation if info else None


def _tagged(kind: Any, part: int | str) -> type[BaseModel] | None:
    """The model of a tagged union (one whose models have a `kind`) that a tag stands for."""
    if _is_model(kind) or typing.get_origin(kind) in (dict, list, tuple):
        return None
    for argument in typing.get_args(kind):
        own = argument.model_fields.get("kind") if _is_model(argument) else None
        if own is not None and part in typing.get_args(own.annotation):
            return typing.cast(type[BaseModel], argument)
        if found := _tagged(argument, part):
            return found
    return None


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _inside(kind: Any) -> Any:
    arguments = typing.get_args(kind)
    return arguments[-1] if arguments else None


def _model_of(kind: Any) -> type[BaseModel] | None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    if typing.get_origin(kind) in (dict, list, tuple):
        return None
    for argument in typing.get_args(kind):
        if found := _model_of(argument):
            return found
    return None


def one_line(error: BaseException) -> str:
    """The error's type and text."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@dataclass(frozen=True)
class Failure:
    """One piece of work that did not succeed while the others went on.

    Attributes:
        what: A trial id, or "trial id / benchmark".
        reason: One line: the error and its text.
    """

    what: str
    reason: str
