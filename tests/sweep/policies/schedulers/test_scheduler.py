"""Schedulers asked by hand, about a record that is fed by hand."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import optuna
import pytest
from optuna.distributions import FloatDistribution
from ray import tune

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective, point_in
from gaudi_tune.define.options import SchedulerName
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.sweep.policies.schedulers.factory import SCHEDULERS
from gaudi_tune.sweep.policies.schedulers.halving import Hyperband, PromotingHalving, Rung, SuccessiveHalving
from gaudi_tune.sweep.policies.schedulers.median import MedianRule
from gaudi_tune.sweep.policies.schedulers.population import Population
from gaudi_tune.sweep.policies.schedulers.scheduler import Scheduler
from gaudi_tune.sweep.record.device_time import DeviceTime
from gaudi_tune.sweep.record.events import Decided, Reported, TrialBegan, TrialEnded, Verdict
from gaudi_tune.sweep.record.sweep_state import SweepState

CONTINUE: Verdict = "continue"
PAUSE: Verdict = "pause"
STOP: Verdict = "stopped early"
EPOCHS = Budget(epochs=27)
SCORE = Objective("score")
SPACE = SearchSpace({"lr": tune.loguniform(1e-4, 1e-1), "optimizer": tune.choice(["sgd", "adamw"])})


class Sweep:
    """A record, and a scheduler that is asked as a sweep asks it. Trials have names here, and numbers there."""

    def __init__(
        self,
        kind: type[Scheduler],
        objectives: Sequence[Objective] = (SCORE,),
        *,
        trials: int = 1000,
        budget: Budget = EPOCHS,
        space: SearchSpace = SPACE,
    ) -> None:
        self.budget, self.numbers = budget, dict[str, int]()
        self.scheduler = kind(budget, objectives, space)
        device_time = DeviceTime(Devices(DEVICE_TYPES["cpu"], (2,), "for a test"))
        self.state = SweepState(objectives, budget, trials, device_time)

    def add(self, name: str, *, begins: bool = True) -> int:
        """Add a trial, which begins at once or has yet to begin."""
        number = self.numbers.setdefault(name, len(self.numbers) + 1)
        self.scheduler.trial_added(number)
        if begins:
            self.begin(name)
        return number

    def begin(self, name: str) -> None:
        """Give a trial a group, for the first time or after a pause."""
        number = self.numbers[name]
        self.state.apply(TrialBegan(trial=number, trial_id=name, config={"lr": 0.1}))

    def report(self, name: str, epoch: int, score: float, *, starts_over: bool = False, **metrics: Any) -> Verdict:
        """Report, and return what follows."""
        return self.tell(name, {"epoch": epoch, "score": score, **metrics}, starts_over=starts_over)

    def tell(self, name: str, result: Mapping[str, Any], *, starts_over: bool = False, count: int = 0) -> Verdict:
        if name not in self.numbers:
            self.add(name)
        number = self.numbers[name]
        report = Reported(
            trial=number,
            step=self.budget.progress(result),
            point=point_in(self.state.objectives, result),
            metrics=result,
            config={"lr": 0.1},
            count=count,
            starts_over=starts_over,
        )
        self.state.apply(report)
        decision = self.scheduler.decide(self.state, self.state.trials[number], report)
        self.scheduler.next_trials(self.state)
        self.state.apply(Decided(trial=number, decision=decision))
        return decision.verdict

    def reason(self, name: str) -> str:
        return self.state.trials[self.numbers[name]].reason

    def end(self, name: str) -> None:
        self.scheduler.trial_ended(self.numbers[name])
        self.state.apply(TrialEnded(trial=self.numbers[name], outcome="finished", reason=""))

    def fail(self, name: str) -> None:
        """Have a trial lose its group; it may be retried."""
        self.scheduler.trial_failed(self.numbers[name])

    def next_trials(self) -> list[str]:
        return self._names(self.scheduler.next_trials(self.state))

    def trials_to_end(self) -> list[str]:
        return self._names(self.scheduler.trials_to_end(self.state))

    def go_on(self) -> str:
        """Give a group to the first of the trials that are to continue."""
        name = self.next_trials()[0]
        self.begin(name)
        return name

    def held(self) -> dict[str, int]:
        """The trials that wait, and the rungs at which they do."""
        held = self.scheduler.get_state()["_held"]
        return dict(zip(self._names(held), held.values(), strict=True))

    def scores(self) -> list[dict[int, dict[str, float]]]:
        """The scores of halving without what breaks ties."""
        brackets = self.scheduler.get_state()["_scores"]
        return [
            {rung: {self._names([n])[0]: s[0] for n, s in scores.items()} for rung, scores in rungs.items()}
            for rungs in brackets
        ]

    def after_a_resume(self) -> Sweep:
        """The sweep, resumed from what is kept of it."""
        resumed = Sweep(type(self.scheduler), self.state.objectives, trials=self.state.num_trials, budget=self.budget)
        resumed.numbers = dict(self.numbers)
        parts = pickle.loads(pickle.dumps({**self.state.snapshot(), "scheduler": self.scheduler.get_state()}))
        resumed.state.restore(parts)
        resumed.scheduler.set_state(parts["scheduler"])
        return resumed

    def _names(self, numbers: Sequence[int] | Mapping[int, Any]) -> list[str]:
        names = {number: name for name, number in self.numbers.items()}
        return [names[number] for number in numbers]


def asha(objectives: Sequence[Objective] = (SCORE,)) -> Sweep:
    return Sweep(SuccessiveHalving, objectives)


def promoting(trials: int = 1000, objectives: Sequence[Objective] = (SCORE,)) -> Sweep:
    return Sweep(PromotingHalving, objectives, trials=trials)


def test_with_a_budget_in_seconds_trials_are_compared_by_time_and_end_by_either() -> None:
    budget = Budget(epochs=9, seconds=90)  # rungs at 10 and 30
    sweep = Sweep(SuccessiveHalving, budget=budget)

    def report(name: str, number: int, second: float, score: float) -> str:
        result = {"epoch": number, names.SECOND: second, "score": score, "training_iteration": number}
        return sweep.tell(name, result, count=number)

    assert [report("quick", n, 4.0 * n, 0.5 + n / 100) for n in range(1, 4)] == [CONTINUE] * 3
    assert report("slow", 1, 29.9, 0.52) == STOP, "its first report lies beyond the first rung, where 0.53 is better"
    assert sweep.reason("slow") == "not among the best third of 2 at second 10"
    assert report("late", 1, 31.0, 0.1) == CONTINUE, "the first at the second rung"
    assert not budget.spent({"epoch": 8, names.SECOND: 89.9})
    assert budget.spent({"epoch": 9, names.SECOND: 12.0}) and budget.spent({"epoch": 2, names.SECOND: 90.0})
    assert str(budget) == "90 seconds or 9 epochs"


def test_asha_keeps_the_best_third_at_each_rung() -> None:
    sweep = asha()
    decisions = [sweep.report(name, 1, score) for name, score in zip("abcdefg", (5, 4, 6, 5, 1, 7, 6), strict=True)]
    # b is beaten by a, c by none, d by c alone of four, e by all, f by none, g by f alone (c ties).
    assert decisions == [CONTINUE, STOP, CONTINUE, CONTINUE, STOP, CONTINUE, CONTINUE]
    assert sweep.report("a", 2, 0) == CONTINUE  # between rungs nothing is compared
    assert sweep.report("a", 3, 1) == CONTINUE  # the first at its rung
    assert [sweep.report("c", 2, 9), sweep.report("c", 3, 0)] == [CONTINUE, STOP]


TWO = [SCORE, Objective("seconds", "min")]
BOTH = {"a": (5, 5), "b": (1, 1), "c": (4, 6), "d": (6, 4), "e": (3, 3), "f": (2, 1), "g": (5.5, 5.2)}
"""Score and seconds: d, f and e are the front, then g, b and a, then c."""


def test_asha_keeps_the_best_third_by_several_objectives() -> None:
    sweep = asha(TWO)
    decisions = {name: sweep.report(name, 1, score, seconds=seconds) for name, (score, seconds) in BOTH.items()}
    # b is on a front with a, which has the better score; e with d and b, which are far from each other; g is fourth.
    assert decisions == {"a": CONTINUE, "b": STOP, "c": STOP, "d": CONTINUE, "e": STOP, "f": CONTINUE, "g": STOP}
    assert sweep.report("a", 2, 1.0, seconds=math.nan) == STOP
    assert sweep.report("d", 2, 1.0) == STOP, "one of the objectives is missing"


def test_by_several_objectives_trials_that_wait_go_on_from_both_ends_of_the_front() -> None:
    sweep = promoting(7, TWO)
    for name, (score, seconds) in BOTH.items():
        sweep.report(name, 1, score, seconds=seconds)
    resumed = sweep.after_a_resume()
    assert isinstance(resumed.scheduler, PromotingHalving)
    rung = resumed.scheduler._rungs[0][1]
    assert rung.ranked == [sweep.numbers[name] for name in "dfegbac"]
    assert [rung.count_better(sweep.numbers[name]) for name in "dc"] == [0, 6]
    assert resumed.next_trials() == ["a", "e"]  # d and f went on at once
    assert resumed.held() == {"b": 1, "c": 1, "g": 1}


def test_equal_scores_are_told_apart_by_the_validation_loss() -> None:
    sweep = asha()
    for name, loss in zip("abc", (0.5, 0.4, 0.3), strict=True):
        assert sweep.report(name, 1, 0.9, val_loss=loss) == CONTINUE
    assert sweep.report("d", 1, 0.9, val_loss=0.6) == STOP


@pytest.mark.parametrize("loss", [None, "n/a"])
def test_a_validation_loss_that_is_no_number_tells_nothing_apart(loss: Any) -> None:
    sweep = asha()
    assert sweep.report("a", 1, 5, val_loss=loss) == CONTINUE
    assert sweep.report("b", 1, 4, val_loss=0.1) == STOP


def test_one_in_so_many_goes_on() -> None:
    sweep = Sweep(SuccessiveHalving, budget=Budget(epochs=32, grace=4, reduction=2))
    assert sweep.report("a", 2, 1.0) == sweep.report("b", 2, 0.0) == CONTINUE  # no rung there
    assert [sweep.report(name, 4, score) for name, score in (("a", 3.0), ("b", 2.0), ("c", 2.5))] == [
        CONTINUE, STOP, CONTINUE,
    ]  # fmt: skip
    assert sweep.reason("b") == "not among the best half of 2 at epoch 4"


def test_less_is_better_where_the_mode_says_so() -> None:
    sweep = asha([Objective("score", "min")])
    assert [sweep.report("a", 1, 1.0), sweep.report("b", 1, 2.0), sweep.report("c", 1, 0.5)] == [
        CONTINUE,
        STOP,
        CONTINUE,
    ]


def test_steps_count_where_the_budget_is_in_steps() -> None:
    sweep = Sweep(SuccessiveHalving, budget=Budget(steps=1000, eval_every=100))
    for name, score, verdict in (("a", 2.0, CONTINUE), ("b", 1.0, STOP)):
        assert sweep.tell(name, {"step": 100, "epoch": 9.5, "score": score}) == verdict


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["asha", "asha-promote", "hyperband", "median"])
def test_a_value_that_is_not_finite_never_goes_on_and_is_not_compared(name: SchedulerName, value: float) -> None:
    sweep = Sweep(SCHEDULERS[name])
    assert sweep.report("a", 1, value) == STOP
    assert "inf" not in str(sweep.scheduler.get_state()) and "nan" not in str(sweep.scheduler.get_state())


def test_a_trial_first_seen_late_fills_no_earlier_rung() -> None:
    sweep = asha()
    assert sweep.report("resumed", 10, 100.0) == CONTINUE
    assert sweep.report("new", 1, 0.1) == CONTINUE  # held against nobody
    assert sweep.scores() == [{1: {"new": 0.1}, 3: {}, 9: {}}]


def test_a_rung_is_filled_once_whatever_is_reported_again() -> None:
    sweep = asha()
    for epoch, score in ((1, 5.0), (2, 6.0), (3, 7.0)):
        sweep.report("a", epoch, score)
    for epoch in (1, 2, 3, 4):  # trains again from its last checkpoint
        assert sweep.report("a", epoch, 9.0) == CONTINUE
    sweep.report("b", 1, 7.0)
    assert sweep.scores()[0] == {1: {"a": 5.0, "b": 7.0}, 3: {"a": 7.0}, 9: {}}


def test_a_loop_that_reports_seldom_is_compared_at_the_rungs_it_passes() -> None:
    sweep = asha()
    for epoch in (2, 4, 6, 8, 10):
        sweep.report("a", epoch, float(epoch))
    assert sweep.scores() == [{1: {}, 3: {"a": 4.0}, 9: {"a": 10.0}}]


def test_promotion_pauses_until_a_trial_is_in_the_best_third() -> None:
    sweep = promoting()
    assert [sweep.report("a", 1, 5.0), sweep.report("b", 1, 4.0)] == [PAUSE, PAUSE]
    assert sweep.next_trials() == []  # two have come: nobody is in the best third
    assert sweep.report("c", 1, 3.0) == PAUSE
    assert sweep.next_trials() == ["a"]
    assert sweep.go_on() == "a"
    assert sweep.next_trials() == []
    assert sweep.report("a", 2, 9.0) == CONTINUE
    assert sweep.report("d", 1, 8.0) == CONTINUE  # the best of four goes on at once
    assert sweep.held() == {"b": 1, "c": 1}


def test_the_last_trials_are_promoted_by_rounding_up_and_the_rest_is_left_over() -> None:
    sweep = promoting(trials=4)
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0), ("d", 2.0)):
        sweep.report(name, 1, score)
    assert sweep.next_trials() == ["a", "b"]  # a third of four, rounded up
    assert sweep.trials_to_end() == []
    assert [sweep.go_on(), sweep.go_on()] == ["a", "b"]
    assert sweep.report("a", 3, 6.0) == CONTINUE  # the first at its rung, of which one at least goes on
    assert sweep.report("b", 3, 5.0) == PAUSE
    assert sweep.next_trials() == []
    assert sweep.trials_to_end() == ["c", "d", "b"]
    sweep.end("c")
    assert sweep.trials_to_end() == ["d", "b"]


def test_none_is_left_over_before_the_last_trial_was_added_or_once_more_are_asked_for() -> None:
    sweep = promoting(trials=3)
    for name, score in (("a", 5.0), ("b", 4.0)):
        sweep.report(name, 1, score)
    assert (sweep.next_trials(), sweep.trials_to_end()) == ([], [])
    sweep.add("c", begins=False)
    assert sweep.next_trials() == ["a"]  # a third of two, rounded up, for all trials are there
    sweep.begin("a")
    sweep.end("a")
    assert sweep.trials_to_end() == ["b"]
    sweep.state.num_trials = 6
    assert sweep.trials_to_end() == []


def test_a_rung_keeps_the_order_that_sorting_it_again_would_give() -> None:
    drawn, rung = random.Random(0), Rung({})
    scores: dict[int, tuple[float, float]] = {}
    for number in range(400):
        name = drawn.randrange(number + 1)  # some come again, with another score
        score = (float(drawn.randrange(9)), -float(drawn.randrange(3)))
        better = sum(other > score for other in scores.values()) - (scores.get(name, score) > score)
        scores[name] = score
        rung.add(name, score)
        ranked = sorted(scores, key=lambda name: scores[name], reverse=True)
        assert rung.count_better(name) == better
        assert rung.ranked == ranked
    assert Rung(dict(scores)).ranked == ranked


def test_trials_of_higher_rungs_go_on_first() -> None:
    sweep = promoting(trials=6)
    for name, score in (("e", 5.0), ("d", 4.0), ("c", 3.0), ("b", 2.0), ("a", 1.0)):
        sweep.report(name, 1, score)
    assert sweep.go_on() == "e"  # the one best of five
    assert sweep.report("e", 3, 5.0) == PAUSE
    sweep.report("f", 1, 0.0)  # the last: thirds are rounded up from now on, at both rungs
    assert sweep.next_trials() == ["e", "d"]


def test_a_trial_that_cannot_be_continued_ends_by_the_rule_of_stopping() -> None:
    sweep, stopping = promoting(), asha()
    for index, score in enumerate((5.0, 4.0, 6.0, 5.0, 1.0)):
        assert sweep.report(f"t{index}", 1, score, starts_over=True) == stopping.report(f"t{index}", 1, score)


def test_a_sweep_with_a_paused_trial_that_fails_goes_on() -> None:
    sweep = promoting()
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0)):
        sweep.report(name, 1, score)
    sweep.fail("a")
    assert sweep.next_trials() == []


@pytest.mark.parametrize("pausing", [False, True])
def test_rungs_survive_a_snapshot(pausing: bool) -> None:
    sweep = promoting() if pausing else asha()
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0)):
        sweep.report(name, 1, score)
    sweep.next_trials()
    resumed = sweep.after_a_resume()
    assert resumed.scheduler.get_state() == sweep.scheduler.get_state()
    for name in "abc":
        resumed.add(name, begins=False)
    assert resumed.next_trials() == (["a"] if pausing else [])  # promoted before the snapshot
    assert resumed.report("d", 1, 4.5) == (PAUSE if pausing else CONTINUE)
    assert resumed.report("e", 1, 4.2) == (PAUSE if pausing else STOP)


def test_hyperband_begins_at_every_rung_in_its_shares() -> None:
    shares = Hyperband.bracket_shares(EPOCHS)
    assert shares == pytest.approx([27 / 4 / 13.25, 9 / 3 / 13.25, 3 / 2 / 13.25, 1 / 1 / 13.25], rel=0.1)
    sweep = Sweep(Hyperband)
    verdicts = [sweep.report(f"t{index}", 1, float(-index)) for index in range(100)]
    brackets = list(sweep.scheduler.get_state()["_bracket"].values())
    assert [brackets.count(bracket) for bracket in range(4)] == pytest.approx([100 * share for share in shares], abs=1)
    assert verdicts.count(CONTINUE) == 100 - brackets.count(0) + 1  # of bracket 0 the first alone


def held_against(**completed: Mapping[int, float]) -> Sweep:
    """The median rule, with these trials completed."""
    sweep = Sweep(MedianRule)
    for name, curve in completed.items():
        for epoch, score in curve.items():
            sweep.report(name, epoch, score)
    for name in completed:
        sweep.end(name)
    return sweep


def test_the_median_rule_needs_three_completed_trials_and_compares_with_their_means() -> None:
    sweep = Sweep(MedianRule)
    for name, score in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 0.0)):
        assert sweep.report(name, 1, score) == CONTINUE
    assert sweep.report("low", 1, 1.9) == CONTINUE  # the others still train
    for name in "abc":
        sweep.end(name)
    assert sweep.report("low", 1, 1.9) == STOP
    assert sweep.reason("low") == "worse than the median of 3 others at epoch 1"
    assert sweep.report("high", 1, 2.1) == CONTINUE
    assert sweep.after_a_resume().report("low again", 1, 1.8) == STOP


def test_the_median_rule_prefers_less_where_the_mode_says_so_and_leaves_out_trials_that_raised_an_error() -> None:
    sweep = Sweep(MedianRule, [Objective("score", "min")])
    for name, score in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        sweep.report(name, 1, score)
        sweep.end(name)
    sweep.report("raised", 1, 0.1)
    sweep.state.apply(
        TrialEnded(trial=4, outcome="failed", reason="an error", failure=Failure(FailureKind.LOOP_ERROR, "an error"))
    )
    assert sweep.report("high", 1, 2.1) == STOP
    assert sweep.report("low", 1, 1.9) == CONTINUE


def test_the_median_rule_stops_none_within_the_grace() -> None:
    sweep = Sweep(MedianRule, budget=Budget(epochs=27, grace=3))
    for name in "abc":
        for epoch in (1, 2, 3):
            sweep.report(name, epoch, 5.0)
        sweep.end(name)
    assert [sweep.report("d", epoch, 1.0) for epoch in (1, 2, 3)] == [CONTINUE, CONTINUE, STOP]


def test_the_median_rule_looks_at_those_that_got_as_far() -> None:
    sweep = held_against(a={1: 5.0}, b={1: 5.0}, c={1: 5.0})
    assert sweep.report("d", 2, 1.0) == CONTINUE  # nobody else has got there


def test_the_median_rule_takes_the_best_of_a_trial_and_the_others_only_until_then() -> None:
    sweep = Sweep(MedianRule)
    sweep.report("once good", 1, 3.5)
    sweep.report("never good", 1, 2.5)
    for name in "abc":
        for epoch, score in ((1, 2.0), (2, 4.0), (3, 100.0)):
            sweep.report(name, epoch, score)
    for name in "abc":
        sweep.end(name)
    assert sweep.report("once good", 2, 0.0) == CONTINUE  # 3.5 against a mean of 3
    assert sweep.report("never good", 2, 2.9) == STOP


def test_every_name_has_a_scheduler() -> None:
    assert set(SCHEDULERS) == set(get_args(SchedulerName))


def test_a_weak_trial_ends_as_the_schedulers_name_says() -> None:
    names: tuple[SchedulerName, ...] = ("asha", "asha-promote", "hyperband", "fifo")
    sweeps = {name: Sweep(SCHEDULERS[name], trials=8) for name in names}
    for sweep in sweeps.values():
        sweep.report("strong", 1, 5.0)
    weak = {name: sweep.report("weak", 1, 1.0) for name, sweep in sweeps.items()}
    # With hyperband it is alone in its bracket.
    assert weak == {"asha": STOP, "asha-promote": PAUSE, "hyperband": CONTINUE, "fifo": CONTINUE}


@pytest.fixture
def seeded() -> None:
    """pbt draws from Python's global generator: of 50 clones, one time in 80 none has some value that it may have."""
    random.seed(0)


