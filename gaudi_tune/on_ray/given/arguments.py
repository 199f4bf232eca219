"""Objects of Ray Tune that build_tuner() takes under Ray's names: checked, or refused with what to write instead."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from optuna.samplers import BaseSampler
from ray import tune
from ray.tune.result import TRAINING_ITERATION
from ray.tune.schedulers import (
    FIFOScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
    TrialScheduler,
)
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from ray.tune.stopper import CombinedStopper, MaximumIterationStopper, Stopper

from gaudi_tune.base import names
from gaudi_tune.base.errors import USER_CODE_ERRORS, SweepError, written
from gaudi_tune.define.experiment import USUAL_BUDGET, Experiment
from gaudi_tune.define.given_objects import GivenObjects
from gaudi_tune.define.options import RAYS, RAYS_POPULATION, SweepOptions
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.given.configs import with_configs
from gaudi_tune.on_ray.given.ray_search import count_proposals, is_grid, needs_variants, source_of, space_of_variants
from gaudi_tune.on_ray.given.resources import take_resources
from gaudi_tune.private.ray_objects import goal_of, keeps_state, longest_trial, mutated_by, points_of, time_attribute

REFUSED_KINDS: Mapping[type, str] = {
    ResourceChangingScheduler: "the devices of a trial are the sweep's to move; give its base_scheduler, and grow='on'",
    PopulationBasedTrainingReplay: "it gives one trial a configuration that no space has; run it with ray.tune.Tuner, "
    "or have the train loop follow the schedule",
    HyperBandScheduler: "it compares only trials that it knows from the beginning, and a sweep proposes one after "
    "another; give HyperBandForBOHB, which waits until a bracket is full",
    Repeater: "it repeats every trial; give its searcher, and confirm=K, seeds=S, which repeat the best",
}
"""What no sweep can do, with what to write instead. HyperBandForBOHB works, although it is a HyperBandScheduler."""


def read_arguments(
    experiment: Experiment, arguments: Mapping[str, Any]
) -> tuple[Experiment, GivenObjects, dict[str, Any]]:
    """Read the arguments of build_tuner() that are objects, or Ray Tune's.

    Returns:
        The experiment, the objects, and what differs from the usual options.

    Raises:
        SweepError: Something cannot be honoured.
    """
    changes, notes = with_configs(arguments, experiment)
    # What follows from the objects. An option that is given counts for more, and a resumed sweep keeps what it began
    # with.
    implied = take_resources(changes, experiment.train_loop)
    scheduler = take_scheduler(changes, implied)
    experiment, search = take_search(changes, implied, experiment)
    callbacks, stop = read_callbacks(changes.pop("callbacks")), read_stop(changes.pop("stop"))
    limits = [search.pop("max_concurrent", None), changes.pop("max_concurrent_trials", None)]
    objects = GivenObjects(
        scheduler=scheduler,
        callbacks=callbacks,
        stop=stop,
        max_concurrent=min((limit for limit in limits if limit), default=None),
        notes=notes,
        **search,
    )
    return experiment, objects, changes if changes.get("resume") is not None else {**implied, **changes}


def check_object(argument: str, value: Any) -> None:
    """Check that a value is no class, which people often give in place of an object, and not of a refused kind."""
    if isinstance(value, type):
        raise SweepError(f"{argument}={value.__name__} is a class; give an object, {value.__name__}(...)")
    for kind, instead in REFUSED_KINDS.items():
        if isinstance(value, kind) and not isinstance(value, HyperBandForBOHB):
            raise SweepError(f"{argument}={type(value).__name__}: {instead}")


def read_callbacks(callbacks: Any) -> Sequence[tune.Callback]:
    """Return the callbacks, if they are callbacks of Ray Tune."""
    callbacks = callbacks or ()
    is_list = isinstance(callbacks, Sequence)
    for callback in callbacks if is_list else ():
        check_object("callbacks", callback)
    if not is_list or not all(isinstance(callback, tune.Callback) for callback in callbacks):
        raise SweepError(
            f"callbacks={written(callbacks)}: give a list of objects of ray.tune.Callback, such as "
            f"callbacks=[TBXLoggerCallback()]; what belongs to the training is called in the train loop"
        )
    return list(callbacks)


def read_stop(stop: Any) -> Any:
    """Return Ray Tune's ``stop``, with a list of Stoppers as one; None if there is none."""
    check_object("stop", stop)
    if type(stop) is MaximumIterationStopper:
        return {TRAINING_ITERATION: longest_trial(stop)}
    if isinstance(stop, Mapping) and all(isinstance(value, Real) for value in stop.values()):
        if not stop.get(TRAINING_ITERATION, 1) >= 1:
            raise SweepError(f"stop={written(stop)}: training_iteration counts reports, from 1; give 1 or more")
        return dict(stop)
    if isinstance(stop, list | tuple) and stop and all(isinstance(part, Stopper) for part in stop):
        return CombinedStopper(*stop)
    if stop is not None and not callable(stop):
        raise SweepError(
            f"stop={written(stop)}: give numbers by metric, such as stop={{'training_iteration': 20}}; a function of a "
            f"trial's id and its result; or a ray.tune.Stopper"
        )
    return stop


