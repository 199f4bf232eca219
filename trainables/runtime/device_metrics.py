"""What the devices of a worker group and their host did between two reports: utilisation, memory, power, temperature.

The trial actor samples them in a thread of its own. It reads and acquires no device, so it may do this beside the
workers that own them.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainables.runtime.device import DeviceKind

logger = logging.getLogger(__name__)

PREFIX = "system/"
"""Metrics under it are shown in the tab "System metrics" of a run by MLflow's page."""
SAMPLE_EVERY_S = 2.0
"""pyhlml describes an HPU's utilisation as that of the past second: this sees half of the time."""
TAKE_WAITS_S = 30.0
"""How long one report of a group may wait for a sample. The first may come before MLflow is imported, which takes 0.8 s
of an idle core and much longer on a busy disk; a reading that hangs holds up one report and no more."""
CLOSE_WAITS_S = 2.0
"""How long the end of a group may wait for the thread to give the devices' library back."""


class DeviceMetrics:
    """Samples the devices and their host in a thread, from its making until :meth:`close`. Nothing here raises."""

    def __init__(self, kind: DeviceKind, indices: Sequence[int], every_s: float = SAMPLE_EVERY_S) -> None:
        """Start the thread, which imports MLflow's monitors first.

        Args:
            kind: What the group trains on; with "cpu" there is the host only.
            indices: Module ids of its HPUs, or NVML's indices of its GPUs.
            every_s: Seconds between samples.
        """
        self._changed = threading.Condition()
        self._seen: dict[str, _Seen] = {}
        self._samples = 0
        self._wanted = self._stuck = self._closed = self._ended = False
        # All monitors live in this one thread: a reading that hangs must not hold up a report, and psutil keeps what
        # it compares the CPU's times with for each thread.
        self._thread = threading.Thread(
            target=self._run, args=(kind, tuple(indices), every_s), name="device-metrics", daemon=True
        )
        self._thread.start()

    def take(self) -> dict[str, float]:
        """Return what was seen since the last call, and forget it: means, and of memory the highest value as well.

        If nothing was sampled since, a sample is taken now. Over less than 0.1 s, the CPU's utilisation says little.

        Returns:
            Values by name, for example ``system/hpu_3_power_usage_watts`` or ``system/cpu_utilization_percentage``.
            The unit is in the name; megabytes are 10^6 bytes. What could not be read is not there.
        """
        with self._changed:
            if not self._samples and not self._stuck:
                self._wait_for_a_sample()
            seen, self._seen, self._samples = self._seen, {}, 0
        values = {}
        for name, what in seen.items():
            values[PREFIX + name] = round(what.total / what.count, 1)
            if name.endswith("memory_usage_megabytes"):
                values[f"{PREFIX}{name}_max"] = what.highest
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
            self._stuck = True  # reports wait for it no more
            logger.warning("no device metrics within %.0f s; reports go on without, until they come", TAKE_WAITS_S)

    def _run(self, kind: DeviceKind, indices: Sequence[int], every_s: float) -> None:
        monitors: list[Any] = []
        try:
            monitors += _monitors(kind, indices)
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
        """Wait until a sample is due or wanted; return False if it is to be none, but the end."""
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


def _monitors(kind: DeviceKind, indices: Sequence[int]) -> list[Any]:
    """Return MLflow's monitors of the host and the devices; one that cannot be had is reported and left out."""
    monitors = _made("the host", _host_monitor)
    if kind != "cpu":
        monitors += _made(f"{kind} devices", lambda: _device_monitor(kind, indices))
    return monitors


def _made(what: str, make: Callable[[], Any]) -> list[Any]:
    try:
        return [make()]
    except Exception as error:
        logger.warning("no metrics of %s: %s: %s", what, type(error).__name__, error)
        return []


def _host_monitor() -> Any:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor

    monitor = CPUMonitor()
    # The CPU's utilisation is that since the reading before, and the first has none before it.
    monitor.collect_metrics()
    monitor.clear_metrics()
    return monitor


def _device_monitor(kind: DeviceKind, indices: Sequence[int]) -> Any:
    from trainables.runtime.device_monitors import GroupGpuMonitor, HpuMonitor

    return HpuMonitor(indices) if kind == "hpu" else GroupGpuMonitor(indices)


def _sample(monitors: list[Any]) -> dict[str, float]:
    """Ask each monitor once; one that raises is reported and left out from then on."""
    values: dict[str, float] = {}
    for monitor in tuple(monitors):
        try:
            monitor.collect_metrics()
            values.update(monitor.aggregate_metrics())
            monitor.clear_metrics()
        except Exception as error:  # noqa: PERF203  (each monitor fails for itself)
            name = type(monitor).__name__
            logger.warning("%s failed, no more metrics of it: %s: %s", name, type(error).__name__, error)
            monitors.remove(monitor)
    return {name: float(value) for name, value in values.items() if math.isfinite(value)}
