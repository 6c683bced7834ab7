"""The YAML of a study as it is written: read, parsed, and held against its schema.

YAML 1.2 through ruamel.yaml (2e-5 is a number, a duplicate key is refused), then pydantic in strict
mode. Every problem carries its dotted path, so `axes.depth[4]` can be found by eye. What only the
whole file shows is checked in `grid.py`.

`python -m ray_ablation.grid_file` prints the JSON schema that editors check and complete a grid
with.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, create_model
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ray_ablation import problems
from ray_ablation.claim import Claim, Statement
from ray_ablation.data.beir import Benchmark
from ray_ablation.problems import GridError, UserError
from ray_ablation.settings import Bm25, Evaluation, Execution, Latency, Measure
from ray_ablation.trial import Strict, Trial


def _partial(name: str, wrap: Any) -> Any:
    """A model with any of a trial's fields, each as `wrap` makes it."""
    fields: dict[str, Any] = {}
    for field, info in Trial.model_fields.items():
        bounded = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        fields[field] = (wrap(bounded), Field(default=None, description=info.description))
    return create_model(name, __base__=Strict, **fields)


def _several(kind: Any) -> Any:
    return Annotated[list[kind], Field(min_length=1)]


Partial: Any = _partial("Partial", lambda kind: kind)
Axes: Any = _partial("Axes", _several)


def _named(entry: Any) -> Any:
    return {"name": entry} if isinstance(entry, str) else entry


Entry = Annotated[Benchmark, BeforeValidator(_named, json_schema_input_type=str | Benchmark)]


def _reference(entry: Any) -> Any:
    entry = _named(entry)
    name = entry.get("name") if isinstance(entry, dict) else None
    if isinstance(name, str) and name not in REFERENCES:
        raise ValueError(problems.unknown("reference", name, REFERENCES))
    return entry


def _distinct(entries: list[Bm25]) -> list[Bm25]:
    for entry in entries:
        if entries.count(entry) > 1:
            raise ValueError(f"{entry.label} stands there twice")
    return entries


REFERENCES = {"bm25": Bm25}
Reference = Annotated[Bm25, BeforeValidator(_reference, json_schema_input_type=str | Bm25)]


class GridFile(Strict):
    """The YAML file as it is written."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    """Names the study's folder."""
    description: str = ""
    """What the study asks, shown at the head of its report."""
    axes: Axes = Axes()
    """Field of a trial -> the values it takes; axes multiply."""
    experiments: dict[str, Partial] = {}
    """Name -> fields of a trial set together; multiplied with the axes."""
    fixed: Partial = Partial()
    """Fields of a trial that are the same for all."""
    benchmarks: Annotated[list[Entry], Field(min_length=1)]
    """Names, or a name with split, self_ids, group, of and others."""
    measures: Annotated[list[Measure], Field(min_length=1)] = ["nDCG@10", "RR@10", "R@10", "R@100"]
    """As ir_measures spells them; the first is the headline."""
    reference: Annotated[list[Reference], AfterValidator(_distinct)] = []
    """What the encoders are shown beside: bm25, or bm25 with k1, b, stemmer and stopwords."""
    evaluation: Evaluation = Evaluation()
    latency: Latency | None = Latency()
    """null profiles nothing."""
    execution: Execution = Execution()
    paths: dict[str, str] = {}
    """Name of a backbone, train set or benchmark -> where it lies: a folder, https://host/name.zip
    or hf://datasets/owner/name (a backbone: a folder). $VARIABLES are expanded, a relative folder
    is relative to where the command runs. Not hashed: content is, by sha256."""
    claims: list[Claim] = []
    """What the author means to say; the report holds it against the data."""


class ClaimsFile(Strict):
    """A file of claims about a study that says nothing else."""

    claims: Annotated[list[Claim], Field(min_length=1)]
    """As in a grid."""


def read(
    file: Path, look: Callable[[dict[str, Any]], Iterator[str]] | None = None
) -> tuple[str, GridFile]:
    """The text of a grid and what it says.

    Args:
        file: The YAML.
        look: Says what else is wrong with a file that does not fit the schema.

    Raises:
        GridError: The file cannot be read, is not YAML, or does not fit the schema.
    """
    text = _read(file)
    raw = _parse(file, text)
    try:
        # Validated as JSON, where strict mode takes a list for a tuple and 1 for 1.0.
        return text, GridFile.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        found = problems.from_pydantic(error, GridFile)
        with suppress(AttributeError, TypeError, UserError):  # where not even the form is right
            found += look(raw) if look else []
        raise GridError(str(file), found) from None


def read_claims(file: Path) -> list[Statement]:
    """The claims of a file that has nothing else, `claims:` as in a grid.

    Raises:
        GridError: The file cannot be read, is not YAML, or does not fit the schema.
    """
    raw = _parse(file, _read(file))
    try:
        return list(ClaimsFile.model_validate_json(json.dumps(raw)).claims)
    except ValidationError as error:
        raise GridError(str(file), problems.from_pydantic(error, ClaimsFile)) from None


def set_fields(partial: Strict) -> dict[str, Any]:
    """The fields that the file sets."""
    return {
        name: getattr(partial, name)
        for name in type(partial).model_fields
        if name in partial.model_fields_set
    }


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        nearby = sorted(str(path) for path in Path("grids").glob("*.yaml"))
        hint = f"; here are: {', '.join(nearby)}" if nearby else ""
        raise GridError(str(file), [f"cannot be read: {error}{hint}"]) from None


def _check_keys(value: Any) -> None:
    """Refuse keys that are no text: 1 and "1" would become one key."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError(f"key {key!r} is no text; write it in quotes")
            _check_keys(inner)
    elif isinstance(value, list):
        for inner in value:
            _check_keys(inner)


def _parse(file: Path, text: str) -> Any:
    try:
        raw = YAML(typ="safe", pure=True).load(text)
        _check_keys(raw)
        json.dumps(raw, allow_nan=False)
    except YAMLError as error:
        raise GridError(str(file), [problems.from_yaml(error)]) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise GridError(str(file), [f"not plain data: {error}"]) from None
    if not isinstance(raw, dict):
        raise GridError(str(file), ["expected a mapping with name, axes, fixed, benchmarks, ..."])
    return raw


if __name__ == "__main__":
    print(json.dumps(GridFile.model_json_schema(), indent=2))
