"""Do latencies repeat on this GPU, and what do the suspects of the stalls do to it?

    python -m perf.latency_gpu                       under four minutes on one card, without Ray
    python -m perf.latency_gpu --device cpu --quick  the same code, small, where there is no GPU

A random BERT of base size, twelve blocks cut to 9, 6 and 3, half precision, batch 1, 128 tokens. In
fresh processes: all of them in turns, five times; the deepest alone; natural lengths after a fixed
warm-up, with cuDNN attention and without; the whole of a naive script; and the deepest at 128, 256
and 512 tokens, end to end and as a CUDA graph. Prints what is predicted before it measures, then
bars 10 to 12, which are first values to be confirmed, and in words what was seen.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perf.latency_bars import Bar
from perf.latency_bench import Bench
from perf.latency_encoders import BASE, SMALL, write_encoders
from ray_ablation.latency import diagnosis, estimate
from ray_ablation.latency.cell import Cell
from ray_ablation.latency.factors import screened, unit_with
from ray_ablation.latency.gaps import median, worst
from ray_ablation.latency.plan import CANARIES, CANARY, TWIN

DEPTHS = (12, 9, 6, 3)
NAMES = [f"L{depth}" for depth in DEPTHS]
DEEP, SHALLOW = NAMES[0], NAMES[-1]
NATURAL = {
    "cuDNN": {"inputs": "natural", "conditions": {"steady": False}},
    "no cuDNN": {"inputs": "natural", "conditions": {"steady": False, "cudnn": False}},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0 also where a bar is not met."""
    options = _options(arguments)
    if options.device == "cuda" and not _has_gpu():
        print("There is no GPU here; --device cpu runs the same code on the processor.")
        return 2
    started = time.monotonic()
    width = SMALL if options.quick else BASE
    ladder: Mapping[str, Any] = {
        name: width | {"num_hidden_layers": depth}
        for name, depth in zip(NAMES, DEPTHS, strict=True)
    }
    with tempfile.TemporaryDirectory() as name:
        folders = write_encoders(Path(name) / "encoders", ladder)
        unit = {
            "lengths": [options.tokens],
            "calls": options.calls,
            "warmup_calls": options.warmup,
            "measure_s": options.limit_s,
        }
        bench = Bench(Path(name), folders, options.device, unit)
        print("\n".join(f"Predicted: {one.says}" for one in diagnosis.PREDICTIONS.values()))
        measure(bench, options)
        describe(bench)
        print("\n".join(bar.line() for bar in bars(bench)))
        print("\n".join(words(bench)))
    print(f"{time.monotonic() - started:.0f} s")
    return 0


