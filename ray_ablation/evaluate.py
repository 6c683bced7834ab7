"""All encoders on all benchmarks, in one Ray Data execution over (encoder, corpus shard) pairs.

A cell is one trial on one benchmark (`cells.py`). For each cell whose scores are missing the corpus
is cut into shards; actors answer shards (`retrieve.Retriever`), the driver merges answers by
document id, and a cell is scored and written as soon as its last shard is in, so a kill loses only
what was under way. A cell that fails becomes a `Failure` and the others go on. References
(`bm25.py`) come first, in this process.

A few seconds of work are done in this process, by the same class, because starting Ray Data costs
more. Torch and Ray are imported only when there is work.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ray_ablation import bm25
from ray_ablation.cells import Cell, cut_corpora, finish, missing, take
from ray_ablation.data.beir import Benchmark, prepare
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.problems import Failure, UserError, one_line
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial

if TYPE_CHECKING:
    from ray_ablation.retrieve import Retriever

# Ray Data takes 3 to 8 s to start its actors and as long again to import torch in them.
LOCAL_LIMIT_S = 10.0

# Rough speeds for that estimate: float32 BERT on one CPU worker, and on a GPU.
FLOPS = {"cpu": 1e11, "cuda": 2e13}
BYTES_PER_TOKEN = 4.5


class LostError(RuntimeError):
    """The execution ended before all answers were in."""


class EvaluateError(UserError):
    """The encoders cannot be scored as asked; the text says what to change."""


@dataclass(frozen=True)
class Place:
    """Where the work runs.

    Attributes:
        evaluators: Actors; 0 is this process.
        device: cuda or cpu.
        why: For the line that says so.
    """

    evaluators: int
    device: str
    why: str


def evaluate(
    grid: Grid,
    trials: Sequence[Trial],
    ledger: Ledger,
    *,
    benchmarks: Sequence[Benchmark],
    say: Callable[[str], object] = print,
    connect: Callable[[], object] = lambda: None,
) -> list[Failure]:
    """Score references and every trained trial on every benchmark where scores are missing.

    Args:
        grid: Gives references, measures, evaluation, execution and paths.
        trials: Which of its trials.
        ledger: Holds the encoders; gets the scores and runs.
        benchmarks: Which of its benchmarks.
        say: Told one line where the work runs, and one a scored cell.
        connect: Called once it is known that there is work, to connect to Ray.

    Returns:
        The cells that could not be scored, by name.

    Raises:
        UserError: A benchmark cannot be read, or the cluster lacks what `execution` asks for.
    """
    cache = ledger.cache_dir(grid.execution.cache).absolute()  # workers have other folders
    prepared = [prepare(one, grid.source_of(one), cache, say) for one in benchmarks]
    failures = bm25.score_missing(grid, ledger, prepared, say)
    cells, damaged = missing(grid, trials, ledger, prepared, say)
    failures += damaged
    if not cells:
        return failures
    connect()
    place = _choose(grid.execution, cells)
    cut_corpora(cells, shards=grid.execution.shards, workers=place.evaluators)
    say(_announce(cells, place))
    return failures + _run(grid, cells, ledger, place, say)


def _run(
    grid: Grid,
    cells: Sequence[Cell],
    ledger: Ledger,
    place: Place,
    say: Callable[[str], object],
) -> list[Failure]:
    """Fill and finish the cells; those that failed."""
    by_key = {cell.key: cell for cell in cells}
    failed: dict[str, Failure] = {}
    ended = "Ray Data ended early"
    try:
        for answer in _answers(grid, cells, ledger, place):
            cell = by_key[answer["trial_id"][0].as_py(), answer["benchmark"][0].as_py()]
            if (reason := take(cell, answer)) is not None:
                failed.setdefault(cell.name, Failure(cell.name, reason))
            elif (line := finish(cell, grid, ledger)) is not None:
                say(line)
    except LostError as error:
        ended = str(error)
    for cell in cells:
        out = len(cell.shards) - len(cell.answers)
        if out and cell.name not in failed:
            reason = f"{out} of {len(cell.shards)} shards did not come back: {ended}"
            failed[cell.name] = Failure(cell.name, reason)
    return list(failed.values())


# Where and how it runs


def _choose(execution: Execution, cells: Sequence[Cell]) -> Place:
    import ray

    if execution.evaluate == "local" or (execution.evaluate == "auto" and not ray.is_initialized()):
        return _here(execution, execution.evaluate)
    if not ray.is_initialized():
        raise EvaluateError(
            "execution.evaluate is ray, but this process is connected to no Ray cluster; start "
            "without --local, or set execution.evaluate to auto or local"
        )
    flops = sum(_flops(cell) for cell in cells)
    device = _local_device(execution)
    if execution.evaluate == "auto" and device and flops / FLOPS[device] < LOCAL_LIMIT_S:
        work = f"{flops / FLOPS[device]:.0f} s of work, less than starting Ray Data takes"
        return _here(execution, f"auto: about {work}")
    return _there(execution, execution.evaluate)


def _local_device(execution: Execution) -> str | None:
    """What this process computes on; None when it lacks the GPU that is asked for."""
    import torch

    if execution.device != "cpu" and torch.cuda.is_available():
        return "cuda"
    return None if execution.device == "cuda" else "cpu"


def _here(execution: Execution, why: str) -> Place:
    if (device := _local_device(execution)) is None:
        raise EvaluateError(
            "execution.device is cuda, but torch finds no GPU here; set execution.device to cpu, "
            "or execution.evaluate to ray on a cluster that has GPUs"
        )
    return Place(0, device, why)


def _there(execution: Execution, why: str) -> Place:
    from ray_ablation import cluster

    settled = cluster.settle_device(execution)
    wanted = _resources(settled)
    cluster.check_fits(wanted, cluster.nodes())
    slots = cluster.slots(wanted, cluster.nodes())
    if (execution.evaluators or 1) > slots:
        raise EvaluateError(
            f"execution.evaluators is {execution.evaluators}, but the cluster holds {slots} of "
            f"them at a time; set it to at most {slots}, or to null to fill the cluster"
        )
    return Place(execution.evaluators or slots, settled.device, why)


def _flops(cell: Cell) -> float:
    """Of embedding the corpus: 2 per parameter and token."""
    text_bytes = 0
    for file in cell.prepared.shards:
        metadata = pq.ParquetFile(file).metadata
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        columns = [group.column(i) for group in groups for i in range(group.num_columns)]
        text_bytes += sum(c.total_uncompressed_size for c in columns if c.path_in_schema == "text")
    longest = cell.what["max_length"] * cell.prepared.about["documents"]
    tokens: float = min(longest, text_bytes / BYTES_PER_TOKEN)
    return 2.0 * cell.parameters * tokens


def _resources(execution: Execution) -> dict[str, float]:
    """What an actor holds, in Ray's names."""
    cuda = execution.device == "cuda"
    return {"GPU": 1.0} if cuda else {"CPU": float(execution.cpus_per_trial)}


