"""Time per optimizer step: ours against `SentenceTransformerTrainer` as a user writes it.

Both train the same encoder on the same rows: each row is one query, one positive, one hard
negative, and no text of the sample stands in two of them. An arm passes over the rows twice. The
first pass warms it up; the second is timed as a whole, from the end of its last warm-up step to
the end of its last step, so choosing, reading, tokenising and padding batches counts as well as
computing. Orders differ, but over a pass both arms see the same texts.

Ours is `train_trial`, as the command runs it, deterministic algorithms included. Stock is the
library with MultipleNegativesRankingLoss, its no-duplicates sampler and otherwise its defaults; it
logs nothing, saves nothing and draws no bar. It tokenises a text whenever it meets it, ours once
before training; what that costs is printed as well.
"""

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.sampler import BatchSamplers
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import PrinterCallback, TrainerCallback

from perf import interleave, synthetic
from perf.interleave import Bar, PaddedTokens, Timed
from ray_ablation import encoder as encoders
from ray_ablation.data import tokens, triples
from ray_ablation.data.triples import Sample
from ray_ablation.ledger import Ledger
from ray_ablation.problems import UserError
from ray_ablation.settings import Execution
from ray_ablation.train import train_trial
from ray_ablation.trial import Trial

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
TRAIN_SET = "msmarco-hard-negatives"
BATCH = 32
SAMPLES_TRIED = 50


@dataclass(frozen=True)
class Case:
    """What both arms train.

    Attributes:
        title: For the reader.
        trial: The recipe; both passes are its steps.
        sources: Folders of its backbone and train set.
        sample: Its rows.
        folder: For whatever the arms write.
        threads: For both.
    """

    title: str
    trial: Trial
    sources: dict[str, Path]
    sample: Sample
    folder: Path
    threads: int

    @property
    def steps(self) -> int:
        """Of one pass."""
        return self.trial.steps // 2

    def of_block(self, block: int) -> Trial:
        """The trial with the block's own seed."""
        return self.trial.model_copy(update={"seed": block})


