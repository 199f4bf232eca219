"""Measures a worker's device and host between two reports: utilisation, memory, power, temperature.

Each worker samples its own device, in a thread that only reads and acquires nothing.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Mapping
from functools import partial
from statistics import fmean
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.device_monitors import HostMonitor, HpuMonitor, attempt

PREFIX = "system/"
"""MLflow's page shows metrics with this prefix in the tab "System metrics" of a run."""
UTILIZATION_OF_DEVICE = re.compile(PREFIX + r"(hpu|gpu)_\d+_utilization_percentage")
"""Names of a device's utilisation, as MLflow's monitors have them; the CPU's has another form."""
SAMPLE_EVERY_S = 2.0
"""Seconds between samples. According to pyhlml, an HPU's utilisation covers the past second, so half is not seen."""
FIRST_SAMPLE_S = 0.1
"""Seconds to the first: a group's first report may come soon. Over less, the CPU's utilisation means little."""
CLOSE_WAITS_S = 2.0
"""How long the end of a group may wait for the thread to release the device's library."""


class DeviceMetrics:
    """Samples the device and its host in a thread until :meth:`close`. Nothing here raises."""

    def __init__(self, device: DeviceType, index: int | None, every_s: float = SAMPLE_EVERY_S) -> None:
        """Start the thread.

        Args:
            device: The kind of device. The host is sampled with any kind.
            index: The HPU's module id, or the GPU's index in NVML; None if the device has no number.
            every_s: Seconds between samples.
        """
        self._values: dict[str, list[float]] = {}
        self._last: dict[str, float] = {}
        self._lock, self._closed = threading.Lock(), threading.Event()
        # All monitors live in this one thread: a reading that hangs must not delay a report, and psutil measures the
        # CPU's utilisation since the last call of the same thread.
        self._thread = threading.Thread(
            target=self._run, args=(device, index, every_s), name="device-metrics", daemon=True
        )
        self._thread.start()

    def take(self) -> dict[str, float]:
        """Return the means of all samples since the last call, and the highest value of memory, and forget them.

        A report that comes before the next sample has the last one again. None waits for a sample.

        Returns:
            Values by name, for example ``system/hpu_3_power_usage_watts`` or ``system/cpu_utilization_percentage``.
            The unit is in the name; megabytes are 10^6 bytes. Values that could not be read are missing.
        """
        with self._lock:
            values_by_name = self._values or {name: [value] for name, value in self._last.items()}
            self._values = {}
        summary = {}
        for name, values in values_by_name.items():
            summary[PREFIX + name] = round(fmean(values), 1)
            if name.endswith("memory_usage_megabytes"):
                summary[f"{PREFIX}{name}_max"] = round(max(values), 1)
        return summary

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join(CLOSE_WAITS_S)

    def _run(self, device: DeviceType, index: int | None, every_s: float) -> None:
        monitors, wait_s = _monitors(device, index), FIRST_SAMPLE_S
        while not self._closed.wait(wait_s):
            self._add(_sample(monitors))
            wait_s = every_s
        for monitor in monitors:
            if isinstance(monitor, HpuMonitor):
                monitor.close()

    def _add(self, sample: dict[str, float]) -> None:
        with self._lock:
            self._last = sample
            for name, value in sample.items():
                self._values.setdefault(name, []).append(value)


class TrialCounts:
    """What a device's software counts in one trial, which begins now."""

    def __init__(self, device: DeviceType) -> None:
        self._device = device
        self._at_start = device.counted()
        self._compiled_s = self._at_start.compile_s if self._at_start is not None else 0.0
        self._counted_until, self._seconds, self._busy = time.monotonic(), 0.0, 0.0
        if device.measures_memory:
            device.reset_peak_memory()

    def add_to_report(self, metrics: Mapping[str, Any], sampled: Mapping[str, float]) -> dict[str, Any]:
        """Return a report with the counts of the trial so far, and the seconds of compiling since the last report.

        What the train loop reports itself stays.

        Args:
            metrics: The report.
            sampled: What :class:`DeviceMetrics` has sampled since the last report.
        """
        from gaudi_tune.private.torch import uncompiled_functions  # here: trial actors import this module, and no torch

        counts: dict[str, Any] = {}
        utilization = next((value for name, value in sampled.items() if UTILIZATION_OF_DEVICE.fullmatch(name)), None)
        if utilization is not None:
            elapsed_s = time.monotonic() - self._counted_until
            self._counted_until += elapsed_s
            self._seconds += elapsed_s
            self._busy += elapsed_s * utilization
            counts[names.UTILIZATION] = round(self._busy / self._seconds, 1)
        if self._device.measures_memory:
            counts[names.PEAK_MEMORY_GB] = round(self._device.peak_memory_gb(), 3)
        if uncompiled := uncompiled_functions():
            counts[names.UNCOMPILED] = uncompiled
        current = self._device.counted()
        if current is not None and self._at_start is not None:
            counts[names.GRAPH_COMPILATIONS] = current.compilations - self._at_start.compilations
            counts[names.CPU_FALLBACKS] = current.cpu_fallbacks - self._at_start.cpu_fallbacks
            if current.cache_hits is not None:
                counts[names.GRAPH_CACHE_HITS] = current.cache_hits - (self._at_start.cache_hits or 0)
            counts[names.COMPILE_SECONDS] = current.compile_s - self._compiled_s
            self._compiled_s = current.compile_s
        return {**counts, **metrics}


def _monitors(device: DeviceType, index: int | None) -> list[Any]:
    """Return monitors of the host and the device. If the device's cannot be made, that is logged."""
    what = f"no metrics of {device.kind} {index}"
    monitor = None if index is None else attempt(what, partial(device.monitor, index))
    return [HostMonitor()] if monitor is None else [HostMonitor(), monitor]


def _sample(monitors: list[Any]) -> dict[str, float]:
    """Read each monitor once. If one fails, that is logged, and its values are missing."""
    values: dict[str, float] = {}
    for monitor in monitors:
        values |= attempt(f"no metrics of {type(monitor).__name__}", monitor.sample) or {}
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}
