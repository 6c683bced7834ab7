"""Gauges without Ray; that they arrive is tested with a session, in test_tune."""

import json
import re
import subprocess
import sys
from pathlib import Path

from ray_ablation import telemetry
from ray_ablation.train import COLUMNS

ROOT = Path(__file__).parent.parent

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


def test_the_dashboard_draws_all_gauges_and_no_others():
    dashboard = json.loads((ROOT / "cluster" / "grafana.json").read_text())
    targets = json.dumps([panel["targets"] for panel in dashboard["panels"]])
    drawn = re.findall(r"ray_(ablation_\w+)", targets)
    assert sorted(drawn) == sorted(telemetry.DESCRIPTIONS)


def test_every_gauge_of_a_trial_is_a_column_of_training():
    assert set(telemetry.TRAINING) <= set(COLUMNS)
    assert {f"ablation_{name}" for name in telemetry.TRAINING} <= telemetry.DESCRIPTIONS.keys()
