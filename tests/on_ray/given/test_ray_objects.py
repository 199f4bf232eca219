"""Objects of Ray Tune in a sweep: what they are told, what they decide, and what a resumed sweep gives back to them."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.samplers import RandomSampler
from ray import tune
from ray.tune.logger import CSVLoggerCallback, TBXLoggerCallback
from ray.tune.schedulers import (
    ASHAScheduler,
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    PopulationBasedTraining,
    ResourceChangingScheduler,
)
from ray.tune.schedulers.pb2 import PB2
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from ray.tune.search.optuna import OptunaSearch
from ray.tune.stopper import MaximumIterationStopper, TrialPlateauStopper

from gaudi_tune import Budget, Experiment, SweepError, SweepOptions, build_tuner
from gaudi_tune.define.objective import Mode
from gaudi_tune.on_ray.given.arguments import read_callbacks, read_stop
from gaudi_tune.on_ray.given.ray_search import source_of
from gaudi_tune.on_ray.given.user_callback import HOOKS, UserCallback
from gaudi_tune.on_ray.given.user_stop import UserStop
from gaudi_tune.on_ray.tune_searcher import TuneSearcher
from gaudi_tune.plan.planner import make_proposer
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.sweep.record.events import SearchExhausted
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from gaudi_tune.sweep.search.proposer import raised
from tests.helpers.groups import in_one_group
from tests.helpers.loops import quadratic

PLAIN = Experiment(train_loop=quadratic, space={"x": tune.uniform(-1.0, 1.0)}, metric="score")


class Counting(tune.Callback):
    """Counts what it is told of, and keeps the count."""

    def __init__(self) -> None:
        self.hooks: list[str] = []
        self.results = self.restored = 0

    def setup(self, **info: Any) -> None:
        self.hooks.append("setup")

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self.hooks.append("on_trial_result")
        self.results += 1

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self.hooks.append("on_experiment_end")

    def get_state(self) -> dict[str, int]:
        return {"results": self.results}

    def set_state(self, state: dict[str, int]) -> None:
        self.results = self.restored = state["results"]


class Raising(tune.Callback):
    """Fails whenever a trial starts, and has a state that cannot be pickled."""

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        raise RuntimeError("no logger today")

    def get_state(self) -> Any:
        return {"generator": (number for number in range(3))}


class AfterReports(tune.Stopper):
    """Ends the sweep after some reports of all trials."""

    def __init__(self, reports: int) -> None:
        self.left = reports

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.left -= 1
        return result["config"]["x"] > 1

    def stop_all(self) -> bool:
        return self.left <= 0


def test_ray_objects_take_part_in_a_sweep_and_an_error_in_a_callback_does_not_end_it(
    ray_here: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def tuner(counting: Counting, stop: Any, **options: Any) -> Any:
        callbacks = [Raising(), CSVLoggerCallback(), TBXLoggerCallback(), counting]
        scheduler = HyperBandForBOHB(max_t=3, reduction_factor=3)
        built = build_tuner(
            PLAIN, callbacks=callbacks, stop=stop, scheduler=scheduler, storage=tmp_path,
            search_alg=ConcurrencyLimiter(OptunaSearch(seed=1), max_concurrent=2), **options,
        )  # fmt: skip
        return in_one_group(built)

    first, second = Counting(), Counting()
    begun = tuner(first, AfterReports(2), name="x", num_samples=4, epochs=3, device="cpu")
    begun.fit()
    summary = begun.run.summary
    assert summary["ended_early"]["why"] == "its AfterReports says stop"
    assert summary["ended_early"]["status"] == 0
    assert [record.message for record in caplog.records if "callback Raising failed" in record.message] == [
        "the callback Raising failed in on_trial_start(); the sweep continues, and further errors there are not shown"
    ]
    assert (first.hooks[0], first.hooks[-1]) == ("setup", "on_experiment_end")
    assert first.results == first.hooks.count("on_trial_result") >= 2
    assert "by HyperBandForBOHB" in {trial.decision.reason for trial in begun.run.state.paused}

    resumed = tuner(second, lambda trial_id, result: result["training_iteration"] == 2, resume="x")
    results = resumed.fit()
    assert second.restored == first.results
    assert resumed.run.summary["complete"]
    trials = resumed.run.state.trials
    assert "its <lambda> says stop" in {trial.reason for trial in trials.values()}
    for result in results:
        folder = Path(result.path)
        assert list(folder.glob("events.out.tfevents.*"))
        epochs = list(result.metrics_dataframe["epoch"])
        assert epochs == list(range(1, len(epochs) + 1)), "a trial that had paused continues from its checkpoint"
        assert len((folder / "progress.csv").read_text().splitlines()) >= 2
    study = resumed.run.searcher.source._searcher._ot_study
    assert len(study.trials) == 4, "it has its trials of before"
    assert {trial.params["x"] for trial in study.trials} == {trial.config["x"] for trial in trials.values()}
    assert all(trial.state.is_finished() for trial in study.trials)
    written = json.loads((tmp_path / "x" / "summary.json").read_text())
    assert sum(written["counts"].values()) == 4


class SetUp(tune.Callback):
    def setup(self, stop: Any = None, num_samples: Any = None, total_num_samples: Any = None, **info: Any) -> None:
        self.seen = stop, num_samples, total_num_samples, info


def test_setup_of_a_callback_is_told_of_the_sweep_as_by_ray(tmp_path: Path) -> None:
    callback = SetUp()
    tuner: Any = build_tuner(
        PLAIN, num_samples=4, callbacks=[callback], stop={"epoch": 2}, device="cpu", storage=tmp_path
    )
    (wrapped,) = tuner.run.user_callbacks
    wrapped.setup(stop={}, num_samples=2**63 - 1, total_num_samples=2**63 - 1, time_budget_s=None)  # as Tune calls it
    assert callback.seen == ({"epoch": 2}, 4, 4, {"time_budget_s": None})


def test_every_hook_of_ray_is_passed_on() -> None:
    assert {"setup", "on_step_begin", "on_trial_result", "on_checkpoint", "on_experiment_end"} <= {*HOOKS}
    counting = Counting()
    callback = UserCallback(counting)
    callback.on_trial_result(iteration=1, trials=[], trial=None, result={})
    kept = callback.kept_state()
    assert kept is not None
    other = Counting()
    UserCallback(other).restore_state(kept)
    assert other.restored == 1
    assert UserCallback(Raising()).kept_state() is None


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (
            Counting(),
            r"callbacks=an object of the class Counting: give a list of callbacks, .*\[TBXLoggerCallback\(\)\]",
        ),
        ([Counting], r"callbacks=Counting is a class; give an object, Counting\(...\)"),
        ([print], r"<built-in function print> is no ray.tune.Callback; derive it from that"),
    ],
)
def test_an_object_that_is_no_callback_is_refused(callbacks: Any, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        read_callbacks(callbacks)


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        (3, r"stop=3: give numbers by metric, such as stop={'training_iteration': 20}; a function"),
        ({"loss": {"min": 1}}, r"stop: 'loss': {'min': 1} is no finite number for a metric"),
        ({"loss": math.nan}, "stop: 'loss': nan is no finite number for a metric"),
        ({"training_iteration": math.inf}, "stop: 'training_iteration': inf is no finite number for a metric"),
        (lambda result: True, "a function of a trial's id and its result; or a ray.tune.Stopper"),
        (MaximumIterationStopper, r"MaximumIterationStopper is a class; give an object"),
        ([3], "give numbers by metric"),
    ],
)
def test_an_object_that_is_no_stop_is_refused(stop: Any, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        read_stop(stop)


def test_the_three_forms_of_a_stop_end_trials(caplog: pytest.LogCaptureFixture) -> None:
    by_metric = UserStop(read_stop({"score": 0.5}))
    assert by_metric.why_trial_ends("a", {"score": 0.4}) == ""
    assert by_metric.why_trial_ends("a", {"score": 0.75}) == "score 0.75 reached the 0.5 of its stop"
    assert by_metric.why_trial_ends("a", {"loss": 0.1}) == by_metric.why_trial_ends("a", {"loss": 0.1}) == ""
    assert [record.message for record in caplog.records] == [
        "stop names score, which no report has; it ends no trial by that"
    ]
    combined = UserStop(read_stop([MaximumIterationStopper(2), TrialPlateauStopper("score")]))
    ends = [combined.why_trial_ends("a", {"score": 0.1, "training_iteration": n}) for n in (1, 2)]
    assert ends == ["", "its CombinedStopper says stop"]
    assert combined.why_sweep_ends() is None

    def broken(trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["nowhere"])

    assert UserStop(read_stop(broken)).why_trial_ends("a", {}) == ""
    assert "stop failed in __call__(); the sweep continues" in caplog.text
    by_phase = UserStop(read_stop({"phase": 3}))
    answers = [by_phase.why_trial_ends("a", {"phase": phase}) for phase in ("warm", None, np.float32(3), 4)]
    assert answers == ["", "", "phase 3 reached the 3 of its stop", "phase 4 reached the 3 of its stop"]
    assert "stop names phase, which a report has without a number" in caplog.text


def test_an_exit_in_a_given_object_ends_no_sweep(caplog: pytest.LogCaptureFixture) -> None:
    class Leaving(tune.Callback):
        def on_trial_result(self, *arguments: Any, **info: Any) -> None:
            sys.exit(3)

        def get_state(self) -> dict[str, Any]:
            sys.exit(3)

    callback: Any = UserCallback(Leaving())
    assert callback.on_trial_result(1, [], None, {}) is None
    assert callback.kept_state() is None
    assert "the callback Leaving failed in on_trial_result(); the sweep continues" in caplog.text
    assert UserStop(read_stop(lambda trial_id, result: sys.exit(3))).why_trial_ends("a", {}) == ""


def test_a_number_of_reports_is_the_budget_where_nothing_else_gives_one(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def budget(experiment: Experiment, **options: Any) -> str:
        tuner: Any = build_tuner(
            experiment, stop={"training_iteration": 4}, callbacks=[Counting()], storage=storage, device="cpu", **options
        )
        return str(tuner.plan.budget)

    assert budget(PLAIN) == "4 epochs"
    told = capsys.readouterr().out
    assert "given   callbacks: Counting; an error in one is logged, and the sweep continues" in told
    assert "a trial ends when training_iteration is 4 or more\n" in told
    assert "to resume the sweep, give build_tuner() the same objects again" in told
    assert budget(PLAIN, epochs=7) == "7 epochs"
    assert budget(replace(PLAIN, budget=Budget(epochs=6))) == "6 epochs"


PERTURBS = {"time_attr": "training_iteration", "perturbation_interval": 2}


@pytest.mark.parametrize(
    ("scheduler", "name"),
    [
        (ASHAScheduler(metric="score", mode="max", max_t=10), "ray.AsyncHyperBandScheduler"),
        (PB2(hyperparam_bounds={"x": [-1.0, 1.0]}, **PERTURBS), "ray.population.PB2"),
        (FIFOScheduler(), "fifo"),
    ],
)
def test_a_scheduler_of_ray_has_a_name_in_the_plan(scheduler: Any, name: str, storage: Path) -> None:
    tuner: Any = build_tuner(PLAIN, scheduler=scheduler, storage=storage, device="cpu")
    assert tuner.plan.options.scheduler == name
    assert f"{name} scheduler" in plan_lines(tuner.plan)[0]


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (ASHAScheduler, r"is a class; give an object, AsyncHyperBandScheduler\(...\)"),
        (HyperBandScheduler(), "a sweep proposes one after another; give HyperBandForBOHB"),
        (ResourceChangingScheduler(), "give its base_scheduler, and grow='on'"),
        (ASHAScheduler(metric="loss"), "its metric is 'loss', and the Experiment's is 'score'; leave it out there, or"),
        (ASHAScheduler(mode="min"), "its mode is 'min', and the Experiment's is 'max'"),
        (PopulationBasedTraining(hyperparam_mutations={"y": [1, 2]}), "it changes y, and the search space has x"),
        ("ray.ASHAScheduler", "this is an object of Ray Tune, and none was given; give one of that class"),
    ],
)
def test_a_scheduler_that_cannot_work_is_refused_with_what_to_give(scheduler: Any, message: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=message):
        build_tuner(PLAIN, scheduler=scheduler, storage=storage, device="cpu")


def test_the_plan_says_what_a_scheduler_forgets_and_that_its_length_differs(storage: Path) -> None:
    tuner: Any = build_tuner(PLAIN, scheduler=HyperBandForBOHB(max_t=81), storage=storage, device="cpu", epochs=9)
    told = "\n".join(plan_lines(tuner.plan))
    assert "HyperBandForBOHB: its max_t is 81, and a trial has at most 9 epochs; epochs=81 makes them equal" in told
    assert "HyperBandForBOHB cannot keep its state: a resumed sweep begins it again" in told
    equal: Any = build_tuner(PLAIN, scheduler=ASHAScheduler(max_t=9), storage=storage, device="cpu", epochs=9)
    assert not equal.plan.objects.notes


@pytest.mark.parametrize(("mode", "noted"), [("min", True), ("max", False)])
def test_the_plan_says_that_stop_ends_trials_with_a_high_value_also_where_less_is_better(
    mode: Mode, noted: bool, storage: Path
) -> None:
    experiment = replace(PLAIN, mode=mode)
    tuner: Any = build_tuner(experiment, stop={"score": 0.3}, storage=storage, device="cpu")
    told = "\n".join(plan_lines(tuner.plan))
    assert "a trial ends when score is 0.3 or more" in told
    assert ("target=0.3 ends the sweep once a trial is as low as that" in told) == noted


def test_the_longest_trial_of_a_scheduler_is_the_budget_if_nothing_else_gives_one(storage: Path) -> None:
    def budget_with(scheduler: Any, **options: Any) -> str:
        tuner: Any = build_tuner(PLAIN, scheduler=scheduler, storage=storage, device="cpu", **options)
        return str(tuner.plan.budget)

    assert budget_with(ASHAScheduler(max_t=20)) == "20 epochs"
    assert budget_with(HyperBandForBOHB(max_t=27)) == "27 epochs"
    assert budget_with(ASHAScheduler(max_t=20), stop={"training_iteration": 5}) == "5 epochs"
    assert budget_with(ASHAScheduler(max_t=20), steps=300) == "300 steps (a report every 30)"
    assert budget_with(ASHAScheduler(time_attr="time_total_s", max_t=3600)) == "10 epochs"
    assert budget_with(FIFOScheduler()) == "10 epochs"


def test_options_in_the_wrong_place_are_named(storage: Path) -> None:
    with pytest.raises(SweepError, match="the second argument is a SweepOptions; name the argument"):
        build_tuner(PLAIN, tune.TuneConfig())


def tuner_of(storage: Path, search_alg: Any, space: Any = PLAIN.space, **options: Any) -> Any:
    """The tuner of a sweep that Ray's search algorithm proposes for."""
    experiment = replace(PLAIN, space=space)
    return build_tuner(experiment, search_alg=search_alg, storage=storage, device="cpu", name="x", **options)


