"""Objects of Ray Tune that build_tuner() takes under Ray's names: checked, or refused with what to write instead."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from optuna.samplers import BaseSampler
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
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from ray.tune.stopper import CombinedStopper, Stopper

from gaudi_tune.base import names
from gaudi_tune.base.errors import USER_CODE_ERRORS, SweepError, written
from gaudi_tune.define.experiment import USUAL_BUDGET, Experiment
from gaudi_tune.define.given_objects import GivenObjects
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import RAYS, RAYS_POPULATION, SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.given.configs import noted, with_configs
from gaudi_tune.on_ray.given.ray_search import count_proposals, needs_variants, source_of, space_of_variants
from gaudi_tune.private.ray_objects import (
    goal_of,
    keeps_state,
    longest_trial,
    mutated_by,
    time_attribute,
)
from gaudi_tune.training.report_values import as_float

REFUSED_SCHEDULERS: Mapping[type[TrialScheduler], str] = {
    ResourceChangingScheduler: "the devices of a trial are the sweep's to move; give its base_scheduler, and grow='on'",
    PopulationBasedTrainingReplay: "it gives one trial a configuration that no space has; run it with ray.tune.Tuner, "
    "or have the train loop follow the schedule",
    HyperBandScheduler: "it compares only trials that it knows from the beginning, and a sweep proposes one after "
    "another; give HyperBandForBOHB, which waits until a bracket is full",
}
"""What no sweep can do, with what to write instead."""


def read_arguments(
    experiment: Experiment, arguments: Mapping[str, Any]
) -> tuple[Experiment, GivenObjects, dict[str, Any]]:
    """Read the arguments of build_tuner() that are Ray Tune's.

    Returns:
        The experiment, the objects, and what differs from the usual options.

    Raises:
        SweepError: Something cannot be honoured; the text names all of it.
    """
    refusals: list[str] = []
    notes: list[str] = []
    changes = with_configs(arguments, experiment, refusals, notes)
    with noted(refusals):
        callbacks = read_callbacks(changes.pop("callbacks") or ())
    with noted(refusals):
        stop = read_stop(changes.pop("stop"))
    with noted(refusals):
        experiment, search = take_search(changes.pop("search_alg"), experiment, changes)
    with noted(refusals):
        scheduler = take_scheduler(changes)
    if refusals:
        with noted(refusals):
            _ = experiment.search_space  # raises if it cannot be one
        raise SweepError("; ".join(refusals))
    limits = (search.pop("max_concurrent", None), changes.pop("max_concurrent_trials", None))
    for limit in limits:
        if limit is not None and (type(limit) is not int or limit < 0):
            raise SweepError(f"max_concurrent_trials={written(limit)}: give a whole number, such as 4")
    max_concurrent = min((limit for limit in limits if limit), default=None)
    objects = GivenObjects(
        scheduler=scheduler, callbacks=callbacks, stop=stop, max_concurrent=max_concurrent, notes=notes, **search
    )
    return experiment, objects, changes


def check_is_object(argument: str, value: Any) -> None:
    """Check that a value is no class, which people often give in place of an object."""
    if isinstance(value, type):
        raise SweepError(f"{argument}={value.__name__} is a class; give an object, {value.__name__}(...)")


def read_callbacks(callbacks: Any) -> Sequence[tune.Callback]:
    """Return the callbacks, if they are callbacks of Ray Tune."""
    if isinstance(callbacks, tune.Callback) or not isinstance(callbacks, Sequence):
        raise SweepError(
            f"callbacks={written(callbacks)}: give a list of callbacks, such as callbacks=[TBXLoggerCallback()]"
        )
    for callback in callbacks:
        check_is_object("callbacks", callback)
        if not isinstance(callback, tune.Callback):
            raise SweepError(
                f"callbacks: {written(callback)} is no ray.tune.Callback; derive it from that, or call it in the train "
                f"loop if it belongs to the training"
            )
    return list(callbacks)


def read_stop(stop: Any) -> Any:
    """Return Ray Tune's ``stop``, with a list of Stoppers as one; None if there is none."""
    example = "such as stop={'training_iteration': 20}"
    if stop is None or isinstance(stop, Stopper):
        return stop
    if isinstance(stop, Mapping):
        for name, value in stop.items():
            if not isinstance(name, str) or not isinstance(value, Real) or not math.isfinite(as_float(value)):
                raise SweepError(
                    f"stop: {name!r}: {written(value)} is no finite number for a metric; give one, {example}"
                )
        return dict(stop)
    if isinstance(stop, list | tuple) and stop and all(isinstance(part, Stopper) for part in stop):
        return CombinedStopper(*stop)
    check_is_object("stop", stop)
    if callable(stop) and _takes_two(stop):
        return stop
    raise SweepError(
        f"stop={written(stop)}: give numbers by metric, {example}; a function of a trial's id and its result; or a "
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


def epochs_of(objects: GivenObjects, experiment: Experiment, options: SweepOptions) -> int | None:
    """Return the epochs of a trial. If nothing else gives a budget, ``stop={"training_iteration": N}`` does, or else
    the ``max_t`` of a scheduler of Ray's.

    Ray Tune has no other budget, and each report of a train loop that counts nothing else is an epoch.
    """
    has_budget = options.epochs or options.steps or options.seconds or options.resume
    if has_budget or experiment.recipes or experiment.budget != USUAL_BUDGET:
        return options.epochs
    reports = objects.stop.get(TRAINING_ITERATION) if isinstance(objects.stop, Mapping) else None
    scheduler = objects.scheduler
    if reports is None and scheduler is not None and time_attribute(scheduler) in (TRAINING_ITERATION, names.EPOCH):
        reports = longest_trial(scheduler)
    return options.epochs if reports is None else max(1, int(reports))


def take_scheduler(changes: dict[str, Any]) -> TrialScheduler | None:
    """Return the scheduler of Ray's among changes of the options, which then have its name; None if there is none."""
    scheduler = changes.get("scheduler")
    check_is_object("scheduler", scheduler)
    if not isinstance(scheduler, TrialScheduler):
        return None
    changes["scheduler"], scheduler = read_scheduler(scheduler)
    if changes.get("resume") is not None:  # a resumed sweep keeps the name with which it began
        del changes["scheduler"]
    return scheduler


def read_scheduler(scheduler: TrialScheduler) -> tuple[str, TrialScheduler | None]:
    """Return the name that the options have for a scheduler of Ray's, and the scheduler, unless it is our own fifo."""
    kind = type(scheduler).__name__
    for refused, instead in REFUSED_SCHEDULERS.items():
        # Of what is derived from HyperBand, HyperBandForBOHB works.
        if type(scheduler) is refused or (refused is not HyperBandScheduler and isinstance(scheduler, refused)):
            raise SweepError(f"scheduler={kind}: {instead}")
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
    for word, users, value in (("metric", goal[0], objective.name), ("mode", goal[1], objective.mode)):
        if users not in (None, value):
            raise SweepError(
                f"{argument}: its {word} is {written(users)}, and the Experiment's is {written(value)}; leave it out "
                f"there, or give the Experiment {word}={written(users)}"
            )


def note_on_length(scheduler: TrialScheduler, plan: Plan) -> str:
    """Return a remark if a scheduler of Ray's expects longer or shorter trials than the budget allows; "" if not."""
    longest, budget, attribute = longest_trial(scheduler), plan.budget, time_attribute(scheduler)
    counts_alike = attribute == budget.axis or (attribute == TRAINING_ITERATION and budget.unit == names.EPOCH)
    if longest is None or longest == budget.total or not counts_alike:
        return ""
    return f"its max_t is {longest:g}, and a trial has at most {budget}; {budget.unit}s={longest:g} makes them equal"


def notes_on_stop(plan: Plan) -> list[str]:
    """Return a remark if Ray Tune's ``stop`` has a limit for an objective of which less is better."""
    stop, objective = plan.objects.stop, plan.objectives[0]
    if not isinstance(stop, Mapping) or objective.name not in stop or objective.maximizes:
        return []
    return [
        f"stop: as in Ray Tune, it ends a trial whose {objective.name} is high, although less is better here; "
        f"target={stop[objective.name]:g} ends the sweep once a trial is as low as that"
    ]


def with_notes(plan: Plan) -> Plan:
    """Return a plan that says what Ray's objects do in it, once they are found to fit."""
    scheduler, search_alg = plan.objects.scheduler, plan.objects.search_alg
    notes = [*plan.objects.notes, *notes_on_stop(plan)]
    if search_alg is not None:
        check_search(plan)
    if scheduler is not None:
        check_scheduler(scheduler, plan)
        if note := note_on_length(scheduler, plan):
            notes.append(f"{type(scheduler).__name__}: {note}")
    notes += [
        f"{type(ray_object).__name__} cannot keep its state: a resumed sweep begins it again, without what it has seen"
        for ray_object in (search_alg, scheduler)
        if isinstance(ray_object, Searcher | TrialScheduler) and not keeps_state(ray_object)
    ]
    return replace(plan, objects=replace(plan.objects, notes=notes))


def take_search(search_alg: Any, experiment: Experiment, changes: dict[str, Any]) -> tuple[Experiment, dict[str, Any]]:
    """Take a search algorithm of Ray's, which then has a name among the changes of the options.

    Returns:
        The experiment, with a space that the sweep can describe, and the fields of GivenObjects.
    """
    if search_alg is None:
        return experiment, {}
    search_alg, max_concurrent = read_search(search_alg)
    kind = type(search_alg).__name__
    for name in ("search", "learn_from"):
        if name in changes:
            raise SweepError(
                f"{name}={written(changes[name])} is for the sweep's own samplers; leave it out, or search_alg={kind}"
            )
    objects = {"search_alg": search_alg, "max_concurrent": max_concurrent}
    is_new = changes.get("resume") is None  # a resumed sweep keeps what it began with
    if is_new:
        changes["search"] = f"{RAYS}{kind}"
        # Else the searcher would hear of the end of a weak trial, which pauses, only at the end of the sweep.
        changes.setdefault("scheduler", "asha")
    metric, mode = goal_of(search_alg)
    if is_new and isinstance(metric, list) and isinstance(mode, list) and "objectives" not in changes:
        changes["objectives"] = tuple(
            f"{metric_name}:{each_mode}" for metric_name, each_mode in zip(metric, mode, strict=True)
        )
    if not isinstance(search_alg, BasicVariantGenerator):
        return experiment, objects
    if not isinstance(experiment.space, Mapping):
        raise SweepError(f"search_alg={kind}: it proposes from a mapping of ranges; give the Experiment such a space")
    space = dict(experiment.space)
    if is_new and (changes.get("num_samples") or needs_variants(space)):
        number = count_proposals(search_alg, space, changes.get("num_samples") or 1)
        changes["num_samples"] = number + bool(experiment.baseline)
    return replace(experiment, space=space_of_variants(space)), {**objects, "space": space}


def read_search(search_alg: Any) -> tuple[Any, int | None]:
    """Return a search algorithm without a limiter, and how many trials it lets train at a time."""
    max_concurrent = None
    if isinstance(search_alg, ConcurrencyLimiter):
        if search_alg.batch:
            raise SweepError("search_alg=ConcurrencyLimiter(batch=True): each trial counts as it ends; leave batch out")
        max_concurrent, search_alg = search_alg.max_concurrent, search_alg.searcher
    check_is_object("search_alg", search_alg)
    kind = type(search_alg).__name__
    if isinstance(search_alg, str | BaseSampler):
        word = "search" if isinstance(search_alg, str) else "sampler"
        raise SweepError(f"search_alg={written(search_alg)}: search_alg is for objects of Ray Tune; give it as {word}=")
    if isinstance(search_alg, Repeater):
        repeats = "it repeats every trial; give its searcher, and confirm=K, seeds=S, which repeat the best"
        raise SweepError(f"search_alg={kind}: {repeats}")
    if isinstance(search_alg, BasicVariantGenerator):
        return search_alg, search_alg.max_concurrent or None
    if not isinstance(search_alg, Searcher):
        fix = "derive it from ray.tune.search.Searcher, with suggest() and on_trial_complete()"
        raise SweepError(f"search_alg={kind}: this is no searcher of Ray Tune; {fix}")
    return search_alg, max_concurrent


def check_search(plan: Plan) -> None:
    """Check that a search algorithm of Ray's proposes what the train loop can use.

    Raises:
        SweepError: It has another metric or mode, fails, or proposes other hyperparameters than the space has.
    """
    search_alg, space, objectives = plan.objects.search_alg, plan.experiment.search_space, plan.objectives
    argument, (metric, mode) = f"search_alg={type(search_alg).__name__}", goal_of(search_alg)
    if isinstance(metric, list) and isinstance(mode, list):
        users = list(zip(metric, mode, strict=True))
        ours = [(objective.name, objective.mode) for objective in objectives]
        if users != ours:
            raise SweepError(
                f"{argument}: its metrics and modes are {users}, and objectives= has {ours}; give the same"
            )
    else:
        check_goal(argument, (metric, mode), objectives[0])
    try:
        copied = replace(plan, objects=replace(plan.objects, search_alg=copy.deepcopy(search_alg)))
    except USER_CODE_ERRORS:  # it holds a connection, for example
        return
    try:
        source = source_of(copied)
        assert source is not None
        proposal = source.suggest("tried")
    except USER_CODE_ERRORS as error:
        hint = " of its own, since the Experiment's is a function" if space.branches else ""
        raise SweepError(
            f"{argument}: it cannot propose a trial ({error}); give it what it asks for, or a space{hint}"
        ) from error
    if not isinstance(proposal, dict):
        return
    unknown, missing = set(proposal) - space.names, space.always_searched - set(proposal)
    if unknown or missing:
        raise SweepError(
            f"{argument}: it proposes {', '.join(sorted(proposal))}, and the Experiment's space has "
            f"{', '.join(sorted(space.names))}; give both the same names, without a slash"
        )
