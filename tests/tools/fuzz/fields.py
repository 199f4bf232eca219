"""Python's doors: fields of an Experiment and of a Budget, arguments of ``build_tuner``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

from optuna.samplers import RandomSampler
from ray import tune

from gaudi_tune import Budget, Experiment, Recipe, SweepError, build_tuner
from gaudi_tune.define.options import TRAITS
from tests.tools.fuzz.given import SMALL, Input, Misread, loop, made, nothing_wrong, read_as
from tests.tools.fuzz.lines import DECIMALS, NUMBERS, SWITCHES, TEXTS
from tests.tools.fuzz.spaces import random_space
from tests.tools.fuzz.values import changed, odd_value, raising, shown

GOOD: dict[str, Callable[[], Any]] = {
    "metric": lambda: "loss", "mode": lambda: "min", "budget": lambda: Budget(epochs=3), "num_samples": lambda: 5,
    "name": lambda: "mine", "baseline": lambda: {"lr": 0.01}, "recipes": lambda: {"full": Recipe(num_samples=3)},
    "load_line": lambda: "load('{checkpoint}')", "display_params": lambda: ("lr",), "imports": lambda: ("json",),
}  # fmt: skip
"""Fields as they should be."""
ALMOST: dict[str, Sequence[Callable[[], Any]]] = {
    "metric": (lambda: "", lambda: "done", lambda: "distance", lambda: ("loss",), lambda: "loss:min", lambda: "loss "),
    "mode": (
        lambda: "minimum", lambda: "MIN", lambda: "maximize", lambda: min, lambda: True, lambda: ["min"],
    ),
    "budget": (lambda: 5, lambda: "5", lambda: {"epochs": 5}, lambda: Budget, lambda: None, lambda: Budget(steps=5)),
    "baseline": (
        lambda: {"lr": "0.01"}, lambda: {"lr": True}, lambda: {"lr": 5.0}, lambda: {"x": 1}, lambda: {1: 2},
        lambda: [("lr", 0.01)], lambda: {"lr": [0.01]}, lambda: {"lr": raising}, lambda: "lr=0.01",
        lambda: {"lr": 0.01, "k": 4}, lambda: {"lr": None}, lambda: {"lr": tune.uniform(0, 1)},
        lambda: {"lr": 0.01, "epochs": 3},
    ),
    "recipes": (
        lambda: {"big": Recipe()}, lambda: {"full": 3}, lambda: Recipe(), lambda: [Recipe()], lambda: {"full": None},
        lambda: {"full": Recipe(settings=raising)}, lambda: {"full": Recipe(settings=lambda: {"epochs": 3})},
        lambda: {"full": Recipe(settings=lambda: {"lambda": 2})}, lambda: {"full": Recipe(settings=lambda: {"lr": 1})},
        lambda: {"sample": Recipe(space={"x": tune.uniform(0, 1)}, baseline={"y": 1})},
        lambda: {"full": Recipe(settings=lambda: {"k": [1, 2]})}, lambda: {"full": Recipe(settings=sys.exit)},
        lambda: {"sample": Recipe(space={}, baseline={})}, lambda: {"full": Recipe(confirm=3, num_samples=2)},
    ),
    "config_class": (lambda: dict, lambda: int, lambda: {"lr": float}, lambda: "Config", lambda: None, lambda: object),
    "train_loop": (
        lambda: None, lambda: "loop", lambda: print, lambda: (lambda: None), lambda: dict, lambda: raising,
        lambda: (lambda config, data: None), lambda: (lambda **config: None),
    ),
    "imports": (
        lambda: "timm", lambda: (5,), lambda: ("no such",), lambda: ["json", None], lambda: ("nosuch_module",),
        lambda: ("",), lambda: {"json"},
    ),
    "display_params": (lambda: "lr", lambda: ("nosuch",), lambda: (1,), lambda: 5, lambda: ["lr"], lambda: {"lr"}),
    "per_worker": (lambda: "lr", lambda: ("nosuch",), lambda: (1,), lambda: 5, lambda: ["lr"], lambda: ("lr", "lr")),
    "name": (lambda: "a b", lambda: "a/b", lambda: "..", lambda: "x" * 300, lambda: 5, lambda: "é", lambda: " "),
    "num_samples": (lambda: True, lambda: 2.5, lambda: "5", lambda: 10**30, lambda: 0, lambda: -1),
    "load_line": (lambda: 5, lambda: "{", lambda: "{checkpoint"),
    "scale_lr": (lambda: "no", lambda: 1, lambda: None),
    "check": (lambda: 3, lambda: "check", list),
    "predictor": (lambda: 3, lambda: "predict", dict),
}  # fmt: skip
"""Fields that are nearly right."""
MUST_NOT: dict[str, Sequence[Any]] = {
    "imports": ("timm", (5,), ("no such",), ("",)), "num_samples": (True, 2.5),
    "mode": (True, "MIN", "minimum"), "display_params": ("lr", ("nosuch",)), "per_worker": ("lr",),
    "scale_lr": ("no", 1), "metric": ("distance", "done", ""), "check": (3,), "predictor": (3,), "load_line": (5,),
}  # fmt: skip
"""Fields that must not be accepted."""


def experiment_fields(random: Random, place: Path) -> Input:
    """Return fields of an Experiment, one or two of them odd."""
    values: dict[str, Any] = {}
    for name in random.sample([field.name for field in fields(Experiment)], random.choice((1, 1, 1, 2))):
        make: Callable[[], Any] = lambda: odd_value(random)  # noqa: E731
        if name == "space":
            make = lambda: random_space(random)  # noqa: E731
        elif name in ALMOST and random.random() < 0.7:
            make = random.choice(ALMOST[name])
        elif name in GOOD and random.random() < 0.4:
            make = GOOD[name]
        try:
            values[name] = make()
        except SweepError:  # a recipe or a budget that is refused itself
            values[name] = {}
    bad = [
        name
        for name, value in values.items()
        if not (name == "metric" and "mode" in values)  # a name that does not say which is better
        if any(type(value) is type(no) and value == no for no in MUST_NOT.get(name, ()))
    ]

    def give() -> Any:
        usual = {"train_loop": loop, "space": {"lr": tune.loguniform(1e-4, 1e-1)}, "metric": "loss"}
        return made(Experiment(**{**usual, **values}))

    text = ", ".join(f"{name}={shown(value)}" for name, value in values.items())
    return Input("Experiment", text, give, f"{bad[0]} is no such value" if bad else "")


def budgets(random: Random, place: Path) -> Input:
    """Return fields of a Budget."""
    chosen = random.sample([field.name for field in fields(Budget)], 3)
    values = {name: random.choice((0, 1, 2, 3, 10, 100, odd_value(random))) for name in chosen}
    wrong = "a bool is no number" if any(isinstance(value, bool) for value in values.values()) else ""
    return Input("Budget", shown(values), lambda: made(replace(SMALL, budget=Budget(**values))), wrong)


def arguments_of_build_tuner(random: Random, place: Path) -> Input:
    """Return arguments of ``build_tuner``."""
    numbers = {
        **{name: int(text) for name, text in NUMBERS.items()},
        **{name: float(text) for name, text in DECIMALS.items()},
    }
    usual: dict[str, Any] = {**numbers, **TEXTS, "sampler": RandomSampler()}
    name = random.choice([*usual, *SWITCHES, "space", "options", "experiment"])
    value = changed(usual.get(name, "x"), random) if random.random() < 0.8 else odd_value(random)
    wrong = ""
    misread: Misread = nothing_wrong
    if name in numbers:
        if isinstance(value, bool | bytes | list | tuple | dict) or type(value).__name__ == "bool":
            wrong = "no number"
        elif isinstance(value, str):
            wrong, misread = read_as(name, value, whole=name in NUMBERS)
    elif name in SWITCHES and not isinstance(value, bool):
        wrong = "neither True nor False"
    elif name in ("objectives", "learn_from", "settings") and (
        hasattr(value, "__next__") or isinstance(value, set | str | dict)
    ):
        wrong = "it has no order, is read once, or is one text"
    extra = (
        {} if random.random() < 0.9 else {random.choice(("tune_config", "epoch", "num-samples", "scheduler_", "")): 1}
    )
    if extra and not extra.keys() & TRAITS.keys():
        wrong = wrong or "there is no such option"

    def give() -> Any:
        arguments: dict[str, Any] = {"device": "cpu", name: value, **extra}
        return build_tuner(arguments.pop("experiment", SMALL), **arguments).plan

    return Input("build_tuner", f"{name}={shown(value)} {extra or ''}", give, wrong, misread)