def searcher_of(storage: Path, search_alg: Any, space: Any = PLAIN.space, **options: Any) -> Any:
    """The searcher of such a sweep, with its study in memory."""
    built = tuner_of(storage, search_alg, space, **options)
    proposer, state = make_proposer(built.plan), built.run.state
    return TuneSearcher(
        proposer,
        state,
        0,
        source=source_of(built.plan),
        end_search=lambda: state.apply(SearchExhausted(num_trials=proposer.n_proposed, source="the source")),
        on_error=raised,
    )


class Slow(Searcher):
    """Proposes one trial after another, and hears of each."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []

    def suggest(self, trial_id: str) -> Any:
        if len(self.told) == 2:
            return Searcher.FINISHED
        return {"x": np.float64(0.5)} if trial_id != "early" else None

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        self.told.append((trial_id, result and result["score"], error))


def test_a_searcher_of_ray_proposes_and_hears_of_its_trials_alone(storage: Path) -> None:
    own = Slow()
    searcher = searcher_of(storage, own, num_samples=9)
    assert searcher.suggest("early") is None
    assert searcher.proposer.n_proposed == 0
    assert searcher.suggest("a")["x"] == 0.5
    assert type(searcher.proposer.trials()[0].params["x"]) is float
    searcher.proposer.request({"x": 0.25})
    assert searcher.suggest("by hand")["x"] == 0.25
    searcher.on_trial_result("a", {"score": 0.1, "training_iteration": 1})
    searcher.on_trial_complete("a")  # it ended while it waited
    searcher.on_trial_complete("by hand", {"score": 0.2})
    assert searcher.suggest("b")
    searcher.on_trial_complete("b", {"score": math.nan})
    assert own.told == [("a", 0.1, False), ("b", None, True)]
    assert searcher.suggest("c") is None  # the trials of before have not ended in the record
    assert searcher._state.num_trials == 3


def test_a_ray_searcher_knows_its_results_and_proposals_after_a_resume(storage: Path, tmp_path: Path) -> None:
    one, other = (searcher_of(storage, OptunaSearch(seed=3), num_samples=9) for _ in range(2))
    configs = [one.suggest(name) for name in ("a", "b")]
    one.on_trial_result("a", {"score": 0.1, "training_iteration": 1})
    one.save(str(tmp_path / "state"))
    other.proposer.restore_study(one.proposer.record.snapshot(everything=True))
    other.restore(str(tmp_path / "state"))
    other.on_trial_complete("a", {"score": 0.3, "training_iteration": 2})
    first, second = other.source._searcher._ot_study.trials
    assert (first.params["x"], first.value) == (configs[0]["x"], 0.3)
    assert second.params["x"] == configs[1]["x"]


def test_a_grid_with_functions_is_gone_through_once_and_goes_on_where_it_was(storage: Path, tmp_path: Path) -> None:
    space = {
        "x": tune.grid_search([0.1, 0.2]),
        "width": tune.grid_search([3, 4]),
        "depth": tune.sample_from(lambda spec: 10 * spec.config.width),
        "rate": tune.uniform(0.0, 1.0),
        "kind": "plain",
    }
    generator = BasicVariantGenerator(points_to_evaluate=[{"x": 0.1, "width": 3}], max_concurrent=1)
    searcher, resumed = (searcher_of(storage, generator, space, num_samples=2) for _ in range(2))
    plan = tuner_of(storage, generator, space, num_samples=2).plan
    assert (plan.num_samples, plan.groups) == (5, 1)  # a point, and the grid of four
    configs = [searcher.suggest(str(number)) for number in range(3)]
    searcher.save(str(tmp_path / "state"))
    resumed.proposer.restore_study(searcher.proposer.record.snapshot(everything=True))
    resumed.restore(str(tmp_path / "state"))
    configs += [resumed.suggest(str(number)) for number in range(3, 5)]
    assert configs[3] == searcher.suggest("3")
    pairs = [(config["x"], config["width"]) for config in configs]
    assert pairs[0] == (0.1, 3)
    assert sorted(pairs[1:]) == [(0.1, 3), (0.1, 4), (0.2, 3), (0.2, 4)]
    assert all(config["depth"] == 10 * config["width"] and config["kind"] == "plain" for config in configs)
    assert len({config["rate"] for config in configs}) == 5
    assert resumed.suggest("5") is None


def killed(searcher: Any, resumed: Any, state: Path, later: int) -> list[Any]:
    """Propose ``later`` trials after the last record of the log, resume from it, and return what is proposed again."""
    searcher.save(str(state))
    logged = searcher.proposer.record.snapshot(everything=True)
    for number in range(later):
        assert searcher.suggest(f"lost-{number}")
    resumed.proposer.restore_study(logged)
    resumed.restore(str(state))
    return [resumed.suggest(f"again-{number}") for number in range(later)]


def test_a_grid_after_a_kill_has_each_point_once(storage: Path, tmp_path: Path) -> None:
    space = {"x": tune.grid_search([number / 12 for number in range(12)])}
    searcher, resumed = (searcher_of(storage, BasicVariantGenerator(), space, num_samples=1) for _ in range(2))
    configs = [searcher.suggest(f"kept-{number}") for number in range(3)]
    configs += killed(searcher, resumed, tmp_path / "state", later=4)
    configs += [resumed.suggest(f"new-{number}") for number in range(5)]
    assert [config["x"] for config in configs] == [number / 12 for number in range(12)]
    assert resumed.suggest("one more") is None


def test_a_searcher_of_ray_after_a_kill_is_told_of_what_it_proposed_again(storage: Path, tmp_path: Path) -> None:
    searcher, resumed = (searcher_of(storage, OptunaSearch(seed=3), num_samples=12) for _ in range(2))
    configs = [searcher.suggest("kept")]
    again = killed(searcher, resumed, tmp_path / "state", later=3)
    configs += again
    for number in range(3):
        resumed.on_trial_complete(f"again-{number}", {"score": 0.1 * number, "training_iteration": 1})
    configs.append(resumed.suggest("new"))
    assert len({config["x"] for config in configs}) == 5
    own_trials = resumed.source._searcher._ot_study.trials
    assert [trial.params["x"] for trial in own_trials] == [config["x"] for config in configs]
    assert [trial.value for trial in own_trials[1:4]] == [0.0, 0.1, 0.2]
    assert [trial.params["x"] for trial in resumed.proposer.trials()] == [config["x"] for config in configs]


def test_a_trial_that_waited_at_a_kill_ends_with_its_last_result(storage: Path, tmp_path: Path) -> None:
    searcher, resumed = (searcher_of(storage, OptunaSearch(seed=3), num_samples=12) for _ in range(2))
    searcher.suggest("waiting")
    searcher.on_trial_result("waiting", {"score": 0.4, "training_iteration": 1, "note": object()})
    killed(searcher, resumed, tmp_path / "state", later=0)
    resumed.on_trial_complete("waiting")
    assert [trial.value for trial in resumed.source._searcher._ot_study.trials] == [0.4]


def test_a_configuration_tried_by_hand_takes_no_point_of_a_grid(storage: Path) -> None:
    space = {"x": tune.grid_search([0.1, 0.2, 0.3])}
    run = tuner_of(storage, BasicVariantGenerator(), space, num_samples=1).run
    run.plan.folder.mkdir(parents=True)
    write_sweep_file(run.plan)
    searcher: Any = run.searcher
    configs = [searcher.suggest("first")]
    run.steering.ask({"do": "try", "config": {"x": 0.2}})
    run.steering.grant_all()
    configs += [searcher.suggest(f"later-{number}") for number in range(3)]
    assert [config["x"] for config in configs] == [0.1, 0.2, 0.2, 0.3]
    assert searcher.suggest("one more") is None


def test_several_objectives_come_from_the_searcher(storage: Path) -> None:
    plan = tuner_of(storage, OptunaSearch(metric=["score", "loss"], mode=["max", "min"])).plan
    assert [str(objective) for objective in plan.objectives] == ["max score", "min loss"]
    assert (plan.options.search, plan.options.scheduler) == ("ray.OptunaSearch", "asha")


def test_options_count_with_a_searcher_as_arguments_do(storage: Path) -> None:
    usual = SweepOptions(scheduler="median", num_samples=3, storage=storage, device="cpu")
    searcher: Any = build_tuner(PLAIN, usual, search_alg=OptunaSearch())
    assert (searcher.plan.options.scheduler, searcher.plan.num_samples) == ("median", 3)
    with pytest.raises(SweepError, match="search='tpe' is for the sweep's own samplers"):
        build_tuner(PLAIN, replace(usual, search="tpe"), search_alg=OptunaSearch())


def by_branch(trial: Any) -> None:
    if trial.suggest_categorical("kind", ["near", "far"]) == "far":
        trial.suggest_float("reach", 1.0, 2.0)


def test_a_space_that_branches_is_given_to_the_searcher_too(storage: Path) -> None:
    searcher = searcher_of(storage, OptunaSearch(space=by_branch, metric="score", mode="max", seed=0), by_branch)
    configs = [searcher.suggest(str(number)) for number in range(6)]
    assert {"reach" in config for config in configs} == {True, False}
    assert all(("reach" in config) == (config["kind"] == "far") for config in configs)
    assert [trial.params["kind"] for trial in searcher.proposer.trials()] == [config["kind"] for config in configs]


@pytest.mark.parametrize(
    ("search_alg", "options", "message"),
    [
        (OptunaSearch, {}, r"search_alg=OptunaSearch is a class; give an object, OptunaSearch\(...\)"),
        ("tpe", {}, "search_alg is for objects of Ray Tune; give it as search="),
        (RandomSampler(), {}, "search_alg is for objects of Ray Tune; give it as sampler="),
        (print, {}, "this is no searcher of Ray Tune; derive it from ray.tune.search.Searcher"),
        (Repeater(OptunaSearch(metric="score", mode="max"), 2), {}, "give its searcher, and confirm=K, seeds=S"),
        (ConcurrencyLimiter(Slow(), 2, batch=True), {}, "each trial counts as it ends; leave batch out"),
        (OptunaSearch(metric="loss", mode="min"), {}, "its metric is 'loss', and the Experiment's is 'score'"),
        (Slow(), {"search": "tpe"}, "search='tpe' is for the sweep's own samplers; leave it out, or search_alg=Slow"),
        (OptunaSearch(), {"space": by_branch}, "it cannot propose a trial .*give it .* a space of its own, since"),
        (Slow(), {"space": {"y": tune.uniform(0, 1)}}, "it proposes x, and the Experiment's space has y"),
        (BasicVariantGenerator(), {"space": by_branch}, "it proposes from a mapping of ranges"),
        (OptunaSearch(), {"space": {"x": tune.grid_search([1])}}, r"search_alg=BasicVariantGenerator\(\) goes through"),
        (None, {"search": "ray.OptunaSearch"}, r"none was given; give one of that class, .*search_alg=OptunaSearch\("),
    ],
)
def test_a_search_algorithm_that_cannot_work_is_refused_with_what_to_give(
    search_alg: Any, options: Any, message: str, storage: Path
) -> None:
    with pytest.raises(SweepError, match=message):
        searcher_of(storage, search_alg, **options)


@pytest.mark.parametrize("brought", ["search_alg=Breaking", "the function of the search space"])
def test_an_error_in_what_a_user_brought_for_the_search_ends_the_sweep(brought: str, storage: Path) -> None:
    broken: list[bool] = []

    def space(trial: Any) -> None:
        x = trial.suggest_float("x", -1.0, 1.0)
        if broken:
            raise KeyError(x)

    class Breaking(Searcher):
        def suggest(self, trial_id: str) -> dict[str, float]:
            if broken:
                raise KeyError(trial_id)
            return {"x": 0.5}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            """Learn nothing."""

    by_object = brought.startswith("search_alg")
    given: Any = {"search_alg": Breaking()} if by_object else {}
    tuner: Any = build_tuner(PLAIN if by_object else replace(PLAIN, space=space), storage=storage, **given)
    tuner.plan.folder.mkdir(parents=True)
    searcher, state = tuner.run.searcher, tuner.run.state
    assert set(searcher.suggest("a")) == {"x", "seed"}
    broken.append(True)
    assert searcher.suggest("b") == Searcher.FINISHED
    assert state.ending.why.startswith(f"{brought} failed: KeyError: ")
    assert "test_ray_objects.py, line" in state.ending.why
    assert state.ending.status == 1
    assert (searcher.proposer.n_proposed, len(searcher.proposer.trials())) == (1, 1), (
        "a resumed sweep makes the proposal"
    )
