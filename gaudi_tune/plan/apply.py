"""Applying the options to an experiment: recipe, objectives, baseline and settings.

What does not fit raises a SweepError. A recipe may prepare its data; everything else here is a pure function.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import did_you_mean
from gaudi_tune.define.experiment import Experiment, RecipeName
from gaudi_tune.define.objective import USUAL_MODES, Objective, suggestion, usual_mode
from gaudi_tune.define.options import SweepOptions, flag
from gaudi_tune.define.ranges import holds, words_of
from gaudi_tune.sweep.policies.schedulers.factory import SCHEDULERS, scheduler_kind
from gaudi_tune.training.trial_config import TrialConfig

logger = logging.getLogger(__name__)

MOST_OBJECTIVES = 3
"""The largest number of objectives. With more, nearly every trial would be on the front."""
SET_BY_OPTIONS = frozenset(TrialConfig.field_names()) - {"data", "model"}
"""Fields of a trial's configuration that options set: neither a space nor ``--set`` may have them."""


class AppliedOptions(NamedTuple):
    """An experiment with the options applied."""

    experiment: Experiment
    """The experiment with the first objective, the search space and the baseline of this sweep."""
    objectives: tuple[Objective, ...]
    """All objectives of the sweep; the first is the experiment's."""
    recipe: RecipeName | None
    recipe_reason: str
    settings: dict[str, Any]
    """What all trials have in common, without their budget."""
    winner: Mapping[str, Any]
    """The winner of an earlier sweep that is the baseline, before ``--set`` fixes some of its values. Empty: none."""


def apply_options(
    experiment: Experiment, options: SweepOptions, device: str, winner: Mapping[str, Any] | None = None
) -> AppliedOptions:
    """Apply options to an experiment, step by step: each changes what the one before it has left.

    Args:
        experiment: What to tune.
        options: The options of the sweep.
        device: The kind of device of the workers.
        winner: The configuration of an earlier sweep that becomes the baseline; None: none.

    Raises:
        SweepError: The options do not fit, or the search space or the baseline does not fit the train loop.
    """
    recipe, reason = choose_recipe(experiment, options, device)
    objectives = choose_objectives(experiment, options)
    experiment = replace(experiment, metric=objectives[0].name, mode=objectives[0].mode)
    check_target(experiment, options.target)
    experiment = experiment.for_recipe(recipe, options.workers_per_trial)
    published_batch = experiment.baseline.get("batch_size", 0)
    given_settings, fixed = read_settings(experiment, options)
    settings = {**experiment.recipe(recipe).read_settings(), **given_settings}
    if experiment.scale_lr:  # the learning rate of a winner is also meant for the published batch
        settings = {"lr_for_batch": published_batch, **settings}
    if winner is not None:
        winner = {name: value for name, value in winner.items() if name in experiment.search_space.names}
        # The winner lacks the values that its own sweep had fixed.
        experiment = replace(experiment, baseline={**fixed, **winner})
    if options.baseline_only and fixed and not experiment.search_space.fix(fixed).ranges:
        # All values are given, as in the file of a winner: they are the baseline.
        experiment, fixed = replace(experiment, baseline=dict(fixed)), {}
        settings = {name: value for name, value in settings.items() if name not in experiment.search_space.ranges}
    if options.baseline_only and not experiment.baseline:
        raise SweepError(
            f"--baseline-only: the experiment {experiment.name} has no baseline; give it one "
            f"(Experiment(baseline={{...}})), or leave the option out"
        )
    check_space(experiment)
    experiment = fix_hyperparameters(experiment, fixed)
    return AppliedOptions(experiment, objectives, recipe, reason, settings, winner or {})


