"""What a grid comes to, what of it is done, and whether it can go on: before anything starts.

`survey` and `describe` read the grid and the ledger alone and answer on a laptop. `preflight`
fetches and audits what the trials need, and refuses in seconds, by name, what would fail in hours:
a folder that cannot be written, a disk too small, a backbone or a data set that is not there, done
trials whose weights or samples were not those of today.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ray_ablation import backbones, provenance
from ray_ablation.atomic import write_json
from ray_ablation.data import beir, tokens, triples
from ray_ablation.grid import Grid
from ray_ablation.layers import kept_layers
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError
from ray_ablation.trial import Trial

# Of the weights' bytes: the encoder, and two checkpoints of weights, two AdamW moments and best.
BYTES_DONE, BYTES_TRAINING = 1, 8

# Counts of a sample's manifest that are told where there is any.
DROPPED = (
    "rows_without_query",
    "rows_without_positive",
    "rows_with_too_few_negatives",
    "negatives_dropped_as_relevant",
)


class PreflightError(UserError):
    """The study cannot go on as it is; the text names the cause and the setting to change."""


@dataclass(frozen=True)
class Status:
    """Where a trial stands.

    Attributes:
        record: Its trial.json, None while it is not done.
        failure: The note of its last failure.
        scored: Benchmarks with a score file.
        stopped_at: Step of the newest checkpoint of a trial that was stopped.
    """

    trial: Trial
    record: dict[str, Any] | None
    failure: dict[str, Any] | None
    scored: tuple[str, ...]
    stopped_at: int | None


def survey(grid: Grid, ledger: Ledger) -> list[Status]:
    """The status of each trial of a grid, in its order."""
    return [
        Status(
            trial,
            ledger.trained(trial),
            ledger.failure(trial.id),
            tuple(b.name for b in grid.benchmarks if ledger.read_scores(trial.id, b.name)),
            ledger.newest_checkpoint(trial.id),
        )
        for trial in grid.trials
    ]


def describe(grid: Grid, statuses: Sequence[Status]) -> str:
    """The product and a line a trial, as `--plan` prints them."""
    axes = [name.replace("_", " ") for name in grid.axes]
    seen = ["examples", "passes", "in-batch negatives"]
    header = ["experiment", "trial", *axes, *seen, "state"]
    rows = [_row(grid, status) for status in statuses]
    lines = [summary(grid, statuses), "", *_aligned([header, *rows]), ""]
    same = (f"{name.replace('_', ' ')} {value}" for name, value in grid.common().items())
    lines.append(f"the same for all that are trained: {', '.join(same)}")
    lines.append(f"scored on {', '.join(b.name for b in grid.benchmarks)}: {_scoring(grid)}")
    shared = [name for name in grid.experiments.values() if "+" in name]
    if shared:
        lines.append(
            "Untrained references that differ only in what training reads are one trial: "
            + ", ".join(dict.fromkeys(shared))
        )
    return "\n".join(lines)


def _scoring(grid: Grid) -> str:
    beside = "".join(f"; beside {reference.label}" for reference in grid.references)
    claimed = f"; {len(grid.claims)} claims to answer" if grid.claims else ""
    return ", ".join(grid.measures) + beside + claimed


def summary(grid: Grid, statuses: Sequence[Status]) -> str:
    """As in "full: 20 trials = 5 experiment x 4 depth; 12 done, 8 to train"."""
    done = sum(status.record is not None for status in statuses)
    return f"{grid.name}: {grid.product}; {done} done, {len(statuses) - done} to train"


def _row(grid: Grid, status: Status) -> list[str]:
    trial = status.trial
    passes, negatives = trial.passes, trial.in_batch_negatives
    if status.record:
        state = f"trained, scored on {len(status.scored)} of {len(grid.benchmarks)}"
    elif status.failure:
        state = f"failed: {status.failure['reason']}"
    elif status.stopped_at:
        state = f"stopped at step {status.stopped_at} of {trial.steps}"
    else:
        state = "to train"
    fields = trial.fields()
    return [
        grid.experiments[trial.id],
        trial.id,
        *("-" if fields[name] is None else str(fields[name]) for name in grid.axes),
        f"{trial.examples:,}" if trial.steps else "-",
        "-" if passes is None else f"{passes:.2f}",
        "-" if negatives is None else str(negatives),
        state,
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def preflight(
    grid: Grid,
    statuses: Sequence[Status],
    benchmarks: Iterable[beir.Benchmark],
    ledger: Ledger,
    say: Callable[[str], None],
) -> None:
    """Prepare and audit what the study needs.

    Raises:
        UserError: What is missing or does not fit, and what to do.
    """
    ledger.check_writable()
    pending = [status.trial for status in statuses if status.record is None]
    for trial in pending:
        _check_backbone(trial, grid.path(trial.backbone))
    _check_disk(pending, grid, ledger)
    cache = ledger.cache_dir(grid.execution.cache)
    samples = _samples(grid, [status.trial for status in statuses], cache, say)
    for status in statuses:
        if status.record:
            _check_reuse(grid, status, samples)
    for line in _provenance(statuses):
        say(line)
    contents = ledger.study_benchmarks(grid.name)
    for benchmark in benchmarks:
        prepared = beir.prepare(benchmark, grid.source_of(benchmark), cache, say)
        contents[benchmark.name] = prepared.about["sha256"]
        say(beir.describe(prepared))
    write_json(ledger.benchmarks_json(grid.name), contents)
    ledger.publish(ledger.benchmarks_json(grid.name))


def _check_backbone(trial: Trial, path: Path | None) -> None:
    """Refuse a backbone that is nowhere, or too shallow."""
    folder = backbones.locate(trial.backbone, path)
    if folder is None:
        folder = backbones.fetch_config(trial.backbone, trial.backbone_revision)
    count = backbones.layer_count(trial.backbone, folder)
    try:
        kept_layers(trial.keep, trial.depth, count or trial.depth)
    except ValueError as error:
        raise PreflightError(f"{trial.id}: {trial.backbone}: {error}") from None


def _check_disk(pending: list[Trial], grid: Grid, ledger: Ledger) -> None:
    sizes = []
    for trial in pending:
        folder = backbones.locate(trial.backbone, grid.path(trial.backbone))
        sizes.append(backbones.weights_file(folder).stat().st_size if folder else 0)
    if not sizes:
        return
    needed = sum(sizes) * BYTES_DONE + max(sizes) * BYTES_TRAINING
    free = shutil.disk_usage(ledger.root).free
    if free < needed:
        raise PreflightError(
            f"{ledger.root} has {free / 1e9:.1f} GB free; {len(pending)} trials need about "
            f"{needed / 1e9:.1f} GB. Free some space, or give another folder: --storage FOLDER"
        )


def _samples(
    grid: Grid, trials: list[Trial], cache: Path, say: Callable[[str], None]
) -> dict[str, triples.Sample]:
    """The sample of each trained trial by id; each distinct one is prepared and told once."""
    told: set[str] = set()
    samples: dict[str, triples.Sample] = {}
    for trial in trials:
        if not trial.steps:
            continue
        sample = triples.prepare(trial, grid.source(trial.train_set), cache, say)
        _check_batches(trial, sample)
        samples[trial.id] = sample
        lines = [_sample_line(trial, sample), *_truncated(trial, sample)]
        for line in lines:
            if line not in told:
                told.add(line)
                say(line)
    return samples


def _check_batches(trial: Trial, sample: triples.Sample) -> None:
    """Refuse a batch that cannot be filled without a text twice."""
    rows = sample.train()
    for column in ("query", "positive"):
        distinct = pc.count_distinct(rows.column(column)).as_py()
        if distinct < trial.batch:
            raise PreflightError(
                f"train set {trial.train_set}: {len(rows)} rows hold {distinct} distinct texts as "
                f"{column}; a batch of {trial.batch} in which none stands twice cannot be made. "
                "Lower batch, or raise samples"
            )


def _sample_line(trial: Trial, sample: triples.Sample) -> str:
    counts = sample.manifest["counts"]
    odd = [f"{counts[name]:,} {name.replace('_', ' ')}" for name in DROPPED if counts.get(name)]
    but = f" ({', '.join(odd)})" if odd else ""
    return (
        f"train set {trial.train_set}: {trial.samples:,} rows with {trial.negatives} negatives "
        f"each, {trial.held_out:,} held out, of {counts['usable_rows']:,} usable of "
        f"{counts['rows']:,}{but}; sample {sample.manifest['sha256'][:12]}"
    )


def _truncated(trial: Trial, sample: triples.Sample) -> list[str]:
    """What earlier tokenising of the sample found to be cut at the trial's length."""
    found = tokens.truncation(sample, trial.max_length)
    return [f"train set {trial.train_set}: {text}" for text in found]


def _check_reuse(grid: Grid, status: Status, samples: dict[str, triples.Sample]) -> None:
    """A done trial counts only while its weights and sample are those of today."""
    trial, data = status.trial, (status.record or {})["data"]
    backbone = backbones.content_sha256(
        trial.backbone, grid.path(trial.backbone), trial.backbone_revision
    )
    sample = samples[trial.id].manifest["sha256"] if trial.id in samples else None
    now = {"backbone_sha256": backbone, "sample_sha256": sample}
    for name, value in now.items():
        if value is not None and data.get(name) not in (None, value):
            raise PreflightError(
                f"trial {trial.id} was trained with {name} {data[name]}, but it is {value} now. "
                "Bring the old files back, or keep both results apart: --storage FOLDER"
            )


def _provenance(statuses: Sequence[Status]) -> list[str]:
    """Done trials of other code or libraries count, since RECIPE is the same, but it is said."""
    found = Counter(
        "; ".join(differences)
        for status in statuses
        if status.record and (differences := provenance.differences(status.record["code"]))
    )
    return [f"note: {count} done trials were trained with {text}" for text, count in found.items()]
