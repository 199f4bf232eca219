"""Asynchronous successive halving: of the trials that reach a rung, the best share goes on to the next."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from typing_extensions import override

from gaudi_tune.base import names
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective, scores_of
from gaudi_tune.sweep.policies.schedulers.scheduler import CONTINUE, Scheduler
from gaudi_tune.sweep.record.events import Decision, Reported
from gaudi_tune.sweep.record.ranking import in_order
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

if TYPE_CHECKING:
    from gaudi_tune.define.search_space import SearchSpace

Score: TypeAlias = tuple[float, ...]
"""The scores of the objective and, to break ties, of the validation loss; or of several objectives. More is better."""
SHARES = {2: "half", 3: "third", 4: "quarter"}
"""Words for one in two, three or four trials."""


class Rung:
    """The trials that have reached a rung, ranked."""

    def __init__(self, scores: dict[int, Score], n_objectives: int = 1) -> None:
        """Rank the trials of ``scores``, which are of so many objectives.

        The dictionary is kept, not copied: :meth:`add` adds to it, so that a snapshot of it has all scores.
        """
        self.scores, self._has_front = scores, n_objectives > 1
        self.ranked = self._rank()
        """The numbers of the trials, the best first; of equal ones, the one that came first."""

    def add(self, number: int, score: Score) -> None:
        """Add a trial, or replace the score of one that has been here."""
        is_new = number not in self.scores
        self.scores[number] = score
        if is_new and not self._has_front:
            insort(self.ranked, number, key=self._sort_key)  # thousands are not sorted again for each report
        else:
            self.ranked = self._rank()

    def count_better(self, number: int) -> int:
        """Return how many trials are better than this one."""
        if self._has_front:
            return self.ranked.index(number)
        return bisect_left(self.ranked, self._sort_key(number), key=self._sort_key)

    def _sort_key(self, number: int) -> Score:
        return tuple(-part for part in self.scores[number])

    def _rank(self) -> list[int]:
        if not self._has_front:
            return sorted(self.scores, key=self._sort_key)
        numbers = list(self.scores)
        return [numbers[index] for index in in_order(list(self.scores.values()))]


def _tie_break(report: Reported) -> float:
    """Return the score that breaks ties: that of the validation loss, if there is one."""
    loss = report.metrics.get(names.VAL_LOSS)
    return -float(loss) if isinstance(loss, Real) else 0.0


class SuccessiveHalving(Scheduler):
    """ASHA (Li et al., 2020) with the rungs of the budget, in its stopping variant.

    A trial that reaches a rung continues if it is among the best share of those that have reached it, and ends
    otherwise. The share is one in ``budget.reduction``, usually a third. Ties are broken by the validation loss: an
    accuracy on few samples has few values. With several objectives, trials are in the order of
    :func:`~gaudi_tune.sweep.record.ranking.in_order`.

    All that it knows is plain data, which the sweep's snapshots have. A trial whose earlier reports are not known
    (because a snapshot was lost) counts at no rung that it has passed.
    """

    has_rungs = True
    takes_objectives = True
    kept_names: ClassVar[Sequence[str]] = ("_added", "_last_progress", "_scores", "_held_rungs", "_promoted")

    def __init__(self, budget: Budget, objectives: Sequence[Objective], space: SearchSpace) -> None:
        """Begin without any trial."""
        super().__init__(budget, objectives, space)
        self._share = SHARES.get(budget.reduction, f"1/{budget.reduction}")
        self._added: set[int] = set()
        """The trials that were added."""
        self._last_progress: dict[int, int] = {}
        """Epochs or steps of each trial's last report."""
        self._scores: dict[int, dict[int, Score]] = {rung_step: {} for rung_step in budget.rungs()}
        """For each rung, the scores of the trials that reached it."""
        self._held_rungs: dict[int, int] = {}
        """The rung at which a trial waits; if weak trials are stopped, that of a trial that has yet to end."""
        self._promoted: list[int] = []
        """Paused trials that are to continue."""
        self._rungs = self._make_rungs()
        """For each rung, the ranking of the same scores."""

    @override
    def trial_added(self, number: int) -> None:
        """Note the trial."""
        self._added.add(number)
        if not self.pauses and number in self._held_rungs:  # it was to end when the sweep was interrupted
            self._decide_again(number)

    @override
    def decide(self, state: SweepState, trial: TrialState, report: Reported) -> Decision:
        """Decide at a rung; between rungs a trial goes on."""
        score: Score = scores_of(self._objectives, report.point)
        if not all(map(math.isfinite, score)):
            return Decision("stopped early", "its report is not finite")
        if len(score) == 1:
            score = (*score, _tie_break(report))
        rung_step = self._rung_reached(trial.number, report.step, is_first_report=report.count == 1)
        if rung_step is None:
            return CONTINUE
        rung = self._rungs[rung_step]
        rung.add(trial.number, score)
        decision = self._decide_at(rung, rung_step, state, report)
        if decision != CONTINUE:
            self._held_rungs[trial.number] = rung_step
        return decision

    def _decide_at(self, rung: Rung, rung_step: int, state: SweepState, report: Reported) -> Decision:
        # Fewer than the share are better; a tie is not.
        if rung.count_better(report.trial) < max(1.0, len(rung.scores) / self._budget.reduction):
            return CONTINUE
        return Decision("stopped early", self._reason(rung, rung_step))

    def _reason(self, rung: Rung, rung_step: int) -> str:
        """Return why a trial does not continue beyond a rung."""
        count = len(rung.scores)
        problem = f"not among the best {self._share} of {count}" if count > 1 else "the first to get so far"
        return f"{problem} at {self._budget.unit} {rung_step}"

    @override
    def trial_failed(self, number: int) -> None:
        """Take back what was decided at the trial's last rung: it may have failed before that was done.

        A trial that is retried will be judged at that rung again, or by its first report after it.
        """
        if number in self._held_rungs:
            self._decide_again(number)
        self.trial_ended(number)

    @override
    def trial_ended(self, number: int) -> None:
        """Forget that the trial waits or was to continue or end; its scores stay."""
        self._held_rungs.pop(number, None)
        self._promoted = [promoted for promoted in self._promoted if promoted != number]

    def _decide_again(self, number: int) -> None:
        """Have the trial judged again at the rung at which it was held."""
        self._last_progress[number] = self._held_rungs.pop(number) - 1

    @override
    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        super().set_state(state)
        self._rungs = self._make_rungs()

    def _make_rungs(self) -> Mapping[int, Rung]:
        return {rung_step: Rung(scores, len(self._objectives)) for rung_step, scores in self._scores.items()}

    def _rung_reached(self, number: int, progress: int, *, is_first_report: bool) -> int | None:
        """Return the rung that the trial has reached since its last report, the highest of several.

        A trial's first report may be far from its start. If this is not the first and the last is not known, only what
        lies between two reports counts.
        """
        start = 0 if is_first_report else progress - self._budget.between_reports
        last_progress = self._last_progress.get(number, start)
        self._last_progress[number] = max(last_progress, progress)
        return max((rung_step for rung_step in self._scores if last_progress < rung_step <= progress), default=None)


