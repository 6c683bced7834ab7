"""The GPU's counters through an NVML that is handed in, and through none."""

from types import SimpleNamespace
from typing import ClassVar

import pytest

from ray_ablation.latency import guards
from ray_ablation.latency.nvml import GpuReading, open_gpu


class FakeNvml:
    """As much of pynvml as is asked, with one device; what is in `missing` is not supported."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    UUID: ClassVar[str] = "GPU-1"

    class NVMLError(Exception):
        pass

    def __init__(self, *missing: str, pids=(11, 12, 11), reasons=0, busy=0):
        self.missing, self.pids, self.reasons, self.busy = missing, pids, reasons, busy
        self.calls: list[str] = []

    def __getattr__(self, name):
        answers = {
            "nvmlInit": None,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=p) for p in self.pids],
            "nvmlDeviceGetGraphicsRunningProcesses": [],
            "nvmlDeviceGetCurrentClocksEventReasons": self.reasons,
            "nvmlDeviceGetPowerUsage": 70_500,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2**30),
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=self.busy),
            "nvmlDeviceGetTemperature": 41,
            "nvmlDeviceGetMigMode": (0, 0),
            "nvmlDeviceGetEccMode": (1, 1),
            "nvmlDeviceGetName": "H100",
            "nvmlSystemGetDriverVersion": "580.1",
            "nvmlDeviceGetCpuAffinity": [0b1010, 1],
        }

        def answer(*arguments):
            self.calls.append(name)
            if name in self.missing:
                raise self.NVMLError(name)
            if name == "nvmlDeviceGetHandleByUUID" and arguments != (self.UUID,):
                raise self.NVMLError("no such device")
            if name == "nvmlDeviceGetClockInfo":
                return {1: 1980, 2: 2619}[arguments[1]]
            return answers.get(name, 0)

        if not name.startswith("nvml"):
            raise AttributeError(name)
        return answer


def test_a_reading_has_what_nvml_tells():
    gpu = open_gpu("0", FakeNvml(reasons=0x01))
    assert gpu is not None
    assert gpu.read() == GpuReading(
        processes=2,
        throttled=0,
        sm_clock_mhz=1980,
        mem_clock_mhz=2619,
        temperature_c=41,
        power_w=70.5,
        used_bytes=2**30,
        utilisation=0.0,
    )
    assert (gpu.describe()["name"], gpu.describe()["mig"]) == ("H100", False)
    assert gpu.near_cores() == {1, 3, 64}


@pytest.mark.parametrize("bit", [0x04, 0x08, 0x20, 0x40, 0x80])
def test_caps_and_slowdowns_are_throttling_and_idling_is_not(bit):
    assert open_gpu("0", FakeNvml(reasons=bit | 1)).read().throttled == 1
    assert open_gpu("0", FakeNvml(reasons=1)).read().throttled == 0


def test_what_is_not_supported_is_none_and_the_rest_is_there():
    compute, graphics = (f"nvmlDeviceGet{kind}RunningProcesses" for kind in ("Compute", "Graphics"))
    reading = open_gpu("GPU-1", FakeNvml(compute, graphics, "nvmlDeviceGetPowerUsage")).read()
    assert (reading.processes, reading.power_w, reading.sm_clock_mhz) == (None, None, 1980)
    reading = open_gpu("GPU-1", FakeNvml(graphics)).read()
    assert reading.processes == 2
    assert open_gpu("0", FakeNvml("nvmlDeviceGetCpuAffinity")).near_cores() is None


def test_no_device_and_no_nvml_is_no_gpu():
    assert open_gpu("GPU-2", FakeNvml()) is None
    assert open_gpu("0", FakeNvml("nvmlInit")) is None


def test_nothing_is_ever_set():
    library = FakeNvml()
    gpu = open_gpu("0", library)
    gpu.read()
    gpu.describe()
    gpu.near_cores()
    assert not [name for name in library.calls if "Set" in name or "Reset" in name]


def test_a_busy_device_is_waited_for_no_longer_than_allowed(monkeypatch):
    monkeypatch.setattr(guards, "QUIET_WINDOW_S", 0.05)
    monkeypatch.setattr(guards, "QUIET_CORES", 1e9)  # the host's own load is not asked here
    free = guards.wait_quiet(5.0, open_gpu("0", FakeNvml(pids=())))
    assert (free["accepted"], free["gpu_processes"]) == (True, 0)
    taken = guards.wait_quiet(0.3, open_gpu("0", FakeNvml()))
    assert (taken["accepted"], taken["gpu_processes"]) == (False, 2)
    assert 0.2 < taken["waited_s"] < 0.6
    assert not guards.wait_quiet(0.3, open_gpu("0", FakeNvml(pids=(), busy=30)))["accepted"]
    unknown = FakeNvml(*(f"nvmlDeviceGet{k}RunningProcesses" for k in ("Compute", "Graphics")))
    assert guards.wait_quiet(5.0, open_gpu("0", unknown))["accepted"]
