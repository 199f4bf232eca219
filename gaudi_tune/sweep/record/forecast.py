"""How long a sweep still takes."""

from __future__ import annotations

import math
from collections import Counter

from gaudi_tune.base import names
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState


class Forecast:
    """What a sweep is expected to need from now on.

    A trial of the search is expected to get as far as those do, on average, that got to where it is. Of those that
    still train it is known only that they got beyond their last report (the estimate of Kaplan and Meier, 1958): by the
    ended ones alone, all would end where the first were stopped. Trials of the confirmation train in full.
    """

    def __init__(self, state: SweepState) -> None:
        self._state, self._full_steps = state, state.budget.total
        self._training = [trial for trial in state.open_trials.values() if trial.status != "paused"]
        """The trials that run, and those that were interrupted before the sweep was resumed, and continue."""
        training = {trial.number for trial in self._training}
        last_steps = Counter(trial.step for trial in state.searched if trial.number not in training)
        beyond = Counter(trial.step for trial in self._training if not trial.confirms)
        self._ending_shares: dict[int, float] = {}
        """The share that ended of the trials that got to an epoch or step; of each at which some did, in order."""
        for step in sorted(last_steps):
            got_there = sum(count for counts in (last_steps, beyond) for end, count in counts.items() if end >= step)
            self._ending_shares[step] = last_steps[step] / got_there

    def seconds_left(self, groups: int) -> float | None:
        """Return about how long the sweep takes from now on with so many trials at a time; None before a trial has
        ended or paused.
        """
        state, seconds_each = self._state, self._state.seconds_each()
        if not self._ending_shares or seconds_each is None:
            return None
        steps_to_begin = (state.num_trials - len(state.searched)) * self._steps_after(0)
        confirmation = math.ceil(state.confirmations_to_begin / groups) * self._full_steps * seconds_each
        return self._seconds_of_search(groups, seconds_each, steps_to_begin) + confirmation

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
        search_seconds = seconds_each * paused_steps + self._seconds_of_search(groups, seconds_each)
        # The confirmation has rounds, of as many trials as there are groups. A round is as long as its slowest trial.
        rounds = math.ceil(self._state.confirmations_to_begin / groups)
        seconds_of_rivals = [self._state.seconds_each([trial]) or 0.0 for trial in self._state.to_confirm]
        return max([seconds_each, *seconds_of_rivals]) * rounds * self._full_steps + search_seconds

    def _seconds_of_search(self, groups: int, seconds_each: float, steps_to_begin: float = 0.0) -> float:
        """Return about how long the trials in training take, and others that begin and have so many steps together.

        It is at least as long as the longest of the trials in training. A trial is taken to be on its way to its next
        report, for no longer than usual.
        """
        seconds, longest = steps_to_begin * seconds_each, 0.0
        for trial in self._training:
            steps, pace = self._steps_of(trial), self._pace_of(trial) or seconds_each
            since_report = min(self._state.device_time.uncounted_seconds(trial.number), self._steps_each(trial) * pace)
            seconds += max(0.0, steps * seconds_each - since_report)
            longest = max(longest, steps * pace - since_report)
        return max(longest, seconds / groups)

    def _pace_of(self, trial: TrialState) -> float | None:
        """Return the seconds that a trial needs for an epoch or a step; None before it has reported.

        That is its pace at its last report, if it was quicker than before: the trial may have more devices by now.
        """
        mean_pace = self._state.seconds_each([trial])
        last_pace = trial.metrics.get(names.STEP_SECONDS, math.inf) / self._steps_each(trial)
        return None if mean_pace is None else min(mean_pace, last_pace)

    def _steps_each(self, trial: TrialState) -> float:
        """Return how many epochs or steps a trial has between two reports."""
        return max(self._state.budget.between_reports, trial.step / max(1, trial.reports))

    def _steps_of(self, trial: TrialState) -> float:
        """Return about how many more epochs or steps a trial in training has."""
        return self._full_steps - trial.step if trial.confirms else self._steps_after(trial.step)

    def _steps_after(self, step: int) -> float:
        """Return about how many more epochs or steps a trial of the search trains that has got to ``step``."""
        expected, reached, share = 0.0, step, 1.0  # the share of trials at `step` that get to `reached`, and beyond
        for end, ending_share in self._ending_shares.items():
            if end > step or end == step == 0:  # a trial that has yet to report may fail before it does
                expected += share * (end - reached)
                reached, share = end, share * (1 - ending_share)
        return expected + share * (self._full_steps - reached)
