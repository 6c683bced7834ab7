"""The training loop: one optimizer step after another, over sentence-transformers' own modules.

    rows of the step -> all their texts, sorted by length, in chunks -> encoder -> (N, D)
    -> MultipleNegativesRankingLoss in float32 -> AdamW, clipped, linear warm-up and decay

Nothing random outlives a step: its rows follow from (seed, epoch) and its dropout from (seed,
step), so training resumed at any step ends with the bits of one never stopped (on a CPU with equal
threads; the kernels of a GPU promise less). With `micro_batch` a batch is embedded piece by piece
through the gradient cache of CachedMultipleNegativesRankingLoss: equal gradients without dropout,
other dropout masks with it.

Shapes: B rows of a batch, C columns (query, positive, negatives), N = B * C texts, D dimensions.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from torch import Tensor, nn

from ray_ablation.batches import Chunk, Ints, Schedule, lay_out, pad, seeded_generator
from ray_ablation.checkpoint import State, Weights, load_optimizer, optimizer_tensors
from ray_ablation.data.tokens import Tokens
from ray_ablation.objective import CachedLoss, learning_rate, make_loss, make_optimizer
from ray_ablation.throughput import Meter, chunk_price
from ray_ablation.trial import Trial

Row = dict[str, Any]

EVALUATED_ROWS_AT_A_TIME = 64
NO_LABELS = torch.empty(0)  # the losses' signature asks for labels that they do not read


class TrainingError(RuntimeError):
    """Training cannot go on; the text says at which step and what to change."""


class FineTuning:
    """A trial being trained.

    Args:
        trial: The recipe.
        encoder: Trained in place, moved to the device.
        train: Rows to train on.
        held_out: Rows for the evaluation loss.
        device: Where.
        gradient_checkpointing: Recompute activations to save memory.
    """

    def __init__(
        self,
        trial: Trial,
        encoder: SentenceTransformer,
        train: Tokens,
        held_out: Tokens,
        device: torch.device,
        gradient_checkpointing: bool = False,
    ) -> None:
        self.trial, self.encoder, self.device = trial, encoder.to(device), device
        self.meter = Meter(encoder, device)
        self.schedule = Schedule(train.keys_RC, trial.batch, trial.seed)
        self.step, self.rows = 0, list[Row]()
        self._best: Weights = {}
        self._train, self._held_out = train, held_out
        self._loss = make_loss(trial, encoder)
        self._optimizer = make_optimizer(trial, encoder)
        self._parameters = [p for p in encoder.parameters() if p.requires_grad]
        self._pad_id = int(encoder.tokenizer.pad_token_id or 0)
        self._price = chunk_price(encoder, device)
        self._losses: list[Tensor] = []
        self._norm = torch.zeros(())
        self._epoch = 0
        transformer: Any = encoder[0]
        self._transformer = transformer.auto_model
        if gradient_checkpointing:
            self._transformer.activation_checkpointing_enable({"use_reentrant": False})

    @property
    def best_loss(self) -> float | None:
        """Lowest evaluation loss so far."""
        losses = [row["eval_loss"] for row in self.rows if row["eval_loss"] is not None]
        return min(losses, default=None)

    def run(
        self,
        log_every: int,
        checkpoint_every: int,
        on_row: Callable[[Row], None],
        on_checkpoint: Callable[[State], None],
    ) -> None:
        """Train to the last step; rows and checkpoints go out at the intervals, in steps."""
        trial = self.trial
        while self.step < trial.steps:
            with self.meter.working():
                self._one_step()
            last = self.step == trial.steps
            evaluate = last or self.step % trial.eval_interval == 0
            # Each checkpoint follows a row, so that no half-summed loss has to be kept.
            keep = not last and self.step % checkpoint_every == 0
            if evaluate or keep or last or self.step % log_every == 0:
                on_row(self._log(evaluate))
            if keep:
                on_checkpoint(self.state())

    def state(self) -> State:
        """What a checkpoint holds."""
        tensors = optimizer_tensors(self._optimizer)
        return State(
            step=self.step,
            encoder=self.encoder.state_dict(),
            optimizer=tensors,
            rows=self.rows,
            counts=self.meter.counts(),
            best=self._best,
        )

    def restore(self, state: State) -> None:
        """Go on from a checkpoint."""
        self.encoder.load_state_dict(state.encoder)
        load_optimizer(self._optimizer, state.optimizer)
        self.step, self.rows, self._best = state.step, state.rows, state.best
        self.meter.restore(state.counts)

    def finish(self) -> None:
        """Leave the encoder in eval mode with the weights that the trial keeps."""
        if self.trial.checkpoint == "best":
            self.encoder.load_state_dict(self._best)
        if self._transformer.is_activation_checkpointing:
            self._transformer.activation_checkpointing_disable()
        self.encoder.to("cpu").eval()

    def evaluation_loss(self) -> float | None:
        """Loss on the held-out rows, each query against every positive and negative among them.

        The candidates are the same at every step, batch size and depth, so losses compare.
        """
        if not len(self._held_out):
            return None
        self.encoder.eval()
        rows = np.arange(len(self._held_out))
        parts = [
            rows[start : start + EVALUATED_ROWS_AT_A_TIME]
            for start in range(0, len(rows), EVALUATED_ROWS_AT_A_TIME)
        ]
        with torch.inference_mode():
            embedded = [self._embed(self._held_out, part) for part in parts]
            columns = [torch.cat(column) for column in zip(*embedded, strict=True)]
            loss = MultipleNegativesRankingLoss(self.encoder, self.trial.loss_scale)
            return float(loss.compute_loss_from_embeddings(columns, NO_LABELS))

    def _one_step(self) -> None:
        trial = self.trial
        if not self.encoder.training:
            self.encoder.train()
        self._seed_dropout()
        self._epoch, rows = self.schedule.rows(self.step)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate(trial, self.step)
        loss = self.backward(rows)
        self._norm = nn.utils.clip_grad_norm_(self._parameters, trial.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._losses.append(loss.detach())
        self.step += 1

    def _seed_dropout(self) -> None:
        # By hand: torch.manual_seed also visits every other kind of device, which takes as long as
        # a layer of a small encoder.
        seed = int(seeded_generator("dropout", self.trial.seed, self.step).integers(2**63))
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def backward(self, rows_B: Ints) -> Tensor:
        """Loss of a batch, its gradients added to the parameters'."""
        if isinstance(self._loss, CachedLoss):
            features = [self._features(chunk) for chunk in self._columns(rows_B)]
            # The cache embeds a second time inside backward, which must see the same precision.
            with self._autocast():
                loss: Tensor = self._loss(features, NO_LABELS)
                torch.autograd.backward(loss)
            return loss
        columns = self._embed(self._train, rows_B)
        loss = self._loss.compute_loss_from_embeddings(columns, NO_LABELS)
        torch.autograd.backward(loss)
        return loss

    def _embed(self, tokens: Tokens, rows_B: Ints) -> list[Tensor]:
        """Float32 embeddings of the rows, a (B, D) tensor a column."""
        starts, lengths = tokens.texts(rows_B)
        chunks = lay_out(tokens.values, starts, lengths, self._pad_id, self._price)
        with self._autocast():
            parts = [self._forward(self._features(chunk)) for chunk in chunks]
        place = np.empty(len(starts), dtype=np.int64)
        place[np.concatenate([chunk.texts for chunk in chunks])] = np.arange(len(starts))
        vectors = torch.cat(parts).float()[torch.from_numpy(place).to(self.device)]
        if self.encoder.training:
            self._count(len(rows_B), lengths, chunks)
        return list(torch.split(vectors, len(rows_B)))

    def _columns(self, rows_B: Ints) -> list[Chunk]:
        """One chunk a column, rows in order, as the gradient cache wants them."""
        starts, lengths = self._train.texts(rows_B)
        texts = np.arange(len(starts)).reshape(-1, len(rows_B))
        chunks = [
            pad(self._train.values, starts, lengths, column, self._pad_id) for column in texts
        ]
        self._count(len(rows_B), lengths, chunks)
        return chunks

    def _count(self, examples: int, lengths: Ints, chunks: list[Chunk]) -> None:
        padded = sum(chunk.input_ids.size for chunk in chunks)
        self.meter.count(examples, int(lengths.sum()), padded, int((lengths**2).sum()))

    def _features(self, chunk: Chunk) -> dict[str, Any]:
        return {
            "input_ids": torch.from_numpy(chunk.input_ids).to(self.device),
            "attention_mask": torch.from_numpy(chunk.attention_mask).to(self.device),
        }

    def _forward(self, features: dict[str, Any]) -> Tensor:
        for module in self.encoder:
            features = module(features)
        vectors: Tensor = features["sentence_embedding"]
        return vectors

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.trial.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _log(self, evaluate: bool) -> Row:
        loss = float(torch.stack(self._losses).mean())
        self._losses.clear()
        if not math.isfinite(loss):
            raise TrainingError(
                f"{self.trial.id}: loss is {loss} at step {self.step} of {self.trial.steps}; "
                f"lower learning_rate ({self.trial.learning_rate}) or use precision fp32"
            )
        best = self.best_loss
        evaluation_loss = self.evaluation_loss() if evaluate else None
        if evaluation_loss is not None and (best is None or evaluation_loss < best):
            self._keep_as_best()
        row = {
            "step": self.step,
            "epoch": self._epoch,
            "loss": loss,
            "learning_rate": learning_rate(self.trial, self.step - 1),
            "gradient_norm": float(self._norm),
            "eval_loss": evaluation_loss,
            **self.meter.rates(),
        }
        self.rows.append(row)
        return row

    def _keep_as_best(self) -> None:
        if self.trial.checkpoint == "best":
            weights = self.encoder.state_dict().items()
            self._best = {name: tensor.detach().cpu().clone() for name, tensor in weights}
