"""A small study in a ledger, written through the ledger's own API; no model was trained for it."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ray_ablation import grid as grids
from ray_ablation.atomic import write_frame, write_json
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.trial import Trial

GRID = """\
name: depth-study
description: Does depth matter beyond seed noise and training budget?
axes:
  depth: [12, 6, 3]
experiments:
  untrained: {steps: 0}
  B: {batch: 32, steps: 20000, seed: 42}
  C: {batch: 32, steps: 20000, seed: 43}
  D: {batch: 32, steps: 20000, seed: 44}
  E: {batch: 32, steps: 80000, seed: 42}
fixed:
  backbone: bert-base-uncased
  train_set: msmarco-hard-negatives
benchmarks: [nfcorpus, scifact, fiqa]
measures: [nDCG@10, RR@10, R@10, R@100]
paths: {nfcorpus: ./nfcorpus, scifact: ./scifact, fiqa: ./fiqa}
"""

# Level of nDCG@10 by benchmark at 20k steps, and what depth and more steps do to it.
LEVELS = {"nfcorpus": 0.22, "scifact": 0.38, "fiqa": 0.115}
MORE_STEPS = {"nfcorpus": -0.002, "scifact": -0.015, "fiqa": -0.035}
QUERIES = {"nfcorpus": 40, "scifact": 30, "fiqa": 50}
SEED_SPREAD = {12: 0.007, 6: 0.001, 3: 0.001}
NODE = "node-a"


def write_study(
    root: Path,
    *,
    text: str = GRID,
    missing: tuple[str, ...] = (),
    failed: dict[str, str] | None = None,
    unscored: tuple[tuple[str, str], ...] = (),
) -> Ledger:
    """A ledger with the study of `text`.

    Args:
        root: Where it lies; made when it is not there.
        text: The grid.
        missing: Trials (beginnings of ids) that were not trained.
        failed: Beginning of an id -> the reason why that trial failed.
        unscored: (beginning of an id, benchmark) that was not scored.
    """
    root.mkdir(parents=True, exist_ok=True)
    file = root / "written.yaml"
    file.write_text(text)
    grid, ledger = grids.load(file, here=False), Ledger(root)
    file.unlink()
    ledger.open_study(grid)
    for trial in grid.trials:
        if reason := _starts(trial, failed or {}):
            ledger.fail_trial(trial, (failed or {})[reason], "Traceback ...")
        elif not _starts(trial, missing):
            _write_trial(ledger, trial)
            skipped = [benchmark for start, benchmark in unscored if trial.id.startswith(start)]
            for benchmark in grid.benchmarks:
                if benchmark.name not in skipped:
                    write_scores(ledger, grid, trial, benchmark.name)
    write_profile(ledger, grid)
    return ledger


def level(trial: Trial, benchmark: str) -> float:
    """The nDCG@10 around which a trial's queries are drawn."""
    base = LEVELS.get(benchmark, 0.3)
    if trial.steps == 0:
        return base * (0.25 if trial.depth > 3 else 0.15)
    more = MORE_STEPS.get(benchmark, -0.01) * (1 + trial.depth / 12) * (trial.steps > 20_000)
    noise = _random(f"{trial.depth}{trial.seed}{benchmark}").normal()
    return base + more + SEED_SPREAD.get(trial.depth, 0.002) * float(noise)


def write_scores(ledger: Ledger, grid: Grid, trial: Trial, benchmark: str) -> pd.DataFrame:
    """Per-query scores: queries keep their difficulty over trials."""
    count = QUERIES.get(benchmark, 20)
    difficulty = _random(benchmark).beta(1.2, 1.2, count)
    difficulty = difficulty / difficulty.mean() * level(trial, benchmark)
    jitter = _random(f"{trial.id}{benchmark}").normal(0, 0.01, count)
    ndcg = np.clip(difficulty + jitter - jitter.mean(), 0, 1)
    scale = {"nDCG": 1.0, "RR": 1.15, "R": 1.05}
    columns = {
        measure: np.clip(ndcg * scale.get(measure.partition("@")[0], 1.0), 0, 1)
        for measure in grid.measures
    }
    if "R@100" in columns:
        columns["R@100"] = np.clip(ndcg * 2, 0, 1)
    ids = [f"{benchmark}-q{index}" for index in range(count)]
    frame = pd.DataFrame({"query_id": ids, **columns})
    ledger.write_scores(trial.id, benchmark, frame, _about(grid, trial, benchmark, count))
    return frame


def _about(grid: Grid, trial: Trial, benchmark: str, queries: int) -> dict[str, Any]:
    return {
        "what": {
            "encoder_sha256": _sha(trial.id),
            "benchmark_sha256": _sha(benchmark),
            "split": "test",
            "self_ids": "keep",
            "max_length": trial.max_length,
            "dtype": "fp32",
            "k": grid.evaluation.k,
        },
        "documents": 20 * queries,
        "queries": queries,
        "ties_at_cutoff": 2,
        "self_ids_dropped": 0,
        "truncated_documents": 0.125,
        "truncated_queries": 0.0,
        "docs_per_s": 250.0,
    }


