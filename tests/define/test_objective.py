"""Which value is better, and which one leads a sweep."""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any, cast

import pytest
from optuna.distributions import FloatDistribution
from ray import tune
from ray.tune.result import AUTO_RESULT_KEYS, DONE, EXPERIMENT_TAG, SHOULD_CHECKPOINT, TRIAL_ID

from gaudi_tune import Recipe, SweepError
from gaudi_tune.define.objective import SET_BY_SWEEP, Objective, usual_mode
from tests.helpers.quadratic import QUADRATIC


@pytest.mark.parametrize(
    ("value", "trial", "best", "leads"),
    [
        (0.1, 7, None, True),
        (0.2, 7, (0.1, 2), True),
        (0.1, 7, (0.2, 2), False),
        (0.1, 7, (0.1, 2), False),
        (0.1, 1, (0.1, 2), True),  # it reports later, and has the lower number
        (math.nan, 1, (0.1, 2), False),
        (math.nan, 1, None, False),
    ],
)
def test_of_equal_values_that_of_the_lower_number_leads(
    value: float, trial: int, best: tuple[float, int] | None, leads: bool
) -> None:
    assert Objective("score", "max").leads(value, trial, best) is leads


def test_less_is_better_in_mode_min() -> None:
    loss = Objective("val_loss", "min")
    assert loss.better(0.1, than=0.2)
    assert not loss.better(0.1, than=0.1)
    assert loss.leads(0.1, 7, (0.2, 2))
    assert not loss.leads(math.inf, 7, None)


@pytest.mark.parametrize(
    "name",
    [
        "loss", "val_loss", "valLoss", "valloss", "eval/loss", "loss_epoch", "error_rate", "top5_error",
        "perplexity", "rmse", "mae", "wer", "latency_ms", "latency_p99", "MSE", "mean_squared_error",
        "cross_entropy", "dice_loss", "fid_score", "brier_score",
    ],
)  # fmt: skip
def test_a_loss_is_minimized(name: str) -> None:
    assert usual_mode(name) == "min"
    assert Objective.of(name, None) == Objective(name, "min")


@pytest.mark.parametrize(
    "name",
    [
        "accuracy", "val_accuracy", "acc1", "f1", "val_macro_f1", "f1_score", "auc_roc", "episode_reward_mean",
        "score", "test_score", "bleu", "rougeL", "recall@10", "samples_per_s", "train_samples_per_second",
        "squad_f1", "r2_score",
    ],
)  # fmt: skip
def test_an_accuracy_is_maximized(name: str) -> None:
    assert usual_mode(name) == "max"


@pytest.mark.parametrize(
    "name",
    [
        "distance", "time", "noise", "neg_mean_squared_error", "neg_log_likelihood", "loss_scale",
        "accuracy_drop", "reward_std", "error_reduction", "loss_per_sample", "seconds_per_step",
        "time_per_step", "loss_accuracy", "anomaly_score", "lossless_ratio",
    ],
)  # fmt: skip
def test_a_name_that_does_not_say_which_is_better_needs_a_mode(name: str) -> None:
    with pytest.raises(
        SweepError, match=f"mode must be given for the metric '{name}', .*; give mode='max' or mode='min'"
    ):
        replace(QUADRATIC, metric=name, mode=None)
    assert replace(QUADRATIC, metric=name, mode="min").objective == Objective(name, "min")


def yielding(config: dict[str, Any]) -> Iterator[int]:
    yield 1


def with_a_seed(loop: Callable[[dict[str, Any], int], None]) -> Callable[[dict[str, Any]], None]:
    @wraps(loop)
    def inner(config: dict[str, Any]) -> None:
        loop(config, 3)

    return inner


def test_a_loop_may_be_decorated_with_something_that_gives_it_more() -> None:
    @with_a_seed
    def loop(config: dict[str, Any], seed: int) -> None:
        pass

    replace(QUADRATIC, train_loop=loop)


