"""Samplers by name, from Optuna or from a module of the user's, and a trial run of one before a sweep begins."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import warnings
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler

from gaudi_tune.base.errors import USER_CODE_ERRORS, SweepError, users_error
from gaudi_tune.base.failure import message_of
from gaudi_tune.base.words import did_you_mean
from gaudi_tune.define.options import names_module
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.private.optuna import tell_end
from gaudi_tune.sweep.search.gaussian_process.sampler import GaussianProcessSampler

SAMPLERS = {
    "gp": "GaussianProcessSampler",
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "qmc": "QMCSampler",
    "nsgaii": "NSGAIISampler",
}
"""Short names of samplers; any other of Optuna's is named by its class."""


ARGUMENTS: dict[str, dict[str, Any]] = {
    # Optuna's default, drawing hyperparameters together, proposes into holes between bad trials.
    "TPESampler": {"multivariate": False},
    # It would warn of each hyperparameter of a branching space, since it draws these at random.
    "QMCSampler": {"warn_independent_sampling": False},
}
"""Default arguments of samplers, by class."""


def make_sampler(search: str, seed: int) -> BaseSampler:
    """Return the sampler that ``--search`` names.

    Args:
        search: A short name, a class of Optuna's, or anything that can be imported and called, such as
            ``my_samplers.hebo``; with arguments as in Python: ``TPESampler(n_startup_trials=5)``.
        seed: Its seed, if it takes one.

    Raises:
        SweepError: There is no such sampler, or it cannot be made.
    """
    name, arguments = _parse(search)
    class_name = SAMPLERS.get(name.lower(), name)
    make = _import(search, name) if names_module(search) else _find_class(class_name)
    if make is None:
        class_names = [name for name in sorted(optuna.samplers.__all__) if _find_class(name) is not None]
        raise SweepError(
            f"--search {search}: no such sampler{did_you_mean(name, [*SAMPLERS, *class_names])}; take "
            f"{', '.join(SAMPLERS)}, one of {', '.join(class_names)}, or one of a module (my_samplers.mine); "
            f"build_tuner(sampler=...) takes an object, which you pass again to resume the sweep"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # the user named it
            arguments = {**ARGUMENTS.get(class_name, {}), **arguments}
            if "seed" in inspect.signature(make).parameters:
                arguments["seed"] = seed
            sampler = make(**arguments)
    except USER_CODE_ERRORS as error:
        raise SweepError(
            f"--search {search}: this sampler cannot be created ({users_error(error)}); correct its arguments"
        ) from error
    if not isinstance(sampler, BaseSampler):
        raise SweepError(
            f"--search {search}: it returned a {type(sampler).__name__}, and must return a sampler (a subclass of "
            f"optuna.samplers.BaseSampler)"
        )
    return sampler


def try_sampler(plan: Plan, sampler: BaseSampler | None = None) -> BaseSampler | None:
    """Check that the sampler of a plan can be made and proposes from its space, with and without trials that have
    values: a sampler with ``n_startup_trials`` may need a package only after these.

    Returns:
        The user's own sampler: ``sampler``, or one from a module. None for a sampler with a name.

    Raises:
        SweepError: The sampler cannot be made, or cannot search this space.
    """
    search, space, n_objectives = plan.options.search, plan.experiment.search_space, len(plan.objectives)
    arguments = _parse(search)[1]
    is_users_own = sampler is not None or names_module(search)
    sampler = sampler or make_sampler(search, plan.options.seed)
    try:
        # A user's sampler may keep in itself what it learns, so a copy is tried. Another sampler is made for each
        # proposal.
        study = optuna.create_study(
            sampler=copy.deepcopy(sampler) if is_users_own else sampler, directions=["minimize"] * n_objectives
        )
        # With arguments, try what it does after Optuna's usual 10 trials at random.
        startup = arguments.get("n_startup_trials", 11 if arguments else 0)
        for value in range(max(2, min(startup, plan.num_samples))):
            _, number = space.propose(study)
            tell_end(study, number, [float(value)] * n_objectives)
        space.propose(study)
    except SweepError:
        raise
    except ImportError as error:
        raise SweepError(
            f"--search {search}: this sampler needs a package that is not installed ({message_of(error)}); install "
            f"it, or take gp or tpe"
        ) from error
    except USER_CODE_ERRORS as error:
        # Each sampler has its own needs: ranges of one kind, one objective.
        raise SweepError(
            f"--search {search}: this sampler cannot search this space ({users_error(error)}); fix that, or take gp or "
            f"tpe"
        ) from error
    return sampler if is_users_own else None


def _parse(search: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a sampler and the arguments that follow it."""
    try:
        expression = ast.parse(search, mode="eval").body
        if not isinstance(expression, ast.Call):
            return search, {}
        if expression.args or any(keyword.arg in (None, "seed") for keyword in expression.keywords):
            raise ValueError("arguments need their names, and the seed comes from --seed")
        arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in expression.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:  # the last two where it is nested deep
        raise SweepError(
            f"--search {search}: give NAME or NAME(argument=value, ...), as in Python ({error})"
        ) from error
    return ast.unparse(expression.func), arguments


def _find_class(class_name: str) -> Any:
    """Return the sampler of Optuna's, or of this project, with this class name; None if there is none."""
    if class_name == "GaussianProcessSampler":
        return GaussianProcessSampler
    candidate = getattr(optuna.samplers, class_name, None)
    is_sampler = isinstance(candidate, type) and issubclass(candidate, BaseSampler)
    return candidate if is_sampler and not inspect.isabstract(candidate) else None


def _import(search: str, name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except USER_CODE_ERRORS as error:
        raise SweepError(
            f"--search {search}: cannot be imported ({users_error(error)}); give MODULE.FUNCTION of a module that "
            f"Python finds here"
        ) from error
