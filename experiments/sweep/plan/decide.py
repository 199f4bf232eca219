"""What a sweep will do. Nothing here reads a file, asks a server or touches a device. What cannot be: a SweepError."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from experiments.sweep.decide.growth import most_devices
from experiments.sweep.define.budget import BUDGET_OPTIONS, Budget
from experiments.sweep.define.config_file import BASELINE, range_of
from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.experiment import Experiment, Recipe, RecipeName
from experiments.sweep.define.objective import Mode, Objective
from experiments.sweep.define.options import SweepOptions, flag
from experiments.sweep.define.plan import SMALL_IS_GOOD, WITH_RUNGS, Graphs
from experiments.sweep.define.ranges import middle
from experiments.sweep.define.search_space import SearchSpace
from experiments.sweep.define.words import did_you_mean, format_value
from trainables.runtime import TrialConfig
from trainables.runtime.devices.device import DeviceType
from trainables.runtime.devices.find import Devices
from trainables.runtime.trial_config import PlainConfig

NAME = re.compile(r"\w[\w.-]{0,99}")
"""Names of sweeps: of a folder, a study, and a run in MLflow."""
GRAPH_DRAWS = 300
"""Proposals by which the graphs of a space are counted; of 50 that are equally likely, 0.1 are missed."""
MOST_FOR_GP = 64
"""Trials at a time up to which the search is gp unless the user says otherwise: with trials of half a minute, each of
which takes a proposal of 0.2 s, the driver proposes for two fifths of its time."""
MANY_VALUES = 40
"""Different values among these from which on they are those of a continuous range."""
HOLD_OUT = "hold_out"
"""The setting of a train loop that leaves test data alone until the confirmation."""
MOST_OBJECTIVES = 3
"""With more, nearly every trial is on the front."""
KNOWN_MODES: dict[Mode, tuple[str, ...]] = {"max": ("accuracy", "f1", "_per_s"), "min": SMALL_IS_GOOD}
"""Parts of the names of metrics of which more, or less, is better as a rule."""
BY_OPTION = frozenset({*TrialConfig.field_names()}) - {"data", "model"}
"""Fields of a trial's configuration that the sweep sets: neither a space nor ``--set`` may have them."""


def choose_recipe(experiment: Experiment, options: SweepOptions, device: str) -> tuple[RecipeName, str]:
    """Return the recipe and why."""
    if options.recipe is not None:
        return options.recipe, "asked for"
    if not experiment.has_recipes:
        return next(iter(experiment.recipes), "full"), "there is no other"
    if device == "cpu":
        return "sample", "there is no accelerator, and full recipes are made for one (--recipe full insists)"
    return "full", "there is an accelerator"


def choose_name(experiment: Experiment, options: SweepOptions) -> str:
    """Return the name of the sweep."""
    name = options.name if options.name is not None else f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if not NAME.fullmatch(name):
        raise SweepError(
            f"--name {name or repr(name)}: a name has 1 to 100 letters, digits, '.', '_' and '-', and begins with a "
            f"letter or digit"
        )
    return name


def choose_objectives(experiment: Experiment, options: SweepOptions) -> tuple[Experiment, tuple[Objective, ...]]:
    """Return the experiment with the first objective that the options name for its own, and the others."""
    if not options.objectives:
        return experiment, ()
    asked = f"--objectives {' '.join(options.objectives)}"
    found = [_objective(written, experiment.objective, asked) for written in options.objectives]
    known = [objective.name for objective in found]
    if len({*known}) < len(known) or len(known) > MOST_OBJECTIVES:
        raise SweepError(f"{asked}: name one to {MOST_OBJECTIVES} metrics, each once")
    if len(found) > 1 and options.scheduler not in (*WITH_RUNGS, "fifo"):
        raise SweepError(
            f"--scheduler {options.scheduler} compares trials by one objective, and --objectives names {len(found)}; "
            f"take {', '.join(WITH_RUNGS)} or fifo"
        )
    return replace(experiment, metric=found[0].name, mode=found[0].mode), tuple(found[1:])


def _objective(written: str, own: Objective, asked: str) -> Objective:
    """Return what ``METRIC:max``, ``METRIC:min`` or a METRIC whose mode is known means."""
    if written == own.name:
        return own
    name, _, mode = written.rpartition(":")
    if name and mode in KNOWN_MODES:
        return Objective(name, mode)
    for usual, words in KNOWN_MODES.items():
        if ":" not in written and any(word in written.lower() for word in words):
            return Objective(written, usual)
    metric = name or written
    raise SweepError(f"{asked}: is more or less of {metric} better? Give {metric}:max or {metric}:min")


