"""A train loop of one's own: a space and a metric are all that it needs, wherever it stands."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest
import ray
from ray import cloudpickle, tune

from gaudi_tune import Budget, Experiment, Recipe, SweepError, SweepOptions, build_tuner
from gaudi_tune.cli.run import dry_run_lines
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from gaudi_tune.sweep.record.state_log import logged_trials
from gaudi_tune.training.trial_config import TrialConfig
from tests.helpers.loops import quadratic
from tests.tools.agree.kinds import CheckedSweep, Kind
from tests.tools.agree.loops import Curve

OWN = Experiment(train_loop=quadratic, space={"x": tune.uniform(-1.0, 1.0), "width": 3}, metric="score")


def plan_of(experiment: Experiment, storage: Path, **options: Any) -> Any:
    return make_plan(experiment, SweepOptions(storage=storage, device="cpu", **options))


def test_a_loop_a_space_and_a_metric_make_a_plan(storage: Path) -> None:
    plan = plan_of(OWN, storage)
    assert plan.settings == {"epochs": 10}  # the loop gets nothing that it may not know
    assert (plan.num_samples, plan.budget, plan.experiment.name) == (20, Budget(epochs=10), "loops")
    assert plan.experiment.display_params == ("x",)
    assert "20 trials, no baseline, the sampler proposes the first, at most 10 epochs each" in plan_lines(plan)[0]
    assert "metric  score: more is better, as its name says" in plan_lines(plan)
    assert not any(line.startswith("recipe") for line in plan_lines(plan))
    assert plan.in_brief()["recipe"] is None
    assert {"space       x  -1 to 1", "dry run: all checks passed, nothing was started"} <= {*dry_run_lines(plan)}


def test_the_plan_says_what_is_left_to_an_own_loop(storage: Path) -> None:
    alone, wide = plan_lines(plan_of(OWN, storage)), plan_lines(plan_of(OWN, storage, workers_per_trial=2, steps=9))
    said = ["the train loop must divide the data among the workers", "the train loop gets steps and eval_every"]
    assert [any(words in line for line in wide) for words in said] == [True, True]
    assert not any(words in line for line in alone for words in said)


def test_a_class_or_a_name_is_no_sampler(storage: Path) -> None:
    for wrong in ("tpe", optuna.samplers.QMCSampler):
        with pytest.raises(
            SweepError, match=r"give an object, such as optuna.samplers.QMCSampler\(\); a name is search="
        ):
            build_tuner(OWN, storage=storage, sampler=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"search": "tpe"}, {"options": SweepOptions(search="tpe")}])
def test_one_thing_proposes_the_trials(given: dict[str, Any]) -> None:
    with pytest.raises(
        SweepError, match=r"sampler=an object of the class RandomSampler and search='tpe' both say what proposes"
    ):
        build_tuner(OWN, sampler=optuna.samplers.RandomSampler(), **given)


def test_a_recipe_that_the_experiment_lacks_is_an_error(storage: Path) -> None:
    with pytest.raises(SweepError, match="--recipe full: the experiment loops has no recipes; leave it out"):
        plan_of(OWN, storage, recipe="full")
    one = replace(OWN, recipes={"sample": Recipe()})
    assert plan_of(one, storage, recipe="sample").recipe == "sample"
    with pytest.raises(SweepError, match="the experiment loops has the recipe sample alone; leave it out"):
        plan_of(one, storage, recipe="full")


def test_the_plan_says_which_mode_follows_from_the_name_of_a_metric(storage: Path) -> None:
    loss = Experiment(train_loop=quadratic, space=OWN.space, metric="val_loss")
    plan = plan_of(loss, storage)
    assert "metric  val_loss: less is better, as its name says" in plan_lines(plan)
    assert plan.in_brief()["mode"] == "min"
    assert "metric  val_loss: more is better" in plan_lines(plan_of(replace(loss, mode="max"), storage))
    accuracy = plan_of(replace(loss, metric="accuracy"), storage)  # a mode that was inferred does not stay
    assert "metric  accuracy: more is better, as its name says" in plan_lines(accuracy)


@pytest.mark.parametrize("space", [{}, {"x": 0.5}])
def test_a_space_without_a_range_is_an_error(space: dict[str, Any], storage: Path) -> None:
    with pytest.raises(SweepError, match=r"the search space has no range, .*; give it one, such as space="):
        plan_of(Experiment(train_loop=quadratic, space=space, metric="score"), storage)


def test_budget_and_trials_are_arguments_and_options(storage: Path) -> None:
    own = Experiment(train_loop=quadratic, space=OWN.space, metric="score", budget=Budget(epochs=4), num_samples=7)
    plan = plan_of(own, storage)
    assert (plan.budget.total, plan.num_samples) == (4, 7)
    assert plan_of(own, storage, epochs=2).settings == {"epochs": 2}
    one = Experiment(train_loop=quadratic, space=OWN.space, metric="score", recipes={"full": Recipe(num_samples=3)})
    assert (plan_of(one, storage).recipe, plan_of(one, storage).num_samples) == ("full", 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"settings": ("y=1",)}, r"--set y=1: there is no setting 'y'; the settings are width, x, depth"),
        ({"settings": ("x=far",)}, "--set x=far: x must be a valid number, but got 'far'"),
        ({"settings": ("depth=deep",)}, "--set depth=deep: depth must be a valid integer"),
        ({"baseline_only": True}, "--baseline-only: the experiment loops has no baseline; give it one"),
    ],
)
def test_a_key_unknown_to_the_loop_is_an_error(options: dict[str, Any], message: str, storage: Path) -> None:
    recipes: Any = {"full": Recipe(settings=lambda: {"depth": 2})}
    own = Experiment(train_loop=quadratic, space=OWN.space, metric="score", recipes=recipes)
    assert plan_of(own, storage, settings=("width=5",)).settings == {"epochs": 10, "depth": 2, "width": 5}
    with pytest.raises(SweepError, match=message):
        plan_of(own, storage, **options)


def test_a_space_that_branches_needs_no_class_either(storage: Path) -> None:
    def space(trial: optuna.Trial) -> None:
        trial.suggest_float("x", 0.0, 1.0)
        if trial.suggest_categorical("optimizer", ["adam", "sgd"]) == "sgd":
            trial.suggest_float("momentum", 0.0, 0.9)

    plan = plan_of(Experiment(train_loop=quadratic, space=space, metric="score"), storage)
    assert plan.settings == {"epochs": 10}
    assert set(plan.experiment.display_params) == {"x", "optimizer", "momentum"}
    fixed = plan_of(plan.experiment, storage, settings=("optimizer=adam",))
    assert fixed.settings["optimizer"] == "adam"


@pytest.mark.parametrize(("script", "name"), [("/a/train_bert.py", "train_bert"), ("/a/app/__main__.py", "app")])
def test_the_name_is_that_of_the_file_with_the_loop(script: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Experiment(train_loop=functools.partial(quadratic), space={}, metric="score").name == "loops"
    monkeypatch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
    in_a_cell = types.FunctionType(quadratic.__code__, {"__name__": "__main__"}, "my_loop")
    assert Experiment(train_loop=in_a_cell, space={}, metric="score").name == name


def test_an_object_that_cannot_be_sent_is_found_before_the_start(storage: Path) -> None:
    lock = threading.Lock()

    def loop(config: dict[str, Any]) -> None:
        with lock:
            pass

    with pytest.raises(
        SweepError, match=r"train_loop cannot be sent .*: train_loop -> lock is a lock\. Make it inside"
    ):
        build_tuner(Experiment(train_loop=loop, space=OWN.space, metric="score"), storage=storage)


def test_data_that_is_too_large_to_be_sent_with_a_loop_is_found_before_anything_starts(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray._private.worker, "_post_init_hooks", [])  # which would hand the data to the Ray of others
    large = bytes(100_000_000)

    def loop(config: dict[str, Any], data: bytes = b"") -> None:
        pass

    plan_of(replace(OWN, train_loop=tune.with_parameters(loop, data=large)), storage)
    with pytest.raises(
        SweepError, match=r"uses 100 MB of data .* sends at most 100 MB; load the data inside .*with_parameters\("
    ):
        plan_of(replace(OWN, train_loop=functools.partial(loop, data=large)), storage)


def test_a_module_that_no_worker_finds_is_an_error(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("nowhere")
    monkeypatch.setitem(sys.modules, "nowhere", module)
    exec("def loop(config): pass", module.__dict__)
    with pytest.raises(
        SweepError, match="train_loop uses the module nowhere, and no worker can find it; add its folder"
    ):
        build_tuner(Experiment(train_loop=module.loop, space=OWN.space, metric="score"), storage=storage)


@pytest.mark.processes
def test_a_class_of_the_script_is_the_same_in_another_process(storage: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class OwnConfig(TrialConfig):
        x: float
        kind: Literal["a", "b"] = "a"

    OwnConfig.__module__ = "__main__"  # as in a script, whose names no worker knows
    vars(sys.modules["__main__"])["Literal"] = Literal
    plan = plan_of(
        Experiment(train_loop=quadratic, config_class=OwnConfig, space={"x": tune.uniform(0.0, 1.0)}, metric="score"),
        storage,
    )
    del vars(sys.modules["__main__"])["Literal"]
    code = (
        "import pickle, sys; own = pickle.load(sys.stdin.buffer); print(own.required_names(), "
        "own.from_dict({'x': '0.5', 'epochs': 1}).x)\ntry: own.from_dict({'x': 1, 'kind': 'c', 'epochs': 1})\n"
        "except ValueError as error: print(error)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=cloudpickle.dumps(plan.experiment.config_class),
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        check=True,
    )
    assert ran.stdout.decode().splitlines() == ["['x'] 0.5", "kind='c': Input should be 'a' or 'b'."]


WRONG = """
import ray.train
from gaudi_tune import Experiment, main, tune


