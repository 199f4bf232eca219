"""Ray Tune's TuneConfig and RunConfig: what becomes of each of their fields."""

from __future__ import annotations

import json
import re
from ast import literal_eval
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from ray import train, tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search import BasicVariantGenerator
from ray.tune.search.optuna import OptunaSearch

from gaudi_tune import Experiment, SweepError, SweepOptions, build_tuner
from gaudi_tune.define.options import PROJECT_ROOT, TRAITS
from gaudi_tune.on_ray.given.configs import CONFIGS, READERS, REFUSED
from gaudi_tune.on_ray.given.trainable import experiment_of
from gaudi_tune.training.session import report
from tests.helpers.loops import quadratic
from tests.helpers.sessions import reports_of

OWN = Experiment(train_loop=quadratic, space={"x": tune.uniform(-1.0, 1.0)})
SCORED = replace(OWN, metric="score", mode="max")
NUMBERS: Any = np.array([3, 4])


def echoed(config: dict[str, Any]) -> None:
    report({"score": config["x"], "told": str(sorted(config.items()))})


class Stepping(tune.Trainable):
    """Takes two steps."""

    def step(self) -> dict[str, Any]:
        steps = self.training_iteration + 1
        return {"score": steps * self.config["x"], "done": steps == 2}


def plan_of(experiment: Any, storage: Path, **arguments: Any) -> Any:
    tuner: Any = build_tuner(experiment, **{"device": "cpu", "storage": storage, **arguments})
    return tuner.plan


def test_every_field_is_taken_or_refused() -> None:
    known = {*REFUSED, *READERS, *CONFIGS, *TRAITS, "metric", "mode"}
    known |= {"search_alg", "callbacks", "stop", "checkpoint_score_attribute"}
    for config in (tune.TuneConfig, tune.RunConfig, train.RunConfig, tune.FailureConfig, tune.CheckpointConfig):
        assert {each.name for each in fields(config) if not each.name.startswith("_")} <= known


def test_the_plan_has_notes_of_the_configurations(tmp_path: Path) -> None:
    tune_config = tune.TuneConfig(
        metric="score", mode="max", num_samples=7, max_concurrent_trials=1, time_budget_s=timedelta(minutes=3),
        scheduler=ASHAScheduler(max_t=5), search_alg=OptunaSearch(), reuse_actors=True,
    )  # fmt: skip
    run_config = tune.RunConfig(
        name="mine", storage_path=str(tmp_path / "there"), stop={"training_iteration": 5}, verbose=0,
        failure_config=tune.FailureConfig(max_failures=2),
        checkpoint_config=tune.CheckpointConfig(
            num_to_keep=1, checkpoint_score_attribute="score", checkpoint_frequency=1
        ),
    )  # fmt: skip
    tuner: Any = build_tuner(OWN, tune_config=tune_config, run_config=run_config, device="cpu")
    plan = tuner.plan
    options = plan.options
    assert (plan.name, plan.folder.parent) == ("mine", tmp_path / "there")
    assert [str(objective) for objective in plan.objectives] == ["max score"]
    assert (plan.num_samples, plan.groups, plan.budget.total) == (7, 1, 5)
    assert (options.time_budget, options.retries, options.checkpoint_minutes) == (3.0, 2, 0.0)
    assert (options.scheduler, options.search) == ("ray.AsyncHyperBandScheduler", "ray.OptunaSearch")
    assert not list(tmp_path.iterdir())


def test_defaults_of_ray_change_nothing(storage: Path) -> None:
    usual, given = (
        plan_of(SCORED, storage, name="x", **configs)
        for configs in ({}, {"tune_config": tune.TuneConfig(), "run_config": tune.RunConfig()})
    )
    assert given.options == usual.options


