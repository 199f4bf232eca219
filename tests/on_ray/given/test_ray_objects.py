"""Objects of Ray Tune in a sweep: what they are told, what they decide, and what a resumed sweep gives back to them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
from ray.tune.search import ConcurrencyLimiter
from ray.tune.search.optuna import OptunaSearch
from ray.tune.stopper import MaximumIterationStopper, TrialPlateauStopper

from gaudi_tune import Budget, Experiment, SweepError, build_tuner
from gaudi_tune.on_ray.given.arguments import read_callbacks, read_stop
from gaudi_tune.on_ray.given.user_callback import HOOKS, UserCallback
from gaudi_tune.on_ray.given.user_stop import UserStop
from gaudi_tune.show.plan_text import plan_lines
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
    said = [record.message for record in caplog.records if "callback Raising failed" in record.message]
    assert sorted(said) == [
        f"the callback Raising failed in {method}(); the sweep continues, and further errors there are not shown"
        for method in ("get_state", "on_trial_start")
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
        (Counting(), r"callbacks=an object of the class Counting: give a list of objects .*\[TBXLoggerCallback\(\)\]"),
        ([Counting], r"callbacks=Counting is a class; give an object, Counting\(...\)"),
        ([print], r"give a list of objects of ray.tune.Callback"),
    ],
)
def test_an_object_that_is_no_callback_is_refused(callbacks: Any, message: str) -> None:
    with pytest.raises(SweepError, match=message):
        read_callbacks(callbacks)


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        (3, r"stop=3: give numbers by metric, such as stop={'training_iteration': 20}; a function"),
        ({"loss": {"min": 1}}, r"stop={'loss': {'min': 1}}: give numbers by metric"),
        (MaximumIterationStopper, r"MaximumIterationStopper is a class; give an object"),
        ([3], "give numbers by metric"),
        ({"training_iteration": 0}, "training_iteration counts reports, from 1; give 1 or more"),
        ({"training_iteration": float("nan")}, "training_iteration counts reports, from 1; give 1 or more"),
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
        "stop names score, which a report has not as a number; that ends no trial"
    ]
    combined = UserStop(read_stop([MaximumIterationStopper(2), TrialPlateauStopper("score")]))
    ends = [combined.why_trial_ends("a", {"score": 0.1, "training_iteration": n}) for n in (1, 2)]
    assert ends == ["", "its CombinedStopper says stop"]
    assert combined.why_sweep_ends() is None

    def broken(trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["nowhere"])

    assert UserStop(read_stop(broken)).why_trial_ends("a", {}) == ""
    assert "stop failed in __call__(); the sweep continues" in caplog.text
    by_function = UserStop(read_stop(lambda trial_id, result: True))
    assert by_function.why_trial_ends("a", {"metrics": 1, "metrics/mAP": 2}) == ""
    assert "Cannot unflatten dict due the key 'metrics/mAP'" in caplog.text
    by_phase = UserStop(read_stop({"phase": 3}))
    answers = [by_phase.why_trial_ends("a", {"phase": phase}) for phase in ("warm", None, np.float32(3), 4)]
    assert answers == ["", "", "phase 3 reached the 3 of its stop", "phase 4 reached the 3 of its stop"]
    assert "stop names phase, which a report has not as a number" in caplog.text


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
    usual = {"stop": {"training_iteration": 4}, "callbacks": [Counting()], "storage": storage, "device": "cpu"}

    def budget(experiment: Experiment, **options: Any) -> str:
        tuner: Any = build_tuner(experiment, **{**usual, **options})
        return str(tuner.plan.budget)

    assert budget(PLAIN) == "4 epochs"
    told = capsys.readouterr().out
    assert "given   callbacks: Counting; an error in one is logged, and the sweep continues" in told
    assert "a trial ends when training_iteration is 4 or more\n" in told
    assert "to resume the sweep, give build_tuner() the same objects again" in told
    assert budget(PLAIN, epochs=7) == "7 epochs"
    assert budget(PLAIN, stop={"epoch": 5}) == "5 epochs"
    assert budget(PLAIN, stop=MaximumIterationStopper(30)) == "30 epochs"
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
