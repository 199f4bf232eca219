"""Device time: what each device did in each second of a sweep, by trial and by kind."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.devices.find import Devices
from gaudi_tune.sweep.record.state_log import TRIALS

STARTING, COMPILING, TRAINING, EVALUATING = "starting", "compiling", "training", "evaluating"
WAITING = "waiting for a decision"
"""From a report to the scheduler's answer, checkpoints included that are written in between."""
LOST = "lost"
"""What a failure cost: from the last report to the failure, and training again what had been reported."""
IDLE = "idle"
"""No trial had the device."""
REPORTED = {
    names.START_SECONDS: STARTING,
    names.COMPILE_SECONDS: COMPILING,
    names.TRAIN_SECONDS: TRAINING,
    names.EVAL_SECONDS: EVALUATING,
    names.LOST_SECONDS: LOST,
}
"""The kind of the seconds that a report counts under a name."""
OF_A_STEP = (COMPILING, TRAINING, EVALUATING, WAITING)
"""What a trial takes however often its workers start."""
KINDS = (STARTING, COMPILING, TRAINING, EVALUATING, WAITING, LOST, IDLE)

Seconds = dict[str, float]
"""Seconds by kind."""


@dataclass
class Interval:
    """A trial had a device from its start (or its return after a pause or a failure) to its end."""

    device: str
    trial: int
    began: float
    """Seconds of ``time.monotonic()``, as the other two."""
    trained_from: float
    """When its first training step began; what is before is the start of workers, or next to nothing."""
    ended: float


