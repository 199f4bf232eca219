"""The experiment as the options want it: recipe, objectives, baseline, ranges and settings. What does not fit: a
SweepError.

A recipe may prepare its data. Nothing else here is more than a function of its arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import did_you_mean, format_value
from gaudi_tune.define.config_file import BASELINE, merged, range_of
from gaudi_tune.define.experiment import Experiment, Recipe, RecipeName
from gaudi_tune.define.objective import USUAL_MODES, Objective, usual_mode
from gaudi_tune.define.options import SweepOptions, flag
from gaudi_tune.define.ranges import holds, middle, words_of
from gaudi_tune.define.sweep_plan import WITH_RUNGS
from gaudi_tune.training.training_config import TrainingConfig
from gaudi_tune.training.trial_config import TrialConfig

logger = logging.getLogger(__name__)

MOST_OBJECTIVES = 3
"""With more, nearly every trial is on the front."""
BY_OPTION = frozenset({*TrialConfig.field_names(), "evaluate"}) - {"data", "model"}
"""Fields of a trial's configuration that the sweep sets: neither a space nor ``--set`` may have them."""


class Asked(NamedTuple):
    """What the options make of an experiment."""

    experiment: Experiment
    """With the objective, search space and baseline of this sweep."""
    objectives: tuple[Objective, ...]
    """Its own objective, and any others that the options name."""
    options: SweepOptions
    """With the settings of the published run that they name."""
    recipe: RecipeName
    recipe_reason: str
    usual: Recipe
    """What holds where the options say nothing else."""
    settings: dict[str, Any]
    """What all trials have in common, their budget aside."""
    winner: Mapping[str, Any]
    """The winner of an earlier sweep that is the baseline, before ``--set`` fixes hyperparameters of it; or empty."""


def apply_options(
    experiment: Experiment, options: SweepOptions, device: str, winner: Mapping[str, Any] | None = None
) -> Asked:
    """Return the experiment as the options want it on a kind of device.

    ``winner`` is the configuration of an earlier sweep that takes the place of the baseline, if there is one.

    Raises:
        SweepError: They do not fit, or the search space and the baseline do not fit the train loop.
    """
    recipe, reason = choose_recipe(experiment, options, device)
    experiment, objectives = choose_objectives(experiment, options)
    check_target(experiment, options.target)
    if (other := experiment.baselines.get(options.baseline or "")) is not None:
        own = tuple(f"{name}={value}" for name, value in other.settings.items())
        options = replace(options, settings=merged(own, options.settings))
    ranges = {name: range_of(name, written) for name, written in (options.space or {}).items()}
    usual = experiment.recipe(recipe, options.baseline)
    experiment = experiment.at(recipe, options.workers_per_trial, options.baseline)
    first = {name: written[BASELINE] for name, written in (options.space or {}).items() if BASELINE in written}
    if options.space:
        space, baseline = experiment.search_space.search(ranges), {**experiment.baseline, **first}
        if first:  # with another choice, a space that branches may ask for others
            nearest = space.nearest(baseline)
            baseline = {name: baseline.get(name, value) for name, value in nearest.items()}
        experiment = replace(experiment, space=space, baseline=baseline)
    lr_for_batch = experiment.baseline.get("batch_size", 0)  # an earlier winner's learning rate is for this one, too
    given, fixed = choose_settings(experiment, options)
    if winner is not None:
        winner = {name: value for name, value in winner.items() if name in experiment.search_space.names}
        # It lacks what its own sweep had fixed; and what the file says of a first trial is not about it.
        experiment, first = replace(experiment, baseline={**fixed, **winner}), {}
    check_baseline(experiment, options)
    check_space(experiment)
    meant_for = {"lr_for_batch": lr_for_batch} if experiment.scale_lr else {}
    settings = {**meant_for, **usual.settings(), **given}
    return Asked(fix(experiment, fixed, first), objectives, options, recipe, reason, usual, settings, winner or {})


def choose_recipe(experiment: Experiment, options: SweepOptions, device: str) -> tuple[RecipeName, str]:
    """Return the recipe and why."""
    if options.recipe is not None:
        if options.recipe not in experiment.recipes and options.resume is None:  # a sweep's file always names one
            there = f"the recipe {' and '.join(experiment.recipes)} alone" if experiment.recipes else "no recipes"
            raise SweepError(f"--recipe {options.recipe}: the experiment {experiment.name} has {there}; leave it out")
        return options.recipe, "as --recipe says"
    if not experiment.has_recipes:
        return next(iter(experiment.recipes), "full"), "there is no other"
    if device == "cpu":
        return "sample", "there is no accelerator, which full recipes need (--recipe full runs one anyway)"
    return "full", "there is an accelerator"


