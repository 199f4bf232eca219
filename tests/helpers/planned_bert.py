"""BERT's experiment, with options or another space."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.tune_bert import EXPERIMENT
from gaudi_tune import Experiment, SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.plan.planner import make_plan


def plan_for(storage: Path, **changes: Any) -> Plan:
    """Return the plan of a sweep with these options."""
    return make_plan(EXPERIMENT, SweepOptions(storage=storage, **changes))


def with_space(space: Any) -> Experiment:
    """Return the experiment with another space, in all recipes, and its own baseline."""
    recipes = {name: replace(recipe, space=None, baseline=None) for name, recipe in EXPERIMENT.recipes.items()}
    return replace(EXPERIMENT, space=space, recipes=recipes)