def epochs_of(objects: GivenObjects, experiment: Experiment, options: SweepOptions) -> int | None:
    """Return the epochs of a trial. If nothing else gives a budget, ``stop`` does, with ``{"training_iteration": N}``,
    ``{"epoch": N}`` or a MaximumIterationStopper, or else the ``max_t`` of a scheduler of Ray's.

    Ray Tune has no other budget, and each report of a train loop that counts nothing else is an epoch.
    """
    has_budget = options.epochs or options.steps or options.seconds or options.resume
    if has_budget or experiment.recipes or experiment.budget != USUAL_BUDGET:
        return options.epochs
    stop, scheduler = objects.stop if isinstance(objects.stop, Mapping) else {}, objects.scheduler
    reports = stop.get(TRAINING_ITERATION, stop.get(names.EPOCH))
    if reports is None and scheduler is not None and time_attribute(scheduler) in (TRAINING_ITERATION, names.EPOCH):
        reports = longest_trial(scheduler)
    return options.epochs if reports is None else max(1, int(reports))


def take_scheduler(changes: dict[str, Any], implied: dict[str, Any]) -> TrialScheduler | None:
    """Return the scheduler of Ray's among changes of the options, whose name is implied; None if there is none.

    Ray's fifo is the sweep's own.
    """
    scheduler = changes.get("scheduler")
    check_object("scheduler", scheduler)
    if not isinstance(scheduler, TrialScheduler):
        return None
    del changes["scheduler"]
    if type(scheduler) is FIFOScheduler:
        implied["scheduler"] = "fifo"
        return None
    prefix = RAYS_POPULATION if isinstance(scheduler, PopulationBasedTraining) else RAYS
    implied["scheduler"] = f"{prefix}{type(scheduler).__name__}"
    return scheduler


def take_search(
    changes: dict[str, Any], implied: dict[str, Any], experiment: Experiment
) -> tuple[Experiment, dict[str, Any]]:
    """Take the object that proposes the trials, if one does: a sampler of Optuna, or a search algorithm of Ray's.

    Returns:
        The experiment, with a space that the sweep can describe, and the fields of GivenObjects.
    """
    sampler, search_alg = changes.pop("sampler"), changes.pop("search_alg")
    sources = {word: item for word, item in (("sampler", sampler), ("search_alg", search_alg)) if item is not None}
    rivals = ("search",) if search_alg is None else ("search", "learn_from")
    sources |= {name: changes[name] for name in rivals if sources and name in changes}
    if len(sources) > 1:
        pair = " and ".join(f"{name}={written(value)}" for name, value in sources.items())
        raise SweepError(f"{pair} both say what proposes the trials; give one")
    if sampler is not None:
        if not isinstance(sampler, BaseSampler):
            example = "optuna.samplers.QMCSampler()"
            raise SweepError(f"sampler={written(sampler)}: give an object, such as {example}; a name is search='tpe'")
        implied["search"] = type(sampler).__name__
        return experiment, {"sampler": sampler}
    if search_alg is None:
        return experiment, {}
    return take_search_algorithm(search_alg, changes, implied, experiment)


def take_search_algorithm(
    search_alg: Any, changes: dict[str, Any], implied: dict[str, Any], experiment: Experiment
) -> tuple[Experiment, dict[str, Any]]:
    """Take a search algorithm of Ray's, as :func:`take_search` does."""
    max_concurrent = getattr(search_alg, "max_concurrent", None)
    if isinstance(search_alg, ConcurrencyLimiter):
        if search_alg.batch:
            raise SweepError("search_alg=ConcurrencyLimiter(batch=True): each trial counts as it ends; leave batch out")
        search_alg = search_alg.searcher
    check_object("search_alg", search_alg)
    if not isinstance(search_alg, Searcher | BasicVariantGenerator):
        raise SweepError(
            f"search_alg={written(search_alg)}: this is no searcher of Ray Tune; derive it from "
            f"ray.tune.search.Searcher, with suggest() and on_trial_complete(). A name is search=, an object of "
            f"Optuna's sampler="
        )
    kind, objects = type(search_alg).__name__, {"search_alg": search_alg, "max_concurrent": max_concurrent}
    implied["search"] = f"{RAYS}{kind}"
    # Else the searcher would hear of the end of a weak trial, which pauses, only at the end of the sweep.
    implied.setdefault("scheduler", "asha")
    metric, mode = goal_of(search_alg)
    if isinstance(metric, list):
        implied["objectives"] = tuple(":".join(goal) for goal in zip(metric, mode, strict=True))
    if not isinstance(search_alg, BasicVariantGenerator):
        return experiment, objects
    if not isinstance(experiment.space, Mapping):
        raise SweepError(f"search_alg={kind}: it proposes from a mapping of ranges; give the Experiment such a space")
    space = dict(experiment.space)
    if empty := [name for name, entry in space.items() if is_grid(entry) and not len(entry["grid_search"])]:
        raise SweepError(f"the search space's {empty[0]}: its grid has no values; give one or more")
    if changes.get("resume") is None and (changes.get("num_samples") or needs_variants(space)):
        number = count_proposals(search_alg, space, changes.get("num_samples") or 1)
        changes["num_samples"] = number + bool(experiment.baseline)
    return replace(experiment, space=space_of_variants(space)), {**objects, "space": space}


