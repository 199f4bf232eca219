"""Search spaces that are nearly right: ranges of Ray Tune and of Optuna, dicts, and functions."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from ray import tune

from gaudi_tune import WithPrior
from gaudi_tune.define.sweep_plan import Plan
from tests.tools.fuzz.given import SMALL, Input, made
from tests.tools.fuzz.values import MARK, ODD, Colour, odd_value, raising, shown

NUMBERS: list[Callable[[], Any]] = [
    lambda: 0, lambda: 1, lambda: 2, lambda: 10, lambda: -1, lambda: 0.0, lambda: 0.5, lambda: 1.0, lambda: 1e-5,
    lambda: 0.1, lambda: 1e308, lambda: 1e-300, lambda: math.nan, lambda: math.inf, lambda: "0.1", lambda: "1",
    lambda: True, lambda: None, lambda: 10**20, lambda: [1], lambda: 3, lambda: 100, *ODD,
]  # fmt: skip
"""Bounds, steps and priors."""
CHOICES: list[Callable[[], Any]] = [
    lambda: [8, 16, 32], lambda: ["a", "b"], lambda: [], lambda: [1], lambda: [1, 1], lambda: [1, True],
    lambda: [1, 1.0], lambda: [0, False, None], lambda: [math.nan, 1.0], lambda: [math.inf, 1], lambda: [None],
    lambda: [[1, 2], [3]], lambda: [(1, 2), (3, 4)], lambda: [{"a": 1}, {"b": 2}], lambda: ["a"] * 5,
    lambda: (n for n in (1, 2)), lambda: {"a": 1, "b": 2}, lambda: {1, 2}, lambda: "abc", lambda: 5,
    lambda: [raising, 1], lambda: ["1", 1], lambda: ["", " "], lambda: [int, float], lambda: [1e308, -1e308],
    lambda: [tune.uniform(0, 1), 1], lambda: ["None", None], lambda: [0.0, -0.0], lambda: list(Colour), *ODD,
]  # fmt: skip
"""Choices."""
NAMES = (
    "lr", "lr", "lr", "x", "x", "batch_size", "a b", "", "1a", "lambda", "seed", "epochs", "data", "sgd.lr", "model.lr",
    "é", "config", "__class__", "confirms", "self", "from_dict", "lr ", "LR",
)  # fmt: skip
"""Names of hyperparameters."""


def entry(random: Random) -> Any:
    """Return an entry of a search space."""
    low, high, step = (random.choice(NUMBERS)() for _ in range(3))
    choices = random.choice(CHOICES)()
    makers: list[Callable[[], Any]] = [
        lambda: tune.uniform(low, high), lambda: tune.loguniform(low, high), lambda: tune.quniform(low, high, step),
        lambda: tune.qloguniform(low, high, step), lambda: tune.randint(low, high),
        lambda: tune.lograndint(low, high), lambda: tune.qrandint(low, high, step),
        lambda: tune.qlograndint(low, high, step), lambda: tune.choice(choices), lambda: tune.choice(choices),
        lambda: tune.randn(0, 1), lambda: tune.qrandn(0, 1, 0.1), lambda: tune.sample_from(lambda spec: 1),
        lambda: tune.grid_search(choices), lambda: FloatDistribution(low, high),
        lambda: FloatDistribution(low, high, log=True), lambda: FloatDistribution(low, high, step=step),
        lambda: IntDistribution(low, high), lambda: IntDistribution(low, high, step=step),
        lambda: IntDistribution(low, high, log=True), lambda: CategoricalDistribution(choices),
        lambda: odd_value(random), lambda: choices, lambda: WithPrior(tune.uniform(0.0, 1.0), low),
        lambda: WithPrior(odd_value(random), 1), lambda: {"a": tune.uniform(0, 1)}, lambda: (low, high),
        lambda: [low, high], lambda: f"uniform({low}, {high})", lambda: raising, lambda: tune.uniform(0.0, 1.0),
    ]  # fmt: skip
    return random.choice(makers)()


# Functions. The first ones raise an error of the user's.


def raises(trial: Any) -> Any:
    trial.suggest_float("lr", 0, 1)
    raise ZeroDivisionError(MARK)


def raises_at_once(trial: Any) -> Any:
    raise KeyError(MARK)


def raises_in_a_branch(trial: Any) -> Any:
    if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "adam":
        raise AttributeError(MARK)


def exits(trial: Any) -> Any:
    sys.exit(0)


def nested(trial: Any) -> Any:
    return {"a": {"b": trial.suggest_float("b", 0, 1)}}


def two_ranges(trial: Any) -> Any:
    trial.suggest_float("lr", 0, 1)
    trial.suggest_float("lr", 0, 2)


def two_kinds(trial: Any) -> Any:
    trial.suggest_float("lr", 0, 1)
    trial.suggest_int("lr", 0, 2)


def returns_list(trial: Any) -> Any:
    return [trial.suggest_float("lr", 0, 1)]


def generator(trial: Any) -> Any:
    yield trial.suggest_float("lr", 0, 1)


def lists_as_choices(trial: Any) -> Any:
    trial.suggest_categorical("lr", [[1], [2]])


def without_argument() -> Any:
    return {}


def conditional(trial: Any) -> Any:
    """Return nothing: this one is right, and branches."""
    if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "sgd":
        trial.suggest_float("sgd.lr", 0.01, 1, log=True)
    else:
        trial.suggest_float("adam.lr", 1e-5, 1e-2, log=True)


def returns_another(trial: Any) -> Any:
    return {"lr": trial.suggest_float("lr", 0.1, 1) / 2}


RAISING: list[Any] = [raises, raises_at_once, raises_in_a_branch]
"""Functions whose error is the user's."""
FUNCTIONS: list[Any] = [
    *RAISING, exits, nested, two_ranges, two_kinds, returns_list, generator, lists_as_choices,
    returns_another, without_argument, conditional,
]  # fmt: skip
MUST_NOT: dict[Any, str] = {
    two_ranges: "one name with two ranges", two_kinds: "one name with two ranges", nested: "nested",
    exits: "it ends the process", returns_list: "a list",
    returns_another: "it returns another value",
}  # fmt: skip
"""Functions that must not be accepted, and why."""


def random_space(random: Random) -> Any:
    """Return a space."""
    kind = random.randrange(8)
    if kind == 0:
        return random.choice(FUNCTIONS)
    if kind == 1:
        return odd_value(random)
    space: dict[Any, Any] = {}
    while not space:
        with suppress(Exception):  # Tune and Optuna refuse some ranges themselves
            space = {random.choice(NAMES): entry(random) for _ in range(random.choice((1, 1, 1, 2, 3)))}
    if kind == 2:
        space[random.choice((1, None, 1.5, True))] = 1
    return space


def proposals_misread(result: Any) -> str:
    """Return what is wrong with the values of a plan's space; "" if a trial could have each."""
    assert isinstance(result, Plan)
    for name in result.experiment.search_space.names:
        values = result.experiment.search_space.values(name)
        if len(set(map(str, values))) > len(set(values)):
            return f"{name} has choices that are equal: {values[:5]}"
    return ""


def spaces(random: Random, place: Path) -> Input:
    """Return a search space."""
    space = random_space(random)
    is_function = any(space is function for function in FUNCTIONS)
    return Input(
        "space",
        space.__name__ if is_function else shown(space),
        lambda: made(replace(SMALL, space=space)),
        MUST_NOT.get(space, "") if is_function else "",
        proposals_misread,
        raises=any(space is function for function in RAISING),
    )
