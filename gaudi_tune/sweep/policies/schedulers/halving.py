"""Asynchronous successive halving: of the trials that reach a rung, the best share goes on to the next."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeAlias

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.base import names
from gaudi_tune.define.budget import REPORTS, Budget
from gaudi_tune.define.objective import Objective, point_in, scores_of
from gaudi_tune.private.ray_tune import end_paused, searcher_of, training_of
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo
from gaudi_tune.sweep.record.front import in_order

Score: TypeAlias = tuple[float, ...]
"""The scores of the objective and, to break ties, of the validation loss; or of several objectives. More is better."""
SHARES = {2: "half", 3: "third", 4: "quarter"}
"""Words for one in two, three or four trials."""


class Rung:
    """The trials that have reached a rung, ranked."""

    def __init__(self, scores: dict[str, Score], n_objectives: int = 1) -> None:
        """Rank the trials of ``scores``, which are of so many objectives.

        The dictionary is kept, not copied: :meth:`add` adds to it, so that a snapshot of it has all scores.
        """
        self.scores, self._has_front = scores, n_objectives > 1
        self.ranked = self._rank()
        """The names of the trials, the best first; of equal ones, the one that came first."""

    def add(self, name: str, score: Score) -> None:
        """Add a trial, or replace the score of one that has been here."""
        is_new = name not in self.scores
        self.scores[name] = score
        if is_new and not self._has_front:
            insort(self.ranked, name, key=self._sort_key)  # thousands are not sorted again for each report
        else:
            self.ranked = self._rank()

    def count_better(self, name: str) -> int:
        """Return how many trials are better than this one."""
        if self._has_front:
            return self.ranked.index(name)
        return bisect_left(self.ranked, self._sort_key(name), key=self._sort_key)

    def _sort_key(self, name: str) -> Score:
        return tuple(-part for part in self.scores[name])

    def _rank(self) -> list[str]:
        if not self._has_front:
            return sorted(self.scores, key=self._sort_key)
        names = list(self.scores)
        return [names[index] for index in in_order(list(self.scores.values()))]


def _tie_break(result: Mapping[str, Any]) -> float:
    """Return the score that breaks ties: that of the validation loss, if there is one."""
    loss = result.get(names.VAL_LOSS)
    return -float(loss) if isinstance(loss, Real) else 0.0


class SuccessiveHalving(Fifo):
    """ASHA (Li et al., 2020) with the rungs of the budget, in two variants.

    *Stopping*: a trial that reaches a rung continues if it is among the best share of those that have reached it, and
    ends otherwise. *Pausing* (the paper's promotion): it continues if it is among the best share now; otherwise it
    writes a checkpoint and waits until enough others have come that it is. Once no new trial is to come, the share is
    rounded up, so that at least one trial trains in full, and trials that still wait are ended when nothing else is
    left to do. A trial that cannot continue from a checkpoint cannot wait, and is stopped by the rule of *stopping*.

    The share is one in ``budget.reduction``, usually a third. Ties are broken by the validation loss: an accuracy on
    few samples has few values. With several objectives, trials are in the order of
    :func:`~gaudi_tune.sweep.record.front.in_order`.

    With several brackets (Hyperband), a trial of bracket *b* is first compared at rung *b*.

    All that it knows is plain data, which the sweep's snapshots have. A trial whose earlier reports are not known
    (because a snapshot was lost) counts at no rung that it has passed.
    """

    _snapshot_attributes: ClassVar[Mapping[str, str]] = {
        "_bracket": "_bracket",
        "_at": "_last_progress",
        "_scores": "_scores",
        "_held": "_held_rungs",
        "_next": "_promoted",
    }

    def __init__(
        self,
        budget: Budget,
        objectives: Sequence[Objective],
        *,
        pausing: bool = False,
        shares: Sequence[float] = (1.0,),
        trials: int = 0,
        groups: int = 0,
    ) -> None:
        """Open the brackets.

        Args:
            budget: The rungs, and the share of trials that continue.
            objectives: What trials are compared by.
            pausing: Whether weak trials wait; otherwise they end.
            shares: The share of trials that each bracket gets.
            trials: How many trials the sweep has, which counts if they wait.
            groups: How many worker groups train at a time, which counts if trials wait.
        """
        super().__init__()
        self._budget, self._pausing, self._shares = budget, pausing, list(shares)
        self._share = SHARES.get(budget.reduction, f"1/{budget.reduction}")
        self._trials, self._groups, self._objectives = trials, groups, objectives
        self._bracket: dict[str, int] = {}
        """The bracket of each trial, in the order in which they were added."""
        self._bracket_sizes = Counter[int]()
        """How many trials each bracket has."""
        self._tune_trials: dict[str, Trial] = {}
        """Tune's object of each trial, which no snapshot has."""
        self._last_progress: dict[str, int] = {}
        """Epochs or steps of each trial's last report."""
        self._scores: list[dict[int, dict[str, Score]]] = [
            {rung: {} for rung in budget.rungs()[bracket:]} for bracket in range(len(shares))
        ]
        """For each bracket and rung, the scores of the trials that reached it."""
        self._held_rungs: dict[str, int] = {}
        """The rung at which a trial waits; if weak trials are stopped, that of a trial that has yet to end."""
        self._promoted: list[str] = []
        """Paused trials that are to continue."""
        self._rungs = self._make_rungs()
        """For each bracket and rung, the ranking of the same scores."""
        self._has_changed = True
        """Whether something has happened since paused trials were last considered for promotion."""

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Give the trial the bracket furthest behind its share; a trial that a restored sweep had paused stays so."""
        name, self._has_changed = trial.trial_id, True
        self._tune_trials[name] = trial
        if name not in self._bracket:
            total = len(self._bracket) + 1
            deficits = [share * total - self._bracket_sizes[bracket] for bracket, share in enumerate(self._shares)]
            self._bracket[name] = deficits.index(max(deficits))
            self._bracket_sizes[self._bracket[name]] += 1
        elif self._pausing and trial.status == Trial.PENDING and (name in self._held_rungs or name in self._promoted):
            trial.set_status(Trial.PAUSED)  # before Tune files it: Tune starts pending trials, groups or not
        elif not self._pausing and name in self._held_rungs:  # it was to end when the sweep was interrupted
            self._decide_again(name)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Decide at a rung; between rungs a trial goes on."""
        name = trial.trial_id
        if name in self._promoted:
            self._promoted.remove(name)
        score: Score = scores_of(self._objectives, point_in(self._objectives, result))
        if not all(map(math.isfinite, score)):
            return TrialScheduler.STOP
        if len(score) == 1:
            score = (*score, _tie_break(result))
        progress = self._budget.progress(result)
        rung_step = self._rung_reached(name, progress, is_first_report=result.get(REPORTS) == 1)
        if rung_step is None:
            return TrialScheduler.CONTINUE
        rung = self._rungs[self._bracket[name]][rung_step]
        rung.add(name, score)
        self._has_changed = True
        can_wait = self._pausing and not result.get(names.STARTS_OVER)
        if can_wait:
            is_good = name in rung.ranked[: self._n_promotable(rung)]
        else:  # fewer than the share are better; a tie is not
            is_good = rung.count_better(name) < max(1.0, len(rung.scores) / self._budget.reduction)
        if not is_good:
            self._held_rungs[name] = rung_step
            self.reasons[name] = self._reason(rung, rung_step)
        if not can_wait:
            return TrialScheduler.CONTINUE if is_good else TrialScheduler.STOP
        if not is_good:
            searcher_of(tune_controller).on_pause(name)
        self._promote(tune_controller)
        return TrialScheduler.CONTINUE if is_good else TrialScheduler.PAUSE

    def _reason(self, rung: Rung, rung_step: int) -> str:
        """Return why a trial does not continue beyond a rung."""
        count = len(rung.scores)
        problem = f"not among the best {self._share} of {count}" if count > 1 else "the first to get so far"
        return f"{problem} at {self._budget.unit} {rung_step}"

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return a paused trial that was promoted, as soon as there is a group for it."""
        if not self._pausing:
            return None
        if self._has_changed:  # Tune asks many times between two reports
            self._promote(tune_controller)
        search_is_over = self._has_all_trials() and not self._promoted
        if not self._promoted and not (search_is_over and self._held_rungs):
            return None
        training = training_of(tune_controller)
        if len(training) < self._groups:
            for name in self._promoted:
                if self._tune_trials[name].status == Trial.PAUSED:
                    return self._tune_trials[name]
        # Trials of the confirmation have no bracket.
        if search_is_over and not any(trial.trial_id in self._bracket for trial in training):
            for name in list(self._held_rungs):
                end_paused(tune_controller, self._tune_trials[name])
        return None

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Forget that the trial was to continue."""
        self.on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Take back what was decided at the trial's last rung: it may have failed before that was done.

        A trial that Tune starts again will be judged at that rung again, or by its first report after it.
        """
        name = trial.trial_id
        if name in self._held_rungs:
            self._decide_again(name)
            if self._pausing:
                searcher_of(tune_controller).on_unpause(name)
        self.on_trial_remove(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Forget that the trial waits or was to continue or end; its scores stay."""
        self._has_changed = True
        self._held_rungs.pop(trial.trial_id, None)
        self._promoted = [name for name in self._promoted if name != trial.trial_id]

    def _decide_again(self, name: str) -> None:
        """Have the trial judged again at the rung at which it was held."""
        self._last_progress[name] = self._held_rungs.pop(name) - 1

    @property
    def promoted(self) -> int:
        """How many paused trials are to continue, and do not yet."""
        return sum(self._tune_trials[name].status in (Trial.PAUSED, Trial.PENDING) for name in self._promoted)

    def expect(self, trials: int) -> None:
        """Take another number of trials for the whole sweep."""
        self._trials, self._has_changed = trials, True

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        super().set_state(state)
        self._bracket_sizes, self._rungs = Counter(self._bracket.values()), self._make_rungs()

    def _make_rungs(self) -> Sequence[Mapping[int, Rung]]:
        count = len(self._objectives)
        return [{rung_step: Rung(scores, count) for rung_step, scores in bracket.items()} for bracket in self._scores]

    def _rung_reached(self, name: str, progress: int, *, is_first_report: bool) -> int | None:
        """Return the rung that the trial has reached since its last report, the highest of several.

        A trial's first report may be far from its start. If this is not the first and the last is not known, only what
        lies between two reports counts.
        """
        start = 0 if is_first_report else progress - self._budget.between_reports
        last_progress = self._last_progress.get(name, start)
        self._last_progress[name] = max(last_progress, progress)
        rungs = self._scores[self._bracket[name]]
        return max((rung_step for rung_step in rungs if last_progress < rung_step <= progress), default=None)

    def _has_all_trials(self) -> bool:
        """Whether no new trial is to come."""
        return len(self._bracket) >= self._trials

    def _n_promotable(self, rung: Rung) -> int:
        """Return how many trials of a rung may continue to the next."""
        count, reduction = len(rung.scores), self._budget.reduction
        return math.ceil(count / reduction) if self._has_all_trials() else count // reduction

    def _promote(self, tune_controller: Any) -> None:
        """Choose paused trials that are to continue, those of the highest rungs first."""
        self._has_changed = False
        for rung_step in reversed(self._budget.rungs()):
            for bracket in self._rungs:
                if rung_step in bracket:
                    self._promote_from(bracket[rung_step], rung_step, tune_controller)

    def _promote_from(self, rung: Rung, rung_step: int, tune_controller: Any) -> None:
        for name in rung.ranked[: self._n_promotable(rung)]:
            if self._held_rungs.get(name) == rung_step:
                del self._held_rungs[name]
                self._promoted.append(name)
                searcher_of(tune_controller).on_unpause(name)
