"""Schedulers held by hand: a stand-in for Tune's controller, no Ray."""

from __future__ import annotations

import math
import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, get_args

import optuna
import pytest
from optuna.distributions import FloatDistribution
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.budget import Budget
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import SchedulerName
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.private.ray_tune import pbt_states
from gaudi_tune.sweep.policies.schedulers.factory import bracket_shares, make_scheduler
from gaudi_tune.sweep.policies.schedulers.fifo import Fifo
from gaudi_tune.sweep.policies.schedulers.halving import Rung, SuccessiveHalving
from gaudi_tune.sweep.policies.schedulers.median import MedianRule
from gaudi_tune.sweep.policies.schedulers.population import Population, make_population, may_be_taken_over

CONTINUE, PAUSE, STOP = TrialScheduler.CONTINUE, TrialScheduler.PAUSE, TrialScheduler.STOP
EPOCHS = Budget(epochs=27)


@dataclass(eq=False)
class ATrial:
    trial_id: str
    status: str = "PENDING"

    def set_status(self, status: str) -> None:
        self.status = status


@dataclass
class Controller:
    """What a scheduler calls of Tune, and a sweep on it."""

    scheduler: Any
    mode: str = "max"
    trials: dict[str, ATrial] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler.set_search_properties("score", self.mode)
        searcher = SimpleNamespace(
            on_pause=lambda name: self.told.append(("pause", name)),
            on_unpause=lambda name: self.told.append(("unpause", name)),
        )
        self.search_alg = SimpleNamespace(searcher=searcher)

    def get_trials(self) -> list[ATrial]:
        return list(self.trials.values())

    @property
    def _running_trials(self) -> set[ATrial]:
        return {trial for trial in self.trials.values() if trial.status == "RUNNING"}

    @property
    def _pending_trials(self) -> set[ATrial]:
        return {trial for trial in self.trials.values() if trial.status == "PENDING"}

    def stop_trial(self, trial: ATrial) -> None:
        self.scheduler.on_trial_remove(self, trial)
        trial.status = "TERMINATED"

    def _mark_trial_to_checkpoint(self, trial: ATrial) -> None:
        self.told.append(("written down", trial.trial_id))

    def add(self, name: str, status: str = "RUNNING") -> None:
        self.trials[name] = ATrial(name, status)
        self.scheduler.on_trial_add(self, self.trials[name])

    def report(self, name: str, epoch: int, score: float, **metrics: Any) -> str:
        if name not in self.trials:
            self.add(name)
        result = {"epoch": epoch, "score": score, **metrics}
        decision: str = self.scheduler.on_trial_result(self, self.trials[name], result)
        self.trials[name].status = {CONTINUE: "RUNNING", PAUSE: "PAUSED", STOP: "TERMINATED"}[decision]
        return decision

    def chosen(self) -> str | None:
        trial = self.scheduler.choose_trial_to_run(self)
        if trial is not None:
            trial.status = "RUNNING"
        return None if trial is None else trial.trial_id


SCORE = Objective("score")


def asha(objectives: Sequence[Objective] = (SCORE,), **changes: Any) -> Controller:
    return Controller(SuccessiveHalving(EPOCHS, objectives, **changes))


def promoting(trials: int = 1000, groups: int = 2) -> Controller:
    return asha(pausing=True, trials=trials, groups=groups)


@pytest.mark.parametrize(
    ("budget", "rungs"),
    [
        (Budget(epochs=27), [1, 3, 9]),
        (Budget(epochs=33), [1, 3, 9]),
        (Budget(epochs=34), [1, 3, 9, 27]),
        (Budget(epochs=1), []),
        (Budget(epochs=2), [1]),
        (Budget(steps=1000, eval_every=100), [100, 300]),  # 900 is too late to save much
        (Budget(epochs=90), [1, 3, 9, 27]),
        (Budget(epochs=90, grace=5), [5, 15, 45]),
        (Budget(epochs=10, reduction=2), [1, 2, 4, 8]),
        (Budget(epochs=10, grace=9), []),
        (Budget(steps=100, eval_every=100), []),
        (Budget(epochs=90, seconds=3600), [400, 1200]),
        (Budget(epochs=90, seconds=3600, grace=60), [60, 180, 540, 1620]),
        (Budget(steps=100, eval_every=100, seconds=1), []),
    ],
)
def test_rungs_are_in_the_unit_of_the_budget(budget: Budget, rungs: list[int]) -> None:
    assert budget.rungs() == rungs


