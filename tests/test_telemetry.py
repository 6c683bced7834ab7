"""Gauges without Ray; that they arrive is tested with a session, in test_tune."""

import subprocess
import sys

QUIET = """
from ray_ablation import telemetry
telemetry.phase("train")
telemetry.trials({"done": 1})
telemetry.training("L1", {"step": 1, "loss": None})
telemetry.documents_per_s("scifact", 2.0)
import ray
assert not ray.is_initialized()
"""


def test_without_ray_nothing_happens():
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