def population_in(space: Any) -> Population:
    return Population(EPOCHS, [SCORE], SearchSpace(space))


@pytest.mark.usefixtures("seeded")
def test_pbt_changes_continuous_hyperparameters_and_keeps_them_inside_their_ranges() -> None:
    space = {"lr": tune.loguniform(1e-4, 1e-1), "dropout": tune.uniform(0, 0.3), "optimizer": tune.choice(["sgd"])}
    population = population_in(space)
    config = {"lr": 1e-1, "dropout": 0.3, "optimizer": "sgd", "seed": 4}
    found = [population.explore(config) for _ in range(50)]
    assert all(1e-4 <= c["lr"] <= 1e-1 and 0 <= c["dropout"] <= 0.3 for c in found)
    assert len({c["lr"] for c in found}) > 2
    assert {c["optimizer"] for c in found} == {"sgd"}


@pytest.mark.usefixtures("seeded")
def test_pbt_moves_along_the_steps_of_a_range() -> None:
    population = population_in({"dropout": FloatDistribution(0.0, 0.3, step=0.1)})
    config = {"dropout": 0.3, "seed": 4}
    found = [population.explore(config)["dropout"] for _ in range(50)]
    assert set(found) <= {0.0, 0.1, 0.2, 0.3}
    assert {0.2, 0.3} < set(found)