def test_an_experiment_has_one() -> None:
    assert QUADRATIC.objective == Objective("score", "max")
    assert replace(QUADRATIC, metric="train_loss", mode="min").objective == Objective("train_loss", "min")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "maximum"}, r"mode must be 'max' .* or 'min' \(less is better\), but got 'maximum'; give mode='max'"),
        ({"mode": "minimum"}, "but got 'minimum'; give mode='min'"),
        ({"mode": 1}, "but got 1; give one of the two"),
        ({"metric": ""}, "metric must be the name of one number .* but got ''; give it as a text"),
        ({"metric": 3}, "metric must be the name of one number .* but got 3; give it as a text"),
        ({"metric": ["loss"]}, r"but got \['loss'\]; give it as a text, such as 'val_loss'"),
        ({"budget": 10}, r"budget must be a Budget, such as Budget\(epochs=10\), but got 10"),
        (
            {"num_samples": 0},
            "num_samples must be a whole number from 1 .* but got 0; give one, such",
        ),
        ({"baseline": [0.1]}, r"baseline must be values by name, such as \{'lr': 0.01\}, but got \[0.1\]"),
        ({"baseline": {"x": [0.1]}}, r"baseline must have numbers, texts, bools or None, but got x=\[0.1\]"),
        ({"baseline": {1: 0.1}}, "baseline must have names that are those of Python variables, but got 1"),
        (
            {"config_class": dict},
            "config_class must be a class derived from TrialConfig, but got <class 'dict'>",
        ),
        ({"imports": "timm"}, r"imports must be a tuple of texts, but got 'timm'; give one, such as \('timm',\)"),
        ({"imports": (5,)}, r"imports must be a tuple of texts, but got \(5,\)"),
        ({"recipes": {"big": Recipe()}}, "recipes may have full and sample, but got 'big'; give it one of these names"),
        ({"recipes": {"full": {}}}, r"recipes\['full'\] must be one such as Recipe\(num_samples=20\), but got \{\}"),
        ({"name": "a b"}, "name must have 1 to 80 letters, .* but got 'a b'; give one such as 'my-model'"),
        ({"check": 3}, "check must be a function, but got 3; give the function, or leave it out"),
        ({"scale_lr": "no"}, "scale_lr must be True or False, but got 'no'"),
        ({"baselines": [1]}, r"baselines must be given by name, such as .* but got \[1\]"),
        ({"per_worker": ("batch_size",)}, r"per_worker must name hyperparameters of the baseline, .* \['batch_size'\]"),
        ({"scale_lr": True}, "scale_lr: QuadraticConfig has no lr_for_batch; derive it from TrainingConfig"),
        ({"display_params": ("y",)}, r"display_params must name fields of QuadraticConfig, but got \['y'\]"),
        ({"train_loop": lambda: None}, "train_loop must take one argument, .* give the others with functools.partial"),
        (
            {"check": lambda: []},
            "check must take one argument, but the function <lambda> does not .*too many",
        ),
        ({"train_loop": yielding}, "train_loop must be a plain function, but .* is async, or yields"),
        (
            {"train_loop": tune.Trainable},
            r"a class derived from ray.tune.Trainable with a step\(\), but got the class Trainable; give one",
        ),
        ({"train_loop": None}, "train_loop must be a function .* but got None; give the function itself"),
    ],
)
def test_a_wrong_one_is_refused_when_the_experiment_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(QUADRATIC, **changes)


def test_settings_that_fail_are_shown_with_their_line() -> None:
    for settings in (lambda: 1 / 0, lambda: {"a": 1}["b"]):
        with pytest.raises(SweepError, match=r"settings of the recipe failed: \w+Error: .*objective.py, line \d+\)"):
            Recipe(settings=settings).read_settings()  # type: ignore[arg-type]
    with pytest.raises(SweepError, match=r"settings of the recipe: x must be plain data, .*; make it in"):
        Recipe(settings=lambda: {"x": threading.Lock()}).read_settings()
    with pytest.raises(SweepError, match=r"the settings of the recipe must have names .* but got 'lambda'"):
        Recipe(settings=lambda: {"lambda": 1}).read_settings()


def test_an_error_that_ends_a_script_is_a_line_with_its_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    try:
        replace(QUADRATIC, mode=cast(Any, "minimum"))
    except SweepError as error:
        sys.excepthook(type(error), error, error.__traceback__)
    printed = capsys.readouterr().err
    assert re.fullmatch(r"error: mode must be .*; give mode='min' \(.*test_objective.py, line \d+\)\n", printed)
    sys.excepthook(KeyError, KeyError("a"), None)
    assert capsys.readouterr().err == "KeyError: 'a'\n"


@pytest.mark.parametrize("changes", [{"space": {"x": FloatDistribution(0.0, 1.0)}}, {"baseline": {"x": 0.5}}])
def test_a_recipe_has_both_a_space_and_a_baseline_or_neither(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a recipe's space and baseline go together"):
        Recipe(**changes)


@pytest.mark.parametrize("name", sorted({*AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT, TRIAL_ID, EXPERIMENT_TAG}))
def test_a_name_that_tune_sets_is_no_metric(name: str) -> None:
    with pytest.raises(ValueError, match=f"but got '{name}'; report the number under another name"):
        Objective(name, "min")


@pytest.mark.parametrize("name", sorted(SET_BY_SWEEP))
def test_a_name_that_the_sweep_sets_is_no_metric(name: str) -> None:
    with pytest.raises(ValueError, match=f"the sweep does not set itself, but got '{name}'; report the number under"):
        Objective(name, "min")


@pytest.mark.parametrize(("name", "problem"), [("config/x", "is a hyperparameter"), ("loss\nbest 0.1", "the name of")])
def test_a_hyperparameter_or_more_than_a_line_is_no_metric(name: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Objective(name, "min")
