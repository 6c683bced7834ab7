"""Memory does not grow with the corpus: ten times as many documents take the same.

Each size is prepared and scored, by BM25 and by a tiny encoder, in a fresh process. Its peak is the
largest resident memory of that process and its children, looked at every 50 ms. LARGE_CORPUS gives
other sizes: LARGE_CORPUS=20000,200000.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from ray_ablation import encoder as encoders
from ray_ablation import grid as grids
from ray_ablation.evaluate import evaluate
from ray_ablation.ledger import Ledger
from test_evaluate import finish
from tiny_encoder import tiny_encoder

SIZES = [int(size) for size in os.environ.get("LARGE_CORPUS", "200000,2000000").split(",")]
# Allocators say when pages go back to the system: runs of one size differ by 2 %.
NOISE = 1.05
WORDS = [a + b + c for a in "bcdfgklmnprstvwz" for b in "aeiou" for c in "lmnrst"]
GRID = """name: large
axes: {{depth: [1]}}
fixed: {{steps: 0, max_length: 20, backbone: tiny}}
benchmarks: [mine]
measures: [RR@10, nDCG@10, R@100]
reference: [bm25]
evaluation: {{batch: 512}}
latency: null
execution: {{device: cpu, evaluate: local}}
paths: {{mine: {folder}/mine, tiny: {folder}/backbone}}
"""


def write_benchmark(folder: Path, documents: int) -> None:
    """Five words a document; a query is its document's text."""
    (folder / "qrels").mkdir(parents=True)
    rng = random.Random(5)
    queries = []
    with (folder / "corpus.jsonl").open("w") as file:
        for i in range(documents):
            text = " ".join(rng.choices(WORDS, k=5))
            file.write(f'{{"_id": "d{i}", "title": "", "text": "{text}"}}\n')
            if i < 20:
                queries.append(f'{{"_id": "q{i}", "text": "{text}"}}\n')
    (folder / "queries.jsonl").write_text("".join(queries))
    rows = [f"q{i}\td{i}\t1\n" for i in range(len(queries))]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))


def work(folder: Path) -> None:
    """What the fresh process does; told with the seconds it took."""
    grid = grids.load(folder / "grid.yaml")
    began = time.monotonic()
    failures = evaluate(
        grid,
        grid.trials,
        Ledger(folder / "results"),
        benchmarks=grid.benchmarks,
        say=lambda line: print(f"{time.monotonic() - began:.0f} s: {line}", flush=True),
    )
    assert not failures, failures


def peak_of(folder: Path) -> int:
    """Bytes of `work` in a fresh process, its children included."""
    root = Path(__file__).parent.parent
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")]),
        "OMP_NUM_THREADS": "1",  # for batches this small, threads wait more than they compute
    }
    process = subprocess.Popen([sys.executable, __file__, str(folder)], env=environment)
    seen = [0]

    def watch() -> None:
        parent = psutil.Process(process.pid)
        while process.poll() is None:
            try:
                tree = [parent, *parent.children(recursive=True)]
                seen.append(sum(one.memory_info().rss for one in tree))
            except psutil.NoSuchProcess:
                continue
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    assert process.wait() == 0
    watcher.join()
    return max(seen)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_peak_memory_is_that_of_a_tenth_of_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for size in SIZES:
        folder = tmp_path / str(size)
        tiny_encoder(folder / "backbone")
        write_benchmark(folder / "mine", size)
        (folder / "grid.yaml").write_text(GRID.format(folder=folder))
        (trial,) = grids.load(folder / "grid.yaml").trials
        ledger = Ledger(folder / "results")
        finish(ledger, trial, encoders.build(trial, folder / "backbone"))
        peaks.append(peak_of(folder))
        about = ledger.read_scores(trial.id, "mine")[1]
        assert about["documents"] == size
        print(json.dumps({"documents": size, "peak_bytes": peaks[-1]}))
    assert peaks[-1] <= NOISE * peaks[0], [f"{peak / 1e6:.0f} MB" for peak in peaks]


if __name__ == "__main__":
    work(Path(sys.argv[1]))