@pytest.mark.usefixtures("seeded")
def test_pbt_counts_the_steps_of_a_range_from_its_lower_end() -> None:
    population = population_in({"dropout": FloatDistribution(0.5, 0.8, step=0.1)})
    config = {"dropout": 0.7, "seed": 4}
    found = [population.explore(config)["dropout"] for _ in range(1000)]
    assert sorted(set(found)) == [0.5, 0.6, 0.7, 0.8]
    assert abs(found.count(0.6) - found.count(0.8)) < 100, "both are beside it, and drawn as often"


@pytest.mark.usefixtures("seeded")
def test_pbt_moves_to_the_next_larger_or_smaller_choice_in_whatever_order_they_are() -> None:
    population = population_in({"decay": tune.choice([0.3, 0.1, 0.2])})
    config = {"decay": 0.1, "seed": 4}
    found = [population.explore(config)["decay"] for _ in range(500)]
    assert 0 < found.count(0.3) < 100, "only where it is drawn again"


@pytest.mark.usefixtures("seeded")
def test_pbt_changes_what_the_branch_of_the_donor_has_in_its_ranges_there() -> None:
    def branching(trial: optuna.Trial) -> dict[str, float]:
        trial.suggest_categorical("batch_size", [8, 16])
        decay = trial.suggest_categorical("weight_decay", [0.0, 1e-4, 1e-3])
        if trial.suggest_categorical("optimizer", ["sgd", "adamw"]) == "sgd":
            trial.suggest_float("sgd.lr", 1e-2, 1e-1, log=True)
            trial.suggest_float("momentum", 0.5, 0.9)
        else:
            trial.suggest_float("adamw.lr", 1e-4, 1e-3, log=True)
        return {"head_decay": 2 * decay}

    population = population_in(branching)
    donor = {"batch_size": 8, "weight_decay": 1e-4, "optimizer": "adamw", "lr": 1e-3, "head_decay": 2e-4, "seed": 4}
    clones = [population.explore(donor) for _ in range(50)]
    assert all(set(clone) == set(donor) and 1e-4 <= clone["lr"] <= 1e-3 for clone in clones)
    assert {(clone["optimizer"], clone["batch_size"]) for clone in clones} == {("adamw", 8)}
    assert len({clone["lr"] for clone in clones}) > 5
    assert {clone["weight_decay"] for clone in clones} == {0.0, 1e-4, 1e-3}
    assert all(clone["head_decay"] == 2 * clone["weight_decay"] for clone in clones)


