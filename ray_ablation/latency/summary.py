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
        measured                    solo: alone in its processes; paired: in turns with the others
        n_processes, n_calls        fresh processes with calls; calls over all of them
        p50_ms                      {est, lo, hi}: median over processes of the process's median,
                                    95 % bootstrap interval, lo and hi null below 5 processes
        p90_ms, p95_ms, p99_ms      likewise est only; null below 64, 500, 1500 calls a process
        mean_ms, min_ms             median over processes of the means; the fastest call
        cpu_p50_ms                  p50 of the process's CPU time, which waiting is not part of
        p95_over_p50
        process_p50_ms              [one per process]
        process_intervals_ms        [[lo, hi] of it, by blocks of calls]
        quantiles_ms                201 quantiles of all calls, the extremes first and last
        outliers                    {mild, severe}: calls beyond Tukey's fences; none is dropped
        between_max_over_min        of process_p50_ms; null below 2
        var_split                   {between, within} ms^2; null below 2 processes
        needed_processes_1pct       for a 1 % wide interval of the mean; null below 2
        paired_p50_ms               p50 in turns with the others, also where it was timed alone
        stages_ms                   {tokenise, h2d, forward, pool, d2h}: medians of staged calls
        device_busy_ms              replay of the forward pass as a CUDA graph; null on a CPU
        host_bound_ratio            p50 over it
        stall                       {share, median_ms, attribution, scores, unexplained}: calls of
                                    more than 5 medians, and what they follow (stalls.py)
        n_clock_errors, n_not_finite        calls left out for a clock that ran backwards; calls
                                    whose embedding was not finite (their time counts)
        verdict                     stable | unstable | contaminated | insufficient
        reasons                     [{code, value, limit}]: the rules that failed
        checks                      [{code, value, limit, passed: true | false | null}]: all rules
        model_sha256, texts_sha256, samples_sha256
    ratios          [{a, b, seq, arm, est, lo, hi, process[]}]: a over b, b the reference; median
                    over cycles of block-median ratios, then over processes
    aa              {est, lo, hi, process[]}: the canary over its twin likewise, all lengths
    canary          {p50_ms, process_p50_ms, between_max_over_min, level_shift} of the fixed small
                    encoder timed among the others, all lengths together; null without calls
    gates           {waited_s, accepted}: was the machine quiet before every process?
    units           [{unit, round, kind, gate, error, seconds}]: error null when its samples are
                    here; gate {waited_s, accepted, other_busy_cores, gpu_processes}
    unmet_criteria  [{code, variant, seq, value, limit}]: what the time did not suffice for; code is
                    rounds (variant and seq null), calls, warmup_calls, or tight: the half-width of
                    the interval of p50; value is that of the worst process
    failures        [{what, reason}]: encoders and processes that failed
    budget_s, seconds   allowed and taken, whole profile
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from ray_ablation.latency import estimate, shape
from ray_ablation.latency.cell import Cell
from ray_ablation.latency.plan import ARM, CANARY, TWIN, Architecture

Fingerprint = tuple[str | None, str | None]
"""Digests of a model and of the samples it is said to have given."""


def summarise(
    samples: pd.DataFrame,
    blocks: pd.DataFrame,
    processes: Sequence[dict[str, Any]],
    units: Sequence[dict[str, Any]],
    found: Sequence[Architecture],
    asked: dict[str, Any],
    device: str,
    earlier: Sequence[Fingerprint] = (),
) -> dict[str, Any]:
    """The measured part of latency.json.

    Args:
        samples: Of all processes, with `clock_ok`.
        blocks: Of all processes.
        processes: What each process said of itself: unit, kind, variants, failures, warmups.
        units: How each process began and ended.
        found: What was to be timed, the reference first.
        asked: The grid's latency fields.
        device: cpu or cuda.
        earlier: What other profiles measured.
    """
    cells = {
        (one.name, length): Cell(samples, blocks, processes, one.name, length, ARM)
        for length in asked["lengths"]
        for one in found
    }
    digests = {one.name: one.model_sha256 for one in found}
    reference = found[0].name
    aa = _aa(samples, blocks, processes, asked["lengths"])
    gates = [unit["gate"] for unit in units if unit["gate"]]
    given = {
        "aa_bias": None if aa is None else abs(aa["est"] - 1),
        "device_not_free": sum(bool(gate["gpu_processes"]) for gate in gates),
    }
    measured = [(digests[name], cell.samples_sha256()) for (name, _), cell in cells.items()]
    same = {own: duplicates(own, [*measured, *earlier]) for own in measured}
    return {
        "reference": reference,
        "variants": {architecture.name: describe(architecture) for architecture in found},
        "results": [
            cell.result(device, asked["inputs"], given | {"duplicate_result": same[own]})
            | {"model_sha256": own[0]}
            for cell, own in zip(cells.values(), measured, strict=True)
        ],
        "ratios": [
            cell.ratio(cells[reference, length])
            for (name, length), cell in cells.items()
            if name != reference
        ],
        "aa": aa,
        "canary": _canary(samples),
        "gates": {
            "waited_s": round(sum(gate["waited_s"] for gate in gates), 3),
            "accepted": bool(gates) and all(gate["accepted"] for gate in gates),
        },
        "unmet_criteria": list(_unmet(list(cells.values()), asked)),
    }


def fingerprint(result: dict[str, Any]) -> Fingerprint:
    """Of an entry of `results`."""
    return result["model_sha256"], result["samples_sha256"]


def duplicates(own: Fingerprint, others: Sequence[Fingerprint]) -> int:
    """How many results of other models have the very same samples."""
    model, samples = own
    return sum(samples is not None and other == samples for who, other in others if who != model)


def describe(architecture: Architecture) -> dict[str, Any]:
    """An architecture's entry under `variants`."""
    return {
        **architecture.identity,
        "parameters": architecture.parameters,
        "model_sha256": architecture.model_sha256,
        "trial": architecture.trial,
        "trials": list(architecture.trials),
    }


def _aa(
    samples: pd.DataFrame,
    blocks: pd.DataFrame,
    processes: Sequence[dict[str, Any]],
    lengths: Sequence[int],
) -> dict[str, Any] | None:
    """The canary over its twin; the lengths of the others are no lengths of theirs."""
    process: list[float | None] = []
    for length in lengths:
        one, twin = (Cell(samples, blocks, processes, name, length, ARM) for name in (CANARY, TWIN))
        process += one.ratio(twin)["process"]
    found = estimate.over_processes(process)
    return None if found.est is None else asdict(found) | {"process": process}


def _canary(samples: pd.DataFrame) -> dict[str, Any] | None:
    mine = samples[(samples["variant"] == CANARY) & (samples["phase"] == "measured")]
    mine = mine[mine["clock_ok"]]
    walls = [frame["wall_ns"].to_numpy() / 1e6 for _, frame in mine.groupby("unit")]
    if not walls:
        return None
    p50s = [float(np.median(calls)) for calls in walls]
    shifts = [shift for calls in walls if (shift := shape.level_shift(calls)) is not None]
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
        width = cell.p50_ms().half_width
        if width is not None and width > estimate.TIGHT:
            yield _criterion("tight", cell, width, estimate.TIGHT)


def _criterion(code: str, cell: Cell | None, value: float, limit: float) -> dict[str, Any]:
    return {
        "code": code,
        "variant": cell.variant if cell else None,
        "seq": cell.seq if cell else None,
        "value": value,
        "limit": limit,
    }
