"""The options of a sweep: the fields are the options of every script and the arguments of build_tuner().

The docstring of a field is its line in ``--help``; ``docs/options.md`` explains the options at length.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import tyro
from pydantic import ByteSize, Field, TypeAdapter, ValidationError

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.base.words import did_you_mean, is_digits
from gaudi_tune.define.reading import (
    MOST,
    AnyText,
    Count,
    File,
    Finite,
    Positive,
    Switch,
    Text,
    Texts,
    TwoOrMore,
    Whole,
    rule_of,
)

PROJECT_ROOT = Path(__file__).resolve().parents[2]
"""The checkout, or where the packages are installed."""
HOME = Path.cwd()
"""The folder of results and of the tracking store: the one in which the command was started."""
DEFAULT_STORAGE = HOME / "results"
SEEDS = 2**32
"""How many seeds there are, from 0."""
MOST_PER_DEVICE = 100
"""The most trials that may share a device: Ray counts devices in steps of 0.0001."""
SchedulerName: TypeAlias = Literal["asha-promote", "asha", "hyperband", "median", "pbt", "fifo"]
RAYS, RAYS_POPULATION = "ray.", "ray.population."
"""What the names of objects of Ray Tune begin with, such as ``ray.ASHAScheduler``, and those of its populations."""
OnResume: TypeAlias = Literal["kept", "kept unless given", "as given"]
"""What ``--resume`` does with an option: it keeps the value with which the sweep began; or it keeps that unless the
command line has another; or it takes what the command line says, and the sweep's files do not have the option."""


def shown(metavar: str, default: str = "") -> Any:
    """Return how ``--help`` shows an option: a word for its value, and its default if that is worth showing."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=default)


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What the code must know of an option besides its type and its default; a part of the field's annotation."""

    on_resume: OnResume = "kept"
    usual: Any = None
    """The value of an option that was not given and whose default is None; :func:`with_usual` fills it in."""
    example: tuple[str, ...] = ()
    """Values of an option that takes several, for the error that asks for a tuple."""
    rerun_repeats: bool = False
    """Whether ``gaudi-tune rerun`` takes the sweep's value, since it says what a trial trains."""
    in_config_file: bool = True
    """Whether ``--config`` reads it as a key of the file's top level."""


