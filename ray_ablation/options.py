"""The options of the command."""

import argparse
from collections.abc import Sequence


def parser(phases: Sequence[str]) -> argparse.ArgumentParser:
    """What the command takes."""
    options = argparse.ArgumentParser(
        prog="python -m ray_ablation.run",
        description="Train, evaluate, profile and report every trial of a grid. The same command "
        "resumes a stopped study and does only what is missing.",
    )
    options.add_argument("grid", help="the study, a YAML file")
    options.add_argument("--plan", action="store_true", help="print every trial and stop")
    options.add_argument("--phase", choices=phases, help="this phase alone")
    options.add_argument(
        "--only", metavar="ID", help="this trial alone; the start of its id will do"
    )
    options.add_argument("--benchmark", metavar="NAME", help="score this benchmark alone")
    options.add_argument("--local", action="store_true", help="all in this process, without Ray")
    options.add_argument("--storage", metavar="FOLDER", help="where results lie (default: results)")
    options.add_argument("--address", help="a running Ray cluster (default: RAY_ADDRESS, else own)")
    options.add_argument(
        "--strict", action="store_true", help="exit with 1 when a claim of the grid does not hold"
    )
    wait = "wait for so many nodes with room for a trial, which an autoscaler is asked for"
    options.add_argument("--wait-for-nodes", type=_count, metavar="N", help=wait)
    options.add_argument(
        "--wait-timeout-s", type=float, metavar="S", default=900.0, help="how long (default: 900)"
    )
    options.add_argument("--gpus", type=_count, metavar="N", help="GPUs that --plan reckons with")
    options.add_argument(
        "--dashboard", action="store_true", help="serve Ray's dashboard, where a cluster is started"
    )
    return options


def _count(text: str) -> int:
    if (count := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}; give at least 1")
    return count
