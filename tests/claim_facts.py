"""Numbers to hold claims against, most of them published, and claims in short."""

import json

import pandas as pd

from analysis.claims import answer
from analysis.facts import Facts
from ray_ablation.grid_file import ClaimsFile

# nDCG@10, mean over three benchmarks, of depths 12, 9, 6, 3.
PUBLISHED = {
    (256, 20_000, 42): (0.2551, 0.2655, 0.2709, 0.2708),
    (32, 20_000, 42): (0.2326, 0.2388, 0.2427, 0.2428),
    (32, 20_000, 43): (0.2410, 0.2382, 0.2441, 0.2427),
    (32, 20_000, 44): (0.2463, 0.2384, 0.2446, 0.2412),
    (32, 80_000, 42): (0.2143, 0.2109, 0.2254, 0.2203),
}
FIQA = {
    (32, 20_000, 42): (0.1139, 0.1091, 0.1092, 0.1145),
    (32, 80_000, 42): (0.0625, 0.0685, 0.0792, 0.0830),
}
P50 = {12: 16.17, 9: 15.78, 6: 13.03, 3: 12.65}
FIELDS = ("depth", "batch", "steps", "seed")
AT_20K = {"steps": 20_000, "batch": 32}


LADDER = {
    3: (0.20, 0.21, 0.22, 0.23),
    6: (0.301, 0.310, 0.322, 0.331),
    9: (0.25, 0.262, 0.27, 0.281),
    12: (0.10, 0.11, 0.122, 0.13),
}


def number(depth, batch, steps, seed, value, benchmark="mean", column="nDCG@10", **more):
    trial = f"L{depth}-b{batch}-{steps}-s{seed}"
    row = {"trial": trial, "depth": depth, "batch": batch, "steps": steps, "seed": seed}
    row |= {"benchmark": benchmark, "column": column, "value": value}
    return row | {"passes": None, "finished_at": "2025-03-01T12:00:00+00:00"} | more


def published():
    rows = [
        number(depth, batch, steps, seed, value)
        for (batch, steps, seed), values in PUBLISHED.items()
        for depth, value in zip((12, 9, 6, 3), values, strict=True)
    ]
    rows += [
        number(depth, batch, steps, seed, value, benchmark="fiqa")
        for (batch, steps, seed), values in FIQA.items()
        for depth, value in zip((12, 9, 6, 3), values, strict=True)
    ]
    rows += [
        number(depth, None, None, None, value, benchmark=None, column="p50_ms")
        for depth, value in P50.items()
    ]
    return made(rows)


def made(rows, imported=False):
    return Facts(pd.DataFrame(rows, dtype=object), FIELDS, imported)


def one_level(levels, **fixed):
    """Facts of one configuration a depth, its seeds counted from 1."""
    return made(
        [
            number(depth, 32, 20_000, seed, value, **fixed)
            for depth, values in levels.items()
            for seed, value in enumerate(values, 1)
        ]
    )


def claims(*entries):
    whole = [{"name": f"c{i}", "of": "nDCG@10", "axis": "depth"} | e for i, e in enumerate(entries)]
    return ClaimsFile.model_validate_json(json.dumps({"claims": whole})).claims


def ask(known, **entry):
    (found,) = answer(claims(entry), known)
    return found
