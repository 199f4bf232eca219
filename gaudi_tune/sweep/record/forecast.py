"""How much of a sweep is left: epochs or steps to train, and seconds."""

from __future__ import annotations

import math
from collections import Counter

from gaudi_tune.sweep.record.sweep_state import SweepState


class Forecast:
    """What a sweep is expected to need from now on.

    A trial of the search is expected to get as far as those do, on average, that got to where it is. Of those that
    still train it is known only that they got beyond their last report (the estimate of Kaplan and Meier, 1958): by the
    ended ones alone, all would end where the first were stopped. Trials of the confirmation train in full.
    """

    def __init__(self, state: SweepState) -> None:
        self._state, self._full_steps = state, state.budget.total
        self._training = [trial for trial in state.unended.values() if trial.status != "paused"]
        """The trials that run, and those that were interrupted before the sweep was resumed, and go on."""
        unended = {trial.number for trial in self._training}
        last_steps = Counter(trial.step for trial in state.searched if trial.number not in unended)
        beyond = Counter(trial.step for trial in self._training if not trial.confirms)
        self._ending_shares: dict[int, float] = {}
        """The share that ended of the trials that got to an epoch or step; of each at which some did, in order."""
        for step in sorted(last_steps):
            got_there = sum(count for counts in (last_steps, beyond) for end, count in counts.items() if end >= step)
            self._ending_shares[step] = last_steps[step] / got_there

    def steps_left(self) -> float | None:
        """Return about how many epochs or steps are to come; None before a trial has ended or paused."""
        if not self._ending_shares:
            return None
        state = self._state
        search = (state.num_trials - len(state.searched)) * self._steps_after(0)
        confirmation = state.confirmations_to_begin * self._full_steps
        return search + confirmation + self._steps_in_training()

    def seconds_left(self, groups: int) -> float | None:
        """Return about how long the sweep takes from now on with so many trials at a time; None before a trial has
        ended or paused.

        A trial is taken to be on its way to its next report, for no longer than usual.
        """
        steps_left, seconds_each = self.steps_left(), self._state.seconds_each()
        if steps_left is None or seconds_each is None:
            return None
        since_reports = 0.0
        for trial in self._training:
            steps = max(self._state.budget.between_reports, trial.step / max(1, trial.reports))
            since_reports += min(self._state.device_time.uncounted_seconds(trial.number), steps * seconds_each)
        return max(0.0, steps_left * seconds_each - since_reports) / groups

    def seconds_to_finish(self, groups: int) -> float | None:
        """Return about how long the sweep takes if no more trials of the search begin.

        Args:
            groups: How many worker groups train at a time.

        Returns:
            The seconds of the trials that run or wait and of the confirmation; None before a trial has ended or paused.
        """
        seconds_each = self._state.seconds_each()
        if not self._ending_shares or seconds_each is None:
            return None
        # A trial that waits may yet train in full.
        paused_steps = max((self._full_steps - trial.step for trial in self._state.paused), default=0)
        search_seconds = seconds_each * (paused_steps + self._steps_in_training() / groups)
        # The confirmation has rounds, of as many trials as there are groups. A round is as long as its slowest trial.
        rounds = math.ceil(self._state.confirmations_to_begin / groups)
        seconds_of_rivals = [self._state.seconds_each([trial]) or 0.0 for trial in self._state.to_confirm]
        return max([seconds_each, *seconds_of_rivals]) * rounds * self._full_steps + search_seconds

    def _steps_in_training(self) -> float:
        """Return about how many epochs or steps the trials still train that run or were interrupted."""
        return sum(
            self._full_steps - trial.step if trial.confirms else self._steps_after(trial.step)
            for trial in self._training
        )

    def _steps_after(self, step: int) -> float:
        """Return about how many more epochs or steps a trial of the search trains that has got to ``step``."""
        expected, reached, share = 0.0, step, 1.0  # the share of trials at `step` that get to `reached`, and beyond
        for end, ending_share in self._ending_shares.items():
            if end > step or end == step == 0:  # a trial that has yet to report may fail before it does
                expected += share * (end - reached)
                reached, share = end, share * (1 - ending_share)
        return expected + share * (self._full_steps - reached)