def write_profile(
    ledger: Ledger, grid: Grid, verdict: str = "insufficient", processes: int = 1
) -> dict[str, Any]:
    """A latency profile of the grid's depths, 2 ms and 1 ms a block, and the study's pointer."""
    depths = sorted({trial.depth for trial in grid.trials}, reverse=True)
    enough = processes >= 5
    results = [
        {
            "variant": f"L{depth}",
            "seq": 128,
            "arm": "default",
            "n_processes": processes,
            "n_calls": 100 * processes,
            "p50_ms": {
                "est": 2.0 + depth,
                "lo": 1.9 + depth if enough else None,
                "hi": 2.2 + depth if enough else None,
            },
            "p95_ms": 2.5 + depth if enough else None,
            "mean_ms": 2.1 + depth,
            "quantiles_ms": [1.8 + depth + 0.002 * i for i in range(201)],
            "process_p50_ms": [2.0 + depth] * processes,
            "stages_ms": {
                "tokenise": 0.5,
                "h2d": 0.1,
                "forward": 1.1 + depth,
                "pool": 0.2,
                "d2h": 0.1,
            },
            "verdict": verdict,
            "reasons": [{"code": "processes", "value": processes, "limit": 5}],
        }
        for depth in depths
    ]
    deepest = depths[0]
    profile = {
        "format": 1,
        "profile_id": "0123456789ab",
        "node": {"device": "cpu", "cpu": "a processor", "cpus": 2, "gpu": None, "gpus": 0},
        "device": "cpu",
        "dtype": "fp32",
        "batch": 1,
        "inputs": "exact",
        "reference": f"L{deepest}",
        "variants": {f"L{depth}": _variant(grid, depth) for depth in depths},
        "results": results,
        "ratios": [
            {
                "a": f"L{depth}",
                "b": f"L{deepest}",
                "seq": 128,
                "arm": "default",
                "est": (2.0 + depth) / (2.0 + deepest),
                "lo": None,
                "hi": None,
            }
            for depth in depths[1:]
        ],
    }
    write_json(ledger.latency_dir(profile["profile_id"]) / "latency.json", profile)
    pointer = {"profile_id": profile["profile_id"]}
    write_json(ledger.study_dir(grid.name) / "profile.json", pointer)
    return profile


def _variant(grid: Grid, depth: int) -> dict[str, Any]:
    trial = next(trial for trial in grid.trials if trial.depth == depth)
    fields = ("backbone", "backbone_revision", "depth", "pooling")
    return {name: getattr(trial, name) for name in fields}


def _write_trial(ledger: Ledger, trial: Trial) -> None:
    model = ledger.model_dir(trial.id)
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text("{}")
    record, curve = made_up(trial)
    write_frame(ledger.train_parquet(trial.id), curve, {"id": trial.id})
    ledger.finish_trial(trial, record)


def made_up(trial: Trial) -> tuple[dict[str, Any], pd.DataFrame]:
    """A record and the logged rows of a trial that nobody trained."""
    curve = _curve(trial)
    return _record(trial, curve), curve


def _curve(trial: Trial) -> pd.DataFrame:
    count = 40 if trial.steps else 0
    steps = np.linspace(0, trial.steps, count + 1)[1:].astype(int)
    noise = _random(trial.id).normal(0, 0.02, count)
    loss = 0.4 + 2.2 * np.exp(-6 * np.arange(1, count + 1) / 40) - trial.depth / 200 + noise
    evaluated = np.arange(1, count + 1) % 4 == 0
    return pd.DataFrame(
        {
            "step": steps,
            "epoch": 0,
            "loss": loss,
            "learning_rate": trial.learning_rate,
            "eval_loss": np.where(evaluated, loss + 0.1, np.nan),
            "examples_per_s": 400.0 / trial.depth,
        }
    )


def _record(trial: Trial, curve: pd.DataFrame) -> dict[str, Any]:
    trained = trial.steps > 0
    per_s = 400.0 / trial.depth
    return {
        "recipe": 1,
        "finished_at": "2025-03-01T12:00:00Z",
        "data": {"weights_sha256": _sha("weights"), "sample_sha256": _sha("sample")},
        "code": {
            "sha256": _sha("code"),
            "git_commit": "0123456789abcdef0123456789abcdef01234567",
            "versions": {"python": "3.11.9", "torch": "2.13.0", "ray": "2.60.0"},
        },
        "execution": {
            "device": "cpu",
            "device_name": "a processor",
            "gpu_uuid": None,
            "node": NODE,
            "threads": 1,
        },
        "result": {
            "steps": trial.steps,
            "examples": trial.examples,
            "parameters": 23_837_184 + 7_087_872 * trial.depth,
            "encoder_sha256": _sha(trial.id),
            "loss": float(curve["loss"].iloc[-1]) if trained else None,
            "eval_loss": float(curve["eval_loss"].iloc[-1]) if trained else None,
            "min_eval_loss": float(curve["eval_loss"].min()) if trained else None,
            "seconds": trial.examples / per_s if trained else 1.5,
            "examples_per_s": per_s if trained else None,
            "tokens_per_s": per_s * 210 if trained else None,
            "mfu": None,
            "peak_bytes": 900 * 2**20,
        },
        "attempts": [{"from_step": 0, "to_step": trial.steps}] if trained else [],
    }


def _starts(trial: Trial, starts: Any) -> str | None:
    return next((start for start in starts if trial.id.startswith(start)), None)


def _random(name: str) -> np.random.Generator:
    return np.random.default_rng(int(_sha(name)[:8], 16))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
