"""Every scheduler survives any results: forty trials end, whatever they report."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from gaudi_tune.define.budget import Budget
from gaudi_tune.define.options import SchedulerName
from gaudi_tune.sweep.policies.schedulers.factory import SCHEDULERS
from tests.helpers.scheduled import Sweep

GROUPS, TRIALS = 4, 40
RESULTS: dict[str, Callable[[int, int, random.Random], float]] = {
    "usual": lambda trial, epoch, chance: chance.random() + epoch / 10,
    "equal": lambda trial, epoch, chance: 1.0,
    "huge": lambda trial, epoch, chance: (-1) ** (trial + epoch) * 1e308,
    "one far ahead": lambda trial, epoch, chance: 1e12 if trial == 12 else trial / 100,
    "tiny differences": lambda trial, epoch, chance: 1.0 + trial * 2**-52,
    "failures": lambda trial, epoch, chance: math.nan if trial % 3 == 0 and epoch > 1 else chance.random(),
    "all fail": lambda trial, epoch, chance: math.nan,
}


class Run:
    """A sweep whose groups report in a random order."""

    def __init__(self, scheduler: SchedulerName, epochs: int, results: str) -> None:
        self.sweep = Sweep(SCHEDULERS[scheduler], budget=Budget(epochs=epochs), trials=TRIALS)
        self._epochs, self._results, self._chance = epochs, RESULTS[results], random.Random(0)
        self._epoch_of = {f"t{number}": 0 for number in range(TRIALS)}
        self._to_begin, self._running, self._paused = list(self._epoch_of), list[str](), set[str]()
        self.ended = set[str]()

    def step(self) -> None:
        """Begin what may begin, and let one trial report."""
        for name in self.sweep.next_trials():
            if len(self._running) < GROUPS and name in self._paused:
                self._paused.remove(name)
                self.sweep.begin(name)
                self._running.append(name)
        while self._to_begin and len(self._running) < GROUPS:
            self._running.append(self._to_begin.pop(0))
            self.sweep.add(self._running[-1])
        if self._running:
            self._report(self._running.pop(self._chance.randrange(len(self._running))))
        else:
            for name in self.sweep.trials_to_end() or sorted(self._paused):
                self._paused.discard(name)
                self._end(name)

    def _report(self, name: str) -> None:
        self._epoch_of[name] += 1
        value = self._results(int(name[1:]), self._epoch_of[name], self._chance)
        if math.isnan(value):
            self.sweep.fail(name)
            self._end(name)
            return
        is_last = self._epoch_of[name] >= self._epochs
        match "finished" if is_last else self.sweep.report(name, self._epoch_of[name], value):
            case "continue":
                self._running.append(name)
            case "pause":
                self._paused.add(name)
            case _:
                self._end(name)

    def _end(self, name: str) -> None:
        self.sweep.end(name)
        self.ended.add(name)


@pytest.mark.parametrize("results", RESULTS)
@pytest.mark.parametrize("epochs", [1, 2, 9])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_trial_ends(scheduler: SchedulerName, epochs: int, results: str) -> None:
    run = Run(scheduler, epochs, results)
    for _ in range(2 * TRIALS * epochs):
        run.step()
    assert len(run.ended) == TRIALS
    run.sweep.scheduler.set_state(run.sweep.scheduler.get_state())
