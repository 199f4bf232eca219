"""The base of all schedulers: what a sweep asks of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.record.events import Decision, Reported
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

if TYPE_CHECKING:
    from gaudi_tune.define.search_space import SearchSpace

CONTINUE = Decision("continue")


class Scheduler:
    """Decides from the record of a sweep and a report what becomes of the trial.

    A scheduler knows neither Ray nor the searcher: it speaks of trials by their numbers, and ``on_ray`` does what it
    decides. It is never asked about the trials of the confirmation, which train in full, nor about a report after which
    a trial ends in any case.

    >>> from gaudi_tune import Budget, tune
    >>> from gaudi_tune.define.search_space import SearchSpace
    >>> class HalfWay(Scheduler):
    ...     def decide(self, state, trial, report):
    ...         if report.step >= self._budget.total / 2 and report.point[0] < 0.5:
    ...             return Decision("stopped early", "below 0.5 half way")
    ...         return CONTINUE
    >>> space = SearchSpace({"lr": tune.loguniform(1e-4, 1e-1)})
    >>> scheduler = HalfWay(Budget(epochs=10), [Objective("accuracy")], space)
    >>> report = Reported(trial=1, step=5, point=(0.4,), metrics={}, config={}, count=5)
    >>> scheduler.decide(None, None, report).reason
    'below 0.5 half way'
    """

    has_rungs: ClassVar[bool] = False
    """Whether it compares trials at the rungs of the budget."""
    takes_objectives: ClassVar[bool] = False
    """Whether it can compare trials by several objectives, or compares none."""
    pauses: ClassVar[bool] = False
    """Whether weak trials pause, and wait to be promoted."""
    clones: ClassVar[bool] = False
    """Whether trials take over the weights of others while they train, with other hyperparameters. Then good trials
    pause, too, and any trial may need an earlier checkpoint of another."""

    kept_names: ClassVar[Sequence[str]] = ()
    """The attributes that a resumed sweep must know; their values are plain data."""

    def __init__(self, budget: Budget, objectives: Sequence[Objective], space: SearchSpace) -> None:
        """Begin without any trial.

        Args:
            budget: The budget of a full trial, and the rungs.
            objectives: What trials are compared by.
            space: The search space.
        """
        self._budget, self._objectives, self._space = budget, tuple(objectives), space

    @classmethod
    def check(cls, space: SearchSpace) -> None:
        """Raise a SweepError if trials of this space cannot be scheduled."""

    @classmethod
    def in_words(cls, budget: Budget, groups: int, *, may_not_save: bool) -> str:
        """Return what becomes of weak trials, for the plan; "" if that is obvious.

        ``groups`` trials train at a time, and ``may_not_save`` says that the train loop is not the shared one.
        """
        return ""

    def trial_added(self, number: int) -> None:
        """Note a trial that is to begin, which the record does not have yet, or one of a sweep that was resumed."""

    def decide(self, state: SweepState, trial: TrialState, report: Reported) -> Decision:
        """Return what follows from a report, which the record has."""
        return CONTINUE

    def next_trials(self, state: SweepState) -> Sequence[int]:
        """Return the paused trials that are to continue as soon as groups are free, in their order."""
        return ()

    def trials_to_end(self, state: SweepState) -> Sequence[int]:
        """Return the paused trials that end if no other trial trains."""
        return ()

    def trial_failed(self, number: int) -> None:
        """Note that an error interrupted a trial, which may be retried."""

    def trial_ended(self, number: int) -> None:
        """Note that a trial has ended for good."""

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know. It is not copied, so the caller must write it at once."""
        return {name: getattr(self, name) for name in self.kept_names}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        for name in self.kept_names:
            setattr(self, name, state[name])
