"""Monitors of a host and of one worker's device.

Each has a ``sample()`` that returns values by name. The names are those of MLflow's system metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psutil

from gaudi_tune.devices.gaudi_node import MODULES_OF_A_NODE

logger = logging.getLogger(__name__)

T = TypeVar("T")

TEMPERATURE_OF_CHIP = 0
"""pyhlml's HLML_TEMPERATURE_ON_AIP; 1 is the board."""
_logged = set[str]()
"""What was logged: a value that a device does not report is missing from every sample."""


def attempt(what_lacks: str, read: Callable[[], T]) -> T | None:
    """Return what a function reads; None if it fails, which is logged once for each message."""
    try:
        return read()
    except Exception as error:  # the libraries of drivers have errors of their own, without a common class
        message = f"{what_lacks}: {type(error).__name__}: {error}"
        if message not in _logged:
            _logged.add(message)
            logger.warning("%s", message)
        return None


class HostMonitor:
    """Reads the host's CPU and memory.

    MLflow's own monitor would import MLflow in each worker, which takes 1.7 s of CPU and 40 MB.
    """

    def __init__(self) -> None:
        """Begin to measure: the CPU's utilisation is measured since the last call."""
        psutil.cpu_percent()

    def sample(self) -> dict[str, float]:
        """Return the CPU's utilisation since the last call (0 to 100) and the memory in use (10^6 bytes, 0 to 100)."""
        memory = psutil.virtual_memory()
        return {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / 1e6,
            "system_memory_usage_percentage": memory.used / memory.total * 100,
        }


class HpuMonitor:
    """Reads an HPU, given by its module id, through Intel's pyhlml. Reading acquires no device.

    Metrics of module 3, named as MLflow names those of GPUs: ``hpu_3_utilization_percentage`` (0 to 100),
    ``hpu_3_memory_usage_percentage``, ``hpu_3_memory_usage_megabytes`` (10^6 bytes), ``hpu_3_power_usage_watts`` and
    ``hpu_3_temperature_celsius`` (of the chip). Values that a device does not report are left out.

    The driver decides what "utilisation" means. In Linux's own driver it is the power, from 0 when idle to 100 at the
    limit (hl_device_utilization() in drivers/accel/habanalabs). Intel describes it as that of the last second.
    """

    def __init__(self, module: int) -> None:
        """Find the device.

        Raises:
            ImportError: pyhlml is not installed.
            LookupError: There is no such module here.
            pyhlml.HLMLError: Its library or the driver is missing, or something else in this process uses it.
        """
        try:
            import pyhlml
        except ImportError as error:
            raise ImportError("pyhlml is not installed: pip install habana-pyhlml") from error
        self._hlml: Any = pyhlml
        pyhlml.hlmlInit()
        listed = self._list_devices()
        if module not in listed:
            self.close()
            raise LookupError(f"pyhlml lists modules {sorted(listed)}")
        self._module, self._device = module, listed[module]

    def sample(self) -> dict[str, float]:
        """Read the device once. A quantity that it does not report does not hide the others."""
        hlml, device = self._hlml, self._device
        return _values_of(
            "HPU module",
            self._module,
            utilization=lambda: {"utilization_percentage": hlml.hlmlDeviceGetUtilizationRates(device).aip},
            memory=lambda: _memory(hlml.hlmlDeviceGetMemoryInfo(device)),
            power=lambda: {"power_usage_watts": hlml.hlmlDeviceGetPowerUsage(device) / 1000},  # from milliwatts
            temperature=lambda: {"temperature_celsius": hlml.hlmlDeviceGetTemperature(device, TEMPERATURE_OF_CHIP)},
        )

    def close(self) -> None:
        """Release pyhlml's library, so that another monitor in this process can use it."""
        self._hlml.hlmlShutdown()

    def _list_devices(self) -> dict[int, Any]:
        """Return the handles of the devices by their module ids."""
        devices = {}
        # The index is the number in /dev/hl<index>, which need not begin at 0 in a container that has a part of a node.
        for index in range(max(self._hlml.hlmlDeviceGetCount(), MODULES_OF_A_NODE)):
            with suppress(self._hlml.HLMLError):  # there is no such index here
                device = self._hlml.hlmlDeviceGetHandleByIndex(index)
                devices[self._hlml.hlmlDeviceGetModuleID(device)] = device
        return devices


class GpuMonitor:
    """Reads a GPU of the node through NVIDIA's pynvml, with the names of MLflow's own monitor.

    That one reads all GPUs of the node, and would import MLflow in each worker.
    """

    def __init__(self, index: int) -> None:
        """Find the GPU.

        Args:
            index: Its number in NVML, which orders GPUs by their PCI buses and ignores CUDA_VISIBLE_DEVICES.

        Raises:
            ImportError: nvidia-ml-py is not installed.
            pynvml.NVMLError: There is no driver, or no such GPU.
        """
        try:
            import pynvml
        except ImportError as error:
            raise ImportError("pynvml is not installed: pip install nvidia-ml-py") from error
        pynvml.nvmlInit()
        self._nvml, self._index, self._gpu = pynvml, index, pynvml.nvmlDeviceGetHandleByIndex(index)

    def sample(self) -> dict[str, float]:
        """Read the GPU once. A quantity that it does not report does not hide the others."""
        nvml, gpu = self._nvml, self._gpu
        return _values_of(
            "GPU",
            self._index,
            utilization=lambda: {"utilization_percentage": nvml.nvmlDeviceGetUtilizationRates(gpu).gpu},
            memory=lambda: _memory(nvml.nvmlDeviceGetMemoryInfo(gpu)),
            power=lambda: _power(nvml.nvmlDeviceGetPowerUsage(gpu), nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)),
        )


def _values_of(kind: str, index: int, **readings: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Return what the readings of a device give, with the device in the names. One that fails is logged."""
    values: dict[str, float] = {}
    for quantity, reading in readings.items():
        values |= attempt(f"{kind} {index}: no {quantity}", reading) or {}
    return {f"{kind.split()[0].lower()}_{index}_{name}": value for name, value in values.items()}


def _memory(memory: Any) -> dict[str, float]:
    """Return the memory in use, from bytes."""
    return {"memory_usage_percentage": memory.used / memory.total * 100, "memory_usage_megabytes": memory.used / 1e6}


def _power(milliwatts: float, limit: float) -> dict[str, float]:
    return {"power_usage_watts": milliwatts / 1000, "power_usage_percentage": milliwatts / limit * 100}