def test_with_a_budget_in_seconds_trials_are_compared_by_time_and_end_by_either() -> None:
    budget = Budget(epochs=9, seconds=90)  # rungs at 10 and 30
    sweep = Controller(SuccessiveHalving(budget, [SCORE]))

    def report(name: str, number: int, second: float, score: float) -> str:
        if name not in sweep.trials:
            sweep.add(name)
        result = {"epoch": number, "second": second, "score": score, "training_iteration": number}
        answer: str = sweep.scheduler.on_trial_result(sweep, sweep.trials[name], result)
        return answer

    assert [report("quick", n, 4.0 * n, 0.5 + n / 100) for n in range(1, 4)] == [CONTINUE] * 3
    assert report("slow", 1, 29.9, 0.52) == STOP, "its first report lies beyond the first rung, where 0.53 is better"
    assert sweep.scheduler.reasons["slow"] == "not among the best third of 2 at second 10"
    assert report("late", 1, 31.0, 0.1) == CONTINUE, "the first at the second rung"
    assert not budget.spent({"epoch": 8, "second": 89.9})
    assert budget.spent({"epoch": 9, "second": 12.0}) and budget.spent({"epoch": 2, "second": 90.0})
    assert str(budget) == "90 seconds or 9 epochs"


def objectives(state: dict[str, Any]) -> list[dict[int, dict[str, float]]]:
    """The scores of halving without what breaks ties."""
    brackets = state["_scores"]
    return [{rung: {n: s[0] for n, s in scores.items()} for rung, scores in rungs.items()} for rungs in brackets]


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
    sweep = asha(TWO, pausing=True, trials=7, groups=1)
    for name, (score, seconds) in BOTH.items():
        sweep.report(name, 1, score, seconds=seconds)
        for running in sweep.trials.values():
            running.status = "PAUSED"
    restored = asha(TWO, pausing=True, trials=7, groups=1)
    restored.scheduler.set_state(pickle.loads(pickle.dumps(sweep.scheduler.get_state())))
    rung = restored.scheduler._rungs[0][1]
    assert rung.ranked == ["d", "f", "e", "g", "b", "a", "c"]
    assert [rung.count_better(name) for name in "dc"] == [0, 6]
    kept = restored.scheduler.get_state()
    assert (kept["_held"], kept["_next"]) == ({"b": 1, "c": 1, "g": 1}, ["a", "e"])  # d and f went on at once


def test_equal_scores_are_told_apart_by_the_validation_loss() -> None:
    sweep = asha()
    for name, loss in zip("abc", (0.5, 0.4, 0.3), strict=True):
        sweep.add(name)
        result = {"epoch": 1, "score": 0.9, "val_loss": loss}
        assert sweep.scheduler.on_trial_result(sweep, sweep.trials[name], result) == CONTINUE
    sweep.add("d")
    weaker = {"epoch": 1, "score": 0.9, "val_loss": 0.6}
    assert sweep.scheduler.on_trial_result(sweep, sweep.trials["d"], weaker) == STOP


@pytest.mark.parametrize("loss", [None, "n/a"])
def test_a_validation_loss_that_is_no_number_tells_nothing_apart(loss: Any) -> None:
    sweep = asha()
    assert sweep.report("a", 1, 5, val_loss=loss) == CONTINUE
    assert sweep.report("b", 1, 4, val_loss=0.1) == STOP


def test_one_in_so_many_goes_on() -> None:
    sweep = Controller(SuccessiveHalving(Budget(epochs=32, grace=4, reduction=2), [SCORE]))
    assert sweep.report("a", 2, 1.0) == sweep.report("b", 2, 0.0) == CONTINUE  # no rung there
    assert [sweep.report(name, 4, score) for name, score in (("a", 3.0), ("b", 2.0), ("c", 2.5))] == [
        CONTINUE, STOP, CONTINUE,
    ]  # fmt: skip
    assert sweep.scheduler.reasons == {"b": "not among the best half of 2 at epoch 4"}


