"""The ledger: what each device did in each second of a sweep, by trial and by kind."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import ray
from ray.tune.experiment import Trial

from experiments.sweep.endings import TellsEndings
from experiments.sweep.outcome import Outcome, number_of
from trainables.runtime import names

if TYPE_CHECKING:
    from experiments.sweep.plan import Plan

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
KINDS = (STARTING, COMPILING, TRAINING, EVALUATING, WAITING, LOST, IDLE)

Seconds = dict[str, float]
"""Seconds by kind."""


@dataclass
class Stretch:
    """A trial had a device from its start (or its return after a pause or a failure) to its end."""

    device: str
    trial: int
    began: float
    """Seconds of a clock that nobody sets, as the others."""
    trained_from: float
    """When its first training step began; what is before is the start of workers, or next to nothing."""
    ended: float


class Ledger(TellsEndings):
    """Keeps the books while a sweep runs."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.experiment.metric, plan.budget)
        self._devices = plan.devices
        self._width = plan.options.workers_per_trial
        self.began = self.ended = time.monotonic()
        """Of the sweep, as a stretch's. Clocks of nodes differ, and are set: the driver's counts alone."""
        self.by_trial: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        """Seconds of a trial by kind, on each of its devices."""
        self.stretches: list[Stretch] = []
        self._running: dict[str, list[Stretch]] = {}  # of trials that have their devices, by trial id
        self._known_at: dict[str, float] = {}  # until when a trial's time is booked, by trial id
        self._has: dict[str, str] = {}  # devices of running trials, by trial id, as reports name them
        self._addresses: dict[str, str] = {}  # of nodes, by Ray's id

    def setup(self, **info: Any) -> None:
        """Start the clock, unless it was restored, which comes before."""
        if not self.stretches:
            self.began = self.ended = time.monotonic()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Note when the trial got its place; which devices that means, its first report tells."""
        paused = {other.trial_id for other in trials if other.status == Trial.PAUSED}  # Tune tells no callback of it
        for trial_id in {trial.trial_id, *paused} & set(self._running):
            del self._running[trial_id]
        self._known_at[trial.trial_id] = time.monotonic()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        """Book the time since the trial's last report."""
        known_at = self._known_at.get(trial.trial_id, self.began)
        reported_at = time.monotonic()
        ordered_at = reported_at - result.get(names.STEP_SECONDS, reported_at - known_at)
        number, devices = number_of(trial), result.get(names.DEVICES, "")
        for kind, seconds in seconds_of(result, reported_at - ordered_at).items():
            self.by_trial[number][kind] += seconds
        if trial.trial_id in self._running:
            self.by_trial[number][WAITING] += max(0.0, ordered_at - known_at)
        if trial.trial_id not in self._running or self._has[trial.trial_id] != devices:
            self._running.pop(trial.trial_id, None)
            self._has[trial.trial_id] = devices
            trained_from = ordered_at + result.get(names.LOST_SECONDS, 0.0) + result.get(names.START_SECONDS, 0.0)
            stretches = [
                Stretch(d, number, ordered_at, trained_from, reported_at) for d in self._lanes_of(devices, ordered_at)
            ]
            self._running[trial.trial_id] = stretches
            self.stretches += stretches
        self._book_until(trial, reported_at)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Book what a failure cost that the trial survived."""
        self._leave(trial, LOST)

    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Book the time from the last report to the end."""
        failed = trial.status == Trial.ERROR
        self._leave(trial, LOST if failed else WAITING)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Stop the clock."""
        for trial in trials:
            self._leave(trial, LOST)  # interrupted
        self.ended = time.monotonic()

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know."""
        books = {trial: dict(seconds) for trial, seconds in self.by_trial.items()}
        stretches = [asdict(stretch) for stretch in self.stretches]
        return {"now": time.monotonic(), "began": self.began, "by_trial": books, "stretches": stretches}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned; the time in which there was no sweep is cut out."""
        cut = time.monotonic() - state["now"]
        self.began = state["began"] + cut
        for trial, seconds in state["by_trial"].items():
            self.by_trial[trial].update(seconds)
        for kept in state["stretches"]:
            moved = {name: kept[name] + cut for name in ("began", "trained_from", "ended")}
            self.stretches.append(Stretch(**{**kept, **moved}))

    def up_to_now(self) -> Ledger:
        """Return a copy that ends with the last report and stays as it is, for another thread to read."""
        taken = copy(self)
        taken.by_trial = defaultdict(lambda: defaultdict(float))
        for trial, seconds in self.by_trial.items():
            taken.by_trial[trial].update(seconds)
        taken.stretches = [replace(stretch) for stretch in self.stretches]
        taken.ended = max((stretch.ended for stretch in taken.stretches), default=self.began)
        return taken

    @property
    def devices(self) -> list[str]:
        """Every device of the sweep that is known by name, and those that no trial has had."""
        known = sorted({stretch.device for stretch in self.stretches}, key=_natural)
        unused = self._devices.count - len(known)
        return [*known, *(f"unused {number}" for number in range(1, unused + 1))]

    def by_device(self) -> dict[str, Seconds]:
        """Return the seconds of each device; they add up to the length of the sweep."""
        books = {device: dict.fromkeys(KINDS, 0.0) for device in self.devices}
        held: defaultdict[tuple[str, int], float] = defaultdict(float)
        for stretch in self.stretches:
            held[stretch.device, stretch.trial] += stretch.ended - stretch.began
        in_all: defaultdict[int, float] = defaultdict(float)
        for (_, trial), seconds in held.items():
            in_all[trial] += seconds
        for (device, trial), seconds in held.items():
            # A trial that moved has its seconds spread over its devices by how long it had each.
            share = self._width * seconds / in_all[trial] if in_all[trial] else 0.0
            for kind, booked in self.by_trial[trial].items():
                books[device][kind] += share * booked
        first: dict[str, float] = {}
        for stretch in self.stretches:
            first.setdefault(stretch.device, stretch.began)
        for device, began in first.items():
            books[device][STARTING] += began - self.began  # of its trial actor, before any trial had it
        for kinds in books.values():
            kinds[IDLE] = max(0.0, self.ended - self.began - sum(kinds.values()))
        return books

    def in_all(self) -> Seconds:
        """Return the seconds of all devices together."""
        books = self.by_device().values()
        return {kind: sum(kinds[kind] for kinds in books) for kind in KINDS}

    def _book_until(self, trial: Trial, moment: float) -> None:
        self._known_at[trial.trial_id] = moment
        for stretch in self._running.get(trial.trial_id, ()):
            stretch.ended = moment

    def _leave(self, trial: Trial, kind: str) -> None:
        """Book the rest of a trial's time, unless it has left its devices already, or never had any."""
        if trial.trial_id in self._running:
            now = time.monotonic()
            self.by_trial[number_of(trial)][kind] += now - self._known_at[trial.trial_id]
            self._book_until(trial, now)
            del self._running[trial.trial_id]

    def _lanes_of(self, devices: str, began: float) -> list[str]:
        """Return the names of a trial's devices; devices without numbers (CPUs) are lanes that are free."""
        named = [device for device in devices.split() if not device.endswith(":")]
        if named:
            return [self._name(*device.rsplit(":", 1)) for device in named]
        taken = {stretch.device for stretches in self._running.values() for stretch in stretches}
        ended = {f"{self._devices.type.kind} {number}": self.began for number in range(self._devices.count)}
        for stretch in self.stretches:
            ended[stretch.device] = max(ended[stretch.device], stretch.ended)
        free = [lane for lane in ended if lane not in taken]
        # The lane that became free last before this began: one that is free for longer has a trial that is starting.
        free.sort(key=lambda lane: (ended[lane] > began, began - ended[lane]))
        return free[: self._width]

    def _name(self, node: str, index: str) -> str:
        """Return a device's name: its kind and number, with its node's address if there are several nodes."""
        device = f"{self._devices.type.kind} {index}"
        if len(self._devices.nodes) == 1:
            return device
        if node not in self._addresses:
            addresses = {entry["NodeID"]: entry["NodeManagerAddress"] for entry in ray.nodes()}
            address = addresses.get(node, node[:8])
            self._addresses[node] = f"{address} ({node[:4]})" if address in self._addresses.values() else address
        return f"{self._addresses[node]} {device}"


def seconds_of(result: Mapping[str, Any], span: float) -> Seconds:
    """Return the seconds of one report by kind.

    Args:
        result: Says how long it started, compiled, trained and evaluated; a loop may leave that out.
        span: Seconds from the order to train to the report. What is not accounted for was training, if the loop counts
            no training of its own, and the way of the report otherwise.
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
    told = [kind for kind in seconds if seconds[kind] / whole >= 0.005]
    return ", ".join(f"{100 * seconds[kind] / whole:.0f} % {kind}" for kind in told)