REPEATED = Traits(rerun_repeats=True)
NOT_KEPT, MAY_CHANGE = Traits(on_resume="as given"), Traits(on_resume="kept unless given")
Seed: TypeAlias = Annotated[Whole, Field(ge=0, lt=SEEDS)]
Duration: TypeAlias = Annotated[Finite, Field(ge=0, le=MOST)]
RaysName: TypeAlias = Annotated[str, Field(pattern=rf"^{re.escape(RAYS)}")]


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """What each trial trains, and on what."""

    recipe: Annotated[Literal["full", "sample"] | None, shown("NAME"), REPEATED] = None
    """full: as published. sample: small and offline."""
    device: Annotated[Text, shown("NAME"), REPEATED] = "auto"
    """auto, hpu, cuda or cpu."""
    workers_per_trial: Annotated[Whole, shown("N", "(1)"), REPEATED] = 1
    """Devices that train one trial together."""
    trials_per_device: Annotated[Annotated[Whole, Field(ge=1, le=MOST_PER_DEVICE)], shown("N", "(1)")] = 1
    """Trials that share one device, each in its own process."""
    grow: Annotated[Literal["auto", "exact", "on", "off"], shown("WHEN", "(auto)")] = "auto"
    """Give idle devices to running trials: auto, exact, on, off."""
    data: Annotated[Text | None, shown("PATH"), REPEATED] = None
    """File, folder or name on the hub; default: the recipe's."""
    model: Annotated[Text | None, shown("PATH"), REPEATED] = None
    """Pretrained weights: a folder, a file, or a name."""
    epochs: Annotated[Positive | None, shown("N"), REPEATED] = None
    """Epochs of a full trial; default: the recipe's."""
    steps: Annotated[Positive | None, shown("N"), REPEATED] = None
    """Optimizer steps of a full trial, instead of epochs."""
    eval_every: Annotated[Positive | None, shown("N"), REPEATED] = None
    """Steps between two evaluations."""
    seconds: Annotated[Positive | None, shown("N"), REPEATED] = None
    """Train each trial for at most N seconds; compare by time."""
    settings: Annotated[
        Texts,
        tyro.conf.arg(name="set", metavar="KEY=VALUE", help_behavior_hint=""),
        Traits(example=("lr=0.1",), rerun_repeats=True, in_config_file=False),
    ] = ()
    """Change a setting, or fix a hyperparameter."""
    baseline: Annotated[Text | None, shown("SWEEP")] = None
    """Start from an earlier sweep's winner."""
    baseline_only: Annotated[Switch, shown("")] = False
    """Train only the baseline."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """What to try, and which trials continue."""

    config: Annotated[File | None, shown("FILE"), Traits(in_config_file=False)] = None
    """TOML file of options; the command line wins."""
    num_samples: Annotated[Positive | None, shown("N")] = None
    """Trials, baseline included; default: the recipe's."""
    objectives: Annotated[
        Texts, shown("METRIC:MODE..."), Traits(example=("val_loss:min", "samples_per_s:max"), rerun_repeats=True)
    ] = ()
    """One to three metrics, each with max or min."""
    search: Annotated[Text, shown("NAME")] = "gp"
    """gp (default), tpe, random, qmc, nsgaii, or an Optuna class."""
    scheduler: Annotated[SchedulerName | RaysName, shown("NAME")] = "asha-promote"
    """asha-promote (default), asha, hyperband, median, pbt, fifo."""
    learn_from: Annotated[Texts, shown("SWEEP..."), Traits(example=("earlier",))] = ()
    """Begin near the best trials of sweeps, CSV files, optuna:, mlflow:."""
    grace: Annotated[Positive | None, shown("N")] = None
    """Epochs, steps or seconds before a trial can be stopped."""
    reduction: Annotated[TwoOrMore | None, shown("N")] = None
    """Promote one trial in N at a rung, to train N times as long."""
    seed: Annotated[Seed, shown("N", "(0)")] = 0
    """Seed of the search; the seeds of trials follow from it."""
    trial_seed: Annotated[Seed | None, shown("N")] = None
    """Give all trials the same seed."""
    confirm: Annotated[Count | None, shown("K")] = None
    """Train the K best again with new seeds; 0: none."""
    seeds: Annotated[TwoOrMore | None, shown("S")] = None
    """Seeds of each confirmed trial and the baseline; usually 4."""
    most_seeds: Annotated[TwoOrMore | None, shown("S")] = None
    """Up to S seeds while the verdict is open; usually twice."""