def test_less_is_better_where_the_mode_says_so() -> None:
    sweep = asha([Objective("score", "min")])
    assert [sweep.report("a", 1, 1.0), sweep.report("b", 1, 2.0), sweep.report("c", 1, 0.5)] == [
        CONTINUE,
        STOP,
        CONTINUE,
    ]


def test_steps_count_where_the_budget_is_in_steps() -> None:
    scheduler = SuccessiveHalving(Budget(steps=1000, eval_every=100), [SCORE])
    sweep = Controller(scheduler)
    for name, score, decision in (("a", 2.0, CONTINUE), ("b", 1.0, STOP)):
        sweep.add(name)
        result = {"step": 100, "epoch": 9.5, "score": score}
        assert scheduler.on_trial_result(sweep, sweep.trials[name], result) == decision


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["asha", "asha-promote", "hyperband", "median"])
def test_a_value_that_is_not_finite_never_goes_on_and_is_not_compared(name: SchedulerName, value: float) -> None:
    sweep = Controller(make_scheduler(name, EPOCHS, [SCORE], trials=100, groups=2))
    assert sweep.report("a", 1, value) == STOP
    assert "inf" not in str(sweep.scheduler.get_state()) and "nan" not in str(sweep.scheduler.get_state())


def test_a_trial_first_seen_late_fills_no_earlier_rung() -> None:
    sweep = asha()
    assert sweep.report("resumed", 10, 100.0) == CONTINUE
    assert sweep.report("new", 1, 0.1) == CONTINUE  # held against nobody
    assert objectives(sweep.scheduler.get_state()) == [{1: {"new": 0.1}, 3: {}, 9: {}}]


def test_a_rung_is_filled_once_whatever_is_reported_again() -> None:
    sweep = asha()
    for epoch, score in ((1, 5.0), (2, 6.0), (3, 7.0)):
        sweep.report("a", epoch, score)
    for epoch in (1, 2, 3, 4):  # trains again from its last checkpoint
        assert sweep.report("a", epoch, 9.0) == CONTINUE
    sweep.report("b", 1, 7.0)
    assert objectives(sweep.scheduler.get_state())[0] == {1: {"a": 5.0, "b": 7.0}, 3: {"a": 7.0}, 9: {}}


def test_a_loop_that_reports_seldom_is_compared_at_the_rungs_it_passes() -> None:
    sweep = asha()
    for epoch in (2, 4, 6, 8, 10):
        sweep.report("a", epoch, float(epoch))
    assert objectives(sweep.scheduler.get_state()) == [{1: {}, 3: {"a": 4.0}, 9: {"a": 10.0}}]


def test_promotion_pauses_until_a_trial_is_in_the_best_third() -> None:
    sweep = promoting()
    assert [sweep.report("a", 1, 5.0), sweep.report("b", 1, 4.0)] == [PAUSE, PAUSE]
    assert sweep.chosen() is None  # two have come: nobody is in the best third
    assert sweep.report("c", 1, 3.0) == PAUSE
    assert sweep.chosen() == "a"
    assert sweep.told == [("pause", "a"), ("pause", "b"), ("pause", "c"), ("unpause", "a")]
    assert sweep.report("a", 2, 9.0) == CONTINUE
    assert sweep.report("d", 1, 8.0) == CONTINUE  # the best of four goes on at once
    assert sweep.scheduler.get_state()["_held"] == {"b": 1, "c": 1}


def test_a_promoted_trial_waits_for_a_group_and_goes_before_a_new_one() -> None:
    sweep = promoting(groups=2)
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0)):
        sweep.report(name, 1, score)
    sweep.add("x")
    sweep.add("y")
    assert sweep.chosen() is None  # both groups are busy
    sweep.trials["x"].status = "TERMINATED"
    sweep.add("new", "PENDING")
    sweep.trials["y"].status = "TERMINATED"
    assert [sweep.chosen(), sweep.chosen()] == ["a", None]  # a new one Tune starts itself


