"""A small experiment for tests: maximise 1 - x², with trials that fail, diverge and end early on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import optuna
from ray import tune

from gaudi_tune import Budget, Experiment, Recipe
from tests.helpers.loops import QuadraticConfig, quadratic


def space(trial: optuna.Trial) -> dict[str, Any]:
    trial.suggest_float("x", -1.0, 1.0)
    return MISHAPS.get(trial.number, {})


MISHAPS: dict[int, dict[str, int]] = {
    1: {"fail_at": 2},
    2: {"diverge_at": 2},
    3: {"epochs_of_loop": 2},
    4: {"silent_at": 2},
    5: {"done_at": 2},
}
"""What goes wrong in which trial, by its number in the study."""

QUADRATIC = Experiment(
    name="quadratic",
    train_loop=quadratic,
    config_class=QuadraticConfig,
    space=space,
    baseline={"x": 0.9},
    recipes={
        "full": Recipe(settings=dict, budget=Budget(epochs=9), num_samples=8),
        "sample": Recipe(settings=dict, budget=Budget(epochs=4), num_samples=8),
    },
    check=lambda config: [f"nothing to load for {config.epochs} epochs"],
    load_line="{checkpoint}/epoch.txt",
    display_params=("x",),
    metric="score",
)
STEADY = replace(QUADRATIC, name="steady", space={"x": tune.uniform(-1.0, 1.0)})
"""The same without mishaps."""
