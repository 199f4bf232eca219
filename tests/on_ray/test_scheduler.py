"""What Tune is told of a policy's decisions: a stand-in for Tune's controller, no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler, HyperBandForBOHB, MedianStoppingRule, TrialScheduler

from gaudi_tune.define.budget import Budget
from gaudi_tune.define.given_objects import GivenObjects
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.on_ray.given.ray_scheduler import RayScheduler, ray_scheduler_of
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.private.ray_objects import pbt_states
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo
from gaudi_tune.sweep.policies.schedulers.given import GivenScheduler
from gaudi_tune.sweep.policies.schedulers.halving import PromotingHalving
from gaudi_tune.sweep.policies.schedulers.population import Population
from gaudi_tune.sweep.policies.schedulers.scheduler import CONTINUE, Scheduler
from gaudi_tune.sweep.record.events import Decided, Reported, TrialBegan, TrialEnded
from gaudi_tune.sweep.record.sweep_state import SweepState
from tests.helpers.fed_state import Fed

BUDGET = Budget(epochs=27)
SCORE = Objective("score")
SPACE = SearchSpace({"lr": tune.loguniform(1e-4, 1e-1)})


class Controller:
    """What the scheduler calls of Tune, and a sweep with so many groups."""

    def __init__(self, policy: Scheduler, state: SweepState, groups: int = 2, given: Any = None) -> None:
        self.state = state
        objects, options = GivenObjects(scheduler=given), SimpleNamespace(scheduler="given")
        plan: Any = SimpleNamespace(budget=BUDGET, objectives=[SCORE], objects=objects, options=options)
        ray_scheduler = ray_scheduler_of(plan, policy)
        make = SweepScheduler if ray_scheduler is None else partial(RayScheduler, ray_scheduler, plan)
        self.scheduler = make(policy, state, groups, reported=lambda *_: TrialScheduler.CONTINUE)
        self.trials: dict[int, Trial] = {}

    def get_trials(self) -> list[Trial]:
        return list(self.trials.values())

    def get_live_trials(self) -> set[Trial]:
        return {trial for trial in self.trials.values() if not trial.is_finished()}

    @property
    def _running_trials(self) -> set[Trial]:
        return {trial for trial in self.trials.values() if trial.status == Trial.RUNNING}

    @property
    def _pending_trials(self) -> set[Trial]:
        return {trial for trial in self.trials.values() if trial.status == Trial.PENDING}

    def stop_trial(self, trial: Trial) -> None:
        trial.status = Trial.TERMINATED
        self.scheduler.on_trial_remove(self, trial)
        self.state.apply(TrialEnded(trial=int(trial.trial_id), outcome="stopped early", reason=""))

    def _mark_trial_to_checkpoint(self, trial: Trial) -> None:
        pass

    def add(self, number: int, status: str = Trial.PENDING, **config: Any) -> Trial:
        """Add a trial, which Tune starts by itself where it is to run."""
        trial = Trial("trainable", trial_id=str(number), experiment_tag=f"{number}_", stub=True, config=config)
        self.trials[number] = trial
        self.scheduler.on_trial_add(self, trial)
        if status == Trial.RUNNING:
            self.run(number)
        return trial

    def run(self, number: int) -> None:
        self.trials[number].status = Trial.RUNNING
        self.state.apply(TrialBegan(trial=number, trial_id=str(number), config=self.trials[number].config))

    def report(self, number: int, epoch: int, score: float) -> str:
        """Have a trial report that runs or is yet to be added, and do what is answered."""
        if number not in self.trials:
            self.add(number, Trial.RUNNING)
        metrics = {"epoch": epoch, "score": score, "training_iteration": epoch}
        report = Reported(trial=number, step=epoch, point=(score,), metrics=metrics, config={}, count=epoch)
        self.state.apply(report)
        decision, answer = self.scheduler.decide(self, self.trials[number], metrics, report)
        self.state.apply(Decided(trial=number, decision=decision))
        statuses = {"CONTINUE": Trial.RUNNING, "PAUSE": Trial.PAUSED, "STOP": Trial.TERMINATED}
        self.trials[number].status = statuses[answer]
        return answer

    def chosen(self) -> int | None:
        """Start the trial that the scheduler names, and return its number."""
        trial = self.scheduler.choose_trial_to_run(self)
        if trial is None:
            return None
        self.run(int(trial.trial_id))
        return int(trial.trial_id)


def promoting(trials: int = 1000, groups: int = 2) -> Controller:
    return Controller(PromotingHalving(BUDGET, [SCORE], SPACE), Fed(epochs=27, trials=trials).state, groups)


def reported(sweep: Controller, scores: Sequence[float]) -> list[str]:
    return [sweep.report(number, 1, score) for number, score in enumerate(scores, start=1)]


def test_it_counts_the_trials_that_wait_and_need_no_group() -> None:
    sweep = promoting()
    assert reported(sweep, (5.0, 4.0)) == ["PAUSE", "PAUSE"]
    assert sweep.scheduler.count_waiting() == 2
    sweep.trials[2].status = Trial.RUNNING
    assert sweep.scheduler.pausing() == {2}
    assert sweep.scheduler.count_waiting() == 1, "the other has its group until it is saved"
    sweep.trials[2].status = Trial.PAUSED
    assert sweep.report(3, 1, 3.0) == "PAUSE"
    assert sweep.scheduler.count_waiting() == 2, "the best of three is to continue"
    sweep.trials[2].status = Trial.PENDING  # it failed, and is retried
    sweep.scheduler.on_trial_error(sweep, sweep.trials[2])
    assert sweep.scheduler.count_waiting() == 1


def test_a_promoted_trial_waits_for_a_group_and_goes_before_a_new_one() -> None:
    sweep = promoting(groups=2)
    reported(sweep, (5.0, 4.0, 3.0))
    sweep.add(4, Trial.RUNNING)
    sweep.add(5, Trial.RUNNING)
    assert sweep.chosen() is None  # both groups are busy
    sweep.trials[4].status = Trial.TERMINATED
    sweep.add(6)
    sweep.trials[5].status = Trial.TERMINATED
    assert [sweep.chosen(), sweep.chosen()] == [1, None]  # a new one Tune starts itself


def test_a_promoted_trial_that_is_still_being_saved_is_not_started() -> None:
    sweep = promoting(trials=4)
    reported(sweep, (5.0, 4.0, 3.0, 2.0))
    sweep.trials[1].status = Trial.RUNNING
    assert [sweep.chosen(), sweep.chosen()] == [2, None]


def test_trials_that_wait_in_vain_end_once_no_other_trains() -> None:
    sweep = promoting(trials=3, groups=2)
    reported(sweep, (5.0, 4.0, 3.0))
    assert sweep.chosen() == 1
    assert sweep.report(1, 3, 6.0) == "CONTINUE"
    assert sweep.chosen() is None
    assert {sweep.trials[number].status for number in (2, 3)} == {Trial.PAUSED}
    sweep.trials[1].status = Trial.TERMINATED
    sweep.scheduler.on_trial_complete(sweep, sweep.trials[1], {})
    sweep.add(4, Trial.RUNNING, confirms=1)
    assert sweep.chosen() is None
    assert {sweep.trials[number].status for number in (2, 3)} == {Trial.TERMINATED}


def test_none_ends_while_a_promoted_one_waits_for_a_group_that_confirms() -> None:
    sweep = promoting(trials=3, groups=1)
    reported(sweep, (5.0, 4.0, 3.0))
    confirms = sweep.add(4, Trial.RUNNING, confirms=1)
    assert sweep.chosen() is None
    assert {sweep.trials[number].status for number in (1, 2, 3)} == {Trial.PAUSED}
    confirms.status = Trial.TERMINATED
    assert sweep.chosen() == 1


def test_a_trial_that_was_paused_stays_so_when_the_sweep_is_resumed() -> None:
    sweep, resumed = promoting(), promoting()
    reported(sweep, (5.0, 4.0, 3.0))
    resumed.state.restore(sweep.state.snapshot())
    resumed.scheduler.set_state(sweep.scheduler.get_state())
    # Tune adds the unfinished trials again as pending, and would start all of them, groups or not.
    assert [resumed.add(number).status for number in (1, 2, 3, 4)] == [Trial.PAUSED] * 3 + [Trial.PENDING]
    assert resumed.chosen() == 1


@pytest.mark.parametrize("kind", [Fifo, PromotingHalving, Population])
def test_no_pending_trial_is_named_for_its_actor_may_just_be_starting(kind: type[Scheduler]) -> None:
    sweep = Controller(kind(BUDGET, [SCORE], SPACE), Fed(epochs=27).state)
    sweep.add(1)
    assert sweep.chosen() is None


def population() -> tuple[Controller, RayScheduler]:
    sweep = Controller(Population(BUDGET, [SCORE], SPACE), Fed(epochs=27).state)
    assert isinstance(sweep.scheduler, RayScheduler)
    return sweep, sweep.scheduler


def test_checkpoints_since_the_last_comparison_of_a_population_may_be_taken_over() -> None:
    sweep, scheduler = population()
    trial = sweep.add(1)
    pbt_states(scheduler.ray)[trial].last_perturbation_time = 6
    assert [scheduler.may_be_taken_over(trial, progress) for progress in (5, 6, 7)] == [False, True, True]
    unknown = Trial("trainable", trial_id="2", experiment_tag="2_", stub=True)
    assert not scheduler.may_be_taken_over(unknown, 7)
    assert not promoting().scheduler.may_be_taken_over(trial, 7)


def test_a_population_knows_its_scores_after_a_resume() -> None:
    (sweep, before), (resumed, after) = population(), population()
    for number, score in ((1, 0.9), (2, 0.1)):
        trial = sweep.add(number)
        result = {"epoch": 9, "training_iteration": 9, "score": score}
        before.ray._save_trial_state(pbt_states(before.ray)[trial], 9, result, trial)
    after.set_state(before.get_state())
    trials = [resumed.add(number) for number in (1, 2)]
    assert after.ray._quantiles() == ([trials[1]], [trials[0]])


def of_ray(scheduler: TrialScheduler, groups: int = 2) -> tuple[Controller, RayScheduler]:
    sweep = Controller(GivenScheduler(BUDGET, [SCORE], SPACE), Fed(epochs=27).state, groups, scheduler)
    assert isinstance(sweep.scheduler, RayScheduler)
    return sweep, sweep.scheduler


def test_the_saved_state_of_a_ray_scheduler_decides_after_a_resume() -> None:
    (sweep, before), (resumed, after) = (
        of_ray(ASHAScheduler(time_attr="epoch", max_t=27, grace_period=1, reduction_factor=3)) for _ in range(2)
    )
    assert reported(sweep, (9.0, 8.0, 1.0)) == ["CONTINUE", "STOP", "STOP"]
    resumed.state.restore(sweep.state.snapshot())
    after.set_state(before.get_state())
    resumed.add(1, Trial.RUNNING)
    assert resumed.report(4, 1, 5.0) == "STOP", "it knows the scores of before"
    fresh, _ = of_ray(ASHAScheduler(time_attr="epoch", max_t=27, grace_period=1, reduction_factor=3))
    assert fresh.report(4, 1, 5.0) == "CONTINUE"


def test_a_bracket_of_ray_pauses_halves_and_ends_and_it_is_known_who_waits() -> None:
    sweep, scheduler = of_ray(HyperBandForBOHB(time_attr="epoch", max_t=3, reduction_factor=3))
    assert reported(sweep, (1.0, 3.0)) == ["PAUSE", "PAUSE"]
    assert scheduler.count_waiting() == 2
    assert sweep.report(3, 1, 2.0) == "STOP"  # the bracket of three is full
    assert sweep.trials[1].status == Trial.TERMINATED
    assert scheduler.count_waiting() == 0, "the best needs a group"
    assert [sweep.chosen(), sweep.chosen()] == [2, None]


def test_after_a_resume_a_trial_that_had_paused_continues_whatever_its_scheduler_remembers() -> None:
    (sweep, before), (resumed, after) = (
        of_ray(HyperBandForBOHB(time_attr="epoch", max_t=27, reduction_factor=3), groups=1) for _ in range(2)
    )
    reported(sweep, (1.0, 3.0))
    resumed.state.restore(sweep.state.snapshot())
    after.set_state(before.get_state())
    assert [resumed.add(number).status for number in (1, 2)] == [Trial.PAUSED] * 2
    assert after.count_waiting() == 2
    assert [resumed.chosen(), resumed.chosen()] == [1, None], "one group, one trial"
    assert resumed.report(1, 2, 1.5) == "PAUSE"
    assert resumed.chosen() == 2, "once it has paused again, Ray's scheduler says when it continues"


def test_a_trial_that_would_begin_again_is_not_paused_by_a_median() -> None:
    sweep, scheduler = of_ray(
        MedianStoppingRule(time_attr="epoch", grace_period=0, min_samples_required=1, hard_stop=False)
    )
    for epoch in (1, 2):
        sweep.report(1, epoch, 9.0)
    report = Reported(trial=2, step=1, point=(0.0,), metrics={}, config={}, starts_over=True)
    trial = sweep.add(2, Trial.RUNNING)
    assert scheduler.decide(sweep, trial, {"epoch": 1, "score": 0.0}, report) == (CONTINUE, "CONTINUE")
    assert scheduler.count_waiting() == 0
