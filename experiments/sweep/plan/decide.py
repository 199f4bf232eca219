"""What a sweep will do: everything that the options and the devices leave to decide. Nothing here asks a server or
touches a device. What cannot be: a SweepError.
"""

from __future__ import annotations

import re
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from experiments.sweep.decide.growth import most_devices
from experiments.sweep.define.budget import BUDGET_OPTIONS, Budget
from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.experiment import Experiment, Recipe
from experiments.sweep.define.options import SweepOptions, flag
from experiments.sweep.define.plan import HOLD_OUT, Graphs, Plan
from experiments.sweep.define.search_space import SearchSpace
from experiments.sweep.plan.apply import Asked
from experiments.sweep.plan.packing import pack
from trainables.runtime import TrialConfig, names
from trainables.runtime.devices.device import DeviceType
from trainables.runtime.devices.find import Devices
from trainables.runtime.training.training_config import ExecutionMode, TrainingConfig
from trainables.runtime.trial_config import PlainConfig

NAME = re.compile(r"\w[\w.-]{0,99}")
"""Names of sweeps: of a folder, a study, and a run in MLflow."""
GRAPH_DRAWS = 300
"""Proposals by which the graphs of a space are counted; of 50 that are equally likely, 0.1 are missed."""
MANY_VALUES = 40
"""Different values among these from which on they are those of a continuous range."""


def decide(asked: Asked, devices: Devices, name: str, uri: str, cluster: str | None) -> Plan:
    """Return the plan of a sweep that nobody has checked yet.

    Args:
        asked: The experiment as the options want it.
        devices: What trials train on.
        name: Of the sweep.
        uri: Address of the tracking store.
        cluster: The Ray cluster that was joined, in words; None for this machine alone.
    """
    experiment, options = asked.experiment, asked.options
    usual = experiment.recipe(asked.recipe)
    trials = 1 if options.baseline_only else options.num_samples or usual.num_samples
    budget = choose_budget(options, usual.budget)
    confirm, seeds = choose_confirmation(options, usual, trials)
    confirmations = seeds * (confirm + bool(experiment.baseline))
    groups = min(pack(devices, options.workers_per_trial), max(trials, confirmations))
    holds_out = {HOLD_OUT: True} if seeds and HOLD_OUT in experiment.config_class.field_names() else {}
    given = {**holds_out, **asked.settings, **budget.settings()}
    config, settings, mode = complete_settings(experiment, given, devices.type)
    try:
        graphs = count_graphs(config, experiment.search_space, devices.type, options.workers_per_trial)
    except ValueError as error:  # of a configuration that breaks a rule
        raise SweepError(f"a trial of this search space cannot train: {error}; change its range or --set") from error
    return Plan(
        experiment=experiment,
        others=asked.others,
        earlier_config=asked.earlier_config,
        options=options,
        devices=devices,
        groups=groups,
        recipe=asked.recipe,
        recipe_reason=asked.recipe_reason,
        settings=settings,
        mode=mode,
        budget=budget,
        num_samples=trials,
        confirm=confirm,
        seeds=seeds,
        name=name,
        tracking_uri=uri,
        graphs=graphs,
        growth=choose_growth(config, options, budget, devices),
        cluster=cluster,
    )


def choose_name(experiment: Experiment, options: SweepOptions) -> str:
    """Return the name of the sweep."""
    name = options.name if options.name is not None else f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if not NAME.fullmatch(name):
        raise SweepError(
            f"--name {name or repr(name)}: a name has 1 to 100 letters, digits, '.', '_' and '-', and begins with a "
            f"letter or digit"
        )
    return name


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


def complete_settings(
    experiment: Experiment, settings: dict[str, Any], device: DeviceType
) -> tuple[TrialConfig, dict[str, Any], ExecutionMode | None]:
    """Return the configuration of the baseline, else of any proposal; what all trials have in common, in full, defaults
    included; and how models are run, None where the train loop is not the shared one.

    Args:
        experiment: As the options want it.
        settings: What all trials have in common, as far as it was given.
        device: Of the workers.
    """
    mode = None
    try:
        config = experiment.config_with(settings)
        # Workers have another current folder.
        config = replace(config, data=_absolute(config.data), model=_absolute(config.model))
        if isinstance(config, TrainingConfig):
            config.check_on(device)
            mode = config.mode_on(device)
            if mode.name == "lazy":  # perhaps by a variable here, and other nodes have others
                config = replace(config, lazy_mode=True)
    except ValueError as error:
        raise SweepError(str(error)) from error
    searched = {*experiment.search_space.names, *experiment.first_params}
    in_full = {k: v for k, v in asdict(config).items() if k not in {*searched, "seed", names.CONFIRMS}}
    if isinstance(config, PlainConfig):  # nothing that the train loop may not know
        in_full = {name: value for name, value in in_full.items() if name in settings}
    # What only some proposals have, the others have as the recipe has it, not as the baseline.
    sometimes = searched - (experiment.search_space.always & set(experiment.baseline))
    return config, {**in_full, **{name: settings[name] for name in sorted(sometimes) if name in settings}}, mode


def _absolute(source: str) -> str:
    """Return a local path as every worker can read it, whatever its current folder; a name on the hub as it is."""
    path = Path(source).expanduser()
    return str(path.resolve()) if source and path.exists() else source


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