def test_pbt_gives_each_clone_a_seed_of_its_own() -> None:
    population = population_in({"lr": tune.loguniform(1e-4, 1e-1)})
    donor = {"lr": 1e-2, "seed": 4}
    seeds = [population.explore(donor)["seed"] for _ in range(20)]
    assert len({4, *seeds}) == 21
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert donor["seed"] == 4


@pytest.mark.parametrize(
    "space", [lambda trial: None, {"optimizer": tune.choice(["sgd"])}, {"decay": tune.choice([0.1, "none"])}]
)
def test_pbt_says_what_it_cannot_change(space: Any) -> None:
    with pytest.raises(SweepError, match="--scheduler pbt: "):
        Population.check(SearchSpace(space))


def test_a_trial_that_is_lost_before_it_could_end_is_told_again() -> None:
    sweep = asha()
    sweep.report("a", 1, 5)
    assert sweep.report("b", 1, 1) == STOP
    sweep.fail("b")  # its actor died; it is retried
    assert sweep.report("b", 1, 1) == STOP
    assert sweep.report("c", 1, 1) == STOP
    sweep.fail("c")
    assert sweep.report("c", 2, 1) == STOP  # from a checkpoint of the rung


def test_a_trial_that_was_to_end_when_the_sweep_was_interrupted_is_told_again() -> None:
    sweep = asha()
    sweep.report("a", 1, 5)
    assert sweep.report("b", 1, 1) == STOP
    resumed = sweep.after_a_resume()
    resumed.add("b")
    assert resumed.report("b", 1, 1) == STOP


def test_a_trial_that_is_lost_while_it_pauses_is_told_again() -> None:
    sweep = promoting()
    sweep.report("a", 1, 5)
    assert sweep.report("b", 1, 1) == PAUSE
    sweep.fail("b")
    assert sweep.report("b", 1, 1) == PAUSE
