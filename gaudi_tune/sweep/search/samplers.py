"""Samplers by name: Optuna's, and those that a module of the user's has; tried before a sweep begins."""

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

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import did_you_mean
from gaudi_tune.define.sweep_plan import Plan
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
    # It would warn of each hyperparameter of a space that branches, which it draws at random.
    "QMCSampler": {"warn_independent_sampling": False},
}
"""What samplers get unless the user says otherwise, by class."""


def make_sampler(given: str, seed: int) -> BaseSampler:
    """Return the sampler of that name, made with the arguments that may follow it and, if it takes one, a seed.

    Args:
        given: A short name, a class of Optuna's, or anything that can be imported and called, such as
            ``my_samplers.hebo``; with arguments as in Python: ``TPESampler(n_startup_trials=5)``.
        seed: Seeds it.

    Raises:
        SweepError: There is none, or it cannot be made.
    """
    name, arguments = _parsed(given)
    class_name = SAMPLERS.get(name.lower(), name)
    make = _imported(given, name) if "." in name else _known(class_name)
    if make is None:
        others = sorted(filter(_needs_no_more_than_a_seed, optuna.samplers.__all__))
        raise SweepError(
            f"--search {given}: no such sampler{did_you_mean(name, [*SAMPLERS, *others])}; take {', '.join(SAMPLERS)}, "
            f"one of {', '.join(others)}, or one of a module (my_samplers.mine); build_tuner(sampler=...) takes an "
            f"object, which you pass again to resume the sweep"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # the user named it
            seeded = {"seed": seed} if "seed" in inspect.signature(make).parameters else {}
            sampler = make(**seeded, **{**ARGUMENTS.get(class_name, {}), **arguments})
    except (TypeError, ValueError, ImportError) as error:
        raise SweepError(
            f"--search {given}: this sampler cannot be created ({error}); correct its arguments"
        ) from error
    if not isinstance(sampler, BaseSampler):
        raise SweepError(
            f"--search {given}: it returned a {type(sampler).__name__}, and must return a sampler (a subclass of "
            f"optuna.samplers.BaseSampler)"
        )
    return sampler


def tried_sampler(plan: Plan, sampler: BaseSampler | None = None) -> BaseSampler | None:
    """See that the sampler of a plan can be made, and proposes from its space before and after trials have values: one
    with ``n_startup_trials`` needs what it needs, such as a package, only after these.

    Returns:
        The one that the user brought, as ``sampler`` or by the name of a module; None for those that have names.
    """
    search, space, objectives = plan.options.search, plan.experiment.search_space, len(plan.objectives)
    name, arguments = _parsed(search)
    own = sampler is not None or "." in name
    made = sampler or make_sampler(search, plan.options.seed)
    # An own one may keep in itself what it learns; of another, a new one is made for each proposal.
    study = optuna.create_study(sampler=copy.deepcopy(made) if own else made, directions=["minimize"] * objectives)
    try:
        for value in range(max(2, min(arguments.get("n_startup_trials", 0), plan.num_samples))):
            _, number = space.propose(study)
            study.tell(number, [float(value)] * objectives)
        space.propose(study)
    except SweepError:
        raise
    except Exception as error:
        # Each sampler has its own needs: a package that is not installed, ranges of one kind, one objective.
        raise SweepError(
            f"--search {search}: this sampler cannot search this space ({error}); fix that, or take gp or tpe"
        ) from error
    return made if own else None


def _parsed(given: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments that follow it."""
    try:
        found = ast.parse(given, mode="eval").body
        if not isinstance(found, ast.Call):
            return given, {}
        if found.args or any(keyword.arg in (None, "seed") for keyword in found.keywords):
            raise ValueError("arguments need their names, and the seed comes from --seed")
        return ast.unparse(found.func), {str(k.arg): ast.literal_eval(k.value) for k in found.keywords}
    except (ValueError, SyntaxError) as error:
        raise SweepError(f"--search {given}: give NAME or NAME(argument=value, ...), as in Python ({error})") from error


def _known(class_name: str) -> Any:
    found = getattr(optuna.samplers, class_name, None)
    known = isinstance(found, type) and issubclass(found, BaseSampler)
    return GaussianProcessSampler if class_name == "GaussianProcessSampler" else found if known else None


def _imported(given: str, name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SweepError(
            f"--search {given}: cannot be imported ({error}); give MODULE.FUNCTION of a module that Python finds here"
        ) from error


def _needs_no_more_than_a_seed(name: str) -> bool:
    if not name.endswith("Sampler") or name.startswith("Base"):
        return False
    parameters = inspect.signature(getattr(optuna.samplers, name)).parameters
    return "seed" in parameters and all(p.default is not p.empty for p in parameters.values())