def train_loop(config):
    if config["mistake"] == "metric":
        ray.train.report({"acc": config["lr"]})
    return config["batch_size"]


space = {"lr": tune.loguniform(1e-4, 1e-1), "mistake": "metric"}
main(Experiment(train_loop=train_loop, space=space, metric="accuracy"))
"""


RUNS = """
import json, runpy, sys
from tests.helpers.forking_ray import forking_ray

with forking_ray(1, []):
    for options in json.loads(sys.argv[1]):
        sys.argv = ["my.py", *options]
        try:
            runpy.run_path("my.py", run_name="__main__")
        except SystemExit as ended:
            print("status", ended.code)
        print("END", flush=True)
        print("END", file=sys.stderr, flush=True)
"""
"""Runs my.py as often as there are options, with one Ray of one core: to start a Ray takes longer than a sweep here."""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder in which the script has run as one does who has the project from elsewhere, and what it said: of a
    metric that is never reported, and of a key that is not there."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "my.py").write_text(WRONG)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    del environment["MLFLOW_TRACKING_URI"]
    key = ["--set", "mistake=key", "--num-samples", "3", "--same-errors", "2"]
    runs = [["--device", "cpu", "--name", "metric"], ["--device", "cpu", "--name", "key", *key]]
    done = subprocess.run(
        [sys.executable, "-c", RUNS, json.dumps(runs)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    printed, errors = (text.split("END\n")[: len(runs)] for text in (done.stdout, done.stderr))
    return folder, [one + other for one, other in zip(printed, errors, strict=True)]


@pytest.mark.workers
@pytest.mark.own_ray
def test_a_metric_that_is_never_reported_ends_the_sweep_with_one_message(wrong: tuple[Path, list[str]]) -> None:
    folder, (said, _) = wrong
    assert "status 1\n" in said, said
    assert "Traceback" not in said, said
    summary = json.loads((folder / "results" / "metric" / "summary.json").read_text())
    assert summary["counts"] == {"failed": 1}  # none began after the first report
    assert summary["ended_early"]["why"] == (
        "every trial would fail like this: the train loop's report is unusable: the experiment asks for "
        "'accuracy', and the report has acc; did you mean metric='acc'? Else have the train "
        "loop report 'accuracy' each time"
    )
    assert said.count("did you mean") == 2  # when it happens, and at the end


@pytest.mark.workers
@pytest.mark.own_ray
def test_an_error_of_the_loop_is_shown_once_without_the_frames_around_it(wrong: tuple[Path, list[str]]) -> None:
    _, (_, said) = wrong
    assert "status 1\n" in said, said
    assert said.count("Traceback") == 1, said
    assert 'my.py", line 9, in train_loop' in said
    assert "site-packages" not in said
    assert "failed: KeyError: 'batch_size'" in said


@pytest.mark.parametrize("scheduler", ["asha-promote", "pbt"])
def test_a_loop_that_goes_on_from_nothing_is_told_so(
    scheduler: str, storage: Path, tracking_store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No trial of it waits, which would train its first epochs twice; and a population of it cannot be."""
    kind = Kind(Curve(reads=False), {"scheduler": scheduler}, complete=scheduler != "pbt")
    sweep = CheckedSweep(f"own-{scheduler}", kind, storage, tracking_store)
    assert sweep.run() == []
    warned = [record.message for record in caplog.records if "ask for its checkpoint" in record.message]
    summary = json.loads((sweep.folder / "summary.json").read_text())
    if scheduler == "pbt":
        assert summary["ended_early"]["why"].startswith(
            "--scheduler pbt continues trials with other hyperparameters, but the train loop does not ask for its "
            "checkpoint; begin it with get_checkpoint() (docs/own-model.md), or take another"
        )
        told = sweep.printed  # also in a notebook, where nothing else is printed
        assert "\nthe sweep ended early: --scheduler pbt continues trials" in told
        assert "\nresume it with: build_tuner(..., resume='own-pbt" in told
        return
    assert warned == [
        "the train loop does not ask for its checkpoint: weak trials end and do not wait, and a trial that is "
        "interrupted begins again. Begin it with get_checkpoint() (docs/own-model.md)"
    ]
    assert set(summary["counts"]) <= {"finished", "stopped early"}
    assert not any(trial.reason.endswith("promoted later") for trial in logged_trials(sweep.folder))
    assert summary["best"]["checkpoint"] is not None
