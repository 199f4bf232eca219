"""What a worker's device and its host did between two reports: utilisation, memory, power, temperature.

Each worker samples its own, in a thread that reads and acquires nothing.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.device_monitors import HostMonitor

logger = logging.getLogger(__name__)

PREFIX = "system/"
"""Metrics under it are shown in the tab "System metrics" of a run by MLflow's page."""
UTILIZATION_OF_DEVICE = re.compile(PREFIX + r"(hpu|gpu)_\d+_utilization_percentage")
"""The names of MLflow's monitors; the host's own is another."""
SAMPLE_EVERY_S = 2.0
"""pyhlml describes an HPU's utilisation as that of the past second: this sees half of the time."""
TAKE_WAITS_S = 30.0
"""How long one report of a group may wait for a sample. On GPUs the first may come before MLflow is imported, which
takes 1.7 s of an idle core and much longer on a busy disk; a reading that hangs holds up one report and no more."""
CLOSE_WAITS_S = 2.0
"""How long the end of a group may wait for the thread to give the devices' library back."""


class DeviceMetrics:
    """Samples the device and its host in a thread until :meth:`close`. Nothing here raises."""

    def __init__(self, device: DeviceType, index: int | None, every_s: float = SAMPLE_EVERY_S) -> None:
        """Start the thread.

        Args:
            device: What the worker trains on; the host is sampled with any.
            index: Its HPU's module id, or its GPU's index in NVML; None where it has none.
            every_s: Seconds between samples.
        """
        self._changed = threading.Condition()
        self._seen: dict[str, _Seen] = {}
        self._samples = 0
        self._wanted = self._stuck = self._closed = self._ended = False
        # All monitors live in this one thread: a reading that hangs must not hold up a report, and psutil keeps what
        # it compares the CPU's times with for each thread.
        self._thread = threading.Thread(
            target=self._run, args=(device, index, every_s), name="device-metrics", daemon=True
        )
        self._thread.start()

    def take(self) -> dict[str, float]:
        """Return what was sampled since the last call, and forget it: means, and for memory the highest value as well.

        If nothing was sampled since, a sample is taken now. Over less than 0.1 s, the CPU's utilisation says little.

        Returns:
            Values by name, for example ``system/hpu_3_power_usage_watts`` or ``system/cpu_utilization_percentage``.
            The unit is in the name; megabytes are 10^6 bytes. What could not be read is missing.
        """
        with self._changed:
            if not self._samples and not self._stuck:
                self._wait_for_a_sample()
            seen, self._seen, self._samples = self._seen, {}, 0
        values = {}
        for name, what in seen.items():
            values[PREFIX + name] = round(what.total / what.count, 1)
            if name.endswith("memory_usage_megabytes"):
                values[f"{PREFIX}{name}_max"] = round(what.highest, 1)
        return values

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_WAITS_S)

    def _wait_for_a_sample(self) -> None:
        self._wanted = True
        self._changed.notify_all()
        if not self._changed.wait_for(lambda: self._samples or self._closed or self._ended, TAKE_WAITS_S):
            self._stuck = True  # later reports do not wait for it
            logger.warning(
                "no device metrics within %.0f s; reports continue without them until they arrive", TAKE_WAITS_S
            )

    def _run(self, device: DeviceType, index: int | None, every_s: float) -> None:
        monitors: list[Any] = []
        try:
            monitors += _monitors(device, index)
            while self._wait_until_due(every_s):
                self._add(_sample(monitors))
            for monitor in monitors:
                if hasattr(monitor, "close"):
                    monitor.close()
        except Exception as error:
            logger.warning("device metrics end here: %s: %s", type(error).__name__, error)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _wait_until_due(self, every_s: float) -> bool:
        """Wait until a sample is due or wanted; return False if the thread should end."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted or self._closed, every_s)
            return not self._closed

    def _add(self, sample: dict[str, float]) -> None:
        with self._changed:
            for name, value in sample.items():
                self._seen.setdefault(name, _Seen()).add(value)
            self._samples += 1
            self._wanted = False
            self._changed.notify_all()


class TrialCounts:
    """What a device's software counts in one trial, from now on."""

    def __init__(self, device: DeviceType) -> None:
        self._device = device
        self._before = device.counted()
        self._compiled_s = self._before.compile_s if self._before is not None else 0.0
        self._counted_until, self._seconds, self._busy = time.monotonic(), 0.0, 0.0
        device.forget_peak_memory()

    def added_to(self, metrics: Mapping[str, Any], sampled: Mapping[str, float]) -> dict[str, Any]:
        """Return a report with the counts so far added, and with the seconds of compiling since the last report, where
        the train loop does not report them itself.

        Args:
            metrics: The report.
            sampled: What :class:`DeviceMetrics` has sampled since the last one.
        """
        found: dict[str, Any] = {}
        used = next((value for name, value in sampled.items() if UTILIZATION_OF_DEVICE.fullmatch(name)), None)
        if used is not None:
            since = time.monotonic() - self._counted_until
            self._counted_until += since
            self._seconds += since
            self._busy += since * used
            found[names.UTILIZATION] = round(self._busy / self._seconds, 1)
        peak_gb, now = self._device.peak_memory_gb(), self._device.counted()
        if peak_gb is not None:
            found[names.PEAK_MEMORY_GB] = round(peak_gb, 3)
        if now is not None and self._before is not None:
            found[names.GRAPH_COMPILATIONS] = now.compilations - self._before.compilations
            found[names.CPU_FALLBACKS] = now.cpu_fallbacks - self._before.cpu_fallbacks
            if now.cache_hits is not None:
                found[names.GRAPH_CACHE_HITS] = now.cache_hits - (self._before.cache_hits or 0)
            found[names.COMPILE_SECONDS] = now.compile_s - self._compiled_s
            self._compiled_s = now.compile_s
        return {**found, **metrics}


@dataclass
class _Seen:
    """The values of one metric since the last report."""

    total: float = 0.0
    count: int = 0
    highest: float = -math.inf

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1
        self.highest = max(self.highest, value)


def _monitors(device: DeviceType, index: int | None) -> list[Any]:
    """Return monitors of the host and the device; one that cannot be made is logged and left out."""
    try:
        own = None if index is None else device.monitor(index)
    except Exception as error:
        logger.warning("no metrics of %s %s: %s: %s", device.kind, index, type(error).__name__, error)
        own = None
    return [HostMonitor()] if own is None else [HostMonitor(), own]


def _sample(monitors: list[Any]) -> dict[str, float]:
    """Ask each monitor once; one that raises is logged and left out from then on."""
    values: dict[str, float] = {}
    for monitor in tuple(monitors):
        try:
            values.update(monitor.sample())
        except Exception as error:  # noqa: PERF203  (each monitor fails for itself)
            name = type(monitor).__name__
            logger.warning("%s failed, no more metrics of it: %s: %s", name, type(error).__name__, error)
            monitors.remove(monitor)
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}
