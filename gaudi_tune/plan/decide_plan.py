"""Deciding what the options leave open: the budget, the number of trials at a time, the confirmation, the settings.

Nothing here asks a server or uses a device. What is impossible raises a SweepError.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.budget import BUDGET_OPTIONS, Budget
from gaudi_tune.define.experiment import Experiment, Recipe
from gaudi_tune.define.options import SweepOptions, flag
from gaudi_tune.define.space_checks import Draw
from gaudi_tune.define.sweep_plan import HOLD_OUT, Graphs, Plan
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import Devices
from gaudi_tune.plan.apply import AppliedOptions
from gaudi_tune.sweep.policies.growth import choose_growth
from gaudi_tune.sweep.policies.schedulers.factory import scheduler_kind
from gaudi_tune.training.trial_config import ExecutionMode, PlainConfig, TrialConfig

GRAPH_DRAWS = 300
"""How many proposals are drawn to count the graphs of a space. Of 50 equally likely ones, 0.1 are missed on average."""
MANY_VALUES = 40
"""From this many different values among the draws on, a hyperparameter counts as continuous."""


def decide_plan(
    applied: AppliedOptions,
    options: SweepOptions,
    devices: Devices,
    name: str,
    uri: str,
    cluster: str | None,
    *,
    max_concurrent: int | None = None,
) -> Plan:
    """Return the plan of a sweep, which is not checked yet.

    Args:
        applied: The experiment with the options applied.
        options: The options.
        devices: The devices on which trials train.
        name: The name of the sweep.
        uri: The address of the tracking store.
        cluster: The Ray cluster that was joined, in words. None: this machine alone.
        max_concurrent: The most trials that train at a time. None: as many as fit.
    """
    experiment, recipe = applied.experiment, applied.experiment.recipe(applied.recipe)
    trials = 1 if options.baseline_only else options.num_samples or recipe.num_samples
    budget = choose_budget(options, recipe.budget)
    confirm, seeds = choose_confirmation(options, recipe, trials)
    confirmations = seeds * (confirm + bool(experiment.baseline))
    places = pack(devices, options.workers_per_trial, options.trials_per_device)
    groups = min(places, max(trials, confirmations))
    groups = min(groups, max_concurrent or groups)
    partial_settings = {**applied.settings, **budget.settings()}
    if seeds and HOLD_OUT in experiment.config_class.field_names():
        partial_settings = {HOLD_OUT: True, **partial_settings}
    cores = CPU.count_here() // (max(devices.nodes) * options.trials_per_device)
    config, settings, mode = complete_settings(experiment, partial_settings, devices.type, cores)
    kind, workers = devices.type, options.workers_per_trial
    graphs = None
    try:
        if config.graph_signature(kind, workers) is not None:  # None: nothing is compiled
            graphs = count_graphs(config, experiment.search_space.random_draws(GRAPH_DRAWS), kind, workers)
    except ValueError as error:  # a drawn configuration breaks a rule
        raise SweepError(
            f"the search space proposes a trial that cannot train: {error}; change the range, or fix it with --set"
        ) from error
    scheduler = scheduler_kind(options.scheduler)
    scheduler.check(experiment.search_space)
    takes_grace = scheduler.has_rungs or options.scheduler in ("hyperband", "median")
    if options.grace and options.resume is None and not takes_grace:
        raise SweepError(f"--grace {options.grace}: --scheduler {options.scheduler} takes none; leave it out")
    return Plan(
        experiment=experiment,
        objectives=applied.objectives,
        earlier_config=applied.winner,
        options=options,
        devices=devices,
        groups=groups,
        trials_per_device=math.ceil(groups / devices.count),
        recipe=applied.recipe,
        recipe_reason=applied.recipe_reason,
        settings=settings,
        mode=mode,
        budget=budget,
        num_samples=trials,
        confirm=confirm,
        seeds=seeds,
        most_seeds=choose_most_seeds(options, seeds) if experiment.baseline else seeds,
        name=name,
        tracking_uri=uri,
        graphs=graphs,
        rungs=budget.rungs() if scheduler.has_rungs else (),
        weak_trials="" if options.baseline_only else scheduler.in_words(budget, groups, may_not_save=mode is None),
        growth=choose_growth(config, options, budget, devices),
        cluster=cluster,
    )


def pack(devices: Devices, workers_per_trial: int, trials_per_device: int = 1) -> int:
    """Return how many worker groups, and so trials at a time, fit on the devices.

    Raises:
        SweepError: No group fits, and the text names the widths that would; or the devices cannot be shared.
    """
    if trials_per_device > 1:
        _check_sharing(devices, workers_per_trial, trials_per_device)
    groups = count_groups(devices, workers_per_trial) if workers_per_trial > 0 else 0
    if not groups:
        possible = [width for width in range(1, devices.count + 1) if count_groups(devices, width)]
        nodes = f" on {len(devices.nodes)} nodes" if len(devices.nodes) > 1 else ""
        raise SweepError(
            f"--workers-per-trial {workers_per_trial}: not possible with {devices.count} {devices.type.kind} "
            f"devices{nodes}; possible here: {', '.join(map(str, possible))}"
        )
    return groups * trials_per_device


def _check_sharing(devices: Devices, workers_per_trial: int, trials_per_device: int) -> None:
    option = f"--trials-per-device {trials_per_device}"
    if devices.type.exclusive:
        raise SweepError(
            f"{option}: a {devices.type.kind} belongs to one process at a time, so trials cannot share one; leave it "
            f"out, and {devices.count} trials train at a time with --workers-per-trial 1. To fill a device, take a "
            f"larger micro_batch, or train several models in one train loop; a GPU (cuda) and a core (cpu) are shared"
        )
    if workers_per_trial > 1:
        raise SweepError(
            f"{option} --workers-per-trial {workers_per_trial}: Ray might put two workers of a trial on one device, "
            f"which they cannot train on together; give one of the two options"
        )


def count_groups(devices: Devices, width: int) -> int:
    """Return how many groups of ``width`` workers fit: each on one node, or on several whole nodes of the largest
    size."""
    supported = devices.type.widths
    largest = supported[-1] if supported else max(devices.nodes)
    if width > largest:
        whole_nodes = devices.nodes.count(largest)
        return 0 if width % largest else whole_nodes // (width // largest)
    if supported and width not in supported:
        return 0
    return sum(count // width for count in devices.nodes)


def choose_budget(options: SweepOptions, default: Budget) -> Budget:
    """Return the budget that the options give. What they leave out comes from ``default``, the recipe's budget."""
    if options.epochs or options.steps:
        epochs, steps, seconds = options.epochs or 0, options.steps or 0, options.seconds or 0
        eval_every = options.eval_every or -(-steps // 10)
    else:
        epochs, steps, seconds = default.epochs, default.steps, options.seconds or default.seconds
        eval_every = options.eval_every or default.eval_every
    # The recipe's grace is a share of its budget, for example its warm-up.
    grace = options.grace or round(default.grace * (seconds or epochs or steps) / default.total)
    try:
        return Budget(
            epochs=epochs, steps=steps, eval_every=eval_every, seconds=seconds, grace=grace,
            reduction=options.reduction or default.reduction,
        )  # fmt: skip
    except ValueError as error:
        flags = [f"{flag(name)} {value}" for name in BUDGET_OPTIONS if (value := getattr(options, name))]
        raise SweepError(f"{' '.join(flags)}: {error}; the recipe has {default}") from error


def complete_settings(
    experiment: Experiment, settings: dict[str, Any], device: DeviceType, cores: int
) -> tuple[TrialConfig, dict[str, Any], ExecutionMode | None]:
    """Return a configuration, all settings, and how models are run.

    The configuration is that of the baseline, or of any proposal if there is no baseline. The settings are everything
    that all trials have in common, including defaults. How models are run is None for a train loop of the user's.

    Args:
        experiment: The experiment with the options applied.
        settings: The settings that the recipe and the options give.
        device: The kind of device of the workers.
        cores: The host's cores for each worker; of several hosts, those of this one.
    """
    try:
        config = experiment.config_with(settings).with_full_paths()
        mode = config.mode_on(device)
        config = config.for_device(device, cores)
    except ValueError as error:
        raise SweepError(str(error)) from error
    searched = {*experiment.search_space.names, *experiment.first_params}
    complete = {k: v for k, v in asdict(config).items() if k not in {*searched, "seed", names.CONFIRMS}}
    if isinstance(config, PlainConfig):  # the train loop may not know the defaults
        complete = {name: value for name, value in complete.items() if name in settings}
    # Where only some proposals have a hyperparameter, the others have the recipe's value, not the baseline's.
    conditional = searched - (experiment.search_space.always & set(experiment.baseline))
    return config, {**complete, **{name: settings[name] for name in sorted(conditional) if name in settings}}, mode


def choose_confirmation(options: SweepOptions, recipe: Recipe, trials: int) -> tuple[int, int]:
    """Return how many of the best trials are trained again after the search, and with how many seeds.

    Without a confirmation this is 0, 0. ``--baseline-only --seeds S`` trains only the baseline again: 0, S.
    """
    obstacle = ""
    if options.baseline_only:
        obstacle = "--baseline-only has no winner"
    elif scheduler_kind(options.scheduler).clones:
        obstacle = f"--scheduler {options.scheduler} changes hyperparameters while a trial trains"
    elif trials == 1:
        obstacle = "one trial is the baseline, which there is nothing to compare with"
    if obstacle and options.confirm:
        raise SweepError(f"--confirm {options.confirm}: {obstacle}; leave --confirm out")
    confirm = 0 if obstacle else min(recipe.confirm if options.confirm is None else options.confirm, trials - 1)
    if options.baseline_only:
        return 0, options.seeds or 0
    for name in ("seeds", "most_seeds"):
        if (given := getattr(options, name)) and not confirm:
            raise SweepError(
                f"{flag(name)} {given} goes with --confirm K, which says how many trials are confirmed, or with "
                f"--baseline-only"
            )
    return confirm, (options.seeds or recipe.seeds) if confirm else 0


def choose_most_seeds(options: SweepOptions, seeds: int) -> int:
    """Return how many seeds the confirmation may have in the end; no more than ``seeds`` if their number or the time is
    given."""
    return max(seeds, options.most_seeds or (seeds if options.seeds or options.time_budget else 2 * seeds))


def count_graphs(config: TrialConfig, draws: Iterable[Draw], device: DeviceType, workers: int) -> Graphs:
    """Return how many compiled graphs the trials of a search space need.

    Args:
        config: The configuration of one trial, which has the settings of all.
        draws: Proposals of the space.
        device: The kind of device of the workers.
        workers: The number of workers of each trial.
    """
    values: dict[str, set[Any]] = {}
    signatures = set()
    for draw in draws:
        signature = replace(config, **draw.config).graph_signature(device, workers) or {}
        signatures.add(tuple(signature.items()))
        for name, value in signature.items():
            values.setdefault(name, set()).add(value)
    counts = {name: len(distinct) for name, distinct in values.items() if len(distinct) > 1}
    continuous = tuple(name for name, count in counts.items() if count > MANY_VALUES)
    return Graphs(len(signatures), counts, continuous, config.most_shapes)
