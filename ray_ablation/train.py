"""One trial, from its backbone to a saved encoder in the ledger. Knows nothing of Ray.

A finished trial is returned as it is, a killed one goes on from its last valid checkpoint, and the
done mark is written last, so calling again is always right.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pandas as pd
import torch
from sentence_transformers import SentenceTransformer

from ray_ablation import backbones, checkpoint, provenance
from ray_ablation import encoder as encoders
from ray_ablation.atomic import write_frame
from ray_ablation.data import tokens, triples
from ray_ablation.data.sources import Source, local
from ray_ablation.fine_tune import FineTuning, Row
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError
from ray_ablation.settings import Execution
from ray_ablation.trial import RECIPE, Trial

logger = logging.getLogger(__name__)

COLUMNS = [
    "step",
    "epoch",
    "loss",
    "learning_rate",
    "gradient_norm",
    "eval_loss",
    "examples_per_s",
    "tokens_per_s",
    "mfu",
    "peak_bytes",
]


# What only training measures; null for an untrained reference.
MEASURED = (
    "loss",
    "eval_loss",
    "min_eval_loss",
    "training_seconds",
    "tokens",
    "padded_tokens",
    "examples_per_s",
    "tokens_per_s",
    "mfu",
    "peak_bytes",
)


@dataclass(frozen=True)
class Job:
    """What `train_trial` was asked for."""

    trial: Trial
    sources: Mapping[str, Source]
    ledger: Ledger
    execution: Execution
    device: torch.device
    report: Callable[[Row], None]
    where: Mapping[str, Any]

    @cached_property
    def backbone_sha256(self) -> str | None:
        """Of the backbone's config, tokenizer and weights as files."""
        trial = self.trial
        path = local(self.sources.get(trial.backbone))
        return backbones.content_sha256(trial.backbone, path, trial.backbone_revision)


@dataclass(frozen=True)
class Outcome:
    """What training leaves beside the weights; empty for an untrained reference."""

    rows: list[Row] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)