def choose_recipe(experiment: Experiment, options: SweepOptions, device: str) -> tuple[RecipeName | None, str]:
    """Return the name of the recipe, None for an experiment without recipes, and the reason for it."""
    if options.recipe is not None and options.recipe not in experiment.recipes and options.resume is None:
        recipes = f"the recipe {' and '.join(experiment.recipes)} alone" if experiment.recipes else "no recipes"
        raise SweepError(f"--recipe {options.recipe}: the experiment {experiment.name} has {recipes}; leave it out")
    if not experiment.recipes:  # the file of an earlier sweep may name one nevertheless
        return None, "there is none"
    if options.recipe is not None:
        return options.recipe, "as --recipe says"
    if not experiment.has_recipes:
        return next(iter(experiment.recipes)), "there is no other"
    if device == "cpu":
        return "sample", "there is no accelerator, which full recipes need (--recipe full runs one anyway)"
    return "full", "there is an accelerator"


def choose_objectives(experiment: Experiment, options: SweepOptions) -> tuple[Objective, ...]:
    """Return the objectives that the options name, or else the experiment's own."""
    if not options.objectives:
        return (experiment.objective,)
    arguments = f"--objectives {' '.join(options.objectives)}"
    objectives = tuple(_read_objective(text, experiment.objective, arguments) for text in options.objectives)
    metrics = {objective.name for objective in objectives}
    if len(metrics) < len(objectives) or len(objectives) > MOST_OBJECTIVES:
        raise SweepError(f"{arguments}: name one to {MOST_OBJECTIVES} metrics, each once")
    if len(objectives) > 1 and not scheduler_kind(options.scheduler).takes_objectives:
        schedulers = [name for name, scheduler in SCHEDULERS.items() if scheduler.takes_objectives]
        raise SweepError(
            f"--scheduler {options.scheduler} compares trials by one objective, and --objectives names "
            f"{len(objectives)}; take {', '.join(schedulers[:-1])} or {schedulers[-1]}"
        )
    return objectives


def _read_objective(text: str, default: Objective, arguments: str) -> Objective:
    """Return the objective that a text means: METRIC:max, METRIC:min, or a METRIC whose mode is known.

    Args:
        text: One value of ``--objectives``.
        default: The objective of the experiment, whose mode is known.
        arguments: All of ``--objectives``, for the error.
    """
    if text == default.name:
        return default
    metric, _, mode = text.rpartition(":")
    if mode in USUAL_MODES:
        return Objective(metric, mode)
    if ":" not in text and (usual := usual_mode(text)) is not None:
        return Objective(text, usual, inferred=True)
    metric = metric or text
    raise SweepError(
        f"{arguments}: is more or less of {metric} better{suggestion(metric)}? Give {metric}:max or {metric}:min"
    )


def check_target(experiment: Experiment, target: float | None) -> None:
    """Check that a metric that is a fraction can reach the target."""
    is_fraction = experiment.metric in experiment.config_class.fractions
    if target is not None and is_fraction and not 0 < target <= 1:
        raise SweepError(
            f"--target {target:g}: {experiment.metric} is a fraction from 0 to 1; give 0.92 for 92 %, or leave it out"
        )


def check_space(experiment: Experiment) -> None:
    """Check that the search space and the baseline fit each other and the fields of the train loop's configuration.

    Raises:
        SweepError: Something does not fit; the text names everything that is wrong.
    """
    space, baseline, words = experiment.search_space, experiment.baseline, experiment.search_space.in_words()
    if not space.ranges:
        raise SweepError(
            f"experiment {experiment.name}: the search space has no range, so there is nothing to search; give it "
            f"one, such as space={{'lr': tune.loguniform(1e-4, 1e-1)}}"
        )
    fields, required = set(experiment.config_class.field_names()), set(experiment.config_class.required_names())
    outside = set(space.outside(baseline))
    missing = space.always_searched - set(baseline) if baseline else set()
    first_keys, possible_keys, certain_keys = {*baseline, *space.constants}, space.names, space.always
    if baseline and not outside and not missing:  # the baseline may take a branch of the space that no draw took
        first_keys = set(space.draw_with(baseline).config)
        possible_keys, certain_keys = possible_keys | first_keys, certain_keys & first_keys
    rules = {
        "the search space has keys that the train loop does not know": possible_keys - fields,
        "the search space has keys that options give, such as --epochs; leave them out": possible_keys & SET_BY_OPTIONS,
        "the search space lacks keys that the train loop needs": required - possible_keys,
        "the search space does not always have keys that the train loop needs (have it return a value for them where "
        "it asks for none, or give them a default)": (required & possible_keys) - certain_keys,
        "the baseline has keys that the search space lacks": set(baseline) - (possible_keys & first_keys),
        "the baseline lacks keys that the search space asks for": missing,
        "the baseline lacks keys that the train loop needs": required - first_keys if baseline else set(),
        "the baseline lies outside the search space in": {f"{n}={baseline[n]!r} ({words[n]})" for n in outside},
        "the baseline differs from the constants of the search space in": {
            name for name, value in space.constants.items() if baseline.get(name, value) != value
        },
    }
    problems = [f"{problem}: {', '.join(sorted(keys))}" for problem, keys in rules.items() if keys]
    problems += _type_errors(experiment)
    if problems:
        hint = f". The train loop knows: {', '.join(sorted(fields - SET_BY_OPTIONS))}" if possible_keys - fields else ""
        raise SweepError(f"experiment {experiment.name}: {'; '.join(problems)}{hint}.")


