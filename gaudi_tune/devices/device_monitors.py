"""Monitors of a host and of the device of one worker: each ``sample()`` returns values by name, as MLflow names
them in its system metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import psutil

from gaudi_tune.devices.gaudi_node import MODULES_OF_A_NODE

logger = logging.getLogger(__name__)

_Reading = Callable[[Any, Any], dict[str, float]]
"""Reads quantities of a device: takes pyhlml and a handle, returns values by name."""


class HostMonitor:
    """Reads the host's CPU and memory, under MLflow's names. MLflow's own monitor would import MLflow in each worker,
    1.7 s of CPU and 40 MB."""

    def __init__(self) -> None:
        """Begin to measure: the CPU's utilisation counts from the reading before."""
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
    ``hpu_3_temperature_celsius`` (of the chip). What a device does not report is left out.

    What "utilisation" is, the driver decides. In Linux's own it is the power, from 0 when idle to 100 at the limit
    (hl_device_utilization() in drivers/accel/habanalabs); Intel describes it as that of the last second.
    """

    def __init__(self, module: int) -> None:
        """Find the device.

        Raises:
            ImportError: pyhlml is not installed.
            LookupError: There is no such module here.
            pyhlml.HLMLError: Its library or the driver is not there, or something else uses it in this process.
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
        """Read the device once."""
        return {
            f"hpu_{self._module}_{name}": value
            for read in (_utilization, _memory, _power, _temperature)
            for name, value in self._read(read).items()
        }

    def close(self) -> None:
        """Give pyhlml's library back, so that another monitor of this process may use it."""
        self._hlml.hlmlShutdown()

    def _list_devices(self) -> dict[int, Any]:
        """Return the handles of the devices by their module ids."""
        # An index is that of /dev/hl<index>, and a container that was given a part of a node need not begin at 0.
        indices = range(max(self._hlml.hlmlDeviceGetCount(), MODULES_OF_A_NODE))
        return {module: device for index in indices for module, device in self._device_at(index).items()}

    def _device_at(self, index: int) -> dict[int, Any]:
        try:
            device = self._hlml.hlmlDeviceGetHandleByIndex(index)
            return {self._hlml.hlmlDeviceGetModuleID(device): device}
        except self._hlml.HLMLError:
            return {}  # there is no such index here

    def _read(self, read: _Reading) -> dict[str, float]:
        try:
            return read(self._hlml, self._device)
        except Exception as error:  # a quantity that a device does not report must not hide the others
            what, kind = read.__name__[1:], type(error).__name__
            logger.warning("HPU module %d: no %s (%s: %s)", self._module, what, kind, error)
            return {}


def gpu_monitor(index: int) -> Any:
    """Return MLflow's monitor for GPUs, for one of the node's. This imports MLflow.

    Args:
        index: As NVML counts them, that is in the order of their PCI buses, CUDA_VISIBLE_DEVICES or not.

    Raises:
        ImportError: nvidia-ml-py is not installed.
        IndexError: There is no such GPU.
        RuntimeError: There is no driver.
    """
    from gaudi_tune.private.mlflow_system_metrics import GPU_LOGGER, OneGpuMonitor

    logging.getLogger(GPU_LOGGER).addFilter(_ONCE)
    return OneGpuMonitor(index)


def _utilization(hlml: Any, device: Any) -> dict[str, float]:
    return {"utilization_percentage": hlml.hlmlDeviceGetUtilizationRates(device).aip}


def _memory(hlml: Any, device: Any) -> dict[str, float]:
    memory = hlml.hlmlDeviceGetMemoryInfo(device)  # bytes
    return {
        "memory_usage_percentage": memory.used / memory.total * 100,
        "memory_usage_megabytes": memory.used / 1e6,
    }


def _power(hlml: Any, device: Any) -> dict[str, float]:
    return {"power_usage_watts": hlml.hlmlDeviceGetPowerUsage(device) / 1000}  # from milliwatts


def _temperature(hlml: Any, device: Any) -> dict[str, float]:
    on_the_chip = 0  # HLML_TEMPERATURE_ON_AIP; 1 is the board
    return {"temperature_celsius": hlml.hlmlDeviceGetTemperature(device, on_the_chip)}


class _Once(logging.Filter):
    """Lets each message pass once: what a device does not report is missing from every sample."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in self._passed
        self._passed.add(message)
        return new


_ONCE = _Once()
logger.addFilter(_ONCE)
