"""Objects of Ray Tune that build_tuner() takes under Ray's names: checked, or refused with what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from ray import tune
from ray.tune.result import TRAINING_ITERATION
from ray.tune.stopper import CombinedStopper, Stopper

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.experiment import USUAL_BUDGET, Experiment
from gaudi_tune.define.options import SweepOptions


def read_callbacks(callbacks: Any) -> Sequence[tune.Callback]:
    """Return the callbacks, if they are callbacks of Ray Tune."""
    if isinstance(callbacks, tune.Callback) or not isinstance(callbacks, Sequence):
        raise SweepError(f"callbacks={callbacks!r}: give a list of callbacks, such as callbacks=[TBXLoggerCallback()]")
    for callback in callbacks:
        if isinstance(callback, type):
            raise SweepError(f"callbacks: {callback.__name__} is a class; give an object, {callback.__name__}()")
        if not isinstance(callback, tune.Callback):
            raise SweepError(
                f"callbacks: {callback!r} is no ray.tune.Callback; derive it from that, or call it in the train loop "
                f"if it belongs to the training"
            )
    return list(callbacks)


def read_stop(stop: Any) -> Any:
    """Return Ray Tune's ``stop``, with a list of Stoppers as one; None if there is none."""
    example = "such as stop={'training_iteration': 20}"
    if stop is None or isinstance(stop, Stopper):
        return stop
    if isinstance(stop, Mapping):
        for name, value in stop.items():
            if not isinstance(name, str) or not isinstance(value, Real):
                raise SweepError(f"stop: {name!r}: {value!r} is no number for a metric; give one, {example}")
        return dict(stop)
    if isinstance(stop, list | tuple) and stop and all(isinstance(part, Stopper) for part in stop):
        return CombinedStopper(*stop)
    if isinstance(stop, type) and issubclass(stop, Stopper):
        raise SweepError(f"stop: {stop.__name__} is a class; give an object, {stop.__name__}(...)")
    if callable(stop) and not isinstance(stop, type) and _takes_two(stop):
        return stop
    raise SweepError(
        f"stop={stop!r}: give numbers by metric, {example}; a function of a trial's id and its result; or a "
        f"ray.tune.Stopper"
    )


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind("", {})
    except TypeError:
        return False
    except ValueError:  # some built-in functions have no signature
        return True
    return True


def epochs_of(stop: Any, experiment: Experiment, options: SweepOptions) -> int | None:
    """Return the epochs of a trial. If nothing else gives a budget, ``stop={"training_iteration": N}`` does.

    Ray Tune has no other budget, and each report of a train loop that counts nothing else is an epoch.
    """
    reports = stop.get(TRAINING_ITERATION) if isinstance(stop, Mapping) else None
    has_budget = options.epochs or options.steps or options.seconds or options.resume
    if reports is None or has_budget or experiment.recipes or experiment.budget != USUAL_BUDGET:
        return options.epochs
    return max(1, int(reports))
