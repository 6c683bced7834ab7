"""From raw samples to latency.json. Pure: frames in, JSON out.

latency.json (null is "not measured", never 0; times in milliseconds; all figures are of end-to-end
calls: tokenise, copy to the device, forward, pool and normalise, copy back):

    format          1
    profile_id      names the folder
    what            {method, architectures[], latency{every field of the grid's latency}}
    node            {device, cpu, cpus, gpu, gpus}: the class of the machine
    device          cpu | cuda
    dtype_asked     as the grid says
    dtype           as it was: a CPU profiles fp32
    threads         1
    batch, inputs   texts per call; exact | padded | natural
    reference       name of the deepest variant, what ratios refer to
    variants        {name: {backbone, backbone_revision, depth, pooling, parameters, model_sha256,
                    trial: whose model was timed, trials: [ids of all it stands for]}}
    results         one per (variant, seq, arm), every combination asked for, in this order:
        variant, seq, arm           name; tokens per text; "default"
        n_processes, n_calls        fresh processes with calls; calls over all of them
        p50_ms                      {est, lo, hi}: median over processes of the process's median,
                                    95 % bootstrap interval, lo and hi null below 5 processes
        p90_ms, p95_ms, p99_ms      likewise est only; null below 64, 500, 1500 calls a process
        mean_ms, min_ms             median over processes of the means; the fastest call
        cpu_p50_ms                  p50 of the process's CPU time, which waiting is not part of
        p95_over_p50
        process_p50_ms              [one per process]
        between_max_over_min        of those; null below 2
        var_split                   {between, within} ms^2; null below 2 processes
        needed_processes_1pct       for a 1 % wide interval of the mean; null below 2
        stages_ms                   {tokenise, h2d, forward, pool, d2h}: medians of staged calls
        device_busy_ms, host_bound_ratio    null: not measured here
        stall                       {share, median_ms, attribution: null, scores: null}
        n_clock_errors, n_not_finite        calls left out for a clock that ran backwards; calls
                                    whose embedding was not finite (their time counts)
        verdict                     stable | unstable | contaminated | insufficient
        reasons                     [{code, value, limit}]: the rules that failed
        checks                      [{code, value, limit, passed: true | false | null}]: all rules
        model_sha256, texts_sha256, samples_sha256
    ratios          [{a, b, seq, arm, est, lo, hi, process[]}]: a over b, b the reference; median
                    over cycles of block-median ratios, then over processes
    aa              null: no encoder was timed against itself
    canary          {p50_ms, process_p50_ms, between_max_over_min, level_shift} of the fixed small
                    encoder timed among the others, all lengths together; null without calls
    gates           {waited_s, accepted, other_busy_cores}: was the host quiet before?
    units           [{unit, round, error, seconds}]: error null when its samples are here
    unmet_criteria  [{code, variant, seq, value, limit}]: what the time did not suffice for; code is
                    rounds (variant and seq null), calls or warmup_calls, value the fewest of a
                    process
    failures        [{what, reason}]: encoders and processes that failed
    budget_s, seconds   allowed and taken, whole profile
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from ray_ablation.latency import estimate
from ray_ablation.latency.cell import Cell
from ray_ablation.latency.plan import ARM, CANARY, Architecture


def summarise(
    samples: pd.DataFrame,
    blocks: pd.DataFrame,
    processes: Sequence[dict[str, Any]],
    found: Sequence[Architecture],
    asked: dict[str, Any],
    device: str,
) -> dict[str, Any]:
    """The measured part of latency.json.

    Args:
        samples: Of all processes, with `clock_ok`.
        blocks: Of all processes.
        processes: What each process said of itself: unit, variants, failures, warmups.
        found: What was to be timed, the reference first.
        asked: The grid's latency fields.
        device: cpu or cuda.
    """
    cells = {
        (architecture.name, length): Cell(
            samples, blocks, processes, architecture.name, length, ARM
        )
        for length in asked["lengths"]
        for architecture in found
    }
    digests = {architecture.name: architecture.model_sha256 for architecture in found}
    reference = found[0].name
    return {
        "reference": reference,
        "variants": {architecture.name: describe(architecture) for architecture in found},
        "results": [
            cell.result(device, asked["inputs"]) | {"model_sha256": digests[name]}
            for (name, _), cell in cells.items()
        ],
        "ratios": [
            cell.ratio(cells[reference, length])
            for (name, length), cell in cells.items()
            if name != reference
        ],
        "aa": None,
        "canary": _canary(samples),
        "unmet_criteria": list(_unmet(list(cells.values()), asked)),
    }


def describe(architecture: Architecture) -> dict[str, Any]:
    """An architecture's entry under `variants`."""
    return {
        **architecture.identity,
        "parameters": architecture.parameters,
        "model_sha256": architecture.model_sha256,
        "trial": architecture.trial,
        "trials": list(architecture.trials),
    }


def _canary(samples: pd.DataFrame) -> dict[str, Any] | None:
    mine = samples[(samples["variant"] == CANARY) & (samples["phase"] == "measured")]
    mine = mine[mine["clock_ok"]]
    walls = [frame["wall_ns"].to_numpy() / 1e6 for _, frame in mine.groupby("unit")]
    if not walls:
        return None
    p50s = [float(np.median(calls)) for calls in walls]
    shifts = [shift for calls in walls if (shift := estimate.level_shift(calls)) is not None]
    return {
        "p50_ms": asdict(estimate.over_processes(p50s)),
        "process_p50_ms": p50s,
        "between_max_over_min": estimate.spread(p50s),
        "level_shift": max(shifts, default=None),
    }


def _unmet(cells: Sequence[Cell], asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What the time did not suffice for; the rounds as those of the least measured cell."""
    rounds = min(len(cell.calls) for cell in cells)
    if rounds < asked["rounds"]:
        yield _criterion("rounds", None, rounds, asked["rounds"])
    for cell in cells:
        if cell.fewest_calls < asked["calls"]:
            yield _criterion("calls", cell, cell.fewest_calls, asked["calls"])
        warmup = min(cell.warmup("calls"), default=0)
        if warmup < asked["warmup_calls"]:
            yield _criterion("warmup_calls", cell, warmup, asked["warmup_calls"])


def _criterion(code: str, cell: Cell | None, value: int, limit: int) -> dict[str, Any]:
    return {
        "code": code,
        "variant": cell.variant if cell else None,
        "seq": cell.seq if cell else None,
        "value": value,
        "limit": limit,
    }
