"""A study is one YAML file; here it becomes a `Grid` of trials, or one report of all its problems.

`axes` x `experiments` is a product; `fixed` fills in the rest; what nobody sets keeps the default
that stands beside the field in `Trial`. The schema is checked in `grid_file.py`; here comes what
only the whole file shows: a depth the backbone does not have, a field set twice, two equal trials.
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray_ablation import problems
from ray_ablation.backbones import BackboneError, layer_count
from ray_ablation.claim import Statement
from ray_ablation.claim_world import check, planned
from ray_ablation.data.beir import Benchmark
from ray_ablation.data.sources import Source, local
from ray_ablation.data.triples import TRAIN_SETS
from ray_ablation.entries import KNOWN, expand_source, misspelt_paths, resolve
from ray_ablation.entries import expand_path as expand_path
from ray_ablation.entries import expand_storage as expand_storage
from ray_ablation.grid_file import GridFile, Partial, read, set_fields
from ray_ablation.layers import kept_layers
from ray_ablation.problems import GridError, UserError
from ray_ablation.settings import Bm25, Evaluation, Execution, Latency
from ray_ablation.trial import Trial


@dataclass(frozen=True)
class Grid:
    """A valid study.

    Attributes:
        file: Where it was read from.
        text: The YAML itself, stored with the study.
        trials: Distinct trials, experiments outermost, in the order of the file.
        experiments: Trial id -> names of the experiments it belongs to, joined by "+".
        product: What was multiplied, "20 trials = 5 experiment x 4 depth".
        axes: Fields that differ between trials, in the order in which `Trial` declares them.
    """

    file: Path
    text: str
    name: str
    description: str
    trials: tuple[Trial, ...]
    experiments: dict[str, str]
    product: str
    axes: tuple[str, ...]
    benchmarks: tuple[Benchmark, ...]
    measures: tuple[str, ...]
    evaluation: Evaluation
    latency: Latency | None
    execution: Execution
    paths: dict[str, str]
    claims: tuple[Statement, ...]
    references: tuple[Bm25, ...] = ()

    def source(self, name: str) -> Source | None:
        """Where the grid says a backbone, train set or benchmark lies; None where it does not."""
        return expand_source(self.paths[name], f"paths.{name}") if name in self.paths else None

    def source_of(self, benchmark: Benchmark) -> Source | None:
        """The benchmark's source, or that of what it is a sample of, or of its group."""
        names = (benchmark.name, benchmark.of, benchmark.group)
        return next((self.source(name) for name in names if name and name in self.paths), None)

    def path(self, name: str) -> Path | None:
        """The source of that name where it is a folder of this machine."""
        return local(self.source(name))

    def sources(self) -> dict[str, Source]:
        """Sources by name: those under `paths`, and folders of backbones; all folders absolute."""
        found = {n: expand_source(text, f"paths.{n}") for n, text in self.paths.items()}
        found |= {t.backbone: Path(t.backbone) for t in self.trials if Path(t.backbone).is_dir()}
        return {n: s.resolve() if isinstance(s, Path) else s for n, s in found.items()}

    def trial(self, trial_id: str) -> Trial:
        """The trial of that id, or the one whose id or hash starts with it.

        Raises:
            UserError: None or several do.
        """
        found = [
            trial
            for trial in self.trials
            if trial.id.startswith(trial_id) or trial.digest.startswith(trial_id)
        ]
        exact = [trial for trial in found if trial.id == trial_id]
        if len(exact or found) == 1:
            return (exact or found)[0]
        ids = [trial.id for trial in found or self.trials]
        many = f"{len(found)} trials start with" if found else "no trial is called"
        raise UserError(f"{many} {trial_id!r}; there are: {', '.join(ids)}")

    def common(self) -> dict[str, Any]:
        """The fields that are the same for all trials that are trained, by name."""
        trained = [trial.fields() for trial in self.trials if trial.steps]
        rows = trained or [trial.fields() for trial in self.trials]
        same = {n: v for n, v in rows[0].items() if all(row[n] == v for row in rows)}
        return {name: value for name, value in same.items() if value not in (None, [])}