class Clock(TrainerCallback):  # type: ignore[misc]
    """When each step of the stock trainer ended, in seconds."""

    def __init__(self) -> None:
        self.ended: dict[int, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called by the trainer."""
        self.ended[state.global_step] = time.perf_counter()


def train_ours(case: Case, block: int) -> Timed:
    """The second pass of `train_trial`."""
    ended: dict[int, float] = {}
    execution = Execution(
        device="cpu",
        cpus_per_trial=case.threads,
        cache=str(case.folder / "cache"),
        log_every_steps=case.steps,
        checkpoint_every_steps=case.trial.steps,
    )

    def report(row: dict[str, Any]) -> None:
        ended[row["step"]] = time.perf_counter()

    ledger = Ledger(case.folder / f"block-{block}")
    record = train_trial(case.of_block(block), case.sources, ledger, execution, report)
    padded = record["result"]["padded_tokens"] / case.trial.steps
    return Timed(ended[2 * case.steps] - ended[case.steps], case.steps, padded)


def train_stock(case: Case, block: int) -> Timed:
    """The second pass of `SentenceTransformerTrainer`."""
    torch.use_deterministic_algorithms(False)  # ours left it on; the library's default is off
    trial = case.of_block(block)
    encoder = encoders.build(trial, case.sources.get(trial.backbone))
    clock, padded = Clock(), PaddedTokens(encoder)
    trainer = SentenceTransformerTrainer(
        model=encoder,
        args=_stock_arguments(trial, case.folder / "stock"),
        train_dataset=Dataset.from_dict(case.sample.train().to_pydict()),
        loss=MultipleNegativesRankingLoss(encoder),
        callbacks=[clock],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    seconds = clock.ended[2 * case.steps] - clock.ended[case.steps]
    return Timed(seconds, case.steps, padded.count / trial.steps)


def _stock_arguments(trial: Trial, folder: Path) -> SentenceTransformerTrainingArguments:
    return SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=trial.batch,
        learning_rate=trial.learning_rate,
        warmup_steps=trial.warmup_steps,
        batch_sampler=BatchSamplers.NO_DUPLICATES,
        seed=trial.seed,
        use_cpu=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )


def overhead_case(folder: Path, passages: str, steps: int, threads: int) -> Case:
    """(a) A model so small that the loop around it counts most."""
    backbone = synthetic.write_backbone(folder / "random-bert")
    words = synthetic.PASSAGE_WORDS[passages]
    rows = synthetic.write_triples(folder / "triples", 2 * steps * BATCH, words)
    trial = _trial("random-bert", 2, steps)
    title = (
        f"(a) random BERT, 2 layers of width 16, on {passages} of {words[0]} to {words[1]} words"
    )
    return _case(title, trial, {trial.backbone: backbone, TRAIN_SET: rows}, folder, threads)


def minilm_case(folder: Path, data: Path, steps: int, threads: int) -> Case:
    """(b) A real encoder on real triples."""
    title = f"(b) {MINILM} on {data.name}"
    return _case(title, _trial(MINILM, 6, steps), {TRAIN_SET: data}, folder, threads)


def _trial(backbone: str, depth: int, steps: int) -> Trial:
    return Trial(
        backbone=backbone,
        depth=depth,
        samples=steps * BATCH,
        held_out=0,
        batch=BATCH,
        steps=2 * steps,
        eval_every_steps=2 * steps,
        precision="fp32",
    )


def _case(title: str, trial: Trial, sources: dict[str, Path], folder: Path, threads: int) -> Case:
    """The case on the first sample in which no text stands twice, so that a pass is all of it.

    Raises:
        UserError: There is no such sample among the first few.
    """
    for seed in range(SAMPLES_TRIED):
        trial = trial.model_copy(update={"sample_seed": seed})
        sample = triples.prepare(trial, sources[TRAIN_SET], folder / "cache")
        texts = [text for column in sample.train().columns for text in column.to_pylist()]
        if len(set(texts)) == len(texts):
            return Case(title, trial, sources, sample, folder, threads)
    raise UserError(
        f"{title}: each of {SAMPLES_TRIED} samples of {trial.samples} rows holds a text twice, so "
        "a pass would not be the same rows in both arms; lower --steps or give a larger train set"
    )


def _print_once(case: Case) -> None:
    """What ours does before the steps that stock does within them."""
    trial = case.trial
    encoder = encoders.build(trial, case.sources.get(trial.backbone))
    started = time.perf_counter()
    tokens.tokenise(
        case.sample, "train", encoder.tokenizer, trial.max_length, case.folder / "tokens"
    )
    ms = 1e3 * (time.perf_counter() - started) / case.steps
    print(f"Ours tokenises once, before training: {ms:.2f} ms for the rows of a step.")


def main() -> None:
    """Time both cases, or the first one where there is no data."""
    parser = interleave.arguments(__doc__)
    parser.add_argument("--steps", type=int, nargs=2, default=(50, 4), metavar=("A", "B"))
    options = parser.parse_args()
    interleave.set_threads(options.threads)
    steps_a, steps_b = options.steps
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for passages in synthetic.PASSAGE_WORDS:
            case = overhead_case(folder / passages, passages, steps_a, options.threads)
            _compare(case, 0.65, options.blocks)
        if options.data:
            case = minilm_case(folder / "data", options.data, steps_b, options.threads)
            _compare(case, 0.85, options.blocks)


def _compare(case: Case, limit: float, blocks: int) -> None:
    interleave.compare(
        f"{case.title}: {case.steps} steps a block at batch {BATCH}, max length "
        f"{case.trial.max_length}, {case.trial.precision}",
        partial(train_ours, case),
        partial(train_stock, case),
        Bar("ms_per_step", limit, lower_is_better=True),
        blocks,
    )
    _print_once(case)


if __name__ == "__main__":
    main()
