"""Objects of Ray Tune that build_tuner() takes under Ray's names: checked, or refused with what to write instead."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from ray import tune
from ray.tune.result import TRAINING_ITERATION
from ray.tune.schedulers import (
    FIFOScheduler,
    HyperBandScheduler,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
    TrialScheduler,
)
from ray.tune.stopper import CombinedStopper, Stopper

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.experiment import USUAL_BUDGET, Experiment
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import RAYS, RAYS_POPULATION, SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.private.ray_tune import goal_of, keeps_state, longest_trial, mutated_by, time_attribute


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


def take_scheduler(changes: dict[str, Any]) -> TrialScheduler | None:
    """Return the scheduler of Ray's among changes of the options, which then have its name; None if there is none."""
    scheduler = changes.get("scheduler")
    if isinstance(scheduler, type):
        raise SweepError(f"scheduler={scheduler.__name__} is a class; give an object, {scheduler.__name__}(...)")
    if not isinstance(scheduler, TrialScheduler):
        return None
    changes["scheduler"], scheduler = read_scheduler(scheduler)
    if changes.get("resume") is not None:  # a resumed sweep keeps the name with which it began
        del changes["scheduler"]
    return scheduler


def read_scheduler(scheduler: TrialScheduler) -> tuple[str, TrialScheduler | None]:
    """Return the name that the options have for a scheduler of Ray's, and the scheduler, unless it is our own fifo."""
    kind = type(scheduler).__name__
    if isinstance(scheduler, ResourceChangingScheduler):
        raise SweepError(
            f"scheduler={kind}: the devices of a trial are the sweep's to move; give its base_scheduler, and grow='on'"
        )
    if isinstance(scheduler, PopulationBasedTrainingReplay):
        raise SweepError(
            f"scheduler={kind}: it gives one trial a configuration that no space has; run it with ray.tune.Tuner, or "
            f"have the train loop follow the schedule"
        )
    if type(scheduler) is HyperBandScheduler:
        raise SweepError(
            f"scheduler={kind}: it compares only trials that it knows from the beginning, and a sweep proposes "
            f"one after another; give HyperBandForBOHB, which waits until a bracket is full"
        )
    if type(scheduler) is FIFOScheduler:
        return "fifo", None
    prefix = RAYS_POPULATION if isinstance(scheduler, PopulationBasedTraining) else RAYS
    return f"{prefix}{kind}", scheduler


def check_scheduler(scheduler: TrialScheduler, plan: Plan) -> None:
    """Check that a scheduler of Ray's fits the sweep.

    Raises:
        SweepError: It has another metric or mode, or changes hyperparameters that the space lacks.
    """
    kind, objective = type(scheduler).__name__, plan.objectives[0]
    check_goal(f"scheduler={kind}", goal_of(scheduler), objective)
    if not isinstance(scheduler, PopulationBasedTraining):
        return
    if unknown := sorted(mutated_by(scheduler) - plan.experiment.search_space.names):
        raise SweepError(
            f"scheduler={kind}: it changes {', '.join(unknown)}, and the search space has "
            f"{', '.join(sorted(plan.experiment.search_space.names))}; give the Experiment's space a range for it"
        )


def check_goal(argument: str, goal: tuple[Any, Any], objective: Objective) -> None:
    """Check that an object of Ray's has no other metric or mode than the sweep."""
    for word, own, value in (("metric", goal[0], objective.name), ("mode", goal[1], objective.mode)):
        if own not in (None, value):
            raise SweepError(
                f"{argument}: its {word} is {own!r}, and the Experiment's is {value!r}; leave it out there, or give "
                f"the Experiment {word}={own!r}"
            )


def note_on_length(scheduler: TrialScheduler, plan: Plan) -> str:
    """Return a remark if a scheduler of Ray's expects longer or shorter trials than the budget allows; "" if not."""
    longest, budget, attribute = longest_trial(scheduler), plan.budget, time_attribute(scheduler)
    counts_alike = attribute == budget.unit or (attribute == TRAINING_ITERATION and budget.unit == names.EPOCH)
    if longest is None or longest == budget.total or not counts_alike:
        return ""
    return f"its max_t is {longest:g}, and a trial has at most {budget}; {budget.unit}s={longest:g} makes them equal"


def with_notes(plan: Plan) -> Plan:
    """Return a plan that says what Ray's objects do in it, once they are found to fit."""
    scheduler, notes = plan.given.scheduler, []
    if scheduler is not None:
        check_scheduler(scheduler, plan)
        kind = type(scheduler).__name__
        if note := note_on_length(scheduler, plan):
            notes.append(f"{kind}: {note}")
        if not keeps_state(scheduler):
            notes.append(f"{kind} cannot keep its state: a resumed sweep begins it again, without what it has seen")
    return replace(plan, given=replace(plan.given, notes=notes))