def load(file: str | Path, *, here: bool = True) -> Grid:
    """Read and check a grid.

    Args:
        file: The YAML.
        here: Whether it is to run on this machine. A report of a stored study needs none of the
            backbones and folders that were there when it ran.

    Raises:
        GridError: Every problem of the file, with dotted paths.
    """
    text, parsed = read(Path(file), _first_look if here else None)
    return _build(Path(file), text, parsed, here)


def _first_look(raw: dict[str, Any]) -> Iterator[str]:
    """What can be told of a file that does not fit the schema, so that one report holds it too."""
    paths = raw.get("paths") or {}
    for index, entry in enumerate(raw.get("benchmarks") or []):
        name = entry.get("name") if isinstance(entry, dict) else entry
        sampled = isinstance(entry, dict) and "of" in entry
        if isinstance(name, str) and name not in KNOWN and name not in paths and not sampled:
            yield f"benchmarks[{index}]: {problems.unknown('benchmark', name, KNOWN)}"
    fixed = raw.get("fixed") or {}
    backbone = fixed.get("backbone", Trial.model_fields["backbone"].default)
    count = layer_count(backbone) if isinstance(backbone, str) and backbone not in paths else None
    for index, depth in enumerate((raw.get("axes") or {}).get("depth") or []):
        if type(depth) is int and count and depth > count:
            yield f"axes.depth[{index}]: {_too_deep(depth, backbone, count)}"


def _build(file: Path, text: str, parsed: GridFile, here: bool) -> Grid:
    found = [*_twice(parsed), *misspelt_paths(parsed.paths)]
    drafts = [] if found else list(_product(parsed))
    benchmarks, bad = resolve(parsed.benchmarks, parsed.paths)
    found += bad + _cutoffs(parsed)
    trials, experiments = _trials(drafts, parsed, found, here)
    if not found:
        lengths = parsed.latency.lengths if parsed.latency else ()
        world = planned(list(trials.values()), parsed.measures, benchmarks, lengths)
        found += check(parsed.claims, world)
    if found:
        raise GridError(str(file), list(dict.fromkeys(found)))
    return Grid(
        file=file,
        text=text,
        trials=tuple(trials.values()),
        experiments=experiments,
        product=_describe_product(parsed, len(trials)),
        axes=_axes(list(trials.values()), parsed),
        benchmarks=tuple(benchmarks),
        measures=tuple(dict.fromkeys(parsed.measures)),
        claims=tuple(parsed.claims),
        references=tuple(parsed.reference),
        **{
            name: getattr(parsed, name)
            for name in ("name", "description", "evaluation", "latency", "execution", "paths")
        },
    )


def _twice(parsed: GridFile) -> Iterator[str]:
    """A field may be an axis, an experiment's or fixed, but only one of them."""
    axes, fixed = parsed.axes.model_fields_set, parsed.fixed.model_fields_set
    for name in sorted(axes & fixed):
        yield f"fixed.{name}: also an axis; keep one of the two"
    for experiment, partial in parsed.experiments.items():
        for name in sorted(partial.model_fields_set & axes):
            yield f"experiments.{experiment}.{name}: also an axis; keep one of the two"
        for name in sorted(partial.model_fields_set & fixed):
            yield f"experiments.{experiment}.{name}: also fixed; keep one of the two"
    for axis in sorted(axes):
        values = getattr(parsed.axes, axis)
        for index, value in enumerate(values):
            if value in values[:index]:
                yield f"axes.{axis}[{index}]: {value!r} stands there twice"


def _cutoffs(parsed: GridFile) -> list[str]:
    k = parsed.evaluation.k
    return [
        f"measures[{index}]: {measure} looks deeper than evaluation.k = {k}; raise k"
        for index, measure in enumerate(parsed.measures)
        if int(measure.partition("@")[2]) > k
    ]


# One trial to be: its fields, where in the file each was set, and its experiment's name.
Draft = tuple[dict[str, Any], dict[str, str], str]


