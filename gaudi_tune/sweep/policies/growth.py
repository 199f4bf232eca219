"""Growth: running trials take over idle devices, and give them back when another trial needs them."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.place import Place
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.find import Devices
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState
from gaudi_tune.training.trial_config import PlainConfig, TrialConfig

logger = logging.getLogger(__name__)

FASTER = 1.7
"""How much faster a trial is expected to be on twice as many devices: 85 % efficiency, of which data-parallel training
on one node rarely falls short where the batch is large. What is measured decides whether others grow as far."""
AT_LEAST_FASTER = 1.1
"""How much faster a trial must have become, or none grows as far again."""
TRIES = 2
"""How often a trial may fail to move: another may have taken the devices, or it cannot train there."""


class Growth:
    """Decides after each report of a trial how many devices it continues with."""

    def __init__(self, plan: Plan) -> None:
        """Begin; nothing is known yet of how long anything takes."""
        self._plan, self._usual = plan, plan.options.workers_per_trial
        self._numbers = plan.devices.type.numbers(plan.devices.count)
        self.has_ever_grown = False
        """Whether any trial was ever given more devices than it began with."""
        self._asked: dict[int, Place] = {}  # by trial, where it moves at its next checkpoint
        self._in_vain = Counter[int]()  # by trial, how often it did not move although it should
        self._most: dict[int, int] = {}  # by trial, the most devices that its configuration allows
        self._wide: set[int] = set()  # trials that have more devices than they began with
        self._took: dict[int, tuple[int, float]] = {}  # by trial: devices, and the seconds that its last report took
        self._limit = math.inf  # devices up to which trials became faster
        self._seen: set[str] = set()  # the devices of each group so far
        self._start_s = 0.0  # what it took to start the last new group, compilation included

    @property
    def has_grown(self) -> bool:
        """Whether a trial may have more devices than it began with."""
        return bool(self._asked or self._wide)

    def has(self, state: SweepState, trial: TrialState) -> int:
        """Return how many devices a trial has; 0 while it is starting."""
        return len(state.device_time.devices_of(trial.number))

    def began(self, trial: int) -> None:
        """Note that a trial begins, or begins again after it was lost, at the usual width."""
        self._asked.pop(trial, None)

    def is_moving(self, trial: int) -> bool:
        """Whether the trial moves to other devices once it has a checkpoint."""
        return trial in self._asked

    def after_report(self, state: SweepState, trial: TrialState, promoted: int) -> Place | None:
        """Return the devices that a trial moves to; None if it keeps those it has.

        Args:
            state: The sweep, with the trial's report.
            trial: One that continues.
            promoted: How many trials wait for a group besides those that have yet to begin.
        """
        has = self.has(state, trial)
        if self._in_vain[trial.number] == TRIES or state.ending is not None:
            return None
        running = {other.number: self._width_of(state, other) for other in state.running}
        self._wide &= running.keys()
        self._asked = {number: place for number, place in self._asked.items() if number in running}
        width = self._width(state, trial, running, state.to_begin + promoted)
        if width > has and not all(running.values()):
            return None  # one is starting, and nobody knows which devices it gets
        while (numbers := self._numbers_for(state, trial, width)) is None:  # as many as usual can always be had
            width //= 2
        if width == has:
            return None
        settings = {}
        if width > self._usual:
            settings = self._config_of(trial).settings_of_wider(self._plan.devices.type, self._usual, width)
        self._asked[trial.number], self.has_ever_grown = Place(width, numbers, settings), True
        return self._asked[trial.number]

    def _width_of(self, state: SweepState, trial: TrialState) -> int:
        """Return how many devices a trial has or is moving to; 0 while it is starting."""
        has = self.has(state, trial)
        return max(has, self._asked[trial.number].workers) if has and trial.number in self._asked else has

    def measure(self, state: SweepState, trial: TrialState) -> None:
        """Note from a report how long the trial takes, and whether more devices have made it faster."""
        has = self.has(state, trial)
        place = self._asked.pop(trial.number, None)
        if place is not None and place.workers != has:
            self._in_vain[trial.number] += 1
        (self._wide.add if has > self._usual else self._wide.discard)(trial.number)
        metrics = trial.metrics
        lost = sum(float(metrics.get(name, 0.0)) for name in names.NOT_TRAINED)
        if names.START_SECONDS in metrics and metrics.get(names.DEVICES) not in self._seen:  # its workers are new
            self._seen.add(metrics.get(names.DEVICES, ""))
            self._start_s = lost
        if names.START_SECONDS in metrics and trial.number in self._took:
            return  # what new workers do for the first time takes longer
        took = max(0.0, float(metrics.get(names.STEP_SECONDS, 0.0)) - lost)
        had, took_before = self._took.get(trial.number, (has, took))
        self._took[trial.number] = has, took
        if has > had and took * AT_LEAST_FASTER > took_before and has <= self._limit:
            self._limit = has / 2
            logger.info("trial %03d is no faster on %d devices: no trial grows that far again", trial.number, has)

    def _width(self, state: SweepState, trial: TrialState, running: Mapping[int, int], waiting: int) -> int:
        """Return the width of a trial if idle devices go to the running trials, narrow ones first, and of these the
        best."""
        widths = {number: has or self._usual for number, has in running.items()}
        free = self._plan.devices.count - sum(widths.values()) - waiting * self._usual
        mine = widths[trial.number]
        while mine > self._usual and (free < 0 or mine > self._limit):
            free, mine = free + mine // 2, mine // 2
        if mine < widths[trial.number]:
            return mine
        ranked = sorted(state.running, key=lambda other: -self._score(state, other))
        while True:
            can = [
                other.number
                for other in ranked
                if widths[other.number] <= free and self._can_have(state, other, 2 * widths[other.number], running)
            ]
            if not can:
                return widths[trial.number]
            narrowest = min(can, key=widths.__getitem__)
            free -= widths[narrowest]
            widths[narrowest] *= 2

    def _can_have(self, state: SweepState, trial: TrialState, width: int, running: Mapping[int, int]) -> bool:
        has = running[trial.number]
        return (
            has > 0
            and width <= self._most_of(trial)
            and self._numbers_for(state, trial, width) is not None
            and self._is_worth_it(trial, width / has)
        )

    def _score(self, state: SweepState, trial: TrialState) -> float:
        return -math.inf if trial.best is None else state.objective.score(trial.best)

    def _most_of(self, trial: TrialState) -> int:
        """Return the most devices that a trial's configuration allows."""
        if self._in_vain[trial.number] == TRIES:
            return 0
        if trial.number not in self._most:
            try:
                most = most_devices(self._config_of(trial), self._plan.devices, self._plan.options)
            except ValueError:  # an unknown hyperparameter, which a plain train loop may still accept
                most = self._usual
            self._most[trial.number] = most if isinstance(most, int) else self._usual
        return int(min(self._most[trial.number], self._limit))

    def _config_of(self, trial: TrialState) -> TrialConfig:
        return self._plan.experiment.config_class.from_dict({**self._plan.settings, **trial.config})

    def _is_worth_it(self, trial: TrialState, times: float) -> bool:
        """Whether starting new workers takes less time than they save before the trial is next judged."""
        budget = self._plan.budget
        if trial.number not in self._took:
            return False
        _, took = self._took[trial.number]
        until = min((rung for rung in budget.rungs() if rung > trial.step), default=budget.total)
        reports = (until - trial.step) / budget.between_reports
        saves = reports * took * (1 - FASTER ** -math.log2(times))
        return self._start_s < saves

    def _numbers_for(self, state: SweepState, trial: TrialState, width: int) -> tuple[int, ...] | None:
        """Return devices that a trial may move to and that no other trial has or moves to; () where any will do, None
        if there are none.

        They include its own if possible, which leaves larger sets free. Otherwise they are the last ones, because new
        trials get the first.
        """
        kind = self._plan.devices.type
        if width == self._usual or not kind.widths:
            return ()
        has = {
            other.number: {int(index) for _, index in state.device_time.devices_of(other.number)}
            for other in state.running
        }
        own = has.pop(trial.number)
        asked = [self._asked[number].numbers for number in has if number in self._asked]
        taken = set[int]().union(*has.values(), *asked)
        if not taken <= {*self._numbers}:  # another machine's, which has others
            return None
        free = sorted({*self._numbers} - taken)
        sets = [free[at : at + width] for at in range(len(free) - width + 1)]
        may = [together for together in sets if kind.placement_problem(together) is None]
        return tuple(max(may, key=lambda together: (len(own.intersection(together)), together), default=())) or None


