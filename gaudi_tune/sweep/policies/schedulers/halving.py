"""Asynchronous successive halving: of the trials that reach a rung, the best share goes on to the next."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, TypeAlias

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.base import names
from gaudi_tune.define.budget import REPORTS, Budget
from gaudi_tune.define.objective import Objective, point_in, scores_of
from gaudi_tune.private.ray_tune import end_paused, searcher_of, training_of
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo
from gaudi_tune.sweep.record.front import in_order

Score: TypeAlias = tuple[float, ...]
"""The objective, and for ties the validation loss; or several objectives. More is better in all."""
SHARES = {2: "half", 3: "third", 4: "quarter"}
"""Words for one in so many trials."""


class Rung:
    """The trials that got to a rung, the best first."""

    def __init__(self, scores: dict[str, Score], objectives: int = 1) -> None:
        """Begin with these scores of so many objectives; more are added to the same object."""
        self.scores, self._has_front = scores, objectives > 1
        self.ranked = self._in_order()
        """Their names, the best first; among equals, who came first."""

    def add(self, name: str, score: Score) -> None:
        """Take a trial, or another score of one that is there."""
        again = name in self.scores
        self.scores[name] = score
        if again or self._has_front:
            self.ranked = self._in_order()
        else:  # thousands are not sorted again for each report
            insort(self.ranked, name, key=self._place)

    def better_than(self, name: str) -> int:
        """Return how many trials are better than that one."""
        if self._has_front:
            return self.ranked.index(name)
        return bisect_left(self.ranked, self._place(name), key=self._place)

    def _place(self, name: str) -> Score:
        return tuple(-part for part in self.scores[name])

    def _in_order(self) -> list[str]:
        if not self._has_front:
            return sorted(self.scores, key=self._place)
        names = list(self.scores)
        return [names[place] for place in in_order(list(self.scores.values()))]


def _tie_break(result: Mapping[str, Any]) -> float:
    """Return what tells trials with the same value apart, more being better: their validation loss, if there is one."""
    loss = result.get(names.VAL_LOSS)
    return -float(loss) if isinstance(loss, Real) else 0.0


class SuccessiveHalving(Fifo):
    """ASHA (Li et al., 2020) with the rungs of the budget, in two kinds.

    *Stopping*: a trial that reaches a rung goes on if it is in the best share of those that got there before it, and
    ends otherwise. *Pausing* (the paper's promotion): it goes on if it is in the best share now; otherwise it writes a
    checkpoint and waits until enough others have come that it is. When no new trial is to come, the share is rounded
    up, so that one trial at least trains in full, and those that are left are ended when nothing else is to do. A trial
    that cannot be continued cannot wait, and is held to the rule of *stopping*.

    The share is one in ``budget.reduction``, usually a third. Trials that report the same are told apart by their
    validation loss: an accuracy on few samples has few values. With several objectives, trials are in the order of
    :func:`~gaudi_tune.sweep.record.front.in_order`.

    With several brackets, trials of bracket *b* meet their first rung where it is rung *b* of the others.

    All that it knows is plain data, which the sweep's snapshots keep. A trial whose earlier reports are not known
    (because a snapshot was lost) fills no rung that it has passed.
    """

    _kept = ("_bracket", "_at", "_scores", "_held", "_next")

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
        """Open the brackets, each with its share of the trials.

        Weak trials wait if ``pausing``, and end otherwise. Where they wait, the ``trials`` of the whole sweep and the
        ``groups`` that train at a time count.
        """
        super().__init__()
        self._budget, self._pausing, self._shares = budget, pausing, list(shares)
        self._share = SHARES.get(budget.reduction, f"1/{budget.reduction}")
        self._trials, self._groups, self._objectives = trials, groups, objectives
        self._bracket: dict[str, int] = {}
        """Bracket of each trial, in the order in which they were added."""
        self._in_bracket = Counter[int]()
        """How many trials each bracket has."""
        self._tunes: dict[str, Trial] = {}
        """Tune's object of each trial, which no snapshot keeps."""
        self._at: dict[str, int] = {}
        """Epochs or steps of each trial's last report."""
        self._scores: list[dict[int, dict[str, Score]]] = [
            {r: {} for r in budget.rungs()[b:]} for b in range(len(shares))
        ]
        """For each bracket and rung the scores of the trials that got there."""
        self._held: dict[str, int] = {}
        """Trials that wait, with their rung; where trials are stopped, those that have yet to end."""
        self._next: list[str] = []
        """Paused trials that are to go on."""
        self._rungs = self._ranked()
        """The rungs of each bracket, with these very scores."""
        self._changed = True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Give the trial the bracket furthest behind its share; one that a restored sweep had paused stays paused."""
        name, self._changed = trial.trial_id, True
        self._tunes[name] = trial
        if name not in self._bracket:
            there, in_each = len(self._bracket), self._in_bracket
            behind = [share * (there + 1) - in_each[bracket] for bracket, share in enumerate(self._shares)]
            self._bracket[name] = behind.index(max(behind))
            in_each[self._bracket[name]] += 1
        elif self._pausing and trial.status == Trial.PENDING and (name in self._held or name in self._next):
            trial.set_status(Trial.PAUSED)  # before Tune files it: what is pending is started, groups or not
        elif not self._pausing and name in self._held:  # it was to end, and had not when the sweep was interrupted
            self._come_by_again(name)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> str:
        """Decide at a rung; between rungs a trial goes on."""
        name = trial.trial_id
        if name in self._next:
            self._next.remove(name)
        score: Score = scores_of(self._objectives, point_in(self._objectives, result))
        if not all(map(math.isfinite, score)):
            return TrialScheduler.STOP
        if len(score) == 1:
            score = (*score, _tie_break(result))
        rung = self._rung_reached(name, self._budget.progress(result), first=result.get(REPORTS) == 1)
        if rung is None:
            return TrialScheduler.CONTINUE
        ranked = self._rungs[self._bracket[name]][rung]
        ranked.add(name, score)
        self._changed, there = True, len(ranked.scores)
        waits = self._pausing and not result.get(names.STARTS_OVER)
        if waits:
            goes_on = name in ranked.ranked[: self._promotable(ranked)]
        else:  # fewer than the share are better; a tie is not
            goes_on = ranked.better_than(name) < max(1.0, there / self._budget.reduction)
        if not goes_on:
            self._held[name] = rung
            why = f"not among the best {self._share} of {there}" if there > 1 else "the first to get so far"
            self.reasons[name] = f"{why} at {self._budget.unit} {rung}"
        if not waits:
            return TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP
        if not goes_on:
            searcher_of(tune_controller).on_pause(name)
        self._promote(tune_controller)
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.PAUSE

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """Return a paused trial that was promoted, as soon as there is a group for it."""
        if not self._pausing:
            return None
        if self._changed:  # Tune asks many times between two reports
            self._promote(tune_controller)
        over = self._no_more() and not self._next
        if not self._next and not (over and self._held):
            return None
        training = training_of(tune_controller)
        if len(training) < self._groups:
            for name in self._next:
                if self._tunes[name].status == Trial.PAUSED:
                    return self._tunes[name]
        # Those that confirm have no bracket.
        if over and not any(trial.trial_id in self._bracket for trial in training):
            for name in list(self._held):
                end_paused(tune_controller, self._tunes[name])
        return None

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Forget that the trial was to go on."""
        self.on_trial_remove(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Take back what was decided at the trial's last rung: it may have failed before it could be done.

        A trial that Tune starts again comes by that rung again, or by what is reported first after it.
        """
        name = trial.trial_id
        if name in self._held:
            self._come_by_again(name)
            if self._pausing:
                searcher_of(tune_controller).on_unpause(name)
        self.on_trial_remove(tune_controller, trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Forget that the trial waits or was to go on or end; its scores stay."""
        self._changed = True
        self._held.pop(trial.trial_id, None)
        self._next = [name for name in self._next if name != trial.trial_id]

    def _come_by_again(self, name: str) -> None:
        """Decide again at the rung at which a trial was held."""
        self._at[name] = self._held.pop(name) - 1

    @property
    def promoted(self) -> int:
        """How many paused trials are to go on, and do not yet."""
        return sum(self._tunes[name].status in (Trial.PAUSED, Trial.PENDING) for name in self._next)

    def expect(self, trials: int) -> None:
        """Take another number of trials in the whole sweep."""
        self._trials, self._changed = trials, True

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        super().set_state(state)
        self._in_bracket, self._rungs = Counter(self._bracket.values()), self._ranked()

    def _ranked(self) -> Sequence[Mapping[int, Rung]]:
        count = len(self._objectives)
        return [{rung: Rung(scores, count) for rung, scores in bracket.items()} for bracket in self._scores]

    def _rung_reached(self, name: str, progress: int, *, first: bool) -> int | None:
        """Return the rung that the trial has reached since its last report; the ``first`` may be far from the start."""
        before = self._at.get(name, 0 if first else progress - self._budget.between_reports)
        self._at[name] = max(before, progress)
        passed = [rung for rung in self._scores[self._bracket[name]] if before < rung <= progress]
        return max(passed, default=None)

    def _no_more(self) -> bool:
        return len(self._bracket) >= self._trials

    def _promotable(self, rung: Rung) -> int:
        """Return how many trials of a rung belong to the next."""
        there, share = len(rung.scores), self._budget.reduction
        return -(-there // share) if self._no_more() else there // share

    def _promote(self, tune_controller: Any) -> None:
        """Choose paused trials that are to go on, those of the highest rungs first."""
        self._changed = False
        for rung in reversed(self._budget.rungs()):
            for ranked in (bracket[rung] for bracket in self._rungs if rung in bracket):
                for name in ranked.ranked[: self._promotable(ranked)]:
                    if self._held.get(name) == rung:
                        del self._held[name]
                        self._next.append(name)
                        searcher_of(tune_controller).on_unpause(name)