def test_the_last_trials_are_promoted_by_rounding_up_and_the_rest_is_ended() -> None:
    sweep = promoting(trials=4)
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0), ("d", 2.0)):
        sweep.report(name, 1, score)
    # A third of four, rounded up: two of them.
    assert [sweep.chosen(), sweep.chosen(), sweep.chosen()] == ["a", "b", None]
    assert sweep.report("a", 3, 6.0) == CONTINUE  # the first at its rung, of which one at least goes on
    assert sweep.report("b", 3, 5.0) == PAUSE
    assert sweep.report("a", 9, 7.0) == CONTINUE
    assert sweep.trials["c"].status == "PAUSED"  # as long as another trains
    sweep.trials["a"].status = "TERMINATED"
    assert sweep.chosen() is None
    assert {name: trial.status for name, trial in sweep.trials.items()} == dict.fromkeys("abcd", "TERMINATED")


def test_none_ends_while_a_promoted_one_waits_for_a_group_that_confirms() -> None:
    sweep = promoting(trials=3, groups=1)
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0)):
        sweep.report(name, 1, score)
    sweep.trials["confirms"] = ATrial("confirms", "RUNNING")
    assert sweep.chosen() is None
    assert {sweep.trials[name].status for name in "abc"} == {"PAUSED"}
    sweep.trials["confirms"].status = "TERMINATED"
    assert sweep.chosen() == "a"


def test_a_rung_keeps_the_order_that_sorting_it_again_would_give() -> None:
    drawn, rung = random.Random(0), Rung({})
    scores: dict[str, tuple[float, float]] = {}
    for number in range(400):
        name = f"t{drawn.randrange(number + 1)}"  # some come again, with another score
        score = (float(drawn.randrange(9)), -float(drawn.randrange(3)))
        better = sum(other > score for other in scores.values()) - (scores.get(name, score) > score)
        scores[name] = score
        rung.add(name, score)
        ranked = sorted(scores, key=lambda name: scores[name], reverse=True)
        assert rung.count_better(name) == better
        assert rung.ranked == ranked
    assert Rung(dict(scores)).ranked == ranked


def test_trials_of_higher_rungs_go_on_first() -> None:
    sweep = promoting(trials=6, groups=1)
    for name, score in (("e", 5.0), ("d", 4.0), ("c", 3.0), ("b", 2.0), ("a", 1.0)):
        sweep.report(name, 1, score)
    assert sweep.chosen() == "e"  # the one best of five
    assert sweep.report("e", 3, 5.0) == PAUSE
    sweep.report("f", 1, 0.0)  # the last: thirds are rounded up from now on, at both rungs
    assert [sweep.chosen(), sweep.scheduler.get_state()["_next"]] == ["e", ["e", "d"]]


def test_a_trial_that_cannot_be_continued_ends_by_the_rule_of_stopping() -> None:
    sweep, stopping = promoting(), asha()
    for index, score in enumerate((5.0, 4.0, 6.0, 5.0, 1.0)):
        name = f"t{index}"
        sweep.add(name)
        result = {"epoch": 1, "score": score, names.STARTS_OVER: True}
        assert sweep.scheduler.on_trial_result(sweep, sweep.trials[name], result) == stopping.report(name, 1, score)
    assert sweep.told == []


def test_a_sweep_with_a_paused_trial_that_fails_goes_on() -> None:
    sweep = promoting()
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0)):
        sweep.report(name, 1, score)
    sweep.trials["a"].status = "ERROR"
    sweep.scheduler.on_trial_error(sweep, sweep.trials["a"])
    assert sweep.chosen() is None


@pytest.mark.parametrize("pausing", [False, True])
def test_rungs_survive_a_snapshot(pausing: bool) -> None:
    sweep = promoting() if pausing else asha()
    for name, score in (("a", 5.0), ("b", 4.0), ("c", 3.0)):
        sweep.report(name, 1, score)
    state = pickle.loads(pickle.dumps(sweep.scheduler.get_state()))
    restored = promoting() if pausing else asha()
    restored.scheduler.set_state(state)
    assert restored.scheduler.get_state() == sweep.scheduler.get_state()
    # Tune adds the unfinished trials again as pending, and would start all of them, groups or not.
    for name in "abc":
        restored.add(name, "PENDING")
    assert [trial.status for trial in restored.get_trials()] == (["PAUSED"] * 3 if pausing else ["PENDING"] * 3)
    assert restored.chosen() == ("a" if pausing else None)  # promoted before the snapshot
    assert restored.report("d", 1, 4.5) == (PAUSE if pausing else CONTINUE)
    assert restored.report("e", 1, 4.2) == (PAUSE if pausing else STOP)


