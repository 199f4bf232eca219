"""What a sweep will do: everything that the options and the devices leave to decide. Nothing here asks a server or
touches a device. What cannot be: a SweepError.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.budget import BUDGET_OPTIONS, Budget
from gaudi_tune.define.experiment import Experiment, Recipe
from gaudi_tune.define.options import SweepOptions, flag
from gaudi_tune.define.search_space import Draw
from gaudi_tune.define.sweep_plan import HOLD_OUT, Graphs, Plan
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import Devices
from gaudi_tune.plan.apply import Asked
from gaudi_tune.sweep.policies.growth import choose_growth
from gaudi_tune.training.training_config import ExecutionMode, TrainingConfig
from gaudi_tune.training.trial_config import PlainConfig, TrialConfig

GRAPH_DRAWS = 300
"""Proposals by which the graphs of a space are counted; of 50 that are equally likely, 0.1 are missed."""
MANY_VALUES = 40
"""Different values among these from which on they are those of a continuous range."""


def decide(
    asked: Asked, devices: Devices, name: str, uri: str, cluster: str | None, *, holds_out: bool = False
) -> Plan:
    """Return the plan of a sweep that nobody has checked yet.

    Args:
        asked: The experiment as the options want it.
        devices: What trials train on.
        name: Of the sweep.
        uri: Address of the tracking store.
        cluster: The Ray cluster that was joined, in words; None for this machine alone.
        holds_out: Whether test data is held out although nothing is confirmed.
    """
    experiment, options = asked.experiment, asked.options
    usual = asked.usual
    trials = 1 if options.baseline_only else options.num_samples or usual.num_samples
    budget = choose_budget(options, usual.budget)
    confirm, seeds = choose_confirmation(options, usual, trials)
    confirmations = seeds * (confirm + bool(experiment.baseline))
    groups = min(pack(devices, options.workers_per_trial), max(trials, confirmations))
    may = HOLD_OUT in experiment.config_class.field_names()
    given = {**({HOLD_OUT: True} if may and (seeds or holds_out) else {}), **asked.settings, **budget.settings()}
    config, settings, mode = complete_settings(experiment, given, devices.type)
    kind, workers = devices.type, options.workers_per_trial
    try:
        compiles = config.graph_signature(kind, workers) is not None
        graphs = count_graphs(config, experiment.search_space.draw(GRAPH_DRAWS), kind, workers) if compiles else None
    except ValueError as error:  # of a configuration that breaks a rule
        raise SweepError(
            f"the search space proposes a trial that cannot train: {error}; change the range, or fix it with --set"
        ) from error
    if options.scheduler == "pbt":
        from gaudi_tune.sweep.policies.schedulers.population import check_changeable  # imports Tune: half a second

        check_changeable(experiment.search_space)
    return Plan(
        experiment=experiment,
        objectives=asked.objectives,
        earlier_config=asked.winner,
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


def pack(devices: Devices, workers_per_trial: int) -> int:
    """Return how many worker groups, and so trials at a time, the devices hold; an error names the possible widths."""
    groups = groups_of(devices, workers_per_trial) if workers_per_trial > 0 else 0
    if not groups:
        possible = [width for width in range(1, devices.count + 1) if groups_of(devices, width)]
        nodes = f" on {len(devices.nodes)} nodes" if len(devices.nodes) > 1 else ""
        raise SweepError(
            f"--workers-per-trial {workers_per_trial}: not possible with {devices.count} {devices.type.kind} "
            f"devices{nodes}; possible here: {', '.join(map(str, possible))}"
        )
    return groups


def groups_of(devices: Devices, width: int) -> int:
    """Return how many groups of ``width`` fit: each within one node, or over whole nodes of the largest size."""
    supported = devices.type.widths
    largest = supported[-1] if supported else max(devices.nodes)
    if width > largest:
        whole_nodes = devices.nodes.count(largest)
        return 0 if width % largest else whole_nodes // (width // largest)
    if supported and width not in supported:
        return 0
    return sum(count // width for count in devices.nodes)


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
        config = experiment.config_with(settings).with_full_paths()
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
        raise SweepError(f"--confirm {options.confirm}: {why_not}; leave --confirm out")
    confirm = 0 if why_not else min(usual.confirm if options.confirm is None else options.confirm, trials - 1)
    if options.baseline_only:
        return 0, options.seeds or 0
    if options.seeds and not confirm:
        raise SweepError(
            f"--seeds {options.seeds} goes with --confirm K, which says how many trials are confirmed, or with "
            f"--baseline-only"
        )
    return confirm, (options.seeds or usual.seeds) if confirm else 0


def count_graphs(config: TrialConfig, draws: Iterable[Draw], device: DeviceType, workers: int) -> Graphs:
    """Return how many compiled graphs a search space has.

    Args:
        config: Of one trial; it has what all trials have in common.
        draws: What the space proposes.
        device: Of the workers.
        workers: Of each trial.
    """
    found: dict[str, set[Any]] = {}
    signatures = set()
    for draw in draws:
        signature = replace(config, **draw.config).graph_signature(device, workers) or {}
        signatures.add(tuple(signature.items()))
        for name, value in signature.items():
            found.setdefault(name, set()).add(value)
    values = {name: len(different) for name, different in found.items() if len(different) > 1}
    new = tuple(name for name, number in values.items() if number > MANY_VALUES)
    return Graphs(len(signatures), values, new)