class PromotingHalving(SuccessiveHalving):
    """ASHA in the variant of the paper, promotion: a weak trial pauses, and does not end.

    A trial that reaches a rung continues if it is among the best share now; otherwise it writes a checkpoint and waits
    until enough others have come that it is. Once no new trial is to come, the share is rounded up, so that at least
    one trial trains in full, and trials that still wait are ended when nothing else is left to do. A trial that cannot
    continue from a checkpoint cannot wait, and is stopped by the rule of :class:`SuccessiveHalving`.
    """

    pauses = True

    def __init__(self, budget: Budget, objectives: Sequence[Objective], space: SearchSpace) -> None:
        """Begin without any trial."""
        super().__init__(budget, objectives, space)
        self._has_changed = True
        """Whether something has happened since paused trials were last considered for promotion."""
        self._num_trials = 0
        """How many trials the search was to have then."""

    @classmethod
    @override
    def in_words(cls, budget: Budget, groups: int, *, may_not_save: bool) -> str:
        """Return what becomes of weak trials."""
        if not budget.rungs():
            return ""
        if may_not_save:
            return "weak trials pause at a rung and keep a checkpoint, or stop there if the train loop saves none"
        return "weak trials pause at a rung and keep a checkpoint (--scheduler asha stops them instead)"

    @override
    def trial_added(self, number: int) -> None:
        """Note the trial."""
        super().trial_added(number)
        self._has_changed = True

    @override
    def decide(self, state: SweepState, trial: TrialState, report: Reported) -> Decision:
        """Decide at a rung, and promote trials that wait there."""
        if trial.number in self._promoted:
            self._promoted.remove(trial.number)
        return super().decide(state, trial, report)

    @override
    def _decide_at(self, rung: Rung, rung_step: int, state: SweepState, report: Reported) -> Decision:
        self._has_changed = True
        if report.starts_over:
            return super()._decide_at(rung, rung_step, state, report)
        if report.trial in rung.ranked[: self._n_promotable(rung, state)]:
            return CONTINUE
        return Decision("pause", self._reason(rung, rung_step))

    @override
    def next_trials(self, state: SweepState) -> Sequence[int]:
        """Return the paused trials that were promoted, after a look whether there are more of them."""
        if self._has_changed or self._num_trials != state.num_trials:  # this is asked many times between two reports
            self._has_changed, self._num_trials = False, state.num_trials
            for rung_step in reversed(self._budget.rungs()):
                self._promote_from(self._rungs[rung_step], rung_step, state)
        return [number for number in self._promoted if state.trials[number].status != "running"]

    @override
    def trials_to_end(self, state: SweepState) -> Sequence[int]:
        """Return the trials that wait once no new trial is to come and none is promoted."""
        return list(self._held_rungs) if self._has_all_trials(state) and not self._promoted else ()

    @override
    def trial_ended(self, number: int) -> None:
        """Forget that the trial waits."""
        super().trial_ended(number)
        self._has_changed = True

    def _has_all_trials(self, state: SweepState) -> bool:
        """Whether no new trial is to come."""
        return len(self._added) >= state.num_trials

    def _n_promotable(self, rung: Rung, state: SweepState) -> int:
        """Return how many trials of a rung may continue to the next."""
        count, reduction = len(rung.scores), self._budget.reduction
        return math.ceil(count / reduction) if self._has_all_trials(state) else count // reduction

    def _promote_from(self, rung: Rung, rung_step: int, state: SweepState) -> None:
        for number in rung.ranked[: self._n_promotable(rung, state)]:
            if self._held_rungs.get(number) == rung_step:
                del self._held_rungs[number]
                self._promoted.append(number)