class DeviceTime:
    """Counts the seconds of every device, by trial and by kind, while a sweep runs."""

    def __init__(self, devices: Devices, address_of: Callable[[str], str] = str, width: int = 1) -> None:
        """Begin now; ``address_of`` returns the address of a node by Ray's id, and a trial has ``width`` devices."""
        self._devices, self._address_of, self._width = devices, address_of, width
        self.began = self.ended = time.monotonic()
        """Of the sweep, as an interval's. Clocks of nodes differ, and are set: the driver's counts alone."""
        self.by_trial: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        """Seconds of a trial by kind, on each of its devices."""
        self.intervals: list[Interval] = []
        self._open: dict[int, list[Interval]] = {}  # of trials that have their devices
        self._counted_until: dict[int, float] = {}  # by trial
        self._yet_to_report: set[int] = set()  # trials that have a place, nobody knows where
        self._has: dict[int, str] = {}  # devices of running trials, as reports name them
        self._last_on: dict[str, Interval] = {}  # by device
        self._addresses: dict[str, str] = {}  # of nodes, by Ray's id

    def begin(self) -> None:
        """Start the clock, unless it goes on from a snapshot."""
        if not self.intervals:
            self.began = self.ended = time.monotonic()

    def started(self, trial: int) -> None:
        """Note that a trial got its place; its first report says which devices that means."""
        self._open.pop(trial, None)
        self._counted_until[trial] = time.monotonic()
        self._yet_to_report.add(trial)

    def reported(self, trial: int, metrics: Mapping[str, Any], *, again: bool = False) -> None:
        """Count the time since the trial's last report; of a report that is made ``again`` the training is lost."""
        self._yet_to_report.discard(trial)
        counted_until = self._counted_until.get(trial, self.began)
        reported_at = time.monotonic()
        ordered_at = reported_at - metrics.get(names.STEP_SECONDS, reported_at - counted_until)
        devices = metrics.get(names.DEVICES, "")
        for kind, seconds in seconds_of(metrics, reported_at - ordered_at).items():
            self.by_trial[trial][LOST if again and kind in (TRAINING, EVALUATING) else kind] += seconds
        if trial in self._open:
            self.by_trial[trial][WAITING] += max(0.0, ordered_at - counted_until)
        if trial not in self._open or self._has[trial] != devices:
            self._open.pop(trial, None)
            self._has[trial] = devices
            trained_from = ordered_at + metrics.get(names.LOST_SECONDS, 0.0) + metrics.get(names.START_SECONDS, 0.0)
            lanes = self._lanes_of(devices, ordered_at)
            for lane in lanes:  # a trial that waited for a device has it when the one before has left it
                left_at = self._last_on[lane].ended if lane in self._last_on else ordered_at
                self._last_on[lane] = Interval(lane, trial, max(ordered_at, left_at), trained_from, reported_at)
            self._open[trial] = [self._last_on[lane] for lane in lanes]
            self.intervals += self._open[trial]
        self._count_until(trial, reported_at)

    def paused(self, trial: int) -> None:
        """Note that a trial gives its devices to another."""
        self._open.pop(trial, None)
        self._yet_to_report.discard(trial)

    def leave(self, trial: int, kind: str) -> None:
        """Count the time since the last report as ``kind``, unless the trial has left its devices or never had any.

        A trial that ends before its first report had devices that were free; which ones is known on one node alone.
        """
        if trial in self._yet_to_report and len(self._devices.nodes) == 1:
            began = self._counted_until[trial]
            lanes = self._free_lanes(self._width, began)
            self._open[trial] = [Interval(lane, trial, began, time.monotonic(), began) for lane in lanes]
            self._last_on.update((interval.device, interval) for interval in self._open[trial])
            self.intervals += self._open[trial]
        self._yet_to_report.discard(trial)
        if trial in self._open:
            now = time.monotonic()
            self.by_trial[trial][kind] += now - self._counted_until[trial]
            self._count_until(trial, now)
            del self._open[trial]

    def devices_of(self, trial: int) -> list[tuple[str, str]]:
        """Return node and number of each device that a trial has reported from since it got its place."""
        has = self._has[trial].split() if trial in self._open else []
        return [(node, index) for node, _, index in (device.rpartition(":") for device in has)]

    def end(self) -> None:
        """Stop the clock."""
        self.ended = time.monotonic()

    def snapshot(self, numbers: Set[int] | None = None) -> dict[str, Any]:
        """Return what a resumed sweep must know, with the time of these trials; of all if None."""
        known = self.by_trial if numbers is None else numbers & self.by_trial.keys()
        trials: dict[int, Any] = {n: {"seconds": dict(self.by_trial[n]), "intervals": []} for n in known}
        for interval in self.intervals:
            if interval.trial in trials:
                trials[interval.trial]["intervals"].append(vars(interval))
        return {"now": time.monotonic(), "began": self.began, TRIALS: trials}

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from a :meth:`snapshot` of all trials; the time in which the sweep did not run is cut out."""
        cut, moved = time.monotonic() - kept["now"], ("began", "trained_from", "ended")
        self.began = kept["began"] + cut
        self.by_trial.clear()
        self.intervals = []
        for number, had in kept[TRIALS].items():
            self.by_trial[number].update(had["seconds"])
            self.intervals += [Interval(**{**one, **{at: one[at] + cut for at in moved}}) for one in had["intervals"]]
        self.intervals.sort(key=lambda interval: interval.began)
        self._last_on = {interval.device: interval for interval in self.intervals}

    def up_to_now(self) -> DeviceTime:
        """Return a copy that ends with the last report and stays as it is, for another thread to read."""
        taken = DeviceTime(self._devices)
        taken.restore(self.snapshot())
        taken.ended = max((interval.ended for interval in taken.intervals), default=self.began)
        return taken

    @property
    def devices(self) -> list[str]:
        """Every device of the sweep that is known by name, and those that no trial has had."""
        known = sorted({interval.device for interval in self.intervals}, key=_natural)
        unused = self._devices.count - len(known)
        return [*known, *(f"unused {number}" for number in range(1, unused + 1))]

    def by_device(self) -> dict[str, Seconds]:
        """Return the seconds of each device; they add up to the length of the sweep."""
        seconds_by_device = {device: dict.fromkeys(KINDS, 0.0) for device in self.devices}
        held: defaultdict[tuple[str, int], float] = defaultdict(float)
        first: dict[str, float] = {}
        for interval in self.intervals:
            held[interval.device, interval.trial] += interval.ended - interval.began
            first.setdefault(interval.device, interval.began)
        for (device, trial), seconds in held.items():
            # A trial that moved has its seconds spread over its devices by how long it had each.
            share = seconds / (sum(self.by_trial[trial].values()) or math.inf)
            for kind, counted in self.by_trial[trial].items():
                seconds_by_device[device][kind] += share * counted
        for device, began in first.items():
            seconds_by_device[device][STARTING] += began - self.began  # of its trial actor, before any trial had it
        for kinds in seconds_by_device.values():
            kinds[IDLE] = max(0.0, self.ended - self.began - sum(kinds.values()))
        return seconds_by_device

    def in_all(self) -> Seconds:
        """Return the seconds of all devices together."""
        seconds_by_device = self.by_device().values()
        return {kind: sum(kinds[kind] for kinds in seconds_by_device) for kind in KINDS}

    def _count_until(self, trial: int, moment: float) -> None:
        self._counted_until[trial] = moment
        for interval in self._open.get(trial, ()):
            interval.ended = moment

    def _lanes_of(self, devices: str, began: float) -> list[str]:
        """Return the names of a trial's devices; devices without numbers (CPUs) are lanes that are free."""
        named = [device for device in devices.split() if not device.endswith(":")]
        if named:
            return [self._name(*device.rsplit(":", 1)) for device in named]
        return self._free_lanes(len(devices.split()), began)

    def _free_lanes(self, count: int, began: float) -> list[str]:
        """Return the names of so many devices that no trial has."""
        taken = {interval.device for intervals in self._open.values() for interval in intervals}
        known = {interval.device for interval in self.intervals}
        others = (f"{self._devices.type.kind} {number}" for number in range(self._devices.count))
        unused = [lane for lane in others if lane not in known][: max(0, self._devices.count - len(known))]
        ended = dict.fromkeys([*known, *unused], self.began)
        for interval in self.intervals:
            ended[interval.device] = max(ended[interval.device], interval.ended)
        free = [lane for lane in ended if lane not in taken]
        # The lane that became free last before this began: one that is free for longer has a trial that is starting.
        free.sort(key=lambda lane: (ended[lane] > began, began - ended[lane]))
        return free[:count]

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
    """Return the seconds of one report by kind, of those from the order to train to the report (``span``).

    A loop may leave out how long it started, compiled, trained and evaluated. What is not accounted for was training,
    if the loop counts no training itself, and the way of the report otherwise.
    """
    counted = {kind: float(result[name]) for name, kind in REPORTED.items() if name in result}
    rest = max(0.0, span - sum(counted.values()))
    where = WAITING if TRAINING in counted else TRAINING
    return {**counted, where: counted.get(where, 0.0) + rest}


def _natural(name: str) -> tuple[str, int]:
    words, _, number = name.rpartition(" ")
    return words, int(number)


def shares_of(seconds: Mapping[str, float]) -> str:
    """Return what devices did, in percent of their time; what is next to nothing is left out."""
    whole = sum(seconds.values()) or 1.0
    shown = [kind for kind in seconds if seconds[kind] / whole >= 0.005]
    return ", ".join(f"{100 * seconds[kind] / whole:.0f} % {kind}" for kind in shown)
