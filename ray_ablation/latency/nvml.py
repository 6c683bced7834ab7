"""The GPU through NVML, read-only: no clock, no power limit, no mode is ever set.

NVML is optional, and every single query of it may be unsupported on a card or hidden in a
container; what it does not answer is None. Within a container it reports the host's process ids, so
processes are counted, never compared. A read can stall every core for milliseconds on some drivers,
which is why it happens between blocks and never inside a timed call.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

CLOCK_EVENTS = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
"""Reasons for lower clocks that disturb a measurement, as bits of NVML's clocks-event reasons."""


@dataclass(frozen=True)
class GpuReading:
    """A device at one moment; None for what NVML does not tell.

    Attributes:
        processes: On the device, the measured one included.
        throttled: 1 when one of `CLOCK_EVENTS` is in force, else 0.
        used_bytes: Memory in use by all processes.
        utilisation: Share of the last sampling period in which a kernel ran.
    """

    processes: int | None = None
    throttled: int | None = None
    sm_clock_mhz: int | None = None
    mem_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    used_bytes: int | None = None
    utilisation: float | None = None


class Gpu:
    """One device.

    Args:
        library: The module `pynvml`, initialised.
        handle: Of the device.
    """

    def __init__(self, library: Any, handle: Any) -> None:
        self._nvml, self._handle = library, handle

    def read(self) -> GpuReading:
        """Everything now."""
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        power = self._ask("nvmlDeviceGetPowerUsage")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        return GpuReading(
            processes=self._processes(),
            throttled=None if reasons is None else int(any(reasons & bit for bit in CLOCK_EVENTS)),
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            mem_clock_mhz=self._ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_MEM),
            temperature_c=self._ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            power_w=None if power is None else power / 1000,
            used_bytes=None if memory is None else int(memory.used),
            utilisation=None if rates is None else rates.gpu / 100,
        )

    def describe(self) -> dict[str, Any]:
        """What does not change while a profile is measured, and the state it began in."""
        mig = self._ask("nvmlDeviceGetMigMode")
        ecc = self._ask("nvmlDeviceGetEccMode")
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        clock = self._ask("nvmlDeviceGetMaxClockInfo", self._nvml.NVML_CLOCK_SM)
        return {
            "name": self._ask("nvmlDeviceGetName"),
            "uuid": self._ask("nvmlDeviceGetUUID"),
            "driver": self._try(lambda: self._nvml.nvmlSystemGetDriverVersion()),
            "mig": None if mig is None else bool(mig[0]),
            "ecc": None if ecc is None else bool(ecc[0]),
            "persistence": self._ask("nvmlDeviceGetPersistenceMode"),
            "compute_mode": self._ask("nvmlDeviceGetComputeMode"),
            "power_limit_w": None if limit is None else limit / 1000,
            "max_sm_clock_mhz": clock,
            "now": asdict(self.read()),
        }

    def near_cores(self) -> set[int] | None:
        """Logical cores of the device's NUMA node."""
        words = self._ask("nvmlDeviceGetCpuAffinity", 16)
        if words is None:
            return None
        return {
            64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1
        }

    def _processes(self) -> int | None:
        kinds = ("Compute", "Graphics")
        found = [self._ask(f"nvmlDeviceGet{kind}RunningProcesses") for kind in kinds]
        known = [processes for processes in found if processes is not None]
        return len({process.pid for some in known for process in some}) if known else None

    def _ask(self, name: str, *arguments: Any) -> Any:
        return self._try(lambda: getattr(self._nvml, name)(self._handle, *arguments))

    def _try(self, query: Callable[[], Any]) -> Any:
        try:
            return query()
        except (self._nvml.NVMLError, AttributeError):  # unsupported, or an older library
            return None


def open_gpu(name: str, library: Any = None) -> Gpu | None:
    """A device by its UUID or its index in PCI order; None without NVML or without that device.

    Args:
        library: In place of pynvml.
    """
    if library is None:
        try:
            import pynvml
        except ImportError:
            return None
        library = pynvml
    try:
        library.nvmlInit()
        by_index = name.isdecimal()
        handle = (
            library.nvmlDeviceGetHandleByIndex(int(name))
            if by_index
            else library.nvmlDeviceGetHandleByUUID(name)
        )
    except library.NVMLError:
        return None
    return Gpu(library, handle)