def _announce(cells: Sequence[Cell], place: Place) -> str:
    shards = sum(len(cell.shards) for cell in cells)
    where = f"{place.evaluators} Ray Data actors" if place.evaluators else "this process"
    work = f"{len(cells)} trial-benchmark pairs in {shards} shards"
    return f"scoring {work} on {where}, {place.device} (evaluate: {place.why})"


# Running it


def _answers(grid: Grid, cells: Sequence[Cell], ledger: Ledger, place: Place) -> Iterator[pa.Table]:
    """One row like retrieve.ANSWER a shard, as they come."""
    from ray_ablation.retrieve import Corpus, Model, Retriever

    rows = [
        {"trial_id": cell.key[0], "benchmark": cell.key[1], "shard": i, "start": a, "stop": b}
        for cell in cells
        for i, (a, b) in enumerate(cell.shards)
    ]
    there = replace(ledger, root=ledger.root.absolute())  # workers have other folders

    def model(cell: Cell) -> Model:
        folder = there.model_dir(cell.trial.id)
        return Model(folder, cell.what["max_length"], partial(there.fetch, folder))

    def corpus(cell: Cell) -> Corpus:
        one, folder = cell.prepared.benchmark, cell.prepared.folder
        return Corpus(
            cell.prepared,
            cell.depth,
            partial(prepare, one, grid.source_of(one), folder.parents[1]),
        )

    arguments: dict[str, Any] = {
        "models": {cell.trial.id: model(cell) for cell in cells},
        "corpora": {cell.key[1]: corpus(cell) for cell in cells},
        "batch": grid.evaluation.batch,
        "dtype": grid.evaluation.dtype,
        "device": place.device,
        "threads": grid.execution.cpus_per_trial if place.evaluators else None,
    }
    if not place.evaluators:
        retriever = Retriever(**arguments)
        yield from (retriever(pa.Table.from_pylist([row])) for row in rows)
        return
    yield from _on_ray(Retriever, arguments, rows, grid.execution, place)


def _on_ray(
    retriever: type["Retriever"],
    arguments: dict[str, Any],
    rows: list[dict[str, Any]],
    execution: Execution,
    place: Place,
) -> Iterator[pa.Table]:
    """The rows through a pool of actors in one Ray Data execution."""
    import ray.data

    from ray_ablation import cluster, telemetry

    cpu = {
        "num_cpus": execution.cpus_per_trial,
        # Ray leaves the GPUs visible to an actor that holds none.
        "runtime_env": {"env_vars": {"CUDA_VISIBLE_DEVICES": ""}},
    }
    try:
        with cluster.quiet_data():
            answers = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
                retriever,
                fn_constructor_kwargs=arguments,
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=min(place.evaluators, len(rows))),
                **({"num_gpus": 1} if place.device == "cuda" else cpu),
            )
            for block in answers.iter_batches(batch_size=None, batch_format="pyarrow"):
                for answer in (block.slice(i, 1) for i in range(block.num_rows)):
                    speed = answer["documents"][0].as_py() / answer["seconds"][0].as_py()
                    telemetry.documents_per_s(answer["benchmark"][0].as_py(), speed)
                    yield answer
    except ray.exceptions.RayError as error:
        raise LostError(one_line(error)) from error
