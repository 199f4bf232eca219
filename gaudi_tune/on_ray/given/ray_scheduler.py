"""A scheduler of Ray's own behind the sweep's: the object that the user gave, or that of ``--scheduler pbt``,
``hyperband`` or ``median``.

Ray's class for population-based training waits for checkpoints and starts clones in ways private to Tune. A class of
this project would need more of Tune's private names than Ray's does: a save that can be waited for, a pause without a
checkpoint, and a trial's latest checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    TrialScheduler,
)  # fmt: skip
from typing_extensions import override

from gaudi_tune.base import names
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.given.guarded import Guarded
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.private.ray_objects import PBT_STATE, keeps_state, pbt_states, restore, saved, set_goal, time_attribute
from gaudi_tune.private.ray_tune import ForScheduler, training_of
from gaudi_tune.sweep.policies.schedulers.given import GivenScheduler
from gaudi_tune.sweep.policies.schedulers.population import Population
from gaudi_tune.sweep.policies.schedulers.scheduler import CONTINUE, Scheduler
from gaudi_tune.sweep.record.events import Decision, Reported


class RayScheduler(SweepScheduler):
    """Asks a scheduler of Ray's what becomes of the trials of the search, and does it as for the sweep's own.

    With population-based training, the study keeps the configuration that a trial began with, and
    ``pbt_policy_*.txt`` in the sweep's folder has the changes. Ray draws from Python's global generator, so no two runs
    are alike.
    """

    def __init__(
        self, ray_scheduler: TrialScheduler, plan: Plan, policy: Scheduler, *arguments: Any, **named: Any
    ) -> None:
        """Take a scheduler of Ray's. The arguments after the plan are those of :class:`SweepScheduler`."""
        super().__init__(policy, *arguments, **named)
        self.ray, self._budget = ray_scheduler, plan.budget
        self._reason = f"by {plan.options.scheduler.rpartition('.')[2]}"
        set_goal(ray_scheduler, plan.objectives[0].name, plan.objectives[0].mode)
        self._added = set[str]()
        """Tune's ids of the trials that Ray's scheduler knows, also from its state before a resume."""
        self._restored_population: Mapping[str, Mapping[str, Any]] = {}
        self._paused_before: list[Trial] = []  # were paused when the sweep was interrupted, and have not reported since
        self._unpaused = set[int]()
        """Trials that Ray's scheduler has paused, and is to continue."""
        self._guarded = Guarded(type(ray_scheduler).__name__)

    @property
    @override
    def needs_checkpoints(self) -> bool:
        """Whether trials pause as a matter of course, so that they must continue from checkpoints."""
        return self.policy.clones or isinstance(self.ray, HyperBandScheduler)

    @override
    def decide(
        self, tune_controller: Any, trial: Trial, result: dict[str, Any], report: Reported
    ) -> tuple[Decision, str]:
        """Ask Ray's scheduler. One of a population pauses a trial itself to make it a clone, and answers NOOP.

        It would have each trial saved that it compares, so one that has nothing to save yet is compared later.
        """
        self._paused_before = [paused_trial for paused_trial in self._paused_before if paused_trial is not trial]
        if self.policy.clones and report.behind is None:
            return CONTINUE, TrialScheduler.CONTINUE
        counted = {self._budget.axis: report.step, **result}  # the sweep counts where the train loop does not
        answer = self.ray.on_trial_result(ForScheduler(tune_controller, self), trial, counted)
        if answer == TrialScheduler.STOP:
            return Decision("stopped early", self._reason), answer
        if answer != TrialScheduler.PAUSE:
            return CONTINUE, answer
        if report.starts_over and not self.needs_checkpoints:  # it would train its first epochs twice
            return CONTINUE, TrialScheduler.CONTINUE
        self._unpaused.discard(report.trial)
        return Decision("pause", self._reason), answer

    @override
    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Add a trial of the search, which may be of a sweep that was resumed."""
        super().on_trial_add(tune_controller, trial)
        if trial.config.get(names.CONFIRMS):
            return
        if trial.status == Trial.PAUSED:
            self._paused_before.append(trial)
        if trial.trial_id not in self._added and (self.policy.clones or not trial.is_finished()):
            self._added.add(trial.trial_id)
            self.ray.on_trial_add(ForScheduler(tune_controller, self), trial)
        for name, value in self._restored_population.get(trial.trial_id, {}).items():
            setattr(pbt_states(self.ray)[trial], name, value)

    @override
    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """Note that a trial failed, or goes on after a failure. If it goes on, Tune adds it again."""
        super().on_trial_error(tune_controller, trial)
        if trial.trial_id in self._added:
            self._added.remove(trial.trial_id)
            self.ray.on_trial_error(ForScheduler(tune_controller, self), trial)

    @override
    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: Mapping[str, Any]) -> None:
        """Note that a trial has ended."""
        super().on_trial_complete(tune_controller, trial, result)
        if trial.trial_id in self._added:
            counted = {self._budget.axis: self._budget.progress(result), **result}  # as for the reports before
            self.ray.on_trial_complete(ForScheduler(tune_controller, self), trial, counted)

    @override
    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Note that a paused trial has ended."""
        super().on_trial_remove(tune_controller, trial)
        if trial.trial_id in self._added:
            self.ray.on_trial_remove(ForScheduler(tune_controller, self), trial)

    @override
    def _next_paused(self, tune_controller: Any) -> Trial | None:
        """Return a paused trial for which there is a group: one that waits since before a resume, or Ray's choice."""
        if len(training_of(tune_controller)) >= self._groups:
            return None
        next_trial = next((trial for trial in self._paused_before if trial.status == Trial.PAUSED), None)
        if next_trial is None:
            next_trial = self.ray.choose_trial_to_run(ForScheduler(tune_controller, self))
        if next_trial is None or next_trial.status != Trial.PAUSED:  # Tune itself starts a pending one
            return None
        return next_trial

    def on_pause(self, trial_id: str) -> None:
        """Do nothing: HyperBandForBOHB tells the searcher, and this class knows from its answer."""

    def on_unpause(self, trial_id: str) -> None:
        """Note that a trial needs a group again, as HyperBandForBOHB tells the searcher."""
        self._unpaused |= {number for number, trial in self.trials.items() if trial.trial_id == trial_id}

    @override
    def _promoted(self) -> set[int]:
        return self._unpaused

    @override
    def may_be_taken_over(self, trial: Trial, progress: int) -> bool:
        """Whether another trial may still continue from what ``trial``, which has not ended, saved at ``progress``.

        Ray's class has each trial save when it compares it with the others, which may then take over that checkpoint.
        """
        state = pbt_states(self.ray).get(trial) if self.policy.clones else None
        if state is None:
            return False
        counts_alike = time_attribute(self.ray) == self._budget.axis
        return not counts_alike or progress >= state.last_perturbation_time

    @override
    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know: of a population scores and times of all trials, but no checkpoint, so
        that no trial is cloned until it has written one again; of other schedulers what they save of themselves."""
        if isinstance(self.ray, PopulationBasedTraining):
            states = pbt_states(self.ray)
            population = {t.trial_id: {name: getattr(states[t], name) for name in PBT_STATE} for t in states}
            return {"population": population}
        state = self._guarded.call("save", saved, self.ray) if keeps_state(self.ray) else None
        return {"added": sorted(self._added), "saved": state}

    @override
    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned, before the trials are added again."""
        self._restored_population = state.get("population", {})
        if state.get("saved") is not None:
            restore(self.ray, state["saved"])
            self._added = set(state["added"])


def ray_scheduler_of(plan: Plan, policy: Scheduler) -> TrialScheduler | None:
    """Return the scheduler of Ray's that decides in place of a policy; None if the policy does."""
    if isinstance(policy, Population):
        return PopulationBasedTraining(
            time_attr=plan.budget.axis,
            perturbation_interval=plan.budget.exchange_every(),
            custom_explore_fn=policy.explore,
        )
    if not isinstance(policy, GivenScheduler):
        return None
    budget, rungs = plan.budget, plan.budget.rungs()
    grace = rungs[0] if rungs else budget.total
    if plan.options.scheduler == "hyperband":
        return AsyncHyperBandScheduler(
            time_attr=budget.axis, max_t=budget.total, grace_period=grace, reduction_factor=budget.reduction,
            brackets=len(rungs) + 1,  # trials of the last one are compared with no other
        )  # fmt: skip
    if plan.options.scheduler == "median":
        return MedianStoppingRule(time_attr=budget.axis, grace_period=grace)
    scheduler: TrialScheduler | None = plan.objects.scheduler
    return scheduler
