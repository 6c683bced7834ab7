"""The cells of an evaluation: one trial on one benchmark, missing or done, filled and written.

A cell is done while its score file is of this very encoder, benchmark and evaluation (`what`);
`scores.py` says when it is believed.

A cell is filled shard by shard. That nothing is missing is checked, not assumed: every shard once,
and as many documents as the corpus has.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_ablation import metrics, scores
from ray_ablation.data.beir import Prepared
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.problems import Failure
from ray_ablation.trial import Trial

if TYPE_CHECKING:
    from ray_ablation.search import Best

# Raised by hand when the same encoder and benchmark would get other numbers.
SCORING = 1

# A shard of this many documents takes a GPU seconds, and its vectors some 100 MB.
SHARD_DOCUMENTS = 25_000
# Below this a shard costs more in padding and bookkeeping than it gains by spreading.
SMALLEST_SHARD_DOCUMENTS = 500


@dataclass
class Cell:
    """One trial on one benchmark, filled shard by shard.

    Attributes:
        what: All that its scores depend on.
        shards: Row ranges of the corpus, [start, stop).
        best: The best documents of the shards that are in.
        answers: What those shards' actors counted, by shard.
    """

    trial: Trial
    prepared: Prepared
    what: dict[str, Any]
    parameters: int
    shards: list[tuple[int, int]] = field(default_factory=list)
    best: "Best | None" = None
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Trial id and benchmark, as answers name it."""
        return self.trial.id, self.prepared.benchmark.name

    @property
    def name(self) -> str:
        """As failures name it."""
        return " / ".join(self.key)

    def count(self, name: str) -> Any:
        """Sum over the shards that are in."""
        return sum(answer[name] for answer in self.answers.values())

    @property
    def depth(self) -> int:
        """Documents each shard keeps per query."""
        return metrics.depth_needed(self.what["k"], self.what["self_ids"])


def missing(
    grid: Grid,
    trials: Sequence[Trial],
    ledger: Ledger,
    prepared: Sequence[Prepared],
    say: Callable[[str], object],
) -> tuple[list[Cell], list[Failure]]:
    """Cells to score; the failures are those of encoders that are damaged."""
    cells: list[Cell] = []
    failures: list[Failure] = []
    untrained = []
    for trial in trials:
        record = ledger.read_trial(trial.id)
        if record is None:
            untrained.append(trial.id)
            continue
        todo = [
            cell for cell in _cells(grid, trial, record, prepared) if not _done(grid, cell, ledger)
        ]
        if todo and ledger.trained(trial) is None:
            reason = "its encoder is missing or damaged; --phase train makes it again"
            failures += [Failure(cell.name, reason) for cell in todo]
        else:
            cells += todo
    if untrained:
        say(f"not trained, so not scored: {', '.join(untrained)}")
    return cells, failures


def _cells(
    grid: Grid, trial: Trial, record: dict[str, Any], prepared: Sequence[Prepared]
) -> Iterator[Cell]:
    result = record["result"]
    for one in prepared:
        what = {
            "scoring": SCORING,
            "encoder_sha256": result["encoder_sha256"],
            "benchmark_sha256": one.about["sha256"],
            "split": one.benchmark.split,
            "self_ids": one.benchmark.self_ids,
            "max_length": grid.evaluation.max_length or trial.max_length,
            "dtype": grid.evaluation.dtype,
            "k": grid.evaluation.k,
            "similarity": "cosine",
        }
        yield Cell(trial, one, what, result["parameters"])


def _done(grid: Grid, cell: Cell, ledger: Ledger) -> bool:
    return scores.kept(_files(cell, ledger), cell.what, cell.prepared, grid.measures)


