"""A grid being worked on by one command: what is chosen, what is done, the cluster it runs on."""

import argparse
import glob
import os
import textwrap
from contextlib import ExitStack
from dataclasses import dataclass, field

from ray_ablation import cost, plan
from ray_ablation.data.beir import Benchmark
from ray_ablation.grid import Grid
from ray_ablation.ledger import Ledger
from ray_ablation.problems import Failure
from ray_ablation.settings import Execution
from ray_ablation.trial import Trial


@dataclass
class Study:
    """A grid being worked on by this command.

    `statuses` are the chosen trials' at its start, `unheld` the claims that do not hold, where
    --strict asks for them.
    """

    grid: Grid
    ledger: Ledger
    trials: list[Trial]
    benchmarks: list[Benchmark]
    arguments: argparse.Namespace
    resources: ExitStack
    statuses: list[plan.Status] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    unheld: list[str] = field(default_factory=list)
    connected: bool = False

    def connect(self, phase: str) -> None:
        """Be connected to Ray from here to the end of the command, unless --local.

        Raises:
            UserError: The cluster cannot do what is asked, with the cause.
        """
        if self.arguments.local:
            return
        from ray_ablation import telemetry

        if not self.connected:
            self._connect()
            self.connected = True
        telemetry.phase(phase)

    def _connect(self) -> None:
        from ray_ablation import cluster, preflight

        asked, execution = self.arguments, self.grid.execution
        joined = cluster.start_ray(execution, address=asked.address, dashboard=asked.dashboard)
        url = self.resources.enter_context(joined)
        if asked.dashboard:
            say(cluster.dashboard_line(url))
        if asked.wait_for_nodes:
            preflight.wait_for_nodes(execution, asked.wait_for_nodes, asked.wait_timeout_s)
        needed = preflight.needed(self.grid, self.pending, self.ledger)
        found = preflight.check(execution, needed)
        say(found.line)
        self._estimate(cluster.settle_device(execution), found.slots)

    @property
    def pending(self) -> list[Trial]:
        """The chosen trials that were not trained when the command began."""
        return [status.trial for status in self.statuses if status.record is None]

    def _estimate(self, execution: Execution, slots: int) -> None:
        at_a_time = min(slots, execution.max_concurrent or slots)
        came_to = cost.estimate(self.pending, self.ledger.records(), execution, at_a_time)
        if came_to is not None:
            say(str(came_to))

    def _assumed(self) -> tuple[Execution, int]:
        """What a plan without a cluster reckons with: so many GPUs, one, or this machine's CPUs."""
        execution, gpus = self.grid.execution, self.arguments.gpus
        here = glob.glob("/dev/nvidia[0-9]*")
        if execution.device == "cuda" or gpus or (here and execution.device == "auto"):
            return execution, gpus or 1
        slots = max(1, (os.cpu_count() or 1) // execution.cpus_per_trial)
        return execution.model_copy(update={"device": "cpu"}), slots

    def describe(self) -> None:
        """Print the plan; on a cluster that was named also whether it can carry it out."""
        print(plan.describe(self.grid, self.statuses))
        if self.arguments.local or not (self.arguments.address or os.environ.get("RAY_ADDRESS")):
            self._estimate(*self._assumed())
            return
        self.ledger.check_writable()
        self.connect("train")
        plan.preflight(self.grid, self.statuses, self.benchmarks, self.ledger, say)


def say(text: str) -> None:
    """Print what a phase tells, indented under its name."""
    print(textwrap.indent(text, "  "), flush=True)
