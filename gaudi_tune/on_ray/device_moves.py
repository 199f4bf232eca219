"""Moves of running trials to more or fewer devices, where growth decides so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune.experiment import Trial

from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.group.warm_trainable import WarmTrainable
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.private.ray_tune import call_trainable
from gaudi_tune.sweep.policies.growth import Growth
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler
from gaudi_tune.sweep.record.events import Event, PlaceChanged
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.proposer import Proposer


class DeviceMoves:
    """Asks growth after each report, and has Tune move the trial."""

    def __init__(
        self,
        plan: Plan,
        state: SweepState,
        proposer: Proposer,
        policy: Scheduler,
        tell: Callable[[Event], None],
    ) -> None:
        self._state, self._proposer, self._policy, self._tell = state, proposer, policy, tell
        self._growth, self._enabled = Growth(plan), plan.grows

    def trial_began(self, number: int) -> None:
        """Note that a trial has its worker group."""
        self._growth.cancel_move(number)

    def is_moving(self, number: int) -> bool:
        """Whether a trial moves to other devices once it has a checkpoint."""
        return self._growth.is_moving(number)

    def after_report(self, tune_controller: Any, trial: Trial, *, others_pause: bool) -> None:
        """Give a trial devices that would stay idle, or take some from it that other trials wait for.

        ``others_pause`` says that trials are being saved before they pause: they still have their devices.
        """
        if not self._enabled:
            return
        trial_state = self._state.trials[number_of(trial)]
        self._growth.measure(self._state, trial_state)
        to_begin = self._proposer.n_proposed < self._state.num_trials and not self._growth.has_grown
        if to_begin or others_pause:
            return
        promoted = len(self._policy.next_trials(self._state))
        place = self._growth.after_report(self._state, trial_state, promoted)
        if place is not None:
            call_trainable(tune_controller, trial, WarmTrainable.move_to.__name__, place)
            self._tell(PlaceChanged(trial=trial_state.number, workers=place.workers))

    def trials_wait_for_devices(self) -> bool:
        """Whether a trial may wait for devices to which another has grown, or is to grow."""
        running = self._state.running if self._growth.has_ever_grown else []
        return any(self.is_moving(trial.number) or not self._growth.width_of(self._state, trial) for trial in running)

    def trials_with_devices(self) -> set[int]:
        """Return the numbers of the running trials, without those that wait for devices to which another has grown."""
        has_grown = self._growth.has_grown
        return {
            trial.number for trial in self._state.running if not has_grown or self._growth.width_of(self._state, trial)
        }