def test_the_plan_says_what_becomes_of_how_many_checkpoints_to_keep_and_how_often_to_save(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = tune.CheckpointConfig(num_to_keep=3, checkpoint_frequency=2)
    plan = plan_of(SCORED, storage, run_config=tune.RunConfig(checkpoint_config=checkpoints))
    assert plan.options.checkpoint_minutes == 0.0
    told = capsys.readouterr().out
    assert "given   num_to_keep=3 has no effect: a trial keeps its best and its latest checkpoint\n" in told
    assert "checkpoint_frequency=2 saves at each report, which is more often" in told
    assert "to resume the sweep, give" not in told  # there is no object


def test_rays_words_are_taken_as_arguments_too(storage: Path) -> None:
    plan = plan_of(
        OWN,
        storage,
        metric="score",
        mode="max",
        max_concurrent_trials=1,
        time_budget_s="90",  # as an option is read
        checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # asks for nothing
        failure_config=tune.FailureConfig(fail_fast=True),
    )
    assert (plan.groups, plan.options.time_budget, str(plan.objectives[0])) == (1, 1.5, "max score")
    assert plan.options.same_errors == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tune_config": tune.TuneConfig}, r"give an object, such as tune.TuneConfig\(...\)"),
        ({"run_config": {"name": "x"}}, r"run_config={'name': 'x'}: give an object, such as tune.RunConfig"),
        ({"tune_config": tune.TuneConfig(num_samples=-1)}, "--num-samples -1: must be at least 1"),
        (
            {"tune_config": tune.TuneConfig(num_samples=3), "num_samples": 4},
            "num_samples is given twice: as an argument",
        ),
        ({"max_failures": 0, "retries": 5}, "max_failures says what retries says, too; give one of them"),
        ({"time_budget_s": 60, "time_budget": 5}, "time_budget_s says what time_budget says, too; give one of them"),
        ({"time_budget_s": float("nan")}, "--time-budget nan: must be a finite number"),
        ({"tune_config": tune.TuneConfig(metric=cast(Any, ["score", "loss"]))}, r"several metrics are objectives=\["),
        ({"storage_path": "elsewhere"}, "storage_path says what storage says, too; give one of them"),
        (
            {"objectives": ("loss:min",), "tune_config": tune.TuneConfig(mode="max")},
            "metric, mode says what objectives says, too; give one of them",
        ),
        ({"tune_config": tune.TuneConfig(metric="loss")}, "metric='loss': the Experiment's is 'score'; leave one"),
        ({"tune_config": tune.TuneConfig(metric="")}, "metric='': the Experiment's is 'score'; leave one"),
        ({"tune_config": tune.TuneConfig(max_concurrent_trials=-1)}, "max_concurrent_trials=-1: give a whole number"),
        ({"max_concurrent_trials": 1.5}, "max_concurrent_trials=1.5: give a whole number, such as 2; 0 is no limit"),
        ({"tune_config": tune.TuneConfig(mode="min")}, "mode='min': the Experiment's is 'max'; leave one"),
        (
            {"tune_config": tune.TuneConfig(trial_name_creator=str)},
            "trial_name_creator: trials are trial-001 and so on",
        ),
        ({"run_config": tune.RunConfig(log_to_file=True)}, "log_to_file: what workers print is in the logs"),
        (
            {"run_config": tune.RunConfig(sync_config=tune.SyncConfig(sync_period=9))},
            "sync_config: a storage gets everything",
        ),
        (
            {"run_config": tune.RunConfig(checkpoint_config=tune.CheckpointConfig(checkpoint_score_attribute="loss"))},
            "checkpoint_score_attribute='loss': the sweep's metric says which is the best",
        ),
        (
            {"run_config": tune.RunConfig(failure_config=tune.FailureConfig(max_failures=-1))},
            "--retries -1: must be at least 0",
        ),
        ({"scaling_config": None}, "scaling_config: a worker has one device; give workers_per_trial=N"),
        ({"fail_fast": "raise"}, "fail_fast='raise': a sweep ends in order after an error; give fail_fast=True"),
        ({"failure_config": {"max_failures": 1}}, r"give an object, such as tune.FailureConfig\(...\)"),
        ({"num_samples": NUMBERS}, r"--num-samples \[3, 4\]: must be a number"),
        ({"tune_config": tune.TuneConfig(num_samples=NUMBERS)}, r"--num-samples \[3, 4\]: must be a number"),
        ({"options": SweepOptions(num_samples=NUMBERS)}, r"--num-samples \[3, 4\]: must be a number"),
        ({"param_space": {}}, r"param_space: the space belongs to the Experiment; give it as Experiment\(space=...\)"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused_with_its_replacement(
    arguments: dict[str, Any], message: str, storage: Path
) -> None:
    with pytest.raises(SweepError, match=message):
        plan_of(SCORED, storage, **arguments)


def test_a_train_function_or_a_class_with_its_param_space_is_an_experiment(storage: Path) -> None:
    given = {"steps": 100, "names": ["a", "b"], "seed": 3}
    space = {"x": tune.uniform(-1.0, 1.0), "kind": "plain", **given}
    config = tune.TuneConfig(metric="score", mode="max", num_samples=3)
    plan = plan_of(tune.with_resources(echoed, {"cpu": 2}), storage, param_space=space, tune_config=config)
    assert (plan.experiment.name, plan.num_samples) == (Path(__file__).stem, 3)
    assert plan.experiment.search_space.names == {"x", "kind"}
    (reported,) = reports_of(plan.experiment.train_loop, {"x": 0.5, "kind": "plain", "epochs": 10, "seed": 1})
    told = {"x": 0.5, "kind": "plain", "epochs": 10, **given}
    assert reported == {"score": 0.5, "told": str(sorted(told.items()))}
    kind = tune.with_parameters(Stepping, data=[1])
    setup = kind.setup
    plan = plan_of(Stepping, storage, name="class", param_space={"x": tune.uniform(0, 1)}, tune_config=config)
    plan_of(kind, storage, name="with-data", param_space={"x": tune.uniform(0, 1)}, tune_config=config)
    assert kind.setup is setup, "a copy of it would look for the data where Ray does not put them"
    assert [r["score"] for r in reports_of(plan.experiment.train_loop, {"x": 2.0}, folder=storage)] == [2.0, 4.0]


@pytest.mark.parametrize(
    ("given", "arguments", "message"),
    [
        (quadratic, {}, r"build_tuner\(\) needs an Experiment\(...\), or a train function and its param_space"),
        (3, {"param_space": {}}, "a train function and its param_space, but got 3"),
        (
            tune.with_resources(lambda config: None, {"gpu": 2}),
            {"param_space": {}},
            "'GPU': 2.0.*: a trial books one device",
        ),
        (
            quadratic,
            {"param_space": {"model": {"lr": tune.uniform(0, 1)}, "model_lr": 1}},
            "param_space has model_lr twice, once as a space in a space",
        ),
        (quadratic, {"param_space": {"x": tune.uniform(0, 1), "confirms": 5}}, "keys that options give.*: confirms"),
        (
            quadratic,
            {"param_space": {"x": tune.grid_search([])}, "search_alg": BasicVariantGenerator()},
            "the search space's x: its grid has no values; give one or more",
        ),
        (
            quadratic,
            {
                "param_space": {"m": {"a": tune.uniform(0, 1)}},
                "search_alg": BasicVariantGenerator(points_to_evaluate=[{"m": {"a": 0.5}}]),
            },
            "it proposes m, and the Experiment's space has m_a; give both the same names",
        ),
        (
            quadratic,
            {
                "param_space": {"m": {"a": tune.uniform(0, 1)}, "x": tune.sample_from(lambda spec: spec.config.m.a)},
                "search_alg": BasicVariantGenerator(),
            },
            "tune.sample_from failed .*: spec.config has m_a here, also where these are in a space in the space",
        ),
        (
            quadratic,
            {"param_space": {"model": {"sizes": [tune.choice([1, 2]), 3]}}},
            "model_sizes: .* a space is flat: give each of its entries a name here, such as model_sizes_0",
        ),
        (int, {"param_space": {}}, "a class derived from tune.Trainable"),
    ],
)
def test_a_trainable_without_a_space_is_refused(
    given: Any, arguments: dict[str, Any], message: str, storage: Path
) -> None:
    with pytest.raises(SweepError, match=message):
        plan_of(given, storage, **arguments)


def test_a_space_in_a_space_is_flat_in_the_study_and_nested_for_the_train_function(storage: Path) -> None:
    space = {
        "x": tune.uniform(-1.0, 1.0),
        "model": {
            "hidden": tune.choice([8, 16]),
            "head": {"dropout": tune.uniform(0, 0.5), "layers": [1, 2]},
            "kind": "mlp",
        },
        "plain": {"seeds": [1]},
    }
    plan = plan_of(echoed, storage, param_space=space, metric="score", mode="max")
    assert plan.experiment.search_space.names == {"x", "model_hidden", "model_head_dropout", "model_kind"}
    config = {"x": 0.5, "model_hidden": 8, "model_head_dropout": 0.1, "model_kind": "mlp"}
    (reported,) = reports_of(plan.experiment.train_loop, config)
    model = {"hidden": 8, "head": {"dropout": 0.1, "layers": [1, 2]}, "kind": "mlp"}
    told = dict(literal_eval(reported["told"]))
    assert told == {"x": 0.5, "model": model, "plain": {"seeds": [1]}}


def test_the_default_folder_of_ray_is_taken_where_it_is_given(storage: Path) -> None:
    given = tune.RunConfig(storage_path=str(Path("~/ray_results").expanduser()))
    assert given.storage_path == tune.RunConfig().storage_path
    tuner: Any = build_tuner(SCORED, run_config=given, device="cpu", name="never-begun")
    assert tuner.plan.folder.parent == Path("~/ray_results").expanduser()


def test_all_fields_that_are_refused_are_named_at_once(storage: Path) -> None:
    checkpoints = tune.CheckpointConfig(checkpoint_at_end=True)
    config = tune.RunConfig(checkpoint_config=checkpoints, log_to_file=True)
    with pytest.raises(SweepError, match=r"checkpoint_at_end: each .*; log_to_file: what|log_to_file.*checkpoint_at"):
        plan_of(SCORED, storage, run_config=config)


def test_the_page_maps_every_word_and_its_script_makes_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (PROJECT_ROOT / "docs" / "from-ray-tune.md").read_text()
    monkeypatch.chdir(tmp_path)
    (script,) = re.findall(r"```python\n(.*?)results = ", page, flags=re.DOTALL)
    exec(script, {"train_loop": quadratic})
    told = capsys.readouterr().out
    assert "at most 20 epochs each" in told
    assert "callbacks: TBXLoggerCallback" in told
    for name in (*REFUSED, *READERS, "metric", "checkpoint_config"):
        assert f"`{name}`" in page, json.dumps(name)


def test_a_seed_in_param_space_is_that_of_all_trials_but_those_that_confirm() -> None:
    seeds: list[int] = []

    def train_loop(config: dict[str, Any]) -> None:
        seeds.append(config["seed"])

    experiment = experiment_of(train_loop, {"param_space": {"x": tune.uniform(0, 1), "seed": 5}})
    for confirms in (0, 3):
        experiment.train_loop({"x": 0.5, "seed": 77, "confirms": confirms})
    assert seeds == [5, 77]