def _type_errors(experiment: Experiment) -> list[str]:
    """Return what is wrong with the types of values that the space may propose: the first value with each error."""
    problems: dict[str, Any] = {}
    for name in sorted(experiment.search_space.names & set(experiment.config_class.field_names())):
        for value in experiment.search_space.values(name):
            try:
                experiment.config_class.typed(name, value)
            except ValueError as error:  # noqa: PERF203
                problems.setdefault(str(error).partition(", but got")[0], value)
    return [f"in the search space {error}, but it may be {value!r}" for error, value in problems.items()]


def read_settings(experiment: Experiment, options: SweepOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings that the options give, and those of them that fix a hyperparameter."""
    sources = {"data": options.data, "model": options.model}
    settings: dict[str, Any] = {name: source for name, source in sources.items() if source is not None}
    fields = experiment.config_class.field_names()
    for name in settings:
        if name not in fields:
            raise SweepError(f"{flag(name)}: the experiment {experiment.name} has no such setting")
    settable = [name for name in fields if name not in {*SET_BY_OPTIONS, "data", "model"}]
    file = f" (or in {options.config})" if options.config is not None else ""
    for entry in options.settings:
        key, equals, value = entry.partition("=")
        if not equals or key not in settable:
            problem = f"there is no setting {key!r}{did_you_mean(key, settable)}" if equals else "give KEY=VALUE"
            raise SweepError(f"--set {entry}{file}: {problem}; the settings are {', '.join(settable)}")
        if key in settings:
            raise SweepError(f"--set {entry}{file}: {key} is given twice; give it once")
        try:
            settings[key] = experiment.read_value(key, value)
        except ValueError as error:
            raise SweepError(f"--set {entry}{file}: {error}") from error
    hyperparameters = experiment.search_space.names | set(experiment.baseline)
    return settings, {name: value for name, value in settings.items() if name in hyperparameters}


def fix_hyperparameters(experiment: Experiment, fixed: Mapping[str, Any]) -> Experiment:
    """Return the experiment without the hyperparameters that are fixed for all trials.

    Fixing a choice may make a space that branches ask for other hyperparameters, or in other ranges. The baseline then
    has the middle of the range.
    """
    if not fixed:
        return experiment
    for name, value in fixed.items():
        ranges = experiment.search_space.ranges.get(name, [])
        if ranges and not any(holds(range_, value) for range_ in ranges):
            range_words = ", or ".join(map(words_of, ranges))
            logger.warning("--set %s=%s lies outside its range, %s", name, value, range_words)
    space = experiment.search_space.fix(fixed)
    if not space.ranges:
        words = ", ".join(f"{name}={value}" for name, value in fixed.items())
        raise SweepError(f"--set {words}: nothing is left to search; leave one hyperparameter to the search")
    if not experiment.baseline:
        return replace(experiment, space=space)
    draw = space.draw_near(experiment.baseline)
    names = {*draw.ranges, *experiment.baseline}
    return replace(experiment, space=space, baseline={name: v for name, v in draw.config.items() if name in names})
