"""What follows from a report of a trial, in the order in which it must happen."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.define.budget import REPORTS
from gaudi_tune.define.objective import point_in
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.group.report import Report
from gaudi_tune.group.warm_trainable import WarmTrainable
from gaudi_tune.on_ray.announcer import Announcer
from gaudi_tune.on_ray.early_end import EarlyEnd
from gaudi_tune.on_ray.given.user_stop import UserStop
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.private.ray_tune import call_trainable
from gaudi_tune.sweep.policies.growth import Growth
from gaudi_tune.sweep.policies.stopping import StoppingRules
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.outcome import why_diverged
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.proposer import Proposer

logger = logging.getLogger(__name__)


class Reports:
    """Takes each report of a trial from Tune's scheduler, and answers what becomes of the trial."""

    def __init__(
        self,
        plan: Plan,
        state: SweepState,
        proposer: Proposer,
        announcer: Announcer,
        early_end: EarlyEnd,
        growth: Growth,
        stopping: StoppingRules,
        user_stop: UserStop,
    ) -> None:
        """Begin without a report."""
        self._plan, self._state, self._proposer, self._announcer = plan, state, proposer, announcer
        self._early_end, self._growth = early_end, growth
        self._stopping, self._user_stop = stopping, user_stop
        self._warned_of_starting_over = self._loop_saves = False
        self._warned_of_new_workers: set[str] = set()

    def handle(self, scheduler: SweepScheduler, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Handle a report, and return what follows from it as Tune's schedulers do."""
        number, report = number_of(trial), Report.in_result(result)
        # The record comes first: all that follows reads it.
        reported = self._as_event(trial, result, report)
        self._state.apply(reported)
        self._explain_new_workers(number, report.new_workers)
        if report.behind is not None:
            self._loop_saves = True
            if report.starts_over:
                self._judge_starting_over(scheduler)
        decision, answer = self._decide(scheduler, tune_controller, trial, result, report, reported)
        decided = events.Decided(trial=number, decision=decision)
        self._state.apply(decided)
        # A loop may save with every third report. Only when a trial ends or pauses is it known that it has not saved.
        if report.starts_over and not self._loop_saves and decision.verdict != "continue":
            self._judge_starting_over(scheduler)
        # The study has the report before the next proposal, which Tune may ask for in this step.
        self._proposer.reported(self._state.trials[number])
        # Devices move only to a trial that continues, and that can continue from a checkpoint.
        if decision.verdict == "continue" and not report.starts_over and self._plan.grows:
            self._grow(scheduler, tune_controller, trial)
        # Rules that end the sweep look at the record with the decision in it: a trial that pauses counts for them.
        self._early_end.ask(self._stopping.after_report(self._state))
        self._early_end.ask(self._user_stop.why_sweep_ends())
        if decision.verdict == "pause":
            self._early_end.ask(self._stopping.after_trial(self._state))
        # Views come last: they are slow, and show nothing that has not happened.
        self._announcer.show(reported)
        self._announcer.show(decided)
        if answer == TrialScheduler.CONTINUE and self._early_end.holds_trials:
            return TrialScheduler.NOOP
        return answer

    def _decide(
        self,
        scheduler: SweepScheduler,
        tune_controller: Any,
        trial: Trial,
        result: dict[str, Any],
        report: Report,
        reported: events.Reported,
    ) -> tuple[events.Decision, str]:
        """Return what follows from a report, and the answer to Tune.

        Divergence counts first, then the budget and the train loop's own end, then a person who stops the trial, then
        the user's ``stop``, and at last the scheduler.
        """
        trial_state = self._state.trials[reported.trial]
        divergence = why_diverged(result, *(objective.name for objective in self._state.objectives))
        if divergence:
            return events.Decision("failed", divergence.text, divergence), TrialScheduler.STOP
        if self._plan.budget.spent(result):
            return events.Decision("finished", f"it has had its {self._plan.budget}"), TrialScheduler.STOP
        if report.ends_itself:
            return events.Decision("finished", "its train loop reported done"), TrialScheduler.STOP
        if trial_state.to_stop:
            return events.BY_HAND, TrialScheduler.STOP
        if reason := self._user_stop.why_trial_ends(trial.trial_id, result):
            return events.Decision("stopped early", reason), TrialScheduler.STOP
        would_lose_clone = self._early_end.holds_trials and scheduler.policy.clones  # the sweep ends
        if trial_state.confirms or would_lose_clone:
            return events.Decision("continue"), TrialScheduler.CONTINUE
        return scheduler.decide(tune_controller, trial, result, reported)

    def _grow(self, scheduler: SweepScheduler, tune_controller: Any, trial: Trial) -> None:
        """Have Tune move a trial to devices that would stay idle, or away from some that other trials wait for."""
        trial_state = self._state.trials[number_of(trial)]
        self._growth.measure(trial_state)
        to_begin = self._proposer.n_proposed < self._state.num_trials and not self._growth.has_grown
        if to_begin or scheduler.pausing():  # trials that are being saved before they pause still have their devices
            return
        place = self._growth.after_report(trial_state, len(scheduler.policy.next_trials(self._state)))
        if place is not None:
            call_trainable(tune_controller, trial, WarmTrainable.move_to.__name__, place)
            self._announcer.tell(events.PlaceChanged(trial=trial_state.number, workers=place.workers))

    def _as_event(self, trial: Trial, result: Mapping[str, Any], report: Report) -> events.Reported:
        return events.Reported(
            trial=number_of(trial),
            step=self._plan.budget.progress(result),
            point=point_in(self._state.objectives, report.metrics),
            metrics={**report.metrics, **report.timing},
            config=trial.config,
            count=int(result.get(REPORTS, 0)),
            starts_over=report.starts_over,
            behind=report.behind,
        )

    def _judge_starting_over(self, scheduler: SweepScheduler) -> None:
        """Warn once, or end a sweep that cannot do without, when a train loop does not begin with its checkpoint."""
        # One that has not saved in this process may have in one that was killed.
        saved_before = not self._loop_saves and any(trial.checkpoints for trial in self._state.trials.values())
        if self._warned_of_starting_over or saved_before:
            return
        self._warned_of_starting_over = True
        if self._loop_saves:
            problem, fix = "the train loop does not ask for its checkpoint", "begin it with get_checkpoint()"
        else:
            problem = "the train loop has saved no checkpoint yet"
            fix = "give its report() save= or checkpoint=, and begin it with get_checkpoint()"
        fix = f"{fix} (docs/own-model.md)"
        if scheduler.needs_checkpoints:
            needs = "continues trials with other hyperparameters" if scheduler.policy.clones else "pauses trials"
            reason = f"--scheduler {self._plan.options.scheduler} {needs}, but {problem}; {fix}, or take another"
            self._early_end.ask(events.Ending(reason, status=1, at_once=True))
            return
        pauses = "weak trials end and do not wait, and " if scheduler.policy.pauses else ""
        model = "" if self._loop_saves else "no model is kept, "
        logger.warning("%s: %s%sa trial that is interrupted begins again. %s", problem, model, pauses, fix.capitalize())

    def _explain_new_workers(self, number: int, reason: str) -> None:
        """Say once for each reason why a trial has begun on new workers."""
        if reason and reason not in self._warned_of_new_workers:
            self._warned_of_new_workers.add(reason)
            logger.warning("trial %03d: %s (docs/what-stays.md)", number, reason)