def choose_budget(options: SweepOptions, usual: Budget) -> Budget:
    """Return the budget that was asked for, or the recipe's."""
    given = {name: getattr(options, name) for name in BUDGET_OPTIONS if getattr(options, name)}
    if options.epochs and options.steps:
        raise SweepError(
            f"--epochs {options.epochs} --steps {options.steps}: a budget is in epochs or in steps; give one of the two"
        )
    steps = options.steps or (0 if options.epochs else usual.steps)
    epochs = options.epochs or (0 if steps else usual.epochs)
    every = options.eval_every or (-(-steps // 10) if options.steps else 0 if options.epochs else usual.eval_every)
    seconds = options.seconds or (0 if options.epochs or options.steps else usual.seconds)
    # The recipe's grace is a share of its budget, such as its warm-up.
    grace = options.grace or round(usual.grace * (seconds or epochs or steps) / usual.total)
    try:
        return Budget(
            epochs=epochs, steps=steps, eval_every=every, seconds=seconds, grace=grace,
            reduction=options.reduction or usual.reduction,
        )  # fmt: skip
    except ValueError as error:
        asked = " ".join(f"{flag(name)} {value}" for name, value in given.items())
        raise SweepError(f"{asked}: {error}; the recipe has {usual}") from error


def choose_search(options: SweepOptions, groups: int) -> tuple[str, str]:
    """Return the sampler for so many trials at a time, and why it is not gp where nobody asked for another."""
    if options.search is not None:
        return options.search, ""
    if groups <= MOST_FOR_GP:
        return "gp", ""
    return "tpe", f"tpe proposes in milliseconds, gp in tenths of a second: {groups} trials at a time would wait for it"


def choose_confirmation(options: SweepOptions, usual: Recipe, trials: int) -> tuple[int, int]:
    """Return how many of the best of so many trials are trained again after the search, and how often each; 0, 0: none.

    ``--baseline-only --seeds S`` trains the baseline alone again: 0, S.
    """
    why_not = ""
    if options.baseline_only:
        why_not = "--baseline-only has no winner"
    elif options.evaluate is not None:
        why_not = "--evaluate trains nothing"
    elif options.scheduler == "pbt":
        why_not = "--scheduler pbt changes hyperparameters while a trial trains, so that there are none to train again"
    elif trials == 1:
        why_not = "one trial is the baseline, which there is nothing to compare with"
    if why_not and options.confirm:
        raise SweepError(f"--confirm {options.confirm}: {why_not}; leave it out")
    confirm = 0 if why_not else min(usual.confirm if options.confirm is None else options.confirm, trials - 1)
    if options.baseline_only:
        return 0, options.seeds or 0
    if options.seeds and not confirm:
        raise SweepError(
            f"--seeds {options.seeds} goes with --confirm K, which says how many trials are confirmed, or with "
            f"--baseline-only"
        )
    return confirm, (options.seeds or usual.seeds) if confirm else 0


def count_graphs(config: TrialConfig, space: SearchSpace, device: DeviceType, workers: int) -> Graphs | None:
    """Return how many compiled graphs the search space has; None where nothing is compiled, or nobody knows what.

    Args:
        config: Of one trial; it has what all trials have in common.
        space: Where to search.
        device: Of the workers.
        workers: Of each trial.
    """
    if config.graph_signature(device, workers) is None:
        return None
    found: dict[str, set[Any]] = {}
    signatures = set()
    for draw in space.draw(GRAPH_DRAWS):
        signature = replace(config, **draw.config).graph_signature(device, workers) or {}
        signatures.add(tuple(signature.items()))
        for name, value in signature.items():
            found.setdefault(name, set()).add(value)
    values = {name: len(different) for name, different in found.items() if len(different) > 1}
    new = tuple(name for name, number in values.items() if number > MANY_VALUES)
    return Graphs(len(signatures), values, new)


def choose_growth(config: TrialConfig, options: SweepOptions, budget: Budget, devices: Devices) -> int | str:
    """Return how many devices a trial of this configuration may go on with that would stay idle; or why it may not, if
    someone might wonder."""
    usual = options.workers_per_trial
    if options.grow == "off" or 2 * usual > devices.count:
        return usual
    wrong = ""
    if options.scheduler == "pbt":
        wrong = "--scheduler pbt needs all that train at the same time to train alike"
    elif budget.seconds:
        wrong = "--seconds compares trials by the time that they take"
    elif options.address is not None:
        wrong = "--address joins a Ray whose devices others may take"
    elif len(devices.nodes) > 1:
        wrong = "they do on one node, and the sweep has several"
    if wrong and options.grow == "on":
        raise SweepError(f"--grow on: {wrong}; leave one of the two out")
    if wrong or options.evaluate is not None:
        return usual
    most = most_devices(config, devices, options)
    return usual if isinstance(most, str) and isinstance(config, PlainConfig) else most


def search_in(experiment: Experiment, options: SweepOptions) -> Experiment:
    """Return the experiment with the options' ranges, and with the baseline's values that the options give."""
    given = options.space or {}
    known = [name for name in experiment.config_class.field_names() if name not in BY_OPTION]
    for name in given:
        if name not in known:
            raise SweepError(
                f"--config {options.config or ''}: [space] {name}: there is no such "
                f"hyperparameter{did_you_mean(name, known)}; there are {', '.join(known)}"
            )
    space = experiment.search_space.search({name: range_of(name, written) for name, written in given.items()})
    first = {name: written[BASELINE] for name, written in given.items() if BASELINE in written}
    return replace(experiment, space=space, baseline={**experiment.baseline, **first}) if given else experiment


def check_inside(experiment: Experiment, options: SweepOptions) -> None:
    """See that the baseline lies in the ranges that the options give."""
    space, baseline = experiment.search_space, experiment.baseline
    outside = sorted(set(space.outside(baseline)) & set(options.space or {})) if baseline and options.space else []
    for name in outside:
        raise SweepError(
            f"--config {options.config or ''}: [space] {name}: the baseline has {baseline[name]!r}, which lies "
            f"outside; widen the range, or give the baseline another value, for example {name} = "
            f"{{..., {BASELINE} = {format_value(middle(space.ranges[name][0]))}}}"
        )


def with_settings(options: SweepOptions, settings: Mapping[str, Any]) -> SweepOptions:
    """Return the options with settings of a published run, unless they give others."""
    given = {entry.partition("=")[0] for entry in options.settings}
    added = (f"{name}={value}" for name, value in settings.items() if name not in given)
    return replace(options, settings=(*added, *options.settings))


def choose_settings(
    experiment: Experiment, options: SweepOptions, recipe: RecipeName, *, hold_out: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what all trials have in common, and what of that are hyperparameters, which are not searched then.

    With ``hold_out`` the trials leave test data alone, if they can, which the confirmation is scored on.
    """
    sources = {"data": options.data, "model": options.model, "skip_bad_images": options.skip_bad_images or None}
    given: dict[str, Any] = {name: source for name, source in sources.items() if source is not None}
    known = experiment.config_class.field_names()
    held_out = {HOLD_OUT: True} if hold_out and HOLD_OUT in known else {}
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
            given[key] = typed(experiment.config_class, key, value)
        except ValueError as error:
            raise SweepError(f"--set {entry}{file}: {error}") from error
        if key in hyperparameters:
            fixed[key] = given[key]
    meant_for = {"lr_for_batch": experiment.baseline.get("batch_size", 0)} if experiment.scale_lr else {}
    return {**meant_for, **experiment.recipe(recipe).settings(), **held_out, **given}, fixed


def fix(experiment: Experiment, fixed: Mapping[str, Any]) -> Experiment:
    """Return the experiment without the hyperparameters that are fixed for all trials."""
    if not fixed:
        return experiment
    words = ", ".join(f"{name}={value}" for name, value in fixed.items())
    space = experiment.search_space.fix(fixed)
    if not space.ranges:
        raise SweepError(f"--set {words}: nothing is left to search; leave one hyperparameter to the search")
    if not experiment.baseline:
        return replace(experiment, space=space)
    left = {name: value for name, value in experiment.baseline.items() if name not in fixed}
    try:
        asked = space.at(left)
    except SweepError as error:
        raise SweepError(f"--set {words}: the baseline has no value for what is searched then: {error}") from error
    # With another choice of a hyperparameter, a space that branches asks for others, or in other ranges.
    others = {name: middle(asked.ranges[name]) for name in space.outside(left)}
    baseline = {name: value for name, value in {**left, **others}.items() if name in asked.config}
    return replace(experiment, space=space, baseline=baseline)


def typed(config_class: type[TrialConfig], name: str, value: object) -> Any:
    """Return a value as the field of this name has it; a ValueError where it is of another type."""
    try:
        return TypeAdapter(get_type_hints(config_class)[name]).validate_python(value)
    except ValidationError as error:
        message = error.errors()[0]["msg"].replace("Input should be", "must be").partition(", unable to parse")[0]
        raise ValueError(f"{name} {message}, but got {value!r}") from error