def train_trial(
    trial: Trial,
    sources: Mapping[str, Source],
    ledger: Ledger,
    execution: Execution,
    report: Callable[[Row], None] = lambda row: None,
    where: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train a trial, or return what it left when it is done.

    Args:
        trial: What to train.
        sources: Where backbones (local folders alone) and train sets lie, by name; the others
            come from where their names say.
        ledger: Where a killed attempt left its checkpoints, and where the result goes.
        execution: Device, threads, intervals; changes no number beyond the last bits.
        report: Called with each logged row, which also has `steps` and `from_step` (where this
            attempt began); may raise to stop.
        where: More about the place, recorded as it is (node, GPU ids).

    Returns:
        The record in trial.json.

    Raises:
        UserError: The backbone or the train set cannot be used.
        TrainingError: The loss is not finite.
    """
    with ledger.trial_lock(trial.id):
        ledger.fetch(ledger.trial_dir(trial.id))
        if record := ledger.trained(trial):
            return record
        device = pick_device(execution.device)
        _prepare_process(device, execution.cpus_per_trial)
        job = Job(trial, sources, ledger, execution, device, report, where or {})
        return _train(job)


def pick_device(name: str) -> torch.device:
    """The device for execution.device.

    Raises:
        UserError: cuda was asked for and there is none.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "execution.device is cuda but torch sees no GPU here; "
            "set it to cpu or auto, or install a torch built for this driver"
        )
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def _prepare_process(device: torch.device, threads: int) -> None:
    # Ray sets OMP_NUM_THREADS=1 for its workers; a trial computes with the CPUs it holds.
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # It would fill memory that is written before it is read anyway, and that is slow.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _train(job: Job) -> dict[str, Any]:
    trial, ledger = job.trial, job.ledger
    started = time.perf_counter()
    backbone = encoders.load_backbone(trial, local(job.sources.get(trial.backbone)))
    weights_sha256 = encoders.weights_sha256(backbone.auto_model)
    encoder = encoders.cut(backbone, trial)
    outcome = _fine_tune(job, encoder, weights_sha256) if trial.steps else Outcome()
    encoders.save(encoder, ledger.model_dir(trial.id))
    frame = pd.DataFrame(outcome.rows, columns=COLUMNS)
    write_frame(ledger.train_parquet(trial.id), frame, {"id": trial.id})
    record = {
        "recipe": RECIPE,
        "data": {
            "weights_sha256": weights_sha256,
            "backbone_sha256": job.backbone_sha256,
            "sample_sha256": None,
            **outcome.data,
        },
        "code": provenance.code(),
        "execution": _execution_record(job),
        "result": _result(job, encoder, outcome, time.perf_counter() - started),
        "attempts": outcome.attempts,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return ledger.finish_trial(trial, record)


def _fine_tune(job: Job, encoder: SentenceTransformer, weights_sha256: str) -> Outcome:
    trial, execution = job.trial, job.execution
    cache = job.ledger.cache_dir(execution.cache)
    sample = triples.prepare(trial, job.sources.get(trial.train_set), cache)
    known = tokens.truncation(sample, trial.max_length)
    train, held_out = (
        tokens.tokenise(sample, part, encoder.tokenizer, trial.max_length, cache)
        for part in ("train", "held_out")
    )
    if not known:
        logger.warning("%s", tokens.truncated_line(train.truncated, trial.max_length))
    training = FineTuning(
        trial, encoder, train, held_out, job.device, execution.gradient_checkpointing
    )
    fingerprint = _fingerprint(job, weights_sha256, sample.manifest["sha256"])
    attempts = _resume(job, training, fingerprint)
    from_step, folder = training.step, job.ledger.checkpoints_dir(trial.id)
    before_s = training.meter.seconds

    def on_row(row: Row) -> None:
        attempts.reached(row["step"], training.meter.seconds - before_s)
        job.ledger.publish(attempts.file)
        job.report(row | {"steps": trial.steps, "from_step": from_step})

    def on_checkpoint(state: checkpoint.State) -> None:
        job.ledger.publish_checkpoint(checkpoint.save(folder, state, fingerprint))

    training.run(
        log_every=execution.log_every_steps or max(1, trial.steps // 100),
        checkpoint_every=execution.checkpoint_every_steps or max(1, trial.steps // 20),
        on_row=on_row,
        on_checkpoint=on_checkpoint,
    )
    training.finish()
    data = {
        "sample_sha256": sample.manifest["sha256"],
        "rows": len(train),
        "held_out": len(held_out),
        "truncated": train.truncated,
    }
    return Outcome(training.rows, attempts.all, data, _training_result(training))


def _resume(job: Job, training: FineTuning, fingerprint: dict[str, Any]) -> checkpoint.Attempts:
    """Put the newest valid checkpoint into `training` and begin a new attempt."""
    folder = job.ledger.checkpoints_dir(job.trial.id)
    state, skipped = checkpoint.load_newest(folder, fingerprint)
    for reason in skipped:
        logger.warning("%s passes over a checkpoint: %s", job.trial.id, reason)
    if state:
        training.restore(state)
        logger.warning("%s resumes at step %d of %d", job.trial.id, state.step, job.trial.steps)
    attempts = checkpoint.Attempts(folder)
    attempts.begin(training.step, provenance.place(job.device) | dict(job.where))
    return attempts


def _fingerprint(job: Job, weights_sha256: str, sample_sha256: str) -> dict[str, Any]:
    """All that a checkpoint must share with the attempt that goes on from it."""
    return {
        "trial": job.trial.digest,
        "weights": weights_sha256,
        "backbone": job.backbone_sha256,
        "sample": sample_sha256,
        "code": provenance.code_sha256(),
        "device": job.device.type,
        "threads": torch.get_num_threads(),
        **provenance.code()["versions"],
    }


def _execution_record(job: Job) -> dict[str, Any]:
    execution = job.execution
    return {
        **provenance.place(job.device),
        "gradient_checkpointing": execution.gradient_checkpointing,
        "gpus": execution.gpus_per_trial if job.device.type == "cuda" else 0,
        "cpus": execution.cpus_per_trial,
        **job.where,
    }


def _training_result(training: FineTuning) -> dict[str, Any]:
    last, meter = training.rows[-1], training.meter
    return {
        "loss": last["loss"],
        "eval_loss": last["eval_loss"],
        "min_eval_loss": training.best_loss,
        "training_seconds": meter.seconds,
        "tokens": meter.tokens,
        "padded_tokens": meter.padded_tokens,
        "order_sha256": training.schedule.orders,
        **meter.total(),
    }


def _result(
    job: Job, encoder: SentenceTransformer, outcome: Outcome, seconds: float
) -> dict[str, Any]:
    trial = job.trial
    empty = dict.fromkeys(MEASURED)
    return {
        "steps": trial.steps,
        "examples": trial.examples,
        "passes": trial.passes,
        "in_batch_negatives": trial.in_batch_negatives,
        "parameters": encoders.parameter_count(encoder),
        "encoder_sha256": encoders.weights_sha256(encoder),
        "seconds": seconds,
        "order_sha256": [],
        **empty,
        **outcome.result,
    }