def measure(bench: Bench, options: argparse.Namespace) -> None:
    """All processes, each of its arm."""
    device = options.device
    for number in range(options.processes):
        bench.run("paired", [*NAMES, *CANARIES])
        _say(f"paired {number + 1} of {options.processes}")
    for _ in range(min(2, options.processes)):
        bench.run("solo", [DEEP])
    for arm, changes in NATURAL.items():
        bench.run(arm, [DEEP, SHALLOW], **changes)
    wild = unit_with(bench.unit, screened(device), device, bench.cores)
    changed = {name: wild[name] for name in ("conditions", "variables", "threads", "inputs")}
    bench.run("wild", [DEEP, SHALLOW], **changed)
    bench.run("lengths", [DEEP], lengths=options.lengths, calls=options.calls // 4)
    _say("all processes are done")


def describe(bench: Bench) -> None:
    """What was measured on, and the figures themselves."""
    machine = bench.environment()
    gpu = machine["gpu"]["name"] if machine.get("gpu") else machine["cpu"]["model"]
    print(f"{gpu}; torch {machine['packages']['torch']}, cuDNN {machine['torch']['cudnn']}")
    print(f"attention: {bench.processes[0]['attention'][DEEP]}")
    for arm in ("paired", "solo"):
        for name in NAMES if arm == "paired" else [DEEP]:
            found = bench.cell(name, arm).result(bench.unit["device"], "exact", {})
            tail, busy = (_number(found[key]) for key in ("p95_over_p50", "device_busy_ms"))
            reasons = ", ".join(reason["code"] for reason in found["reasons"])
            print(
                f"{name:>4} {arm:>6}: p50 {_number(found['p50_ms']['est'])} ms, p95/p50 {tail}, "
                f"device busy {busy} ms; {found['verdict']} ({reasons})"
            )


def bars(bench: Bench) -> list[Bar]:
    """Bars 10 to 12."""
    deep = bench.cell(DEEP, "paired")
    twins = bench.cell(CANARY, "paired").ratio(bench.cell(TWIN, "paired"))["est"]
    ladder = [_is_ladder(bench, process) for process in deep.processes]
    host = median(_host_bound(bench.cell(name, "paired")) for name in NAMES)
    shares = {arm: _outcome(bench, arm)["stall_share"] for arm in NATURAL}
    stalls = shares["cuDNN"] / shares["no cuDNN"] if shares["no cuDNN"] else None
    controlled, wild = (_tail(bench.cell(DEEP, arm)) for arm in ("paired", "wild"))
    tails = controlled / wild if controlled and wild else None
    off = None if twins is None else abs(twins - 1)
    return [
        Bar(10, "p50 over processes, max/min, worst encoder", _between(bench), 1.03),
        Bar(
            10, "p95/p50, worst encoder", worst(_tail(bench.cell(n, "paired")) for n in NAMES), 1.15
        ),
        Bar(10, "A/A, off from 1", off, 0.01),
        Bar(10, "share of processes in order of depth", _mean(ladder), 1.0, least=True),
        Bar(10, "end to end / device busy, median encoder", host, 2.0, least=True),
        Bar(11, "stall share, cuDNN / no cuDNN", stalls, 10.0, least=True),
        Bar(12, "p95/p50, controlled / naive script", tails, 0.2),
    ]


def words(bench: Bench) -> list[str]:
    """Stalls by arm in words, lengths, and whether the published signature was seen."""
    said = []
    for arm in (*NATURAL, "wild"):
        found = _outcome(bench, arm)
        said.append(
            f"{arm}: {found['stall_share'] or 0:.1%} of the calls stall, "
            f"{_number(found['stall_ms'])} ms long, following {found['cause'] or 'nothing'}; "
            f"p95/p50 {_number(found['p95_over_p50'])}."
        )
    if not any(_outcome(bench, arm)["stall_share"] for arm in NATURAL):
        said.append("11, in words: lengths that are new do not stall here, with cuDNN or without.")
    process = next(p for p in bench.processes if p["arm"] == "lengths")
    p50s, busy = process["p50_ms"].get(DEEP, {}), process["device_busy_ms"].get(DEEP, {})
    first, *longer = sorted(p50s, key=int)
    for length in longer:
        on_device = f"{busy[length] / busy[first]:.2f}" if first in busy and length in busy else "-"
        said.append(
            f"{DEEP}, {length} over {first} tokens: {p50s[length] / p50s[first]:.2f} end to end, "
            f"{on_device} on the device."
        )
    cells = {arm: [_outcome(bench, arm)] for arm in (*NATURAL, "wild")}
    said.append(diagnosis.reproduced_words(diagnosis.reproduction(cells)))
    return said


def _outcome(bench: Bench, arm: str) -> dict[str, Any]:
    """What the first process of an arm showed."""
    unit = next(p["unit"] for p in bench.processes if p["arm"] == arm)
    samples = next(frame for frame in bench.samples if frame["unit"].iloc[0] == unit)
    return diagnosis.outcome(samples[samples["phase"] == "measured"], [DEEP, SHALLOW])


def _between(bench: Bench) -> float | None:
    return worst(
        estimate.spread(
            [float(np.median(calls)) for calls in bench.cell(name, "paired").walls_ms()]
        )
        for name in NAMES
    )


def _tail(cell: Cell) -> float | None:
    """p95/p50, median over processes; exploratory with fewer calls than a p95 takes."""
    return median(float(np.quantile(one, 0.95) / np.median(one)) for one in cell.walls_ms())


def _host_bound(cell: Cell) -> float | None:
    found: float | None = cell.result("cuda", "exact", {})["host_bound_ratio"]
    return found


def _is_ladder(bench: Bench, process: dict[str, Any]) -> float:
    length = str(bench.unit["lengths"][0])
    p50s = [process["p50_ms"][name][length] for name in NAMES]
    return float(p50s == sorted(p50s, reverse=True))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--calls", type=int, default=500, help="per encoder and process")
    parser.add_argument("--quick", action="store_true", help="small encoders, one process")
    options = parser.parse_args(arguments)
    options.tokens, options.lengths, options.warmup, options.limit_s = (
        128,
        [128, 256, 512],
        50,
        14.0,
    )
    if options.quick:
        options.processes, options.calls, options.warmup, options.limit_s = 1, 20, 3, 3.0
        options.tokens, options.lengths = 32, [32, 64]
    return options


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
