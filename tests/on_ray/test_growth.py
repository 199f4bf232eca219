"""Trials that grow, with Tune's own controller: the groups are simulated, on a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.devices.hpu import HPU
from gaudi_tune.on_ray.steering import Steering
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.show.view import View
from gaudi_tune.sweep.policies.growth import Growth
from gaudi_tune.sweep.record.events import Ending, Event, Reported, TrialBegan
from gaudi_tune.sweep.record.sweep_state import SweepState
from tests.helpers.simulated_actors import Clock
from tests.helpers.simulated_groups import REPORT_S, Groups
from tests.helpers.simulated_sweep import simulated_tuner, without_ray


class AddsTrial:
    """Adds a trial by hand as soon as one trial has all devices."""

    def __init__(self, steering: Steering) -> None:
        self._steering = steering
        self.answer: Future[str] | None = None

    def show(self, event: Event, state: SweepState) -> None:
        if self.answer is not None or not isinstance(event, Reported):
            return
        if len(state.device_time.devices_of(event.trial)) == 8:
            self.answer = self._steering.ask({"do": "add", "trials": 1})

    def tick(self, state: SweepState) -> None:
        """Nothing is due."""


def swept(folder: Path, groups: Groups, view: Callable[[SweepRun], View] | None = None, **options: Any) -> SweepRun:
    """Run a sweep of ten trials."""
    options = {"scheduler": "asha", "grow": "auto", "seed": 0, **options}
    with without_ray(folder, groups, HPU):
        tuner = simulated_tuner(folder, trials=10, epochs=27, **options)
        tuner.run.announcer.views[:] = [view(tuner.run)] if view else []
        tuner.fit()
    return tuner.run


def seconds_of(run: SweepRun) -> float:
    """Return the seconds from the first training step to the end of a sweep that is complete."""
    assert run.state.complete, "trials remain"
    intervals = sorted(run.state.device_time.intervals, key=lambda one: (one.device, one.began))
    for one, following in pairwise(intervals):
        assert one.device != following.device or one.ended < following.began + 1e-6, "two trials had it"
    return max(one.ended for one in intervals) - min(one.trained_from for one in intervals)


@pytest.fixture
def groups() -> Groups:
    return Groups(Clock(), 8)


@pytest.mark.parametrize(("scheduler", "seed"), [("asha", 0), ("asha-promote", 3)])
def test_a_trial_that_is_added_while_another_has_all_devices_gets_one(
    tmp_path: Path, groups: Groups, scheduler: str, seed: int
) -> None:
    adding: list[AddsTrial] = []

    def view(run: SweepRun) -> AddsTrial:
        adding.append(AddsTrial(run.steering))
        return adding[0]

    assert seconds_of(swept(tmp_path, groups, view, scheduler=scheduler, seed=seed)) > 0
    answer = adding[0].answer
    assert answer is not None and answer.exception() is None
    assert groups.longest_wait_s < REPORT_S  # until the other gives some back at its next report
    assert groups.in_vain == 0


class EndsSweep(AddsTrial):
    """Adds a trial when one has all devices, and ends the sweep when that trial begins: it waits for devices."""

    def __init__(self, run: SweepRun) -> None:
        super().__init__(run.steering)
        self._run = run

    def show(self, event: Event, state: SweepState) -> None:
        super().show(event, state)
        if isinstance(event, TrialBegan) and event.trial == 11:
            self._run.early_end.ask(Ending("for a test", 0))


def test_a_sweep_that_ends_does_not_wait_for_a_trial_that_waits_for_devices(tmp_path: Path, groups: Groups) -> None:
    run = swept(tmp_path, groups, EndsSweep)
    assert run.summary is not None and run.summary["ended_early"]["why"] == "for a test"
    assert run.state.trials[11].step == 0


def test_a_sweep_whose_trials_grow_is_shorter(tmp_path: Path, groups: Groups) -> None:
    grown = seconds_of(swept(tmp_path, groups))
    assert grown < 0.9 * seconds_of(swept(tmp_path, Groups(Clock(), 8), name="without", grow="off"))


def test_a_group_whose_devices_were_taken_goes_on_as_it_began(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Growth, "_find_devices", lambda *given: tuple(range(8 - given[-1], 8)))  # perhaps others'
    swept(tmp_path, groups)
    assert groups.in_vain > 0