def test_hyperband_begins_at_every_rung_in_its_shares() -> None:
    shares = bracket_shares(EPOCHS)
    assert shares == pytest.approx([27 / 4 / 13.25, 9 / 3 / 13.25, 3 / 2 / 13.25, 1 / 1 / 13.25], rel=0.1)
    sweep = Controller(make_scheduler("hyperband", EPOCHS, [SCORE]))
    for index in range(100):
        sweep.report(f"t{index}", 1, float(-index))
    going = [name for name, trial in sweep.trials.items() if trial.status == "RUNNING"]
    brackets = list(sweep.scheduler.get_state()["_bracket"].values())
    assert [brackets.count(bracket) for bracket in range(4)] == pytest.approx([100 * share for share in shares], abs=1)
    assert len(going) == 100 - brackets.count(0) + 1  # of bracket 0 the first alone


def held_against(**completed: dict[int, float]) -> Controller:
    """The median rule, with these trials completed."""
    sweep = Controller(MedianRule(EPOCHS, SCORE))
    sweep.scheduler.set_state({"_scores": completed, "_completed": set(completed)})
    return sweep


def test_the_median_rule_needs_three_completed_trials_and_compares_with_their_means() -> None:
    sweep = Controller(MedianRule(EPOCHS, SCORE))
    for name, score in (("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 0.0)):
        assert sweep.report(name, 1, score) == CONTINUE
    assert sweep.report("low", 1, 1.9) == CONTINUE  # the others still train
    for name in "abc":
        sweep.scheduler.on_trial_complete(sweep, sweep.trials[name], {})
    assert sweep.report("low", 1, 1.9) == STOP
    assert sweep.report("high", 1, 2.1) == CONTINUE
    restored = MedianRule(EPOCHS, SCORE)
    restored.set_state(sweep.scheduler.get_state())
    again = Controller(restored)
    assert again.report("low again", 1, 1.8) == STOP


def test_the_median_rule_stops_none_within_the_grace() -> None:
    sweep = Controller(MedianRule(Budget(epochs=27, grace=3), SCORE))
    curve = {1: 5.0, 2: 5.0, 3: 5.0}
    sweep.scheduler.set_state({"_scores": {"a": curve, "b": curve, "c": curve}, "_completed": {"a", "b", "c"}})
    assert [sweep.report("d", epoch, 1.0) for epoch in (1, 2, 3)] == [CONTINUE, CONTINUE, STOP]


def test_the_median_rule_looks_at_those_that_got_as_far() -> None:
    sweep = held_against(a={1: 5.0}, b={1: 5.0}, c={1: 5.0})
    assert sweep.report("d", 2, 1.0) == CONTINUE  # nobody else has got there


def test_the_median_rule_takes_the_best_of_a_trial_and_the_others_only_until_then() -> None:
    sweep = held_against(**{name: {1: 2.0, 2: 4.0, 3: 100.0} for name in "abc"})
    scores = sweep.scheduler.get_state()["_scores"]
    sweep.scheduler.set_state(
        {"_scores": {**scores, "once good": {1: 3.5}, "never good": {1: 2.5}}, "_completed": {"a", "b", "c"}}
    )
    assert sweep.report("once good", 2, 0.0) == CONTINUE  # 3.5 against a mean of 3
    assert sweep.report("never good", 2, 2.9) == STOP


def test_every_scheduler_is_made_by_its_name() -> None:
    space = SearchSpace({"lr": tune.loguniform(1e-4, 1e-1), "optimizer": tune.choice(["sgd", "adamw"])})
    kinds = {
        name: type(make_scheduler(name, EPOCHS, [SCORE], space=space, trials=8, groups=2))
        for name in get_args(SchedulerName)
    }
    assert kinds == {
        "asha": SuccessiveHalving,
        "asha-promote": SuccessiveHalving,
        "hyperband": SuccessiveHalving,
        "median": MedianRule,
        "pbt": Population,
        "fifo": Fifo,
    }


def test_what_becomes_of_a_weak_trial_is_as_the_name_says() -> None:
    names_of: tuple[SchedulerName, ...] = ("asha", "asha-promote", "hyperband")
    sweeps = {name: Controller(make_scheduler(name, EPOCHS, [SCORE], trials=8, groups=2)) for name in names_of}
    for sweep in sweeps.values():
        sweep.report("strong", 1, 5.0)
    weak = {name: sweep.report("weak", 1, 1.0) for name, sweep in sweeps.items()}
    assert weak == {"asha": STOP, "asha-promote": PAUSE, "hyperband": CONTINUE}  # alone in its bracket


@pytest.mark.parametrize("name", get_args(SchedulerName))
def test_none_names_a_pending_trial_whose_actor_may_just_be_starting(name: SchedulerName) -> None:
    space = SearchSpace({"lr": tune.loguniform(1e-4, 1e-1)})
    sweep = Controller(make_scheduler(name, EPOCHS, [SCORE], space=space, trials=8, groups=2))
    sweep.trials["a"] = ATrial("a", "PENDING")
    assert sweep.chosen() is None


@pytest.fixture
def seeded() -> None:
    """pbt draws from Python's global generator: of 50 clones, one time in 80 none has some value that it may have."""
    random.seed(0)


@pytest.mark.usefixtures("seeded")
def test_pbt_changes_continuous_hyperparameters_and_keeps_them_inside_their_ranges() -> None:
    space = {"lr": tune.loguniform(1e-4, 1e-1), "dropout": tune.uniform(0, 0.3), "optimizer": tune.choice(["sgd"])}
    population = make_population(Budget(steps=900, eval_every=10), SearchSpace(space))
    assert population._perturbation_interval == 100
    config = {"lr": 1e-1, "dropout": 0.3, "optimizer": "sgd", "seed": 4}
    found = [population._get_new_config(None, SimpleNamespace(config=config))[0] for _ in range(50)]
    assert all(1e-4 <= c["lr"] <= 1e-1 and 0 <= c["dropout"] <= 0.3 for c in found)
    assert len({c["lr"] for c in found}) > 2
    assert {c["optimizer"] for c in found} == {"sgd"}


@pytest.mark.usefixtures("seeded")
def test_pbt_moves_along_the_steps_of_a_range() -> None:
    population = make_population(EPOCHS, SearchSpace({"dropout": FloatDistribution(0.0, 0.3, step=0.1)}))
    config = {"dropout": 0.3, "seed": 4}
    found = [population._get_new_config(None, SimpleNamespace(config=config))[0]["dropout"] for _ in range(50)]
    assert set(found) <= {0.0, 0.1, 0.2, 0.3}
    assert {0.2, 0.3} < set(found)


@pytest.mark.usefixtures("seeded")
def test_pbt_counts_the_steps_of_a_range_from_its_lower_end() -> None:
    population = make_population(EPOCHS, SearchSpace({"dropout": FloatDistribution(0.5, 0.8, step=0.1)}))
    config = {"dropout": 0.7, "seed": 4}
    found = [population._get_new_config(None, SimpleNamespace(config=config))[0]["dropout"] for _ in range(1000)]
    assert sorted(set(found)) == [0.5, 0.6, 0.7, 0.8]
    assert abs(found.count(0.6) - found.count(0.8)) < 100, "both are beside it, and drawn as often"


@pytest.mark.usefixtures("seeded")
def test_pbt_moves_to_the_next_larger_or_smaller_choice_in_whatever_order_they_are() -> None:
    population = make_population(EPOCHS, SearchSpace({"decay": tune.choice([0.3, 0.1, 0.2])}))
    config = {"decay": 0.1, "seed": 4}
    found = [population._get_new_config(None, SimpleNamespace(config=config))[0]["decay"] for _ in range(500)]
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

    population = make_population(EPOCHS, SearchSpace(branching))
    donor = {"batch_size": 8, "weight_decay": 1e-4, "optimizer": "adamw", "lr": 1e-3, "head_decay": 2e-4, "seed": 4}
    clones = [population._get_new_config(None, SimpleNamespace(config=donor))[0] for _ in range(50)]
    assert all(set(clone) == set(donor) and 1e-4 <= clone["lr"] <= 1e-3 for clone in clones)
    assert {(clone["optimizer"], clone["batch_size"]) for clone in clones} == {("adamw", 8)}
    assert len({clone["lr"] for clone in clones}) > 5
    assert {clone["weight_decay"] for clone in clones} == {0.0, 1e-4, 1e-3}
    assert all(clone["head_decay"] == 2 * clone["weight_decay"] for clone in clones)


def test_pbt_gives_each_clone_a_seed_of_its_own() -> None:
    population = make_population(EPOCHS, SearchSpace({"lr": tune.loguniform(1e-4, 1e-1)}))
    donor = {"lr": 1e-2, "seed": 4}
    seeds = [population._get_new_config(None, SimpleNamespace(config=donor))[0]["seed"] for _ in range(20)]
    assert len({4, *seeds}) == 21
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert donor["seed"] == 4


def test_what_a_trial_saved_since_it_was_last_compared_may_be_taken_over() -> None:
    population = make_population(EPOCHS, SearchSpace({"lr": tune.loguniform(1e-4, 1e-1)}))
    population.set_search_properties("score", "max")
    trial, unknown = (Trial("trainable", trial_id=name, stub=True) for name in "ab")
    population.on_trial_add(None, trial)
    pbt_states(population)[trial].last_perturbation_time = 6
    assert [may_be_taken_over(population, trial, progress) for progress in (5, 6, 7)] == [False, True, True]
    assert not may_be_taken_over(population, unknown, 7)
    assert not may_be_taken_over(Fifo(), trial, 7)


def test_a_population_knows_its_scores_after_a_snapshot() -> None:
    before, after = (make_population(EPOCHS, SearchSpace({"lr": tune.loguniform(1e-4, 1e-1)})) for _ in range(2))
    trials = {name: Trial("trainable", trial_id=name, stub=True) for name in "ab"}
    for population in (before, after):
        population.set_search_properties("score", "max")
    for name, score in (("a", 0.9), ("b", 0.1)):
        before.on_trial_add(None, trials[name])
        result = {"epoch": 9, "training_iteration": 9, "score": score}
        before._save_trial_state(before._trial_state[trials[name]], 9, result, trials[name])
    after.set_state(pickle.loads(pickle.dumps(before.get_state())))
    for trial in trials.values():
        after.on_trial_add(None, trial)
    assert after._quantiles() == ([trials["b"]], [trials["a"]])


@pytest.mark.parametrize(
    "space", [lambda trial: None, {"optimizer": tune.choice(["sgd"])}, {"decay": tune.choice([0.1, "none"])}]
)
def test_pbt_says_what_it_cannot_change(space: Any) -> None:
    with pytest.raises(SweepError, match="--scheduler pbt: "):
        make_scheduler("pbt", EPOCHS, [SCORE], space=SearchSpace(space))


def test_a_trial_that_is_lost_before_it_could_end_is_told_again() -> None:
    sweep = asha()
    sweep.report("a", 1, 5)
    assert sweep.report("b", 1, 1) == STOP
    sweep.scheduler.on_trial_error(sweep, sweep.trials["b"])  # its actor died; Tune starts it again
    assert sweep.report("b", 1, 1) == STOP
    assert sweep.report("c", 1, 1) == STOP
    sweep.scheduler.on_trial_error(sweep, sweep.trials["c"])
    assert sweep.report("c", 2, 1) == STOP  # from a checkpoint of the rung


def test_a_trial_that_was_to_end_when_the_sweep_was_interrupted_is_told_again() -> None:
    sweep = asha()
    sweep.report("a", 1, 5)
    assert sweep.report("b", 1, 1) == STOP
    restored = asha()
    restored.scheduler.set_state(pickle.loads(pickle.dumps(sweep.scheduler.get_state())))
    restored.add("b", "PENDING")
    assert restored.report("b", 1, 1) == STOP


def test_a_trial_that_is_lost_while_it_pauses_counts_as_training_again_and_is_told_again() -> None:
    sweep = promoting()
    sweep.report("a", 1, 5)
    assert sweep.report("b", 1, 1) == PAUSE
    assert ("pause", "b") in sweep.told
    sweep.scheduler.on_trial_error(sweep, sweep.trials["b"])
    assert sweep.told[-1] == ("unpause", "b")
    assert sweep.report("b", 1, 1) == PAUSE