def choose_growth(config: TrialConfig, options: SweepOptions, budget: Budget, devices: Devices) -> int | str:
    """Return how many devices a trial of this configuration may go on with that would stay idle; or why it may not, if
    someone might wonder."""
    usual = options.workers_per_trial
    if options.grow == "off" or 2 * usual > devices.count:
        return usual
    wrong = ""
    if options.scheduler == "pbt":
        wrong = "--scheduler pbt needs all that train at the same time to train alike"
    elif budget.seconds:
        wrong = "--seconds compares trials by the time that they take"
    elif options.address is not None:
        wrong = "--address joins a Ray whose devices others may take"
    elif len(devices.nodes) > 1:
        wrong = f"trials grow only within one node, and the sweep has {len(devices.nodes)} nodes"
    if wrong and options.grow == "on":
        raise SweepError(f"--grow on: {wrong}; leave --grow on out, or change that")
    if wrong or options.evaluate is not None:
        return usual
    most = most_devices(config, devices, options)
    return usual if isinstance(most, str) and isinstance(config, PlainConfig) else most


def most_devices(config: TrialConfig, devices: Devices, options: SweepOptions) -> int | str:
    """Return the most devices that a trial of this configuration may grow to; or why it may not grow at all, if its
    numbers would change."""
    usual, kind, why = options.workers_per_trial, devices.type, ""
    width, most = usual, usual
    while (width := 2 * width) <= devices.count and (not kind.widths or width in kind.widths):
        try:
            config.settings_of_wider(kind, usual, width)
        except ValueError:
            break
        if options.grow == "auto" and (why := config.why_not_wider(kind, usual, width) or ""):
            break
        most = width
    return why if why and most == usual else most