@dataclass(frozen=True, kw_only=True)
class LimitOptions:
    """When to end the sweep early, and what to retry."""

    time_budget: Annotated[Annotated[Finite, Field(gt=0, le=MOST)] | None, shown("MINUTES"), MAY_CHANGE] = None
    """End after this long, confirmation included."""
    target: Annotated[Finite | None, shown("VALUE"), MAY_CHANGE] = None
    """End when a trial reaches this value of the metric."""
    patience: Annotated[Positive | None, shown("N"), MAY_CHANGE] = None
    """End after N trials without a better value."""
    same_errors: Annotated[Count | None, shown("N", "(5)"), Traits(on_resume="kept unless given", usual=5)] = None
    """End when N trials in a row fail the same way; 0: never."""
    retries: Annotated[Count | None, shown("N", "(3)"), Traits(on_resume="kept unless given", usual=3)] = None
    """How often to restart a trial that lost its workers."""
    hang_minutes: Annotated[
        Duration | None, shown("MINUTES", "(120)"), Traits(on_resume="kept unless given", usual=120.0)
    ] = None
    """Replace workers that are silent this long; 0: never."""


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """The folder of the sweep, and how to resume it."""

    name: Annotated[AnyText | None, shown("NAME")] = None
    """Name of the sweep; default: experiment and time."""
    storage: Annotated[File, shown("FOLDER", "(results)"), NOT_KEPT] = DEFAULT_STORAGE
    """A folder, or s3://BUCKET/PREFIX."""
    resume: Annotated[AnyText | None, shown("SWEEP"), Traits(on_resume="as given", in_config_file=False)] = None
    """Continue this sweep, which was interrupted; auto: --name, if begun."""
    add_trials: Annotated[Count, shown("N"), NOT_KEPT] = 0
    """With --resume: add N trials."""
    checkpoint_minutes: Annotated[
        Duration | None, shown("MINUTES", "(10)"), Traits(on_resume="kept unless given", usual=10.0)
    ] = None
    """Save a trial this often; 0: at every report."""
    notice: Annotated[Duration | None, shown("SECONDS", "(5)"), Traits(on_resume="kept unless given", usual=5.0)] = None
    """Time to save after SIGTERM or SIGUSR1, before the sweep ends; 0: none."""
    checkpoint_budget: Annotated[Annotated[ByteSize, Field(ge=1000)] | None, shown("SIZE"), MAY_CHANGE] = None
    """Disk space for all checkpoints."""
    address: Annotated[Text | None, shown("HOST:PORT"), NOT_KEPT] = None
    """Ray cluster to join, or auto; default: start one here."""
    dry_run: Annotated[Switch, shown(""), NOT_KEPT] = False
    """Check everything, print the plan, and stop."""
    tried: Annotated[Switch, tyro.conf.arg(name="try", metavar="", help_behavior_hint=""), NOT_KEPT] = False
    """With --dry-run: train trial 1 to its first report, save, continue."""
    json: Annotated[Switch, shown(""), NOT_KEPT] = False
    """Print the result as JSON, everything else to stderr."""


@dataclass(frozen=True, kw_only=True)
class TrackingOptions:
    """The log of runs and of the best model."""

    tracking_uri: Annotated[Text | None, shown("ADDRESS"), NOT_KEPT] = None
    """Default: $MLFLOW_TRACKING_URI, or a local store."""
    register: Annotated[AnyText | None, shown("NAME"), MAY_CHANGE] = None
    """Register the best model in MLflow under this name."""
    notify: Annotated[Text | None, shown("URL"), NOT_KEPT] = field(default=None, repr=False)
    """Webhook to post the end or the failure of the sweep to."""


@dataclass(frozen=True, kw_only=True)
class SweepOptions(TrackingOptions, StorageOptions, LimitOptions, SearchOptions, TrialOptions):
    """Options of a sweep. They are checked when a sweep is planned, by :func:`checked`."""

    @property
    def limits(self) -> list[str]:
        """The options given that may end the sweep before its last trial."""
        return [name for name in LIMITS if getattr(self, name) is not None]

    @property
    def baseline_trial(self) -> tuple[str, int | None]:
        """The sweep (name or folder) and the trial that ``--baseline SWEEP:NUMBER`` names, or None for the trial."""
        baseline = self.baseline or ""
        sweep, _, number = baseline.rpartition(":")
        return (sweep, int(number)) if sweep and is_digits(number) else (baseline, None)


LIMITS = ("time_budget", "target", "patience")
"""The options that may end a sweep before its last trial."""
GROUPS: dict[str, type[Any]] = {
    "trial": TrialOptions,
    "search": SearchOptions,
    "limit": LimitOptions,
    "storage": StorageOptions,
    "tracking": TrackingOptions,
}
"""The groups of options that ``--help`` shows, in its order."""
TRAITS: dict[str, Traits] = {
    name: next((part for part in getattr(annotation, "__metadata__", ()) if isinstance(part, Traits)), Traits())
    for name, annotation in get_type_hints(SweepOptions, include_extras=True).items()
}
"""The traits of each option, by its name."""


COMMAND_LINE_ONLY = ("dry_run", "tried", "json")
"""Options that ``build_tuner()`` does not take: it only plans and checks."""
RESUME_AUTO = "auto"
"""The value of ``--resume`` that continues the sweep ``--name`` if it has begun, and else begins it."""


def names_on_resume(rule: OnResume) -> set[str]:
    """Return the names of the options that ``--resume`` treats like this."""
    return {name for name, traits in TRAITS.items() if traits.on_resume == rule}


