"""The state of a sweep: one object that events change, and that everything reads which decides or shows something.

It books what happens to each trial (:meth:`SweepState.apply`). Which trial is the best is in
:mod:`gaudi_tune.sweep.record.ranking`, and :mod:`gaudi_tune.sweep.record.forecast` says what is still to come.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import counted, last_line
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.comparison import LOOKS, Gain, confirmed_scores, gain_over
from gaudi_tune.sweep.record.device_time import LOST, STEP_KINDS, WAITING, DeviceTime
from gaudi_tune.sweep.record.outcome import constraints_of
from gaudi_tune.sweep.record.ranking import RankedTrials
from gaudi_tune.sweep.record.state_log import TRIALS
from gaudi_tune.sweep.record.trial_state import SavedCheckpoint, TrialState

VERSION = 10
"""The version of a snapshot's layout; raise it with every change that an older snapshot does not fit."""


class SweepState(RankedTrials):
    """The sweep so far. Events alone change it; ``on_ray.sweep_run`` makes them.

    A sweep has a search, of ``num_trials`` trials, and after it the confirmation: the baseline and the best trials are
    trained again with other seeds. Both kinds of trials are in ``trials``; :attr:`searched` are those of the search.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        budget: Budget,
        num_trials: int,
        device_time: DeviceTime,
        confirm: int = 0,
        seeds: int = 0,
        most_seeds: int = 0,
        has_baseline: bool = True,
    ) -> None:
        """Begin with no trial.

        Args:
            objectives: What trials are ranked by, the most important first.
            budget: The budget of a full trial.
            num_trials: How many trials the search has; a person may change that while it runs.
            device_time: Counts what each device does.
            confirm: How many trials besides the baseline are confirmed.
            seeds: How often each of them is trained again at first; 0 for no confirmation.
            most_seeds: How often if that leaves the verdict open; below ``seeds``: not more often.
            has_baseline: Whether trial 1 is the baseline.
        """
        super().__init__(objectives)
        self.budget, self.num_trials = budget, num_trials
        self._num_trials_uncut = num_trials
        """How many trials the search would have if it were not cut short."""
        self.confirm, self._first_seeds, self._has_baseline = confirm, seeds, has_baseline
        self.most_seeds = max(seeds, most_seeds)
        self.looks = LOOKS if self.most_seeds > seeds else 1
        """How often the sweep looks at what the confirmation says."""
        self.device_time = device_time
        self.open_trials: dict[int, TrialState] = {}
        """The trials that have not ended, few of perhaps ten thousand."""
        self.changed: set[int] = set()
        """Numbers of the trials that have changed. Who writes a snapshot clears it."""
        self.since_best: set[int] = set()
        """The trials of the search that have paused or ended since the front last got a new point. A trial that had
        paused before does not count when it ends."""
        self._outcomes: Counter[events.Status] = Counter()
        self.ended_in_a_row: list[TrialState] = []
        """The trials that have ended in this process, in their order. It is emptied when a trial pauses that got
        further than every failed trial in it: then not all trials fail."""
        self.steered: list[tuple[float, str]] = []
        """What people asked of the sweep while it ran: clock time, and the request in words."""
        self.ending: events.Ending | None = None
        """Why the sweep ends early; None while it does not."""
        self.has_ended = False
        """Whether the sweep has ended, early or not."""

    # What happens.

    def apply(self, event: events.Event) -> None:
        """Take note of what happened."""
        if isinstance(event, events.TrialEvent | events.StopAsked):
            self.changed.add(event.trial)
        match event:
            case events.SweepBegan():
                self.device_time.begin()
            case events.TrialBegan():
                self._begin(event)
            case events.Steered():
                self._steer(event)
            case events.SearchCut():
                self._cut(event)
            case events.SweepEnding():
                self.ending = event.ending
            case events.EndingWithdrawn():
                self.ending = None
            case events.SweepEnded():
                self.has_ended = True
            case events.TrialEvent():
                self._apply_to(self.trials[event.trial], event)

    def _apply_to(self, trial: TrialState, event: events.Event) -> None:
        match event:
            case events.Reported():
                self._report(trial, event)
            case events.Decided():
                self._decide(trial, event.decision)
            case events.CheckpointSaved():
                self._save(trial, event.place)
            case events.TrialRecovered():
                trial.decision = events.Decision("continue")
                self.device_time.leave(trial.number, LOST)
            case events.TrialEnded():
                self._end(trial, event)

    def close(self) -> None:
        """Stop the clocks, and call the running trials interrupted. No event follows but SweepEnded.

        If the search was cut, it has its whole number of trials again, for a resumed sweep.
        """
        self.num_trials = self._num_trials_uncut
        was_awaited = self.ending is not None and not self.ending.at_once  # until all that run had saved
        for trial in list(self.open_trials.values()):  # another thread may close the sweep
            has_saved = bool(trial.checkpoints) and trial.checkpoints[-1].step == trial.step
            self.device_time.leave(trial.number, WAITING if was_awaited and has_saved else LOST)
            if trial.status != "paused":
                trial.status = "interrupted"
        self.device_time.end()

    # The trials.

    @property
    def running(self) -> list[TrialState]:
        """The trials that have a worker group, in the order in which they began."""
        return [trial for trial in self.open_trials.values() if trial.status == "running"]

    @property
    def paused(self) -> list[TrialState]:
        """The trials that a scheduler has paused."""
        return [trial for trial in self.open_trials.values() if trial.status == "paused"]

    @property
    def baseline(self) -> TrialState | None:
        """Trial 1; None before it has begun, or if there is no baseline."""
        return self.trials.get(1) if self._has_baseline else None

    def counts(self) -> Counter[events.Status]:
        """Return how many trials have ended, by outcome, in the order in which one was first seen."""
        return +self._outcomes

    def seconds_each(self, trials: Collection[TrialState] | None = None) -> float | None:
        """Return the seconds that a group needs for an epoch or a step, on average over some trials, or over all; None
        before one has reported."""
        trials = self.trials.values() if trials is None else trials
        steps, seconds_by_trial = sum(trial.step for trial in trials), self.device_time.by_trial
        timed = [seconds_by_trial[trial.number] for trial in trials if trial.number in seconds_by_trial]
        seconds = sum(kinds.get(kind, 0.0) for kinds in timed for kind in STEP_KINDS)
        return seconds / steps if steps else None

    @property
    def to_confirm(self) -> list[TrialState]:
        """The trials to be trained again as the search stands: the baseline, if there is one, then the best others."""
        if not self._first_seeds:
            return []
        ranked = self.ranked([trial for trial in self.searched if trial.can_be_confirmed])
        baseline = [trial for trial in ranked if trial is self.baseline]
        return baseline + [trial for trial in ranked if trial is not self.baseline][: self.confirm]

    @property
    def seeds(self) -> int:
        """How often each of these is trained again as the confirmation stands; 0 for no confirmation."""
        if self.looks == 1 or not self._search_is_over:
            return self._first_seeds
        return self._seeds_of(self.to_confirm)

    def _seeds_of(self, to_confirm: Sequence[TrialState]) -> int:
        """Return the same, once the search is over."""
        first: list[TrialState] = []
        for searched in to_confirm:
            first += [trial for trial in self.trials.values() if trial.confirms == searched.number][: self._first_seeds]
        if len(first) < self._first_seeds * len(to_confirm) or not all(trial.has_ended for trial in first):
            return self._first_seeds
        gain = self.gain(confirmed_scores(first)[1])
        return self.most_seeds if gain is not None and gain.is_open else self._first_seeds

    def gain(self, scores: Mapping[int, Sequence[float]]) -> Gain | None:
        """Return how much the best of the confirmed configurations is better than the baseline; None if one is missing.

        ``scores`` are in the first objective, by the number of the trial whose configuration they confirm.
        """
        sides = {number: [self.objective.score(value) for value in values] for number, values in scores.items()}
        baseline = sides.pop(self.baseline.number, None) if self.baseline is not None else None
        return gain_over(baseline, list(sides.values()), self.looks) if baseline and sides else None

    # The end, and what is to come.

    @property
    def expected(self) -> int:
        """How many trials the sweep has in all, with the confirmation: fewer if too few trials can be confirmed."""
        if not self._search_is_over:
            return self.num_trials + self._first_seeds * (self._has_baseline + self.confirm)
        # Trials that were the best before more were added have been confirmed, too.
        trained = Counter(trial.confirms for trial in self.trials.values() if trial.confirms)
        to_confirm = self.to_confirm  # which ranks all trials
        seeds = self._seeds_of(to_confirm) if self.looks > 1 else self._first_seeds
        due = sum(max(seeds, trained.pop(trial.number, 0)) for trial in to_confirm)
        return self.num_trials + due + trained.total()

    @property
    def confirmations(self) -> int:
        """How many of these trials confirm."""
        return self.expected - self.num_trials

    @property
    def to_begin(self) -> int:
        """How many trials could begin now if there were devices."""
        if self._search_is_over:
            return self.confirmations_to_begin
        return max(0, self.num_trials - len(self.searched))

    @property
    def confirmations_to_begin(self) -> int:
        """How many trials of the confirmation have yet to begin, now or once the search is over."""
        return self.expected - self.num_trials - (len(self.trials) - len(self.searched))

    @property
    def cut(self) -> bool:
        """Whether the search was cut: fewer trials begin than it was to have."""
        return self.num_trials < self._num_trials_uncut

    @property
    def _search_is_over(self) -> bool:
        """Whether all trials of the search have begun and ended."""
        return len(self.searched) >= self.num_trials and all(trial.confirms for trial in self.open_trials.values())

    @property
    def complete(self) -> bool:
        """Whether every trial of the sweep has begun and ended."""
        return len(self.trials) == self.expected and not self.open_trials

    @property
    def failure(self) -> str | None:
        """Why the sweep has failed; None if it has not, or not all trials have ended."""
        if not self.complete:
            return None
        trials = self.trials.values()
        trial = next((trial for trial in trials if trial.reason.strip()), None)
        cause = f" (trial {trial.number}: {last_line(trial.reason)})" if trial else ""
        if not any(trial.curve for trial in trials):
            return f"no trial reported a finite {self.objective.name}{cause}"
        if all(trial.status == "failed" for trial in trials):
            return f"all {counted(len(trials), 'trial')} failed{cause}"
        return self.ending.why if self.ending is not None and self.ending.status == 1 else None

    # Snapshots.

    def snapshot(self, numbers: Set[int] | None = None) -> dict[str, dict[str, Any]]:
        """Return what a resumed sweep must know of itself and of these trials, or of all.

        Returns:
            Parts by name, as plain data, which is not copied.
        """
        sweep = {
            "version": VERSION,
            "since_best": sorted(self.since_best),
            "steered": self.steered,
            TRIALS: {n: trial.snapshot() for n, trial in self.trials.items() if numbers is None or n in numbers},
        }
        return {"sweep": sweep, "device_time": self.device_time.snapshot(numbers)}

    def restore(self, parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over a :meth:`snapshot` of all trials, before the first event.

        Raises:
            ValueError, KeyError, TypeError: It is of another version, or is not a snapshot.
        """
        snapshot = parts["sweep"]
        if snapshot["version"] != VERSION:
            raise ValueError(f"its version is {snapshot['version']}, and this code reads version {VERSION}")
        trials = [TrialState.from_snapshot(trial) for trial in snapshot[TRIALS].values()]
        if [trial.number for trial in trials] != list(snapshot[TRIALS]):
            raise ValueError("the numbers of its trials do not match")
        self.device_time.restore(parts["device_time"])
        self.since_best = set(snapshot["since_best"])
        self.steered = list(snapshot["steered"])
        self.trials = {trial.number: trial for trial in trials}
        self.open_trials = {trial.number: trial for trial in trials if not trial.has_ended}
        self._outcomes = Counter(trial.status for trial in trials if trial.has_ended)
        self.rank_again()

    # Booking.

    def _begin(self, event: events.TrialBegan) -> None:
        trial = self.trials.get(event.trial)
        if trial is None:
            config = dict(event.config)
            trial = TrialState(
                number=event.trial, trial_id=event.trial_id, began_with=config, config=config, best_config=config
            )
            self.trials[event.trial] = trial
        if trial.has_ended:  # it continues after all
            self._outcomes[trial.status] -= 1
            trial.failure = None
        if event.config != trial.config:  # pbt: it takes over another trial's weights, and may make reports again
            trial.reports, trial.to_save = 0, None
        self.open_trials[trial.number] = trial
        trial.trial_id, trial.config, trial.status = event.trial_id, dict(event.config), "running"
        trial.decision, trial.safe_since = events.Decision("continue"), time.monotonic()
        self.device_time.started(trial.number)

    def _report(self, trial: TrialState, event: events.Reported) -> None:
        trial.status = "running"
        trial.step, trial.metrics, trial.config = event.step, dict(event.metrics), dict(event.config)
        trial.last_point = event.point if all(map(math.isfinite, event.point)) else ()
        self.device_time.reported(trial.number, event.metrics, is_repeat=0 < event.count <= trial.reports)
        trial.reports = max(trial.reports, event.count)
        trial.to_save = self._to_save(trial, event)
        trial.skips_saves = trial.skips_saves or event.behind != 0
        if trial.value is None:
            return
        trial.constraints = constraints_of(event.metrics) or trial.constraints
        seconds = event.metrics.get(names.SECOND)
        if not trial.curve and seconds and event.count and not self.budget.seconds:
            trial.seconds_each = seconds / event.count
        # A trial may report several times in an epoch or second; the best report counts.
        trial.curve[event.step] = self.objective.better_of(trial.value, trial.curve.get(event.step))
        if self.note_report(trial, event):
            self.since_best = set()

    def _to_save(self, trial: TrialState, event: events.Reported) -> SavedCheckpoint | None:
        """Return what a checkpoint of the trial would have after this report; None if it has nothing to save."""
        if event.behind is None:
            return None
        point = trial.last_point or (math.nan,) * len(self.objectives)
        if not event.behind:
            return SavedCheckpoint("", event.step, point, trial.config, event.count)
        number = event.count - event.behind
        # After a failure the trial continues from an older checkpoint than it had last.
        for saved in (trial.to_save, *reversed(trial.checkpoints)):
            if saved is not None and saved.report == number and saved.config == trial.config:
                return saved
        return SavedCheckpoint("", event.step, (math.nan,) * len(self.objectives), trial.config, number)  # a clone's

    def _decide(self, trial: TrialState, decision: events.Decision) -> None:
        trial.decision, trial.reason = decision, decision.reason
        if decision.verdict == "pause":
            self._count_since_best(trial)
            trial.status = "paused"
            # Trials may fail at a step that this one has not reached yet.
            failed_steps = [ended.step for ended in self.ended_in_a_row if ended.status == "failed"]
            if trial.step > max(failed_steps, default=0):
                self.ended_in_a_row = []
            self.device_time.paused(trial.number)

    def _save(self, trial: TrialState, place: str) -> None:
        earlier = [saved for saved in trial.checkpoints if saved.place != place]  # it may be written a second time
        assert trial.to_save is not None, "Tune saves a trial after its first report"
        trial.checkpoints = [*earlier, trial.to_save._replace(place=place)]
        trial.safe_since = time.monotonic()
        self.note_saved(trial.to_save)

    def _end(self, trial: TrialState, event: events.TrialEnded) -> None:
        self._count_since_best(trial)
        trial.status, trial.reason, trial.failure = event.outcome, event.reason, event.failure
        self._outcomes[event.outcome] += 1
        self.open_trials.pop(trial.number, None)
        self.device_time.leave(trial.number, LOST if trial.raised else WAITING)
        if trial.raised:
            self.fall_back_to_saved(trial)
        self.ended_in_a_row.append(trial)
        self.note_end(trial)

    def _cut(self, event: events.SearchCut) -> None:
        self.num_trials = event.num_trials
        if isinstance(event, events.SearchExhausted):
            self._num_trials_uncut = event.num_trials

    def _steer(self, event: events.Steered) -> None:
        self.steered.append((event.time, event.request))
        if isinstance(event, events.StopAsked):
            self.trials[event.trial].to_stop = True
        elif isinstance(event, events.TrialsAsked):
            self.num_trials = self._num_trials_uncut = event.num_trials

    def _count_since_best(self, trial: TrialState) -> None:
        """Count a trial that pauses or ends, unless it had paused before."""
        if trial.status == "running" and not trial.confirms:
            self.since_best.add(trial.number)
