"""Trials that grow, with Tune's own controller: the groups are simulated, on a clock that jumps."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from gaudi_tune.devices.hpu import HPU
from gaudi_tune.on_ray.sweep_run import SweepRun
from gaudi_tune.sweep.policies.growth import Growth
from gaudi_tune.sweep.record.events import Ending, Event, TrialBegan
from gaudi_tune.sweep.record.sweep_state import SweepState
from tests.tools.benchmarks import simulated_groups
from tests.tools.benchmarks.growth import AddsTrial, device_seconds, simulated_sweep, tuner_of
from tests.tools.benchmarks.simulated_groups import Clock, Groups, ImpossibleError


def swept(
    folder: Path, groups: Groups, *, scheduler: str = "asha", grow: str = "auto", seed: int = 0, add: bool = False
) -> tuple[float, AddsTrial]:
    """Run a sweep of ten trials, and return the seconds that it took, and who added one when one had all devices."""
    asked = Namespace(trials=10, epochs=27, scheduler=scheduler, add=add)
    tuner, adds = simulated_sweep(folder, groups, asked, grow, seed)
    return device_seconds(tuner)[0], adds


@pytest.fixture
def groups() -> Groups:
    return Groups(Clock(), 8)


@pytest.mark.parametrize(("scheduler", "seed"), [("asha", 0), ("asha-promote", 3)])
def test_a_trial_that_is_added_while_another_has_all_devices_gets_one(
    tmp_path: Path, groups: Groups, scheduler: str, seed: int
) -> None:
    _, adds = swept(tmp_path, groups, scheduler=scheduler, seed=seed, add=True)
    assert adds.added
    assert groups.longest_wait_s < simulated_groups.REPORT_S  # until the other gives some back at its next report
    assert groups.in_vain == 0


class EndsSweep(AddsTrial):
    """Adds a trial when one has all devices, and ends the sweep when that trial begins: it waits for devices."""

    def __init__(self, run: SweepRun) -> None:
        super().__init__(run.steering, 8)
        self._run = run

    def show(self, event: Event, state: SweepState) -> None:
        super().show(event, state)
        if isinstance(event, TrialBegan) and event.trial == 11:
            self._run.early_end.ask(Ending("for a test", 0))


def test_a_sweep_that_ends_does_not_wait_for_a_trial_that_waits_for_devices(tmp_path: Path, groups: Groups) -> None:
    asked = Namespace(trials=10, epochs=27, scheduler="asha")
    with simulated_groups.without_ray(tmp_path, groups, HPU):
        run = (tuner := tuner_of(tmp_path, "auto", asked, seed=0, trackers=())).run
        run.announcer.views[:] = [EndsSweep(run)]
        tuner.fit()
    assert run.summary is not None and run.summary["ended_early"]["why"] == "for a test"
    assert run.state.trials[11].step == 0


def test_a_sweep_whose_trials_grow_is_shorter(tmp_path: Path, groups: Groups) -> None:
    grown, _ = swept(tmp_path, groups)
    without, _ = swept(tmp_path, Groups(Clock(), 8), grow="off")
    assert grown < 0.9 * without


def test_a_group_whose_devices_were_taken_goes_on_as_it_began(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Growth, "_find_devices", lambda *given: tuple(range(8 - given[-1], 8)))  # perhaps others'
    swept(tmp_path, groups)
    assert groups.in_vain > 0


def test_a_group_on_devices_that_may_not_train_together_ends_the_simulation(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Growth, "_find_devices", lambda *given: tuple(range(1, 1 + min(7, given[-1]))))
    with pytest.raises(ImpossibleError, match="not an aligned set"):
        swept(tmp_path, groups)


def test_trials_wait_in_vain_for_devices_of_idle_trial_actors(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Growth, "trials_wait_for_devices", lambda growth: False)
    swept(tmp_path, groups, seed=1)
    assert groups.in_vain > 0
