"""Growth: running trials take over idle devices, and give them back when another trial needs them.

A trial's *width* is the number of devices that train it. Every trial begins at the usual width (--workers-per-trial).
After a report, :class:`Growth` may answer that the trial should move: it then writes a checkpoint, and goes on from it
with twice as many devices, or more, or with half of those it has. The next report tells whether the move succeeded.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.trial_place import Place
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.find import Devices
from gaudi_tune.sweep.policies.schedulers.factory import scheduler_kind
from gaudi_tune.sweep.policies.schedulers.given import GivenScheduler
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState
from gaudi_tune.training.trial_config import PlainConfig, TrialConfig

logger = logging.getLogger(__name__)

EXPECTED_SPEEDUP = 1.7
"""The speedup expected of twice as many devices: 85 % efficiency, of which data-parallel training on one node rarely
falls short where the batch is large. What is measured decides whether other trials grow as far."""
MIN_SPEEDUP = 1.1
"""A wider trial must have become this many times as fast, or none grows as far again."""
SLOW_REPORTS = 3
"""How many reports of a wider trial must have taken as long as before, since a single one may have waited for
something else."""
MAX_FAILED_MOVES = 2
"""A trial that failed to move this often stays: other trials may have taken the devices, or it cannot train there."""


@dataclass
class _TrialGrowth:
    """What is known of one trial."""

    destination: Place | None = None
    """The devices to which it moves at its next checkpoint."""
    failed_moves: int = 0
    """How often it was to move and its next report came from the old devices."""
    measured_width: int = 0
    """How many devices it had when ``report_seconds`` was measured."""
    slow_reports: int = 0
    """How many reports in a row took as long on more devices as before on fewer."""
    report_seconds: float | None = None
    """How long it trained for its last report, without what the start of workers took; None until that is known."""


class Growth:
    """Decides after each report of a trial how many devices it continues with."""

    def __init__(self, plan: Plan, state: SweepState) -> None:
        """Begin without any measurement. ``state`` is the record of the sweep."""
        self._plan, self._state, self._usual_width = plan, state, plan.options.workers_per_trial
        self._device_numbers = plan.devices.type.numbers(plan.devices.count)
        self.has_ever_grown = False
        """Whether any trial was ever given more devices than it began with."""
        self._trials: defaultdict[int, _TrialGrowth] = defaultdict(_TrialGrowth)  # by number
        self._useful_width = math.inf  # trials became faster up to this many devices
        self._groups_seen: set[str] = set()  # the devices of each worker group, as reports name them
        self._start_seconds = 0.0  # how long the last new group took to start, compilation included

    @property
    def has_grown(self) -> bool:
        """Whether a trial may have more devices than it began with."""
        running = self._state.running if self.has_ever_grown else []
        return any(self.is_moving(trial.number) or self.width_of(trial) > self._usual_width for trial in running)

    def width_of(self, trial: TrialState) -> int:
        """Return how many devices a trial has; 0 while it is starting."""
        return len(self._state.device_time.devices_of(trial.number))

    def trials_wait_for_devices(self) -> bool:
        """Whether a trial may wait for devices to which another has grown, or is to grow."""
        running = self._state.running if self.has_ever_grown else []
        return any(self.is_moving(trial.number) or not self.width_of(trial) for trial in running)

    def trials_with_devices(self) -> set[int]:
        """Return the numbers of the running trials, without those that wait for devices to which another has grown."""
        has_grown = self.has_grown
        return {trial.number for trial in self._state.running if not has_grown or self.width_of(trial)}

    def trial_began(self, trial: int) -> None:
        """Note that a trial starts, or starts again after it was lost, at the usual width."""
        if trial in self._trials:
            self._trials[trial].destination = None

    def is_moving(self, trial: int) -> bool:
        """Whether the trial moves to other devices once it has a checkpoint."""
        return trial in self._trials and self._trials[trial].destination is not None

    def measure(self, trial: TrialState) -> None:
        """Note from a report how long the trial takes, and whether more devices have made it faster."""
        growth, width, metrics = self._trials[trial.number], self.width_of(trial), trial.metrics
        if growth.destination is not None and growth.destination.workers != width:
            growth.failed_moves += 1
        growth.destination = None
        untrained_seconds = sum(float(metrics.get(name, 0.0)) for name in names.NOT_TRAINED)
        has_new_workers = names.START_SECONDS in metrics
        if has_new_workers and metrics.get(names.DEVICES) not in self._groups_seen:
            self._groups_seen.add(metrics.get(names.DEVICES, ""))
            self._start_seconds = untrained_seconds
        if has_new_workers and growth.report_seconds is not None:
            return  # what new workers do for the first time takes longer

        old_width, old_seconds = growth.measured_width, growth.report_seconds
        seconds = max(0.0, float(metrics.get(names.STEP_SECONDS, 0.0)) - untrained_seconds)
        if old_seconds is not None and old_width < width <= self._useful_width and seconds * MIN_SPEEDUP > old_seconds:
            growth.slow_reports += 1
            if growth.slow_reports < SLOW_REPORTS:
                return
            self._useful_width = width / 2
            logger.info("trial %03d is no faster on %d devices: no trial grows that far again", trial.number, width)
        growth.measured_width, growth.report_seconds, growth.slow_reports = width, seconds, 0

    def after_report(self, trial: TrialState, promoted: int) -> Place | None:
        """Return the devices that a trial moves to; None if it keeps those it has.

        Args:
            trial: A trial that continues. The record has its report, which :meth:`measure` has seen.
            promoted: How many trials wait for a group besides those that have yet to begin.
        """
        state, growth, width = self._state, self._trials[trial.number], self.width_of(trial)
        if growth.failed_moves == MAX_FAILED_MOVES or state.ending is not None:
            return None
        widths = {running.number: self._coming_width(running) for running in state.running}
        new_width = self._choose_width(trial, widths, state.to_begin + promoted)
        if new_width > width and not all(widths.values()):
            return None  # a trial is starting, and nobody knows which devices it gets
        while True:  # ends at the usual width at the latest, for which any devices will do
            numbers = self._find_devices(trial, new_width)
            if numbers is not None:
                break
            new_width //= 2
        if new_width == width:
            return None
        settings = {}
        if new_width > self._usual_width:
            config = self._config_of(trial)
            settings = config.settings_of_wider(self._plan.devices.type, self._usual_width, new_width)
        growth.destination, self.has_ever_grown = Place(new_width, numbers, settings), True
        return growth.destination

    def _coming_width(self, trial: TrialState) -> int:
        """Return how many devices a trial has or is moving to, whichever is more; 0 while it is starting."""
        width, destination = self.width_of(trial), self._trials[trial.number].destination
        if width == 0 or destination is None:
            return width
        return max(width, destination.workers)

    def _choose_width(self, trial: TrialState, coming: Mapping[int, int], waiting: int) -> int:
        """Return the width of a trial after all devices that nobody needs are shared out.

        Args:
            trial: A running trial.
            coming: The :meth:`_coming_width` of each running trial, by number.
            waiting: How many trials need a group of the usual width.
        """
        widths = {number: width or self._usual_width for number, width in coming.items()}
        free = self._plan.devices.count - sum(widths.values()) - waiting * self._usual_width

        # First give back: halve this trial while others lack devices, or while it is wider than is useful.
        width = widths[trial.number]
        while width > self._usual_width and (free < 0 or width > self._useful_width):
            width //= 2
            free += width
        if width < widths[trial.number]:
            return width

        # Then share out: double the narrowest trial that may grow, the best of equally narrow ones, until none may.
        by_score = sorted(self._state.running, key=lambda running: -self._score(running))
        while True:
            growable = [
                running.number
                for running in by_score
                if widths[running.number] <= free and self._can_have_width(running, 2 * widths[running.number], coming)
            ]
            if not growable:
                return widths[trial.number]
            narrowest = min(growable, key=widths.__getitem__)
            free -= widths[narrowest]
            widths[narrowest] *= 2

    def _can_have_width(self, trial: TrialState, width: int, coming: Mapping[int, int]) -> bool:
        """Whether a trial may have so many devices, there are such, and the move saves time."""
        old_width = coming[trial.number]
        return (
            old_width > 0
            and width <= self._max_width(trial)
            and self._find_devices(trial, width) is not None
            and self._saves_time(trial, width / old_width)
        )

    def _score(self, trial: TrialState) -> float:
        return -math.inf if trial.best is None else self._state.objective.score(trial.best)

    def _max_width(self, trial: TrialState) -> int:
        """Return the most devices to which a trial may grow; 0 if it confirms, or has failed to move too often."""
        has_failed = self._trials[trial.number].failed_moves == MAX_FAILED_MOVES
        if has_failed or trial.confirms:  # confirmations are compared with one another
            return 0
        try:
            answer = max_devices(self._config_of(trial), self._plan.devices, self._plan.options)
        except ValueError:  # an unknown hyperparameter, which a plain train loop may still accept
            return self._usual_width
        return int(min(answer if isinstance(answer, int) else self._usual_width, self._useful_width))

    def _config_of(self, trial: TrialState) -> TrialConfig:
        return self._plan.experiment.config_class.from_dict({**self._plan.settings, **trial.config})

    def _saves_time(self, trial: TrialState, factor: float) -> bool:
        """Whether ``factor`` times as many devices save more time than their start takes.

        What they save counts up to the next rung, at which the trial may end.
        """
        budget, report_seconds = self._plan.budget, self._trials[trial.number].report_seconds
        if report_seconds is None:
            return False
        next_rung = min((rung for rung in budget.rungs() if rung > trial.step), default=budget.total)
        reports = (next_rung - trial.step) / budget.between_reports
        saved_seconds = reports * report_seconds * (1 - EXPECTED_SPEEDUP ** -math.log2(factor))
        return self._start_seconds < saved_seconds

    def _find_devices(self, trial: TrialState, width: int) -> tuple[int, ...] | None:
        """Return the numbers of devices that a trial may move to and that no other trial has or moves to.

        They include as many as possible of those it has, which leaves larger sets to others. Otherwise they are the
        last ones, because new trials get the first.

        Returns:
            () if any devices will do; None if there are none.
        """
        device_type = self._plan.devices.type
        if width == self._usual_width or not device_type.widths:
            return ()
        own_devices, busy_devices = set[int](), set[int]()
        for running in self._state.running:
            devices = {int(index) for _, index in self._state.device_time.devices_of(running.number)}
            if running.number == trial.number:
                own_devices = devices
                continue
            busy_devices |= devices
            destination = self._trials[running.number].destination
            busy_devices.update(destination.numbers if destination is not None else ())
        if not busy_devices <= {*self._device_numbers}:
            return None  # a trial has devices of another machine, whose numbers are others
        free_devices = sorted({*self._device_numbers} - busy_devices)
        windows = [tuple(free_devices[i : i + width]) for i in range(len(free_devices) - width + 1)]
        allowed = [window for window in windows if device_type.placement_problem(window) is None]
        if not allowed:
            return None
        return max(allowed, key=lambda window: (len(own_devices.intersection(window)), window))


def choose_growth(config: TrialConfig, options: SweepOptions, budget: Budget, devices: Devices) -> int | str:
    """Return how many devices trials may grow to, or why they may not if a user might wonder.

    Args:
        config: The configuration of a trial.
        options: The sweep's options.
        budget: The budget of a full trial.
        devices: The devices of the sweep.

    Raises:
        SweepError: ``--grow on`` was given, and the sweep cannot.
    """
    usual_width = options.workers_per_trial
    if options.grow == "off" or 2 * usual_width > devices.count:
        return usual_width
    obstacle = _obstacle(options, budget, devices)
    if obstacle and options.grow == "on":
        raise SweepError(f"--grow on: {obstacle}; leave --grow on out, or change that")
    if obstacle:
        return usual_width
    answer = max_devices(config, devices, options)
    if isinstance(answer, str) and isinstance(config, PlainConfig):
        return usual_width  # the user's own train loop has said nothing on growth, which is no surprise
    return answer


def _obstacle(options: SweepOptions, budget: Budget, devices: Devices) -> str:
    """Return what in the options or the devices rules out that trials grow; "" if nothing does."""
    if scheduler_kind(options.scheduler).clones:
        return f"--scheduler {options.scheduler} needs all that train at the same time to train alike"
    if issubclass(scheduler_kind(options.scheduler), GivenScheduler):
        return "Ray's scheduler does not say which trials are about to continue"
    if options.trials_per_device > 1:
        return f"--trials-per-device {options.trials_per_device} shares devices, and a trial grows by whole ones"
    if budget.seconds:
        return "--seconds compares trials by the time that they take"
    if options.address is not None:
        return "--address joins a Ray whose devices others may take"
    if len(devices.nodes) > 1:
        return f"trials grow only within one node, and the sweep has {len(devices.nodes)} nodes"
    return ""


def max_devices(config: TrialConfig, devices: Devices, options: SweepOptions) -> int | str:
    """Return the most devices that a trial of this configuration may grow to.

    Returns:
        A reason, if its configuration rules out that it grows at all.
    """
    usual_width, device_type = options.workers_per_trial, devices.type
    width, reason = usual_width, ""
    while True:
        wider = 2 * width
        if wider > devices.count or (device_type.widths and wider not in device_type.widths):
            break
        try:
            config.settings_of_wider(device_type, usual_width, wider)
        except ValueError:
            break
        if options.grow != "on":
            objection = config.why_not_exact if options.grow == "exact" else config.why_not_wider
            reason = objection(device_type, usual_width, wider) or ""
            if reason:
                break
        width = wider
    return reason if reason and width == usual_width else width