def checked(options: Mapping[str, Any]) -> SweepOptions:
    """Return options after a check of their types and bounds. What depends on the experiment or the machine is checked
    later, by the planner.

    Raises:
        SweepError: Options are unknown or wrong; the text names all of them with their values.
    """
    if unknown := sorted(set(options) - set(TRAITS)):
        names = [
            f"{name}{did_you_mean('settings' if name == 'set' else name.replace('-', '_'), [*TRAITS])}"
            for name in unknown
        ]
        taken = [name for name in TRAITS if name not in COMMAND_LINE_ONLY]  # in Python: a command line is read before
        raise SweepError(f"there is no option {', '.join(names)}; the options are {', '.join(taken)}")
    try:
        valid = _checker().validate_python(dict(options))
    except ValidationError as error:
        problems: dict[str, str] = {}
        for problem in error.errors():
            name, value = str(problem["loc"][0]), problem["input"]
            message = rule_of(problem).replace("a tuple", f"a tuple, such as {TRAITS[name].example}")
            text = value if isinstance(value, str | int | float | Path) else written(value)
            problems.setdefault(name, f"{flag(name)} {text}: {message}")  # a type that may be None has two
        raise SweepError("; ".join(problems.values())) from error
    if valid.add_trials and valid.resume is None:
        raise SweepError("--add-trials goes with --resume NAME; a new sweep has --num-samples")
    return valid


@cache
def _checker() -> TypeAdapter[SweepOptions]:
    return TypeAdapter(SweepOptions)


def resumed(options: SweepOptions, stored: Mapping[str, Any]) -> SweepOptions:
    """Return the options of a sweep that is resumed.

    Args:
        options: The options of the command that resumes it.
        stored: The options with which the sweep began, from its file.
    """
    plain = json.loads(json.dumps(asdict(options), default=str))  # as the file has them
    repeated = {name for name, value in plain.items() if value == stored.get(name)}
    changed = {option.name for option in fields(options) if getattr(options, option.name) != option.default}
    changed -= {"name", *repeated}
    always, if_changed = names_on_resume("as given"), names_on_resume("kept unless given")
    search = str(stored.get("search"))
    if options.search != search and names_module(search):
        raise SweepError(
            f"--resume {options.resume}: its sampler is code, {search}, and no file of a sweep says which code runs; "
            f"say it again: {shlex.join(['--search', search])}"
        )
    if forbidden := sorted(changed - always - if_changed):
        raise SweepError(
            f"--resume {options.resume}: it keeps the options it began with; leave out "
            f"{', '.join(map(flag, forbidden))}, or give the same"
        )
    replaced = always | (if_changed & changed)
    new_values = {name: value for name, value in asdict(options).items() if name in replaced}
    try:
        return checked({**stored, **new_values, "num_samples": stored["num_samples"] + options.add_trials})
    except (SweepError, KeyError, TypeError) as error:
        raise SweepError(
            f"--resume {options.resume}: another version of this project began it ({error}); continue with that "
            f"version, or start a new sweep"
        ) from error


def names_module(search: str) -> bool:
    """Whether ``--search`` names something in a module of the user's, which is imported."""
    return "." in search.partition("(")[0] and not search.startswith(RAYS)


def resume_command(command: Sequence[str], name: str, search: str, storage: str, tracking_uri: str | None) -> str:
    """Return the command line that resumes a sweep; ``command`` is the one that began it, without its options."""
    parts = [*command, "--resume", name]
    if names_module(search):
        parts += ["--search", search]
    if storage != str(DEFAULT_STORAGE):
        parts += ["--storage", storage]
    if tracking_uri is not None:
        parts += ["--tracking-uri", tracking_uri]
    return shlex.join(parts)


def with_usual(options: SweepOptions) -> SweepOptions:
    """Return the options. Each that is None gets its usual value, if it has one."""
    return replace(options, **{name: TRAITS[name].usual for name in TRAITS if getattr(options, name) is None})


def flag(name: str) -> str:
    """Return the flag of an option on the command line."""
    return {"settings": "--set", "tried": "--try"}.get(name, f"--{name.replace('_', '-')}")