def choose_objectives(experiment: Experiment, options: SweepOptions) -> tuple[Experiment, tuple[Objective, ...]]:
    """Return the objectives that the options name, else the experiment's own, and the experiment with the first of
    them for its own."""
    if not options.objectives:
        return experiment, (experiment.objective,)
    asked = f"--objectives {' '.join(options.objectives)}"
    objectives = tuple(_objective(written, experiment.objective, asked) for written in options.objectives)
    metrics = {objective.name for objective in objectives}
    if len(metrics) < len(objectives) or len(objectives) > MOST_OBJECTIVES:
        raise SweepError(f"{asked}: name one to {MOST_OBJECTIVES} metrics, each once")
    if len(objectives) > 1 and options.scheduler not in (*WITH_RUNGS, "fifo"):
        raise SweepError(
            f"--scheduler {options.scheduler} compares trials by one objective, and --objectives names "
            f"{len(objectives)}; take {', '.join(WITH_RUNGS)} or fifo"
        )
    return replace(experiment, metric=objectives[0].name, mode=objectives[0].mode), objectives


def _objective(written: str, own: Objective, asked: str) -> Objective:
    """Return what ``METRIC:max``, ``METRIC:min`` or a METRIC whose mode is known means."""
    if written == own.name:
        return own
    name, _, mode = written.rpartition(":")
    if name and mode in USUAL_MODES:
        return Objective(name, mode)
    if ":" not in written and (usual := usual_mode(written)) is not None:
        return Objective(written, usual)
    metric = name or written
    raise SweepError(f"{asked}: is more or less of {metric} better? Give {metric}:max or {metric}:min")


def check_target(experiment: Experiment, target: float | None) -> None:
    """See that an accuracy can reach the target."""
    ours = experiment.metric == names.VAL_ACCURACY and issubclass(experiment.config_class, TrainingConfig)
    if target is not None and ours and not 0 < target <= 1:
        raise SweepError(
            f"--target {target:g}: {experiment.metric} is a fraction from 0 to 1; give 0.92 for 92 %, or leave it out"
        )


def check_baseline(experiment: Experiment, options: SweepOptions) -> None:
    """See that there is a baseline where it alone is to be trained, that the ranges that the options give are of known
    hyperparameters, and that the baseline lies in them.
    """
    space, baseline, given = experiment.search_space, experiment.baseline, options.space or {}
    if options.baseline_only and not baseline:
        raise SweepError(
            f"--baseline-only: the experiment {experiment.name} has no baseline; give it one "
            f"(Experiment(baseline={{...}})), or leave the option out"
        )
    known = [name for name in experiment.config_class.field_names() if name not in BY_OPTION]
    where = f"--config {options.config}: [space]" if options.config is not None else "space:"
    for name in given:
        if name not in known:
            raise SweepError(
                f"{where} {name}: there is no such "
                f"hyperparameter{did_you_mean(name, known)}; there are {', '.join(known)}"
            )
    for name in sorted(set(space.outside(baseline)) & set(given)) if baseline and given else []:
        raise SweepError(
            f"{where} {name}: the baseline has {baseline[name]!r}, which lies "
            f"outside; widen the range, or give the baseline another value, for example {name} = "
            f"{{..., {BASELINE} = {format_value(middle(space.ranges[name][0]))}}}"
        )


