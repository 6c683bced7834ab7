"""A trial against sentence-transformers' own trainer, and against itself interrupted."""

import itertools
import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import nn
from transformers import get_linear_schedule_with_warmup

from ray_ablation import encoder as encoders
from ray_ablation.atomic import read_frame
from ray_ablation.data import tokens, triples
from ray_ablation.fine_tune import FineTuning, TrainingError
from ray_ablation.ledger import Ledger
from ray_ablation.objective import learning_rate
from ray_ablation.problems import UserError
from ray_ablation.settings import Execution
from ray_ablation.throughput import Meter, chunk_price
from ray_ablation.train import train_trial
from ray_ablation.trial import Trial
from tiny import hard_negatives, tiny_bert

CPU = torch.device("cpu")
EXECUTION = Execution(device="cpu", log_every_steps=1, checkpoint_every_steps=2)


class StopError(Exception):
    """Stands for a kill: raised out of the report."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    root = tmp_path_factory.mktemp("sources")
    return {
        "tiny": tiny_bert(root / "tiny", dropout=0.1),
        "dry": tiny_bert(root / "dry", dropout=0.0),
        "msmarco-hard-negatives": hard_negatives(root / "triples", rows=120, passages=200),
    }


def trial_of(backbone="tiny", **fields):
    defaults = {"depth": 2, "samples": 100, "held_out": 12, "batch": 8, "steps": 10}
    defaults |= {"learning_rate": 1e-3, "max_length": 24, "precision": "fp32", "seed": 5}
    return Trial(backbone=backbone, **(defaults | fields))


def fine_tuning(trial, sources, cache, **options):
    sample = triples.prepare(trial, sources[trial.train_set], cache)
    encoder = encoders.build(trial, sources[trial.backbone])
    parts = [
        tokens.tokenise(sample, part, encoder.tokenizer, trial.max_length, cache)
        for part in ("train", "held_out")
    ]
    return sample, FineTuning(trial, encoder, *parts, CPU, **options)


def weights_of(ledger, trial):
    return ledger.read_trial(trial.id)["result"]["encoder_sha256"]


def stock_losses(trial, sources, rows):
    """Losses of SentenceTransformerTrainer on the rows in their order."""
    encoder = encoders.build(trial, sources[trial.backbone])

    class InOrder(torch.utils.data.BatchSampler):
        def __init__(self, dataset, batch_size, drop_last, **ignored):
            super().__init__(range(len(dataset)), batch_size, drop_last)

        def set_epoch(self, epoch):
            pass

    arguments = SentenceTransformerTrainingArguments(
        output_dir="unused",
        per_device_train_batch_size=trial.batch,
        max_steps=trial.steps,
        learning_rate=trial.learning_rate,
        warmup_steps=trial.warmup_steps,
        max_grad_norm=trial.clip,
        weight_decay=trial.weight_decay,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        batch_sampler=InOrder,
    )
    loss = MultipleNegativesRankingLoss(encoder, scale=trial.loss_scale)
    trainer = SentenceTransformerTrainer(
        encoder, arguments, train_dataset=Dataset.from_list(rows), loss=loss
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_losses_equal_the_stock_trainers(sources, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trial = trial_of("dry", steps=20, weight_decay=0.1)
    sample, training = fine_tuning(trial, sources, tmp_path)
    rows = sample.train().to_pylist()
    order = [row for step in range(trial.steps) for row in training.schedule.rows(step)[1]]
    _, training = fine_tuning(trial, sources, tmp_path)
    training.run(1, 100, lambda row: None, lambda state: None)
    ours = [row["loss"] for row in training.rows]
    stock = stock_losses(trial, sources, [rows[i] for i in order])
    assert np.ptp(ours) > 0.05  # it does learn something
    assert np.abs(np.array(ours) - np.array(stock)).max() < 1e-4


@pytest.mark.parametrize("steps", [1, 9, 10, 31, 100])
def test_learning_rate_is_transformers_linear_schedule(steps):
    trial = trial_of(steps=steps)
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=trial.learning_rate)
    warmup = math.ceil(0.1 * steps)
    schedule = get_linear_schedule_with_warmup(optimizer, warmup, steps)
    rates = [learning_rate(trial, step) for step in range(steps + 1)]
    for step, rate in enumerate(rates):
        assert rate == pytest.approx(schedule.get_last_lr()[0], abs=1e-12), step
        optimizer.step()
        schedule.step()
    assert rates[-1] == 0
    assert rates.index(max(rates)) == min(warmup, steps) or steps == 1


def test_cached_gradients_equal_whole_ones(sources, tmp_path):
    gradients = []
    for micro_batch in (None, 3):
        trial = trial_of("dry", micro_batch=micro_batch)
        _, training = fine_tuning(trial, sources, tmp_path)
        training.encoder.train()
        training.backward(training.schedule.rows(0)[1])
        parameters = training.encoder.parameters()
        gradients.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))
    largest = gradients[0].abs().max()
    assert largest > 1
    assert (gradients[0] - gradients[1]).abs().max() / largest < 1e-5


@pytest.mark.parametrize(
    "fields", [{}, {"micro_batch": 4}, {"checkpoint": "best"}, {"precision": "bf16"}]
)
def test_interrupted_training_ends_with_the_same_bits(sources, tmp_path, fields):
    trial = trial_of(**fields)
    whole = Ledger(tmp_path / "whole")
    train_trial(trial, sources, whole, EXECUTION)
    cut = Ledger(tmp_path / "cut")
    for stop in (3, 6):
        rows = []

        def report(row, stop=stop, rows=rows):
            rows.append(row)
            if row["step"] == stop:
                raise StopError

        with pytest.raises(StopError):
            train_trial(trial, sources, cut, EXECUTION, report)
    # The first stop lost step 3, which came after the checkpoint of step 2.
    assert rows[0]["from_step"] == 2
    record = train_trial(trial, sources, cut, EXECUTION)
    assert [(a["from_step"], a["to_step"]) for a in record["attempts"]] == [(0, 3), (2, 6), (4, 10)]
    assert weights_of(cut, trial) == weights_of(whole, trial)
    counted = [ledger.read_trial(trial.id)["result"] for ledger in (cut, whole)]
    for name in ("tokens", "padded_tokens"):
        assert counted[0][name] == counted[1][name]  # of all attempts, lost steps left out
    logged = [read_frame(ledger.train_parquet(trial.id))[0] for ledger in (cut, whole)]
    same = ["step", "epoch", "loss", "learning_rate", "gradient_norm", "eval_loss"]
    assert logged[0][same].equals(logged[1][same])
    assert not cut.checkpoints_dir(trial.id).exists()


@pytest.mark.parametrize("damaged", ["encoder.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(sources, tmp_path, caplog, damaged):
    trial = trial_of()

    def report(row):
        if row["step"] == 7:
            raise StopError

    ledger = Ledger(tmp_path / "cut")
    with pytest.raises(StopError):
        train_trial(trial, sources, ledger, EXECUTION, report)
    newest = ledger.checkpoints_dir(trial.id) / "step-00000006" / damaged
    newest.write_bytes(newest.read_bytes()[:-9])
    record = train_trial(trial, sources, ledger, EXECUTION)
    assert record["attempts"][-1]["from_step"] == 4
    assert f"step-00000006: {damaged} is missing or damaged" in caplog.text
    whole = Ledger(tmp_path / "whole")
    train_trial(trial, sources, whole, EXECUTION)
    assert weights_of(ledger, trial) == weights_of(whole, trial)


def test_a_checkpoint_of_other_threads_is_not_resumed(sources, tmp_path, caplog):
    trial, ledger = trial_of(), Ledger(tmp_path)

    def report(row):
        if row["step"] == 5:
            raise StopError

    with pytest.raises(StopError):
        train_trial(trial, sources, ledger, EXECUTION, report)
    other = EXECUTION.model_copy(update={"cpus_per_trial": 2})
    record = train_trial(trial, sources, ledger, other)
    assert record["attempts"][-1]["from_step"] == 0
    assert "made with threads 1, now 2" in caplog.text


def test_a_done_trial_is_not_trained_again(sources, tmp_path):
    trial, ledger = trial_of(steps=2), Ledger(tmp_path)
    record = train_trial(trial, sources, ledger, EXECUTION)

    def report(row):
        raise AssertionError("trained again")

    again = train_trial(trial, sources, ledger, EXECUTION, report)
    assert again == record
    weights = ledger.model_dir(trial.id) / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert ledger.trained(trial) is None


def test_untrained_reference_is_the_cut_backbone(sources, tmp_path):
    trial, ledger = trial_of(steps=0).reduced(), Ledger(tmp_path)
    record = train_trial(trial, sources, ledger, EXECUTION)
    expected = encoders.weights_sha256(encoders.build(trial, sources["tiny"]))
    assert record["result"]["encoder_sha256"] == expected
    assert record["result"]["loss"] is None
    assert record["data"]["sample_sha256"] is None
    assert len(read_frame(ledger.train_parquet(trial.id))[0]) == 0


def test_seeds_change_the_order_and_depths_do_not(sources, tmp_path):
    orders = {}
    for depth, seed in itertools.product((1, 2), (5, 6)):
        trial = trial_of(depth=depth, seed=seed, steps=15)
        record = train_trial(trial, sources, Ledger(tmp_path), EXECUTION)
        orders[depth, seed] = tuple(record["result"]["order_sha256"])
    assert orders[1, 5] == orders[2, 5] != orders[1, 6] == orders[2, 6]
    assert len(set(orders[1, 5])) == 2  # 12 batches an epoch


def test_gradient_checkpointing_changes_no_bit(sources, tmp_path):
    trial = trial_of(steps=3)
    for name, value in (("off", False), ("on", True)):
        execution = EXECUTION.model_copy(update={"gradient_checkpointing": value})
        train_trial(trial, sources, Ledger(tmp_path / name), execution)
    assert weights_of(Ledger(tmp_path / "on"), trial) == weights_of(Ledger(tmp_path / "off"), trial)


def test_evaluation_loss_is_over_all_held_out_documents(sources, tmp_path):
    trial = trial_of()
    sample, training = fine_tuning(trial, sources, tmp_path)
    table = sample.held_out()
    encode = training.encoder.encode
    queries = encode(table.column("query").to_pylist(), normalize_embeddings=True)
    documents = np.concatenate(
        [
            encode(table.column(name).to_pylist(), normalize_embeddings=True)
            for name in ("positive", "negative_1")
        ]
    )
    scores = trial.loss_scale * queries.astype(np.float64) @ documents.T
    log_z = np.log(np.exp(scores).sum(axis=1))
    expected = (log_z - scores[range(12), range(12)]).mean()
    assert training.evaluation_loss() == pytest.approx(expected, abs=1e-5)


def test_the_best_checkpoint_is_the_one_kept(sources, tmp_path):
    # A rate that first helps and then ruins: the lowest evaluation loss is not the last.
    trial = trial_of(checkpoint="best", learning_rate=0.05, steps=20, eval_every_steps=1)
    _, training = fine_tuning(trial, sources, tmp_path)
    training.run(1, 100, lambda row: None, lambda state: None)
    last = training.rows[-1]["eval_loss"]
    assert training.best_loss < last
    training.finish()
    assert training.evaluation_loss() == pytest.approx(training.best_loss, abs=1e-6)


def test_a_loss_that_is_not_finite_names_the_step(sources, tmp_path):
    trial = trial_of(learning_rate=1e30, warmup_fraction=0.0)
    with pytest.raises(TrainingError, match=r"loss is nan at step \d of 10; lower learning_rate"):
        train_trial(trial, sources, Ledger(tmp_path), EXECUTION)


def test_cuda_that_is_not_there_is_refused(sources, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    execution = Execution(device="cuda")
    with pytest.raises(UserError, match="torch sees no GPU here; set it to cpu or auto"):
        train_trial(trial_of(), sources, Ledger(tmp_path), execution)


def test_a_chunk_costs_more_tokens_the_smaller_the_encoder(sources):
    tiny = chunk_price(encoders.build(trial_of(), sources["tiny"]), CPU).fixed
    minilm = Trial(backbone="sentence-transformers/all-MiniLM-L6-v2", depth=6, steps=0)
    assert 500 < tiny < 2000
    assert 5 < chunk_price(encoders.build(minilm), CPU).fixed < 20


def test_meter_counts_training_time_alone(sources):
    ticks = iter([0.0, 2.0, 10.0, 13.0])
    encoder = encoders.build(trial_of(), sources["tiny"])
    meter = Meter(encoder, CPU, clock=lambda: next(ticks))
    for _ in range(2):
        with meter.working():
            meter.count(examples=10, tokens=100, padded_tokens=120, squares=1000)
    total = meter.total()
    assert total["examples_per_s"] == 20 / 5
    assert total["tokens_per_s"] == 200 / 5
    assert total["mfu"] is None  # a CPU has no peak to compare with
