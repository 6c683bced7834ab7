"""Rounds of a profile: what is in one, when they end, and a process that hangs in one."""

from pathlib import Path

import pytest

from ray_ablation.atomic import read_json, write_json
from ray_ablation.latency import plan
from ray_ablation.latency.lease import Lease
from ray_ablation.latency.process import Outcome
from ray_ablation.latency.profile import _job, _write
from ray_ablation.latency.rounds import Budget, is_tight, measure
from tiny_profile import LATENCY, make_study


@pytest.fixture
def study(tmp_path):
    return make_study(tmp_path)


class FirstHangs(Lease):
    """Gives the first unit no more time than importing torch takes, as if it hung there."""

    def run(self, folder, spec, limit_s, soft_s):
        limit_s = 1.0 if spec["unit"] == 0 else limit_s
        return super().run(folder, spec, limit_s, soft_s)


def test_a_unit_that_hangs_is_killed_and_the_next_round_is_measured(study):
    grid, ledger = study
    latency = LATENCY.model_copy(update={"rounds": 2, "lengths": (8,), "budget_s": None})
    found = plan.architectures(grid.trials, ledger)
    holder = FirstHangs("cpu")
    job = _job(latency, found, ledger, holder.node(), Budget(90.0))
    measured = measure(job, holder)
    [failure] = _write(job, measured)
    assert (failure.what, failure.reason) == (
        "latency / round 1, paired",
        "killed after 1 s, its limit",
    )
    record = read_json(ledger.latency_json(job.identifier))
    assert record is not None
    assert [unit["error"] for unit in record["units"]] == [failure.reason, None]
    assert {result["n_processes"] for result in record["results"]} == {1}
    rounds = {"code": "rounds", "variant": None, "seq": None, "value": 1, "limit": 2}
    assert rounds in record["unmet_criteria"]
    assert (job.folder / "units" / "0" / "log.txt").exists()
    assert not (job.folder / "units" / "1").exists()


def test_a_round_is_one_paired_unit_and_one_for_each_encoder_alone(study):
    grid, ledger = study
    found = plan.architectures(grid.trials, ledger)
    latency = LATENCY.model_copy(update={"solo": True, "rounds": 5, "max_rounds": 7})
    rounds = plan.units("an id", found, latency, "fp32", "cpu")
    assert len(rounds) == 7
    assert [unit["unit"] for units in rounds for unit in units] == list(range(21))
    for units in rounds:
        sets = {(unit["kind"], tuple(unit["variants"])) for unit in units}
        paired = ("paired", ("L2", "L1", "canary", "canary-twin"))
        assert sets == {paired, ("solo", ("L2",)), ("solo", ("L1",))}
    assert len({tuple(unit["kind"] for unit in units) for units in rounds}) > 1  # order is drawn
    assert len({unit["seed"] for units in rounds for unit in units}) == 21
    assert rounds == plan.units("an id", found, latency, "fp32", "cpu")
    few = LATENCY.model_copy(update={"rounds": 2, "max_rounds": 12})
    assert len(plan.units("an id", found, few, "fp32", "cpu")) == 2


def said(p50s: dict[str, float], kind: str = "paired") -> dict:
    return {"kind": kind, "p50_ms": {name: {"8": p50} for name, p50 in p50s.items()}}


def test_rounds_end_when_every_interval_is_tight():
    steady = [said({"L2": 10.0, "L1": 5.0, "canary": 1.0 + i}) for i in range(5)]
    assert is_tight(steady)
    assert not is_tight(steady[:4])  # no interval yet
    wide = [said({"L2": 10.0, "L1": 5.0 + 0.1 * i}) for i in range(5)]
    assert not is_tight(wide)
    # Ten processes at one level and two at another: the median's interval is tight.
    assert is_tight([said({"L2": 10.0})] * 10 + [said({"L2": 11.0})] * 2)
    assert is_tight(wide + [said({"L2": 10.0}, "solo"), said({"L1": 5.0}, "solo")] * 5)


class Scripted(Lease):
    """Says what a process would, without starting one; its p50 are given."""

    def __init__(self, p50s: list[float], seconds: float = 1.0):
        super().__init__("cpu")
        self.p50s, self.seconds, self.started = p50s, seconds, 0

    def wait_quiet(self, limit_s):
        return {"waited_s": 0.0, "accepted": True, "other_busy_cores": 0.0, "gpu_processes": None}

    def run(self, folder, spec, limit_s, soft_s):
        p50 = self.p50s[self.started]
        self.started += 1
        write_json(
            Path(folder) / "result.json",
            said(dict.fromkeys(spec["variants"], p50))
            | {"failures": {}, "warmups": [], "variants": {}},
        )
        return Outcome(None, self.seconds)


@pytest.mark.parametrize(
    ("p50s", "started"),
    [
        ([10.0] * 12, 5),
        # Of five resampled, three are the odd one in 5.8 %; of six, the median reaches half-way.
        ([10.0, 10.5] + [10.0] * 10, 6),
        ([10.0 + i for i in range(12)], 12),
    ],
)
def test_rounds_are_added_until_it_is_tight_or_twelve(study, p50s, started):
    grid, ledger = study
    found = plan.architectures(grid.trials, ledger)
    latency = LATENCY.model_copy(update={"rounds": 5, "budget_s": None})
    holder = Scripted(p50s)
    measured = measure(_job(latency, found, ledger, holder.node(), Budget(None)), holder)
    assert holder.started == len(measured.units) == started


def test_no_round_is_added_that_the_budget_has_no_room_for(study):
    grid, ledger = study
    found = plan.architectures(grid.trials, ledger)
    holder = Scripted([10.0 + i for i in range(12)], seconds=1000.0)
    latency = LATENCY.model_copy(update={"rounds": 5, "budget_s": 90.0})
    measure(_job(latency, found, ledger, holder.node(), Budget(90.0)), holder)
    assert holder.started == 5
