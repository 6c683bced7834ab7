"""How well latencies repeat on this machine: naive and isolated, quiet and with planted neighbours.

    python -m perf.latency_repeatability            some 10 minutes on two cores
    python -m perf.latency_repeatability --quick    a minute, too little for a verdict

Three arms time the same two random encoders, one with twice the blocks of the other, in so many
fresh processes, first on the machine as it is, then beside two processes that spin and that this
script starts and stops itself:

    naive     a process that has trained, with a heap, all threads, unpinned, one encoder after the
              other: a profiling function at the end of a training script
    solo      one encoder alone in a fresh pinned process
    paired    both, a copy of one and one a tenth slower, in turns in a fresh pinned process

The order of arms is drawn anew in every round. Then it prints each bar of acceptance with its
figure and limit. Bars marked "synthetic" hold by the default tests, on traces with planted causes.
"""

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perf.latency_bars import DEEP, LOADS, SHALLOW, SLOWER, TWIN, arm_name, bars, table
from perf.latency_bench import Bench
from perf.latency_encoders import CPU_LADDER, write_encoders
from ray_ablation.latency.conditions import spinning

NAIVE = {"used": True, "heap": True, "pin": False, "steady": False, "encode": True}
ARMS: dict[str, list[list[str]]] = {
    "naive": [[DEEP, SHALLOW]],
    "solo": [[DEEP], [SHALLOW]],
    "paired": [[DEEP, TWIN, SHALLOW, SLOWER]],
}
"""Encoders of the processes of an arm."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and the bars."""
    options = _options(arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folders = write_encoders(Path(name) / "encoders", CPU_LADDER)
        unit = {"lengths": [options.tokens], "calls": options.calls, "warmup_calls": options.warmup}
        bench = Bench(Path(name), folders, "cpu", unit)
        for load, count in LOADS.items():
            for round_number in range(options.processes):
                for arm in random.Random(round_number).sample(list(ARMS), k=len(ARMS)):
                    with spinning(count):
                        _run(bench, arm, load, options.limit_s)
                done = f"{load}, round {round_number + 1} of {options.processes}"
                print(done, file=sys.stderr, flush=True)
        print(table(bench, list(ARMS)).to_string(index=False, na_rep="-"), end="\n\n")
        print("\n".join(bar.line() for bar in bars(bench, oracle_ratio(bench, options.oracle))))
    print(
        "6. attribution of stalls, 7. honesty about rebuilt and repeated figures: synthetic, see "
        "tests/test_latency_stalls.py, test_latency_measure.py, test_latency_verdict.py and "
        "test_latency_forensics.py"
    )
    print(f"{time.monotonic() - started:.0f} s; load at the end {os.getloadavg()[0]:.1f}")
    return 0


def _run(bench: Bench, arm: str, load: str, limit_s: float) -> None:
    """One process for every set of encoders of an arm."""
    changes: dict[str, Any] = {"measure_s": limit_s}
    if arm == "naive":
        # All calls of one encoder, then all of the other, however long they take; fewer of them,
        # as they can take ten times as long beside neighbours.
        calls = max(10, bench.unit["calls"] * 6 // 10)
        changes = {"conditions": NAIVE, "threads": bench.cores, "calls": calls, "block": calls}
    for variants in ARMS[arm]:
        bench.run(arm_name(arm, load), variants, **changes)


def oracle_ratio(bench: Bench, turns: int) -> float:
    """Our median over that of torch's own timer, in turns in this process."""
    import torch
    from torch.utils.benchmark import Timer as TorchTimer

    from ray_ablation.latency.conditions import Conditions
    from ray_ablation.latency.timing import Place, Timer
    from ray_ablation.latency.variant import load

    torch.set_num_threads(1)
    spec = bench.unit | {"unit": 0, "round": 0, "seed": 0}
    variant, timer = load(DEEP, spec, Conditions()), Timer(spec)
    [length] = spec["lengths"]
    theirs = TorchTimer(
        "variant.embed(texts, length)",
        globals={"variant": variant, "texts": variant.texts[length][0], "length": length},
        num_threads=1,
    )
    ratios = []
    with torch.inference_mode():
        for turn in range(turns):
            ours = [timer.call(variant, length, Place("measured", turn, turn), 0) for _ in range(5)]
            ratios.append(float(np.median(ours)) / 1e9 / theirs.timeit(5).median)
    return float(np.median(ratios[1:]))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=5, help="per arm and load")
    parser.add_argument("--calls", type=int, default=100, help="per encoder and process")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    options.warmup, options.limit_s, options.oracle = 10, 12.0, 20
    if options.quick:
        options.processes, options.calls, options.warmup = 1, 10, 3
        options.limit_s, options.oracle = 3.0, 3
    return options


if __name__ == "__main__":
    sys.exit(main())
