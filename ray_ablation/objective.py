"""What is minimised, and how: loss, optimizer, learning rate.

The loss is sentence-transformers' own, in float32 whatever the precision of the encoder: between
0.5 and 1 the cosines that bf16 knows lie 0.004 apart, further than good candidates do.
"""

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)
from torch import Tensor, nn

from ray_ablation.trial import Trial


def learning_rate(trial: Trial, step: int) -> float:
    """The rate of step 0..steps: from 0 up to the peak over the warm-up, then to 0 at `steps`.

    Source: transformers' linear schedule, on warm-up steps computed here (its own reading of a
    warm-up of 1.0 is one step).
    """
    warmup = trial.warmup_steps
    if step < warmup:
        return trial.learning_rate * step / warmup
    return trial.learning_rate * (trial.steps - step) / max(1, trial.steps - warmup)


class CachedLoss(CachedMultipleNegativesRankingLoss):  # type: ignore[misc]
    """The gradient cache with embeddings under autocast but their loss in float32."""

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Loss of the embeddings (columns of mini-batches)."""
        columns = [[part.float() for part in column] for column in reps]
        with torch.autocast(reps[0][0].device.type, enabled=False):
            loss: Tensor = super().calculate_loss(columns, labels, with_backward=with_backward)
        return loss


def make_loss(
    trial: Trial, encoder: SentenceTransformer
) -> MultipleNegativesRankingLoss | CachedLoss:
    """Embedded at once, or through the gradient cache with `micro_batch`."""
    if trial.micro_batch is None:
        return MultipleNegativesRankingLoss(encoder, scale=trial.loss_scale)
    return CachedLoss(encoder, scale=trial.loss_scale, mini_batch_size=trial.micro_batch)


def make_optimizer(trial: Trial, encoder: nn.Module) -> torch.optim.AdamW:
    """AdamW as transformers sets it up: no decay on biases and norms."""
    norms = {
        f"{module_name}.{name}"
        for module_name, module in encoder.named_modules()
        if isinstance(module, nn.LayerNorm)
        for name, _ in module.named_parameters(recurse=False)
    }
    named = [(name, p) for name, p in encoder.named_parameters() if p.requires_grad]
    plain = [p for name, p in named if name in norms or name.endswith("bias")]
    decayed = [p for name, p in named if name not in norms and not name.endswith("bias")]
    groups = [
        {"params": decayed, "weight_decay": trial.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=trial.learning_rate, fused=True)
