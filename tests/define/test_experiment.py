"""An Experiment and its recipes are checked when they are made."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields, replace
from functools import wraps
from typing import Any, cast

import pytest
from optuna.distributions import FloatDistribution
from ray import tune

from gaudi_tune import Experiment, Recipe, SweepError
from gaudi_tune.define.objective import Objective
from tests.helpers.quadratic import QUADRATIC


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
        ({"mode": "maximum"}, "mode must be 'max' or 'min', but got 'maximum'"),
        ({"metric": ""}, "metric must be the name of one number .* but got ''; give it as a text"),
        ({"metric": ["loss"]}, r"metric must be a text, but got \['loss'\]"),
        ({"budget": 10}, r"budget must be .* Budget, but got 10; give budget=Budget\(epochs=10\)"),
        ({"num_samples": 0, "mode": 1}, "mode must be .* but got 1; num_samples must be at least 1, but got 0"),
        ({"space": 3}, "space must be ranges by name, .* or a function of an Optuna trial, but got 3"),
        ({"baseline": [0.1]}, r"baseline must be values by name, such as \{'lr': 0.01\}, but got \[0.1\]"),
        ({"baseline": {"x": [0.1]}}, r"baseline must have numbers, texts, bools or None, and x is \[0.1\]"),
        ({"baseline": {"a b": 0.1}}, "baseline must be values by name, and a b: a name must be that of a Python"),
        ({"config_class": dict}, "config_class must be a subclass of TrialConfig, but got <class 'dict'>"),
        ({"imports": "timm"}, r"imports must be a tuple, but got 'timm'; give imports=\('torchvision',\)"),
        ({"recipes": {"big": Recipe()}}, "recipes.big must be 'full' or 'sample', but got 'big'"),
        ({"recipes": {"full": 3}}, r"recipes.full must be .* Recipe, but got 3; give recipes=\{'full': Recipe\("),
        ({"name": "a b"}, "name must have 1 to 80 letters, .* such as 'my-model', but got 'a b'"),
        ({"check": 3}, "check must be a function, but got 3"),
        ({"check": lambda: []}, r"check must take one argument \(too many .*, but got the function <lambda>"),
        ({"scale_lr": "no"}, "scale_lr must be True or False, but got 'no'"),
        ({"per_worker": ("batch_size",)}, "per_worker must name hyperparameters of the baseline, .*'batch_size'"),
        ({"scale_lr": True}, "scale_lr: QuadraticConfig has no lr_for_batch; derive it from TrainingConfig"),
        ({"display_params": ("y",)}, r"display_params must name fields of QuadraticConfig, but got \['y'\]"),
        ({"baselin": {}}, r"Experiment has no field baselin \(did you mean baseline\?\)"),
        ({"train_loop": lambda: None}, "train_loop must take one argument .* give the others with functools.partial"),
        ({"train_loop": yielding}, "train_loop must be a plain function that calls report"),
        ({"train_loop": tune.Trainable}, r"a class derived from tune.Trainable with a step\(\), but got <class"),
        ({"train_loop": None}, "train_loop must be a function of a configuration, given without calling it, .* None"),
    ],
)
def test_wrong_fields_are_refused_when_the_experiment_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SweepError, match=message):
        Experiment(**{**{field.name: getattr(QUADRATIC, field.name) for field in fields(QUADRATIC)}, **changes})


def test_an_experiment_is_a_value() -> None:
    assert replace(QUADRATIC) == QUADRATIC != replace(QUADRATIC, num_samples=3)
    with pytest.raises(FrozenInstanceError):
        QUADRATIC.name = "other"  # type: ignore[misc]


def test_settings_that_fail_are_shown_with_their_line() -> None:
    for settings in (lambda: 1 / 0, lambda: {"a": 1}["b"]):
        with pytest.raises(SweepError, match=r"settings of the recipe failed: \w+Error: .*experiment.py, line \d+\)"):
            Recipe(settings=settings).read_settings()  # type: ignore[arg-type]
    with pytest.raises(SweepError, match=r"settings of the recipe must be plain data, but have .*lock.*; make it in"):
        Recipe(settings=lambda: {"x": threading.Lock()}).read_settings()
    with pytest.raises(SweepError, match="recipe must be values by name, and lambda: a name must be that"):
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
    assert re.fullmatch(r"error: mode must be .* got 'minimum' \(.*test_experiment.py, line \d+\)\n", printed)
    sys.excepthook(KeyError, KeyError("a"), None)
    assert capsys.readouterr().err == "KeyError: 'a'\n"


@pytest.mark.parametrize("changes", [{"space": {"x": FloatDistribution(0.0, 1.0)}}, {"baseline": {"x": 0.5}}])
def test_a_recipe_has_both_a_space_and_a_baseline_or_neither(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a recipe's space and baseline go together"):
        Recipe(**changes)