def _product(parsed: GridFile) -> Iterator[Draft]:
    axes = set_fields(parsed.axes)
    fixed = set_fields(parsed.fixed)
    for experiment, partial in (parsed.experiments or {"": Partial()}).items():
        own = set_fields(partial)
        where = {name: f"fixed.{name}" for name in fixed}
        where |= {name: f"experiments.{experiment}.{name}" for name in own}
        for point in itertools.product(*(enumerate(values) for values in axes.values())):
            values = fixed | own | {name: v for name, (_, v) in zip(axes, point, strict=True)}
            at = {name: f"axes.{name}[{i}]" for name, (i, _) in zip(axes, point, strict=True)}
            yield values, where | at, experiment


def _trials(
    drafts: list[Draft], parsed: GridFile, found: list[str], here: bool
) -> tuple[dict[str, Trial], dict[str, str]]:
    """Distinct trials by id; problems are added to `found`."""
    trials: dict[str, Trial] = {}
    experiments: dict[str, str] = {}
    for values, where, experiment in drafts:
        if "depth" not in values:
            found.append("depth is set nowhere; put it under axes, experiments or fixed")
            continue
        trial = Trial(**values).reduced()
        found += _misfits(trial, where, parsed) if here else []
        if trial.id not in trials:
            trials[trial.id], experiments[trial.id] = trial, experiment
        elif trial.steps:
            same = experiments[trial.id]
            found.append(f"experiments {same!r} and {experiment!r} make the same trial {trial.id}")
        elif experiment not in experiments[trial.id].split("+"):
            experiments[trial.id] += f"+{experiment}"
    return trials, experiments


def _misfits(trial: Trial, where: dict[str, str], parsed: GridFile) -> Iterator[str]:
    """What is wrong with one trial, each problem at the place that set the field."""
    at = {name: where.get(name, name) for name in Trial.model_fields}
    if trial.steps and trial.train_set not in TRAIN_SETS and trial.train_set not in parsed.paths:
        text = problems.unknown("train set", trial.train_set, TRAIN_SETS)
        hint = f"or give pairs of your own: paths: {{{trial.train_set}: ./pairs.jsonl}}"
        yield f"{at['train_set']}: {text} {hint}"
    if trial.micro_batch is not None and trial.micro_batch > trial.batch:
        yield f"{at['micro_batch']}: {trial.micro_batch} is larger than batch {trial.batch}"
    if trial.checkpoint == "best" and not trial.held_out and trial.steps:
        yield f"{at['checkpoint']}: best needs held_out rows to compute an evaluation loss on"
    try:
        path = parsed.paths.get(trial.backbone)
        source = expand_source(path, f"paths.{trial.backbone}") if path else None
        if source is not None and not isinstance(source, Path):
            yield (
                f"paths.{trial.backbone}: {path}; a backbone comes from a folder, or from the hub "
                "by its id: backbone: owner/name"
            )
            return
        count = layer_count(trial.backbone, source)
    except (BackboneError, GridError) as error:
        yield f"{at['backbone']}: {error}"
        return
    if count is None:
        return
    if trial.depth > count:
        yield f"{at['depth']}: {_too_deep(trial.depth, trial.backbone, count)}"
        return
    try:
        kept_layers(trial.keep, trial.depth, count)
    except ValueError as error:
        yield f"{at['keep']}: {error}"


def _too_deep(depth: int, backbone: str, count: int) -> str:
    return f"{depth}; {backbone} has {count} layers, so it must be in 1..{count}"


def _axes(trials: list[Trial], parsed: GridFile) -> tuple[str, ...]:
    """Fields with more than one value, axes first."""
    declared = list(set_fields(parsed.axes))
    for partial in parsed.experiments.values():
        declared += [name for name in set_fields(partial) if name not in declared]
    return tuple(n for n in declared if len({json.dumps(t.fields()[n]) for t in trials}) > 1)


def _describe_product(parsed: GridFile, distinct: int) -> str:
    parts = [f"{len(values)} {name}" for name, values in set_fields(parsed.axes).items()]
    if parsed.experiments:
        parts.insert(0, f"{len(parsed.experiments)} experiment")
    return f"{distinct} trial{'s' * (distinct != 1)} = {' x '.join(parts) or '1'}"
