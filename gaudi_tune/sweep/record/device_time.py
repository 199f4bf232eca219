"""Device time: what each device did in every second of a sweep, by trial and by kind."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.devices.find import Devices
from gaudi_tune.sweep.record.state_log import TRIALS

STARTING, COMPILING, TRAINING, EVALUATING = "starting", "compiling", "training", "evaluating"
WAITING = "waiting for a decision"
"""The time from a report to the scheduler's answer, including checkpoints that are written in between."""
LOST = "lost"
"""The time that a failure cost: from the last report to the failure, and for training again what had been reported."""
IDLE = "idle"
"""The time in which no trial had the device."""
REPORTED = {
    names.START_SECONDS: STARTING,
    names.COMPILE_SECONDS: COMPILING,
    names.TRAIN_SECONDS: TRAINING,
    names.EVAL_SECONDS: EVALUATING,
    names.LOST_SECONDS: LOST,
}
"""The kind of the seconds that a report counts under a name."""
STEP_KINDS = (COMPILING, TRAINING, EVALUATING, WAITING)
"""The kinds of time that a trial takes however often its workers start."""
KINDS = (STARTING, COMPILING, TRAINING, EVALUATING, WAITING, LOST, IDLE)

Seconds = dict[str, float]
"""Seconds by kind."""


@dataclass
class Interval:
    """The time for which a trial had a device: from its start, or its return after a pause or a failure, to its end."""

    device: str
    trial: int
    began: float
    """Its beginning, in seconds of ``time.monotonic()`` like the other two."""
    trained_from: float
    """The beginning of its first training step. The time before is the start of workers, or next to nothing."""
    ended: float


@dataclass
class _Holding:
    """The devices that a trial has."""

    counted_until: float
    """The moment until which its seconds are counted."""
    names: str = ""
    """The devices, as its reports name them."""
    intervals: list[Interval] = field(default_factory=list)
    """An interval for each; none before its first report, which says which devices they are."""

    def count_until(self, moment: float) -> None:
        """Have the seconds counted until a moment."""
        self.counted_until = moment
        for interval in self.intervals:
            interval.ended = moment


