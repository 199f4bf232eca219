"""The plan of a sweep: everything decided and checked before a worker starts."""

from __future__ import annotations

import json
import math
import re
import socket
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import optuna
import ray
from optuna.distributions import BaseDistribution
from optuna.trial import FixedTrial

from experiments.sweep.budget import Budget
from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import Experiment, RecipeName
from experiments.sweep.options import SweepOptions, bytes_of
from experiments.sweep.packing import pack
from experiments.sweep.schedulers.population import changeable
from experiments.sweep.search.samplers import make_sampler
from experiments.sweep.search.searcher import DRAWS, distributions_of, propose
from experiments.sweep.sweep_file import SWEEP_FILE, check_resumable, options_of_sweep
from experiments.sweep.tracking.store import ANSWER_WITHIN_S, check_registry, check_tracking, tracking_uri
from trainables.runtime import TrialConfig
from trainables.runtime.device import Devices, find_devices

SUMMARY_FILE = "summary.json"
"""What a sweep came to, in its folder; written when it ends."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep as it will run."""

    experiment: Experiment
    options: SweepOptions
    devices: Devices
    groups: int
    """Worker groups, and so trials at a time; no more than there are trials."""
    recipe: RecipeName
    recipe_reason: str
    settings: dict[str, Any]
    """What every trial is told besides its hyperparameters."""
    budget: Budget
    num_samples: int
    name: str
    tracking_uri: str
    facts: list[str]
    """What the check of data and model found."""

    @property
    def folder(self) -> Path:
        """Everything the sweep writes."""
        return self.options.storage.expanduser().resolve() / self.name

    @property
    def summary_file(self) -> Path:
        """Where the sweep says what it came to."""
        return self.folder / SUMMARY_FILE

    @property
    def timeline_file(self) -> Path:
        """The picture of what each device did."""
        return self.folder / "timeline.png"

    @property
    def report_file(self) -> Path:
        """The page with the numbers, the pictures and all trials."""
        return self.folder / "report.html"

    def decided(self) -> dict[str, Any]:
        """Return the options with what was decided in the place of what was left open."""
        budget = {name: getattr(self.budget, name) or None for name in ("epochs", "steps", "eval_every")}
        sources = {name: self.settings[name] for name in ("data", "model") if getattr(self.options, name) is not None}
        chosen = {"name": self.name, "recipe": self.recipe, "device": self.devices.type.kind}
        return {**asdict(self.options), **chosen, **budget, **sources, "num_samples": self.num_samples}

    @property
    def resumed(self) -> bool:
        """Whether the sweep has begun before."""
        return self.options.resume is not None

    def lines(self) -> list[str]:
        """Return the plan in words, a line each."""
        width, same = self.options.workers_per_trial, "as it began" if self.resumed else None
        trials = (
            "the baseline alone" if self.options.baseline_only else f"{self.num_samples} trials, the baseline first"
        )
        return [
            f"sweep   {self.name}{' goes on' if self.resumed else ''}: {trials}, at most {self.budget} each, "
            f"{self.options.search} search, {self.options.scheduler} scheduler",
            f"recipe  {self.recipe}: {same or self.recipe_reason}",
            f"device  {self.devices.type.kind}: {same or self.devices.reason}; {self.groups} trials at a time, "
            f"{width} worker(s) each",
            *(f"        {fact}" for fact in self.facts),
            f"files   {self.folder}",
            f"mlflow  {self.tracking_uri}",
        ]


