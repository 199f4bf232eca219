"""A train function or a class with Ray Tune's ``param_space``, as an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, update_wrapper
from numbers import Real
from typing import TYPE_CHECKING, Any

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.base.names import CONFIRMS
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.ranges import WithPrior, is_range
from gaudi_tune.on_ray.given.ray_search import is_grid
from gaudi_tune.plan.apply import SET_BY_OPTIONS

if TYPE_CHECKING:
    from gaudi_tune.training.session import TrainLoop


def experiment_of(trainable: Any, changes: dict[str, Any]) -> Experiment:
    """Return the experiment of a train function or class and the ``param_space`` among the arguments of build_tuner().

    Constants that no study can keep, such as lists, are given to the train function as they are, and so are those with
    the name of an option, such as ``steps``. A space within a space is flat in the study, ``model_hidden`` for
    ``{"model": {"hidden": ...}}``, and nested again for the train function.
    """
    if not callable(trainable) or "param_space" not in changes:
        raise SweepError(
            f"build_tuner() needs an Experiment(...), or a train function and its param_space, but got "
            f"{written(trainable)}; give it first"
        )
    space, constants, paths = changes.pop("param_space"), dict[str, Any](), dict[str, tuple[str, ...]]()
    if isinstance(space, Mapping):
        space, paths = _flat(space)
        constants = {name: value for name, value in space.items() if not _belongs_in_a_space(name, value)}
        space = {name: value for name, value in space.items() if name not in constants}
    experiment = Experiment(train_loop=trainable, space=space)
    if not constants and not paths:
        return experiment
    train_loop = partial(_with_constants, experiment.train_loop, constants, paths)
    return replace(experiment, train_loop=update_wrapper(train_loop, experiment.train_loop))  # with its resources


def _belongs_in_a_space(name: str, value: Any) -> bool:
    if name == CONFIRMS:  # the sweep alone says which trial confirms another: a space with it is refused
        return True
    if value is None or isinstance(value, str | Real):
        return name not in SET_BY_OPTIONS
    return _holds_range(value)


def _holds_range(value: Any) -> bool:
    if is_range(value) or is_grid(value) or isinstance(value, WithPrior):
        return True
    parts = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, Mapping | list | tuple) and any(map(_holds_range, parts))


def _flat(space: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[str, ...]]]:
    """Return a space without spaces within it, and the path in ``space`` of each entry that was in one."""
    flat: dict[str, Any] = {}
    paths: dict[str, tuple[str, ...]] = {}
    for name, value in space.items():
        if isinstance(value, Mapping) and not is_grid(value) and _holds_range(value):
            inner, inner_paths = _flat(value)
            new = {f"{name}_{key}": entry for key, entry in inner.items()}
            paths |= {f"{name}_{key}": (name, *inner_paths.get(key, (key,))) for key in inner}
        else:
            new = {name: value}
        if repeated := sorted(new.keys() & (flat.keys() | space.keys() - {name})):
            raise SweepError(f"param_space has {repeated[0]} twice, once as a space in a space; rename one of them")
        flat |= new
    return flat, paths


def _with_constants(
    train_loop: TrainLoop, constants: Mapping[str, Any], paths: Mapping[str, Sequence[str]], config: dict[str, Any]
) -> None:
    """Call a train loop with its constants, and with the entries of spaces in a space where they were."""
    # Seeds of a confirmation that were all the same would say that there is no chance in its result.
    nested = {**config, **constants, **({"seed": config["seed"]} if config.get(CONFIRMS) else {})}
    for name in paths.keys() & nested.keys():
        *folders, key = paths[name]
        parent = nested
        for folder in folders:
            parent = parent.setdefault(folder, {})
        parent[key] = nested.pop(name)
    train_loop(nested)
