"""Experiments to run, and the programmatic API: ``from experiments import build_tuner``."""

from experiments.sweep.budget import Budget
from experiments.sweep.command_line import main
from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import Experiment, Recipe
from experiments.sweep.options import SweepOptions
from experiments.sweep.tuner import build_tuner

__all__ = ["Budget", "Experiment", "Recipe", "SweepError", "SweepOptions", "build_tuner", "main"]