def make_plan(experiment: Experiment, options: SweepOptions) -> Plan:
    """Decide and check everything. Acquires no device and starts no worker.

    Raises:
        SweepError: The first thing that cannot work, with its rule, value and mend.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # it tells of every study in memory
    check_space(experiment)
    if options.resume is not None:
        options = options_of_sweep(experiment.name, options)
    elif options.add_trials:
        raise SweepError("--add-trials goes with --resume NAME; a new sweep has --num-samples")
    check_search(experiment, options)
    check_limits(options)
    cluster = connect(options.address)
    try:
        devices = find_devices(options.device, cluster)
    except ValueError as error:
        raise SweepError(str(error)) from error
    room = pack(devices, options.workers_per_trial)
    recipe, reason = choose_recipe(options, devices)
    name = options.name or f"{experiment.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    if options.resume is None:
        check_folder(options.storage.expanduser(), name)
    uri = tracking_uri(options.tracking_uri)
    check_tracking(uri, experiment.name)
    bytes_of(options.checkpoint_budget)
    if options.register is not None:
        check_register(experiment, options.register, uri)
    budget = choose_budget(options, experiment.recipes[recipe].budget)
    num_samples = at_least_one("--num-samples", options.num_samples, experiment.recipes[recipe].num_samples)
    trials = 1 if options.baseline_only else num_samples
    chosen = settings_of(experiment, options, recipe)
    experiment = with_fixed(experiment, chosen)
    if options.scheduler == "pbt":
        changeable(experiment.space)
    settings, facts = check_trials(experiment, {**chosen, **budget.settings()}, options.workers_per_trial)
    plan = Plan(
        experiment=experiment,
        options=options,
        devices=devices,
        groups=min(room, trials),
        recipe=recipe,
        recipe_reason=reason,
        settings=settings,
        budget=budget,
        num_samples=trials,
        name=name,
        tracking_uri=uri,
        facts=facts,
    )
    if plan.resumed:
        check_resumable(
            plan.folder, experiment.space, groups=plan.groups, num_samples=plan.num_samples, tracking_uri=uri
        )
    return plan


def check_space(experiment: Experiment) -> None:
    """Hold the space and the baseline against what the train loop knows, everything that is wrong at once."""
    known, needed = set(experiment.config_class.field_names()), set(experiment.config_class.required_names())
    space, always = _keys_of(experiment)
    config, ranges = _baseline_in_space(experiment)
    baseline, there = set(experiment.baseline), set(config)
    outside = {name for name in baseline & set(ranges) if not _holds(ranges[name], experiment.baseline[name])}
    wrong = [
        ("the search space has keys that the train loop does not know", space - known),
        ("the search space lacks keys that the train loop needs", needed - space),
        (
            "the search space does not always have keys that the train loop needs (have it return a value for them "
            "where it asks for none, or give them a default)",
            (needed & space) - always,
        ),
        ("the baseline has keys that the search space lacks", baseline - (space & there)),
        ("the baseline lacks keys that the train loop needs", needed - there),
        ("the baseline lies outside the search space in", outside),
    ]
    said = [f"{what}: {', '.join(sorted(names))}" for what, names in wrong if names]
    if said:
        fields = ", ".join(sorted(known))
        raise SweepError(f"experiment {experiment.name}: {'; '.join(said)}. The train loop knows: {fields}.")


def connect(address: str | None) -> list[Mapping[str, float]] | None:
    """Join the cluster at ``address`` and return its nodes' resources; None if this machine is to be used alone."""
    if address is not None:
        try:
            if address != "auto":
                _knock(address)
            if not ray.is_initialized():
                ray.init(address=address, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise SweepError(
                f"--address {address}: no Ray cluster answers there ({error}). Give HOST:PORT of a node started with "
                f"ray start --head, or auto on such a node."
            ) from error
    return [node["Resources"] for node in ray.nodes() if node["Alive"]] if ray.is_initialized() else None


def choose_recipe(options: SweepOptions, devices: Devices) -> tuple[RecipeName, str]:
    """Return the recipe and why."""
    if options.recipe is not None:
        return options.recipe, "asked for"
    if devices.type.kind == "cpu":
        return "sample", "there is no accelerator, and the full recipe would take days on a CPU (--recipe full insists)"
    return "full", "there is an accelerator"


def choose_budget(options: SweepOptions, usual: Budget) -> Budget:
    """Return the budget that was asked for, or the recipe's."""
    for option in ("epochs", "steps", "eval_every"):
        at_least_one(f"--{option.replace('_', '-')}", getattr(options, option), 1)
    if options.epochs and (options.steps or options.eval_every):
        raise SweepError("--epochs goes with neither --steps nor --eval-every: a budget is in epochs or in steps")
    if options.epochs:
        return Budget(epochs=options.epochs)
    steps = options.steps or usual.steps
    every = options.eval_every or (usual.eval_every if not options.steps else 0) or -(-steps // 10)
    if not steps and options.eval_every:
        raise SweepError(f"--eval-every {every}: the recipe's budget is in epochs; give --steps, too")
    if every > steps:
        raise SweepError(f"--eval-every must be at most the {steps} steps of a trial, but got {every}")
    return Budget(steps=steps, eval_every=every) if steps else usual


def check_register(experiment: Experiment, name: str, uri: str) -> None:
    """See that there will be a model to register, and that the registry takes it."""
    if experiment.predictor is None:
        raise SweepError(
            f"--register {name}: the experiment {experiment.name} has no model to register, since it does not say how "
            f"one predicts; give it a predictor (CONTRIBUTING.md), or leave the option out"
        )
    check_registry(uri, name)


def check_folder(storage: Path, name: str) -> None:
    """See that the sweep's folder can be written and is not there yet."""
    if not re.fullmatch(r"[\w][\w.-]*", name):
        raise SweepError(
            f"--name {name}: a name is letters, digits, '.', '_' and '-', and begins with a letter or digit"
        )
    try:
        storage.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=storage):
            pass
    except OSError as error:
        raise SweepError(
            f"--storage {storage}: cannot be written ({error.strerror}); give a folder of yours"
        ) from error
    folder = storage / name
    if folder.exists():
        summary = folder / SUMMARY_FILE
        finished = summary.is_file() and json.loads(summary.read_text())["complete"]
        what = "a finished" if finished else "an unfinished"
        mend = f"go on with it (--resume {name})" if (folder / SWEEP_FILE).is_file() else "remove the folder"
        raise SweepError(f"--name {name}: {what} sweep has this name ({folder}); take another, or {mend}")


def settings_of(experiment: Experiment, options: SweepOptions, recipe: RecipeName) -> dict[str, Any]:
    """Return the recipe's settings with the user's in their place."""
    sources = {"data": options.data, "model": options.model}
    given: dict[str, Any] = {name: _absolute(source) for name, source in sources.items() if source is not None}
    given |= {"skip_bad_images": True} if options.skip_bad_images else {}
    taken = {*TrialConfig.field_names()}  # options of their own
    taken |= _keys_of(experiment)[0] if callable(experiment.space) else set()
    free = [name for name in experiment.config_class.field_names() if name not in taken]
    for entry in options.settings:
        key, equals, value = entry.partition("=")
        if not equals or key not in free:
            raise SweepError(f"--set {entry}: give KEY=VALUE with a key out of {', '.join(free)}")
        if key in given:
            raise SweepError(f"--set {entry}: {key} is given twice")
        given[key] = value
    for name in ("data", "model", "skip_bad_images"):
        if name in given and name not in experiment.config_class.field_names():
            raise SweepError(f"--{name.replace('_', '-')}: the experiment {experiment.name} has no such setting")
    return {**experiment.recipes[recipe].settings(), **given}


def with_fixed(experiment: Experiment, settings: Mapping[str, Any]) -> Experiment:
    """Return the experiment without the hyperparameters that the settings fix for all trials."""
    fixed = set(settings) & set(experiment.baseline)
    if not fixed or callable(experiment.space):
        return experiment
    space = {name: domain for name, domain in experiment.space.items() if name not in fixed}
    if not space:
        raise SweepError(f"--set: nothing is left to search with {', '.join(sorted(fixed))} fixed")
    baseline = {name: value for name, value in experiment.baseline.items() if name not in fixed}
    return replace(experiment, space=space, baseline=baseline)


def check_search(experiment: Experiment, options: SweepOptions) -> None:
    """See that the sampler can be made and proposes from this space, also after it has been told a value."""
    if not 0 <= options.seed < 2**32:
        raise SweepError(f"--seed must be from 0 to 2**32 - 1, but got {options.seed}")
    study = optuna.create_study(sampler=make_sampler(options.search, options.seed))
    try:
        for value in range(2):
            _, number = propose(study, experiment.space)
            study.tell(number, float(value))
        propose(study, experiment.space)
    except Exception as error:
        # Each sampler has its own needs: a package that is not installed, ranges of one kind, a finite grid.
        raise SweepError(f"--search {options.search}: this sampler cannot search this space ({error})") from error


def check_limits(options: SweepOptions) -> None:
    """See that the times and counts that end or repeat something are possible."""
    at_least_one("--patience", options.patience, 1)
    for name in ("retries", "same_errors", "checkpoint_minutes", "hang_minutes"):
        if not getattr(options, name) >= 0:
            raise SweepError(f"--{name.replace('_', '-')} must be at least 0, but got {getattr(options, name)}")
    if options.time_budget is not None and not options.time_budget > 0:
        raise SweepError(f"--time-budget must be above 0 minutes, but got {options.time_budget}")
    if options.target is not None and not math.isfinite(options.target):
        raise SweepError(f"--target must be a finite number, but got {options.target}")


def check_trials(experiment: Experiment, settings: Mapping[str, Any], workers: int) -> tuple[dict[str, Any], list[str]]:
    """Check what the baseline and every batch size of the space would load and train on.

    Returns:
        The settings in full, defaults included, and what the check of data and model found.
    """
    try:
        baseline, _ = _baseline_in_space(experiment)
        config: TrialConfig = experiment.config_class.from_dict({**settings, **baseline})
        # Workers have another current folder.
        config = replace(config, data=_absolute(config.data), model=_absolute(config.model))
        sizes = sorted({getattr(config, "batch_size", workers), *_choices_of(experiment, "batch_size")})
        _check_shares(sizes, workers, getattr(config, "accumulation", 1))
        facts = experiment.check(config)
        if "batch_size" in experiment.baseline:
            experiment.check(replace(config, **{"batch_size": sizes[-1]}))
    except (ValueError, OSError) as error:
        raise SweepError(str(error)) from error
    space, always = _keys_of(experiment)
    in_full = {name: value for name, value in asdict(config).items() if name not in {*space, "seed"}}
    # What only some proposals have, the others have as the recipe has it, not as the baseline.
    return {**in_full, **{name: settings[name] for name in sorted(space - always) if name in settings}}, facts


def _check_shares(sizes: Sequence[int], workers: int, accumulation: int) -> None:
    uneven = [size for size in sizes if size % (workers * accumulation)]
    if uneven:
        passes = f", in {accumulation} passes (accumulation)" if accumulation > 1 else ""
        raise SweepError(
            f"--workers-per-trial {workers}: the workers share a batch evenly{passes}, and batch_size {uneven} cannot "
            f"be split so; take a number that divides all of {sizes}, or another search space"
        )


def at_least_one(option: str, given: int | None, default: int) -> int:
    """Return ``given``, or ``default`` for None."""
    if given is not None and given < 1:
        raise SweepError(f"{option} must be at least 1, but got {given}")
    return default if given is None else given


def _absolute(source: str) -> str:
    """Return a local path as every worker can read it, whatever its current folder; a name on the hub as it is."""
    path = Path(source).expanduser()
    return str(path.resolve()) if source and path.exists() else source


def _knock(address: str) -> None:
    """Raise OSError or ValueError unless something listens at HOST:PORT; Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    socket.create_connection((host, int(port)), timeout=ANSWER_WITHIN_S).close()


def _keys_of(experiment: Experiment) -> tuple[set[str], set[str]]:
    """Return the keys that proposals of the space may have, and those that all of them have."""
    if not callable(experiment.space):
        return set(experiment.space), set(experiment.space)
    # A throwaway study in memory: the keys of a space that is a function are known only by calling it.
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    proposals = [set(propose(study, experiment.space)[0]) for _ in range(DRAWS)]
    proposals.append(set(_baseline_in_space(experiment)[0]))
    return set.union(*proposals), set.intersection(*proposals)


def _baseline_in_space(experiment: Experiment) -> tuple[Mapping[str, Any], Mapping[str, BaseDistribution]]:
    """Return the configuration of the baseline, and the ranges of the space that it is held against.

    Raises:
        SweepError: The space, a function, asks for something that the baseline has not.
    """
    if not callable(experiment.space):
        return experiment.baseline, distributions_of(experiment.space)
    trial = FixedTrial(dict(experiment.baseline))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a value outside its range, which is an error of ours
            constants = experiment.space(cast(optuna.Trial, trial)) or {}
    except Exception as error:
        raise SweepError(
            f"experiment {experiment.name}: the search space cannot be asked for the baseline "
            f"({type(error).__name__}: {error}); the baseline must have a value for all that the space asks it for"
        ) from error
    return {**constants, **trial.params}, trial.distributions


def _choices_of(experiment: Experiment, name: str) -> tuple[Any, ...]:
    if callable(experiment.space):
        return ()
    return tuple(getattr(distributions_of(experiment.space).get(name), "choices", ()))


def _holds(distribution: BaseDistribution, value: Any) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:  # a choice that is not among the choices
        return False
