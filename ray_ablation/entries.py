"""What the benchmarks and paths of a grid stand for.

A name takes the split and the rules of its registered benchmark, a sample those of what it is a
sample of, and the name of a group stands for all of its benchmarks.
"""

import os
import string
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ray_ablation import problems
from ray_ablation.data.beir import BENCHMARKS, GROUPS, Benchmark
from ray_ablation.data.sources import Source, parse_source
from ray_ablation.problems import GridError, UserError

KNOWN = (*BENCHMARKS, *GROUPS)

T = TypeVar("T")


def resolve(
    entries: Sequence[Benchmark], paths: dict[str, str]
) -> tuple[list[Benchmark], list[str]]:
    """The benchmarks that the entries of a grid stand for, and what is wrong with them.

    Args:
        entries: As they are written.
        paths: The grid's.
    """
    found: list[str] = []
    benchmarks: list[Benchmark] = []
    for index, entry in enumerate(entries):
        name = entry.name
        base = entry.of or name
        if name == "mean":
            found.append(f"benchmarks[{index}]: 'mean' is what reports call the mean over them")
        if base not in KNOWN and base not in paths:
            hint = f"or give the folder of your own: paths: {{{base}: ./folder}}"
            text = problems.unknown("benchmark", base, KNOWN)
            found.append(f"benchmarks[{index}]: {text} {hint}")
        if entry.of and (name in KNOWN or entry.of in GROUPS):
            found.append(
                f"benchmarks[{index}]: {name!r} is to be a sample of {entry.of!r}; give it a name "
                "of its own, and let it be of one benchmark"
            )
        for one in _entries(entry):
            if one.name in [benchmark.name for benchmark in benchmarks]:
                found.append(f"benchmarks[{index}]: {one.name!r} stands there twice")
            benchmarks.append(one)
    return benchmarks, [*found, *_misnamed(benchmarks)]


def _entries(entry: Benchmark) -> list[Benchmark]:
    """What an entry stands for: a group's benchmarks, or one with what is known of it."""
    own = entry.model_dump(exclude_unset=True)
    if entry.name in GROUPS:
        del own["name"]
        return [one.model_copy(update=own) for one in GROUPS[entry.name]]
    # One forum alone is not reported as the whole group.
    known = BENCHMARKS.get(entry.of or entry.name, entry)
    return [known.model_copy(update={"group": None} | own)]


def _misnamed(benchmarks: list[Benchmark]) -> Iterator[str]:
    """Groups that are called like something else."""
    names = ["mean", *(one.name for one in benchmarks)]
    for group in dict.fromkeys(one.group for one in benchmarks):
        if group in names:
            yield f"benchmarks: the group {group!r} is called like a benchmark; rename one"


def misspelt_paths(paths: dict[str, str]) -> Iterator[str]:
    """Problems of `paths`: texts that are no source, whatever their variables are."""
    for name, text in paths.items():
        try:
            parse_source(text)
        except UserError as error:
            yield f"paths.{name}: {error}"


def expand_source(text: str, where: str) -> Source:
    """The source of a text in which $VARIABLES and ~ are expanded.

    Raises:
        GridError: A variable is not set, or the text is no source.
    """
    return _expand(text, where, parse_source)


def expand_path(text: str, where: str) -> Path:
    """A path with $VARIABLES and ~ expanded.

    Raises:
        GridError: A variable is not set.
    """
    return _expand(text, where, lambda expanded: Path(expanded).expanduser())


def expand_storage(text: str) -> str:
    """A storage setting with $VARIABLES expanded, and ~ where it is a folder."""
    return _expand(
        text,
        "execution.storage",
        lambda expanded: expanded if "://" in expanded else str(Path(expanded).expanduser()),
    )


def _expand(text: str, where: str, make: Callable[[str], T]) -> T:
    try:
        return make(string.Template(text).substitute(os.environ))
    except UserError as error:
        raise GridError("the grid", [f"{where}: {error}"]) from None
    except KeyError as error:
        name = error.args[0]
        hint = f"{where}: {text}; set the variable: export {name}=/folder"
        raise GridError("the grid", [hint]) from None
    except (ValueError, RuntimeError) as error:
        hint = f"{where}: {text}; {error}. A dollar sign that is part of a path is written $$"
        raise GridError("the grid", [hint]) from None