class DeviceTime:
    """Counts the seconds of every device, by trial and by kind, while a sweep runs."""

    def __init__(
        self, devices: Devices, address_of: Callable[[str], str] = str, width: int = 1, trials_per_device: int = 1
    ) -> None:
        """Start the clock.

        Args:
            devices: The devices of the sweep.
            address_of: Returns the address of a node by Ray's id.
            width: How many devices a trial begins with.
            trials_per_device: How many trials share a device. Each then has a lane: ``cuda 0``, ``cuda 0.2`` and so on.
        """
        self._devices, self._address_of, self._width = devices, address_of, width
        self._trials_per_device = trials_per_device
        self.began = self.ended = time.monotonic()
        """The beginning and end of the sweep. Clocks of nodes differ, and are set, so only the driver's counts."""
        self.by_trial: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        """The seconds of a trial by kind, on each of its devices."""
        self.intervals: list[Interval] = []
        self._holdings: dict[int, _Holding] = {}  # by trial
        self._last_intervals: dict[str, Interval] = {}  # by device
        self._addresses: dict[str, str] = {}  # of nodes, by Ray's id

    def begin(self) -> None:
        """Start the clock, unless it continues from a snapshot."""
        if not self.intervals:
            self.began = self.ended = time.monotonic()

    def started(self, trial: int) -> None:
        """Note that a trial has got devices; its first report says which."""
        self._holdings[trial] = _Holding(time.monotonic())

    def reported(self, trial: int, metrics: Mapping[str, Any], *, is_repeat: bool = False) -> None:
        """Count the time since the trial's last report. The training for a repeated report counts as lost.

        ```
        counted_until        ordered_at                      trained_from         reported_at
        last report          Tune orders the next one        first training step  this report
             |--- waiting ---|--- lost --- starts (workers) ---|--- trains, evaluates ---|
        ```

        ``freed_at`` is when another trial left the device, which may be after ``ordered_at``.
        """
        holding = self._holdings.setdefault(trial, _Holding(self.began))
        reported_at = time.monotonic()
        ordered_at = reported_at - metrics.get(names.STEP_SECONDS, reported_at - holding.counted_until)
        devices = metrics.get(names.DEVICES, "")
        for kind, seconds in seconds_of(metrics, reported_at - ordered_at).items():
            counts_as_lost = is_repeat and kind in (TRAINING, EVALUATING)
            self.by_trial[trial][LOST if counts_as_lost else kind] += seconds
        if holding.intervals:
            self.by_trial[trial][WAITING] += max(0.0, ordered_at - holding.counted_until)
        if not holding.intervals or holding.names != devices:
            holding.intervals, holding.names = [], devices
            trained_from = ordered_at + metrics.get(names.LOST_SECONDS, 0.0) + metrics.get(names.START_SECONDS, 0.0)
            lanes = self._lanes_of(devices, ordered_at)
            for lane in lanes:
                # A trial that waited for a device has it from the time when the last trial left it.
                freed_at = self._last_intervals[lane].ended if lane in self._last_intervals else ordered_at
                start = max(ordered_at, freed_at)
                self._last_intervals[lane] = Interval(lane, trial, start, trained_from, reported_at)
            holding.intervals = [self._last_intervals[lane] for lane in lanes]
            self.intervals += holding.intervals
        holding.count_until(reported_at)

    def is_yet_to_report(self, trial: int) -> bool:
        """Whether a trial has devices, and has not reported since it got them."""
        return trial in self._holdings and not self._holdings[trial].intervals

    def uncounted_seconds(self, trial: int) -> float:
        """Return how long ago a trial reported, or got its devices; 0 if it has none."""
        return time.monotonic() - self._holdings[trial].counted_until if trial in self._holdings else 0.0

    def paused(self, trial: int) -> None:
        """Note that a trial gives its devices to another."""
        self._holdings.pop(trial, None)

    def leave(self, trial: int, kind: str) -> None:
        """Count the time since the last report as ``kind``, unless the trial has left its devices or never had any.

        A trial that ends before its first report had devices that were free. Which ones is known only on a single node.
        """
        holding, moment = self._holdings.pop(trial, None), time.monotonic()
        if holding is None:
            return
        if not holding.intervals and len(self._devices.nodes) == 1:
            start = holding.counted_until
            lanes = self._free_lanes(self._width, start)
            holding.intervals = [Interval(lane, trial, start, moment, start) for lane in lanes]
            self._last_intervals.update((interval.device, interval) for interval in holding.intervals)
            self.intervals += holding.intervals
        if holding.intervals:
            self.by_trial[trial][kind] += moment - holding.counted_until
            holding.count_until(moment)

    def devices_of(self, trial: int) -> list[tuple[str, str]]:
        """Return node and number of each device that a trial has reported from since it got its devices."""
        devices = self._holdings[trial].names.split() if trial in self._holdings else []
        return [(node, index) for node, _, index in (device.rpartition(":") for device in devices)]

    def end(self) -> None:
        """Stop the clock."""
        self.ended = time.monotonic()

    def snapshot(self, numbers: Set[int] | None = None) -> dict[str, Any]:
        """Return what a resumed sweep must know, with the time of these trials, or of all."""
        numbers = self.by_trial.keys() if numbers is None else numbers & self.by_trial.keys()
        trials: dict[int, Any] = {n: {"seconds": dict(self.by_trial[n]), "intervals": []} for n in numbers}
        for interval in self.intervals:
            if interval.trial in trials:
                trials[interval.trial]["intervals"].append(vars(interval))
        return {"now": time.monotonic(), "began": self.began, TRIALS: trials}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a :meth:`snapshot` of all trials; the time in which the sweep did not run is cut out."""
        gap = time.monotonic() - snapshot["now"]
        self.began = snapshot["began"] + gap
        self.by_trial.clear()
        self.intervals = []
        for number, trial in snapshot[TRIALS].items():
            self.by_trial[number].update(trial["seconds"])
            for fields in trial["intervals"]:
                times = {name: fields[name] + gap for name in ("began", "trained_from", "ended")}
                self.intervals.append(Interval(**{**fields, **times}))
        self.intervals.sort(key=lambda interval: interval.began)
        self._last_intervals = {interval.device: interval for interval in self.intervals}

    def frozen_copy(self) -> DeviceTime:
        """Return a copy that ends with the last report and does not change, for another thread to read."""
        copy = DeviceTime(self._devices, trials_per_device=self._trials_per_device)
        copy.restore(self.snapshot())
        copy.ended = max((interval.ended for interval in copy.intervals), default=self.began)
        return copy

    @property
    def devices(self) -> list[str]:
        """The devices of the sweep that trials have had, by name, and a name for each of the others.

        A device that trials share is there once for each of them.
        """
        used_lanes = sorted({interval.device for interval in self.intervals}, key=_natural)
        n_unused = self._devices.count * self._trials_per_device - len(used_lanes)
        return [*used_lanes, *(f"unused {number}" for number in range(1, n_unused + 1))]

    def by_device(self) -> dict[str, Seconds]:
        """Return the seconds of each device; they add up to the length of the sweep."""
        seconds_by_device = {device: dict.fromkeys(KINDS, 0.0) for device in self.devices}
        holding_seconds: defaultdict[tuple[str, int], float] = defaultdict(float)  # by device and trial
        first_use: dict[str, float] = {}
        for interval in self.intervals:
            holding_seconds[interval.device, interval.trial] += interval.ended - interval.began
            first_use.setdefault(interval.device, interval.began)
        for (device, trial), seconds in holding_seconds.items():
            # A trial that moved has its seconds spread over its devices by how long it had each.
            share = seconds / (sum(self.by_trial[trial].values()) or math.inf)
            for kind, counted in self.by_trial[trial].items():
                seconds_by_device[device][kind] += share * counted
        for device, moment in first_use.items():  # before that, its first trial actor was starting
            seconds_by_device[device][STARTING] += moment - self.began
        for kinds in seconds_by_device.values():
            kinds[IDLE] = max(0.0, self.ended - self.began - sum(kinds.values()))
        return seconds_by_device

    def most_devices(self) -> dict[int, int]:
        """Return the most devices that each trial had at a time."""
        sets = Counter((interval.trial, interval.trained_from) for interval in self.intervals)
        width_by_trial: dict[int, int] = {}
        for (trial, _), count in sets.items():
            width_by_trial[trial] = max(count, width_by_trial.get(trial, 0))
        return width_by_trial

    def total(self) -> Seconds:
        """Return the seconds of all devices together, to which each of N trials on a device adds 1/N of its own."""
        seconds_by_device = self.by_device().values()
        return {kind: sum(kinds[kind] for kinds in seconds_by_device) / self._trials_per_device for kind in KINDS}

    def _lanes_of(self, devices: str, start: float) -> list[str]:
        """Return the names of a trial's devices; if they have no numbers (CPUs), those of free ones."""
        named = [device for device in devices.split() if not device.endswith(":")]
        if not named:
            return self._free_lanes(len(devices.split()), start)
        lanes = []
        for name in (self._name(*device.rsplit(":", 1)) for device in named):
            lanes += self._free_among(self._lanes_on(name), start)[:1] or [name]
        return lanes

    def _lanes_on(self, device: str) -> list[str]:
        """Return the name of a device once for each trial that shares it."""
        return [device, *(f"{device}.{part}" for part in range(2, self._trials_per_device + 1))]

    def _free_lanes(self, count: int, start: float) -> list[str]:
        """Return the names of so many devices that no trial has at the moment ``start``."""
        by_number = [f"{self._devices.type.kind} {number}" for number in range(self._devices.count)]
        lanes = [lane for device in by_number for lane in self._lanes_on(device)]
        n_unused = max(0, len(lanes) - len(self._last_intervals))
        unused = [lane for lane in lanes if lane not in self._last_intervals][:n_unused]
        return self._free_among([*self._last_intervals, *unused], start)[:count]

    def _free_among(self, lanes: Sequence[str], start: float) -> list[str]:
        """Return those of the lanes that no trial has at the moment ``start``, the most likely one first."""
        busy = {interval.device for holding in self._holdings.values() for interval in holding.intervals}
        freed_at = {
            lane: self._last_intervals[lane].ended if lane in self._last_intervals else self.began for lane in lanes
        }
        free = [lane for lane in freed_at if lane not in busy]
        # The lane that became free last before the start: one that is free for longer has a trial that is starting.
        return sorted(free, key=lambda lane: (freed_at[lane] > start, start - freed_at[lane]))

    def _name(self, node: str, index: str) -> str:
        """Return a device's name: its kind and number, with its node's address if there are several nodes."""
        device = f"{self._devices.type.kind} {index}"
        if len(self._devices.nodes) == 1:
            return device
        if node not in self._addresses:
            address = self._address_of(node)
            self._addresses[node] = f"{address} ({node[:4]})" if address in self._addresses.values() else address
        return f"{self._addresses[node]} {device}"


def seconds_of(result: Mapping[str, Any], span: float) -> Seconds:
    """Return the seconds of one report by kind.

    A loop need not count how long it started, compiled, trained and evaluated. The time that it does not account for
    was training, if it counts no training itself, and the way of the report otherwise.

    Args:
        result: The report.
        span: The seconds from the order to train to the report.
    """
    seconds = {kind: float(result[name]) for name, kind in REPORTED.items() if name in result}
    rest = max(0.0, span - sum(seconds.values()))
    rest_kind = WAITING if TRAINING in seconds else TRAINING
    return {**seconds, rest_kind: seconds.get(rest_kind, 0.0) + rest}


def _natural(name: str) -> tuple[str, list[int]]:
    words, _, number = name.rpartition(" ")
    return words, [int(part) for part in number.split(".")]


def shares_of(seconds: Mapping[str, float]) -> str:
    """Return what devices did, in percent of their time, without what takes less than half a percent."""
    total = sum(seconds.values()) or 1.0
    kinds = [kind for kind in seconds if seconds[kind] / total >= 0.005]
    return ", ".join(f"{100 * seconds[kind] / total:.0f} % {kind}" for kind in kinds)