def cut_corpora(cells: Sequence[Cell], *, shards: int | None, workers: int) -> None:
    """Give each cell its shards: few of a small corpus, enough to keep all workers busy.

    Args:
        cells: Those to score.
        shards: Pieces of each corpus, more where one would exceed SHARD_DOCUMENTS, as memory must
            not grow with the corpus; None chooses.
        workers: How many shards are answered at a time.
    """
    busy = math.ceil(4 * workers / len(cells))
    for cell in cells:
        documents = cell.prepared.about["documents"]
        by_size = math.ceil(documents / SHARD_DOCUMENTS)
        most = max(by_size, documents // SMALLEST_SHARD_DOCUMENTS)
        count = min(documents, max(by_size, shards or min(busy, most)))
        edges = [documents * i // count for i in range(count + 1)]
        cell.shards = list(itertools.pairwise(edges))


def take(cell: Cell, answer: pa.Table) -> str | None:
    """Add one shard's answer, a row like retrieve.ANSWER; what is wrong with it, or None."""
    # Imported here as search imports torch, which a finished study is reported without.
    from ray_ablation.retrieve import hits_of
    from ray_ablation.search import Best

    (counts,) = answer.drop_columns(["hits"]).to_pylist()
    if counts["error"] is not None:
        return str(counts["error"])
    shard = counts["shard"]
    start, stop = cell.shards[shard]
    if shard in cell.answers:
        return f"shard {shard} was answered twice"
    if counts["documents"] != stop - start:
        return f"shard {shard} has {counts['documents']} documents, expected {stop - start}"
    cell.answers[shard] = counts
    cell.best = cell.best or Best(cell.depth)
    cell.best.add(hits_of(answer))
    return None


def finish(cell: Cell, grid: Grid, ledger: Ledger) -> str | None:
    """Score a cell whose shards are all in and write its run, then its scores.

    Returns:
        The line that says so, None when shards are still out.
    """
    if len(cell.answers) < len(cell.shards):
        return None
    if (found := cell.count("documents")) != cell.prepared.about["documents"]:
        raise RuntimeError(f"{cell.name}: {found} documents scored of {cell.prepared.about}")
    cut = metrics.cut(_run(cell), cell.what["k"], cell.what["self_ids"])
    about = _about(cell, len(cut.run))
    files = _files(cell, ledger)
    frame = scores.keep(files, cut, cell.trial.id, cell.prepared, grid.measures, about)
    cell.best = None
    return _line(cell, about, grid.measures[0], float(frame[grid.measures[0]].mean()))


def _files(cell: Cell, ledger: Ledger) -> scores.Files:
    key = cell.key
    return scores.Files(ledger.scores_parquet(*key), ledger.run_trec(*key), ledger.publish)


def _run(cell: Cell) -> dict[str, dict[str, float]]:
    query_ids = cell.prepared.queries()["query_id"].to_pylist()
    run: dict[str, dict[str, float]] = {query_id: {} for query_id in query_ids}
    assert cell.best is not None
    columns = [column.to_pylist() for column in cell.best.table().columns]
    for query, doc_id, score in zip(*columns, strict=True):
        run[query_ids[query]][doc_id] = score
    return run


def _about(cell: Cell, queries: int) -> dict[str, Any]:
    answers = list(cell.answers.values())
    documents, seconds = cell.count("documents"), cell.count("seconds")
    return {
        "what": cell.what,
        "documents": documents,
        "queries": queries,
        "shards": len(answers),
        "truncated_documents": cell.count("truncated_documents") / documents,
        "truncated_queries": answers[0]["truncated_queries"] / queries,
        "tokens": cell.count("tokens"),
        "padded_tokens": cell.count("padded_tokens"),
        "seconds": seconds,
        "docs_per_s": documents / seconds,
        **{f"{name}s": sorted({a[name] for a in answers}) for name in ("device", "node", "pid")},
        "threads": max(answer["threads"] for answer in answers),
    }


def _line(cell: Cell, about: dict[str, Any], measure: str, mean: float) -> str:
    trial_id, benchmark = cell.key
    documents, queries = (100 * about[f"truncated_{of}"] for of in ("documents", "queries"))
    return (
        f"scored {trial_id} on {benchmark}: {measure} {mean:.4f} "
        f"({about['documents']} documents, {about['seconds']:.1f} s), {documents:.1f} % of "
        f"documents and {queries:.1f} % of queries cut at {cell.what['max_length']} tokens"
    )