def with_notes(plan: Plan) -> Plan:
    """Return a plan that says what Ray's objects do in it, once they are found to fit."""
    scheduler, search_alg = plan.objects.scheduler, plan.objects.search_alg
    notes = list(plan.objects.notes)
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


def check_goal(argument: str, alg: TrialScheduler | Searcher, plan: Plan) -> None:
    """Check that an object of Ray's has no other metric or mode than the sweep."""
    metric, mode = goal_of(alg)
    ours: Any = list(zip(*((objective.name, objective.mode) for objective in plan.objectives), strict=True))
    own_metric, own_mode = map(list, ours) if isinstance(metric, list) else (ours[0][0], ours[1][0])
    for word, users, value in (("metric", metric, own_metric), ("mode", mode, own_mode)):
        if users not in (None, value):
            raise SweepError(
                f"{argument}: its {word} is {written(users)}, and the Experiment's is {written(value)}; leave it out "
                f"there, or give both the same"
            )


def check_scheduler(scheduler: TrialScheduler, plan: Plan) -> None:
    """Check that a scheduler of Ray's fits the sweep.

    Raises:
        SweepError: It has another metric or mode, or changes hyperparameters that the space lacks.
    """
    argument, space_names = f"scheduler={type(scheduler).__name__}", plan.experiment.search_space.names
    check_goal(argument, scheduler, plan)
    unknown = mutated_by(scheduler) - space_names if isinstance(scheduler, PopulationBasedTraining) else set()
    if unknown:
        raise SweepError(
            f"{argument}: it changes {', '.join(sorted(unknown))}, and the search space has "
            f"{', '.join(sorted(space_names))}; give the Experiment's space a range for it"
        )


def note_on_length(scheduler: TrialScheduler, plan: Plan) -> str:
    """Return a remark if a scheduler of Ray's expects longer or shorter trials than the budget allows; "" if not."""
    longest, budget, attribute = longest_trial(scheduler), plan.budget, time_attribute(scheduler)
    counts_alike = attribute == budget.axis or (attribute == TRAINING_ITERATION and budget.unit == names.EPOCH)
    if longest is None or longest == budget.total or not counts_alike:
        return ""
    return f"its max_t is {longest:g}, and a trial has at most {budget}; {budget.unit}s={longest:g} makes them equal"


def check_search(plan: Plan) -> None:
    """Check that a search algorithm of Ray's proposes what the train loop can use.

    Raises:
        SweepError: It has another metric or mode, fails, or proposes other hyperparameters than the space has.
    """
    search_alg, space = plan.objects.search_alg, plan.experiment.search_space
    argument = f"search_alg={type(search_alg).__name__}"
    check_goal(argument, search_alg, plan)
    try:
        copied = replace(plan, objects=replace(plan.objects, search_alg=copy.deepcopy(search_alg)))
    except USER_CODE_ERRORS:  # it holds a connection, for example
        return
    points = {name for config in points_of(search_alg) for name in config}
    try:
        proposal = {} if points - space.names else source_of(copied).suggest("tried")
    except USER_CODE_ERRORS as error:
        hint = " as a dict, since the Experiment's is a function" if space.branches else ""
        raise SweepError(
            f"{argument}: it cannot propose a trial ({error}); give it what it asks for, or a space{hint}"
        ) from error
    if not isinstance(proposal, dict):
        return
    proposed = points | set(proposal)
    if proposed - space.names or space.always_searched - set(proposal):
        raise SweepError(
            f"{argument}: it proposes {', '.join(sorted(proposed))}, and the Experiment's space has "
            f"{', '.join(sorted(space.names))}; give both the same names, without a slash"
        )