def check_space(experiment: Experiment) -> None:
    """Compare the search space and the baseline with the fields of the train loop's configuration; the error names
    everything that is wrong at once.
    """
    space, baseline, words = experiment.search_space, experiment.baseline, experiment.search_space.in_words()
    if not space.ranges:
        raise SweepError(
            f"experiment {experiment.name}: the search space has no range, so there is nothing to search; give it "
            f"one, such as space={{'lr': tune.loguniform(1e-4, 1e-1)}}"
        )
    known, needed = set(experiment.config_class.field_names()), set(experiment.config_class.required_names())
    outside = set(space.outside(baseline))
    differs = {name for name, value in space.constants.items() if baseline.get(name, value) != value}
    lacking = space.asked_always - set(baseline) if baseline else set()
    there, possible, always = {*baseline, *space.constants}, space.names, space.always
    if baseline and not outside and not lacking:  # it may take a branch of the space that no draw took
        there = set(space.at(baseline).config)
        possible, always = possible | there, always & there
    wrong = [
        ("the search space has keys that the train loop does not know", possible - known),
        ("the search space has keys that options give, such as --epochs; leave them out", possible & BY_OPTION),
        ("the search space lacks keys that the train loop needs", needed - possible),
        (
            "the search space does not always have keys that the train loop needs (have it return a value for them "
            "where it asks for none, or give them a default)",
            (needed & possible) - always,
        ),
        ("the baseline has keys that the search space lacks", set(baseline) - (possible & there)),
        ("the baseline lacks keys that the search space asks for", lacking),
        ("the baseline lacks keys that the train loop needs", needed - there if baseline else set()),
        (
            "the baseline lies outside the search space in",
            {f"{name}={baseline[name]!r} ({words[name]})" for name in outside},
        ),
        ("the baseline differs from the constants of the search space in", differs),
    ]
    said = [f"{what}: {', '.join(sorted(keys))}" for what, keys in wrong if keys]
    for name in sorted(space.names & known):
        of_another_type: dict[str, Any] = {}  # the first of each kind
        for value in space.values(name):
            try:
                experiment.config_class.typed(name, value)
            except ValueError as error:  # noqa: PERF203
                of_another_type.setdefault(str(error).partition(", but got")[0], value)
        said += [f"in the search space {error}, but it may be {value!r}" for error, value in of_another_type.items()]
    if said:
        fields = f". The train loop knows: {', '.join(sorted(known - BY_OPTION))}" if possible - known else ""
        raise SweepError(f"experiment {experiment.name}: {'; '.join(said)}{fields}.")


def choose_settings(experiment: Experiment, options: SweepOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings that the options give, and which of them are hyperparameters, which are not searched then."""
    sources = {"data": options.data, "model": options.model, "skip_bad_images": options.skip_bad_images or None}
    given: dict[str, Any] = {name: source for name, source in sources.items() if source is not None}
    known = experiment.config_class.field_names()
    for name in given:
        if name not in known:
            raise SweepError(f"{flag(name)}: the experiment {experiment.name} has no such setting")
    free = [name for name in known if name not in {*BY_OPTION, "data", "model"}]
    hyperparameters = experiment.search_space.names | set(experiment.baseline)
    fixed: dict[str, Any] = {}
    file = f" (or in {options.config})" if options.config is not None else ""
    for entry in options.settings:
        key, equals, value = entry.partition("=")
        if not equals or key not in free:
            wrong = f"there is no setting {key!r}{did_you_mean(key, free)}" if equals else "give KEY=VALUE"
            raise SweepError(f"--set {entry}{file}: {wrong}; the settings are {', '.join(free)}")
        if key in given:
            raise SweepError(f"--set {entry}{file}: {key} is given twice; give it once")
        try:
            given[key] = experiment.read_value(key, value)
        except ValueError as error:
            raise SweepError(f"--set {entry}{file}: {error}") from error
        own = experiment.search_space.fixed.get(key, given[key])
        if own != given[key] and options.baseline in experiment.baselines:
            raise SweepError(
                f"--set {entry}{file}: --baseline {options.baseline} has {key}={own}; leave one of them out"
            )
        if key in hyperparameters:
            fixed[key] = given[key]
    return given, fixed


def fix(experiment: Experiment, fixed: Mapping[str, Any], first: Mapping[str, Any]) -> Experiment:
    """Return the experiment without the hyperparameters that are fixed for all trials.

    With another choice of one, a space that branches asks for others, or in other ranges. The baseline then has the
    values of ``first`` for them, else the middle.
    """
    if not fixed:
        return experiment
    words = ", ".join(f"{name}={value}" for name, value in fixed.items())
    for name, value in fixed.items():
        ranges = experiment.search_space.ranges.get(name, [])
        if ranges and not any(holds(range_, value) for range_ in ranges):
            choices = [choice for range_ in ranges for choice in getattr(range_, "choices", ())]
            near = did_you_mean(str(value), [choice for choice in choices if isinstance(choice, str)])
            words_of_all = ", or ".join(map(words_of, ranges))
            logger.warning("--set %s=%s lies outside its range, %s%s", name, value, words_of_all, near)
    space = experiment.search_space.fix(fixed)
    if not space.ranges:
        raise SweepError(f"--set {words}: nothing is left to search; leave one hyperparameter to the search")
    if not experiment.baseline:
        return replace(experiment, space=space)
    return replace(experiment, space=space, baseline=space.nearest({**experiment.baseline, **first}))
