"""The plan of a sweep: everything that was decided and checked before a worker starts, as one value."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gaudi_tune.define.budget import BUDGET_OPTIONS, Budget
from gaudi_tune.define.experiment import Experiment, RecipeName
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import DEFAULT_STORAGE, SweepOptions
from gaudi_tune.devices.find import Devices
from gaudi_tune.training.training_config import ExecutionMode

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

WITH_RUNGS = ("asha", "asha-promote", "hyperband")
"""Schedulers that compare trials at the rungs of the budget."""
HOLD_OUT = "hold_out"
"""The setting of a train loop that leaves test data alone until the confirmation."""
SUMMARY_FILE = "summary.json"
"""What a sweep came to, in its folder; written when it ends."""
STUDY_FILE = "optuna.db"
"""The study of a sweep, in its folder; ``optuna-dashboard sqlite:///.../optuna.db`` opens it."""
REPORT_FILE = "report.html"
"""The picture of what each device did, and the page with the numbers, the pictures and all trials, in its folder."""


class Graphs(NamedTuple):
    """The compiled graphs of a sweep."""

    signatures: int
    """How many different ones the search space has."""
    values: dict[str, int]
    """What tells them apart: how many values each of these has."""
    new_each_time: tuple[str, ...]
    """Those with so many values that each trial compiles a new graph."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep as it will run."""

    experiment: Experiment
    options: SweepOptions
    devices: Devices
    groups: int
    """Worker groups, and so trials at a time; no more than the search has trials, or the confirmation."""
    recipe: RecipeName
    recipe_reason: str
    settings: dict[str, Any]
    """What every trial has besides its hyperparameters."""
    budget: Budget
    num_samples: int
    objectives: tuple[Objective, ...]
    """What the sweep improves. The first one is the experiment's, and leads."""
    mode: ExecutionMode | None = None
    """How the models are run; None where the train loop is not the shared one."""
    confirm: int = 0
    """How many of the best are trained again after the search, besides the baseline."""
    seeds: int = 0
    """How often each of them is, and the baseline; 0: none is."""
    name: str
    tracking_uri: str
    facts: list[str] = field(default_factory=list)
    """What the check of data and model found."""
    earlier_config: Mapping[str, Any] = field(default_factory=dict)
    """The winner of an earlier sweep (``--baseline``), before ``--set`` fixes hyperparameters of it; or empty."""
    learned: Sequence[dict[str, Any]] = ()
    """Configurations that were good in earlier sweeps, under the names of the study, the best first."""
    learns: Sequence[str] = ()
    """What could be used of each of these sweeps."""
    seen_by: Sequence[str] = ()
    """Earlier sweeps that this one begins with and that held no test data out: their winners may owe their scores to
    what is test data now."""
    seconds_each: tuple[float, str] | None = None
    """What an epoch (or step) took in an earlier sweep like this, and its name; None where there was none."""
    growth: int | str = 1
    """How many devices a trial may go on with that would stay idle; or why it may not, if someone might wonder."""
    graphs: Graphs | None = None
    """None where nothing is compiled, or nobody knows what."""
    sampler: BaseSampler | None = None
    """One that the user brought; None: the options name it, and a new one is made for each proposal."""
    cluster: str | None = None
    """Address and size of the Ray cluster that the sweep has joined; None if the sweep starts its own."""
    began: float | None = None
    """When the sweep began (seconds since 1970) that goes on; None for a new one."""
    called: tuple[str, ...] = ()
    """The command that began the sweep, without options; the script is the last of it. Empty if Python code did."""

    @property
    def has_front(self) -> bool:
        """Whether several objectives count, so that a front of trials is best, and not one trial."""
        return len(self.objectives) > 1

    @property
    def folder(self) -> Path:
        """Everything the sweep writes."""
        return self.options.storage.expanduser().resolve() / self.name

    @property
    def summary_file(self) -> Path:
        """The file that says what the sweep came to."""
        return self.folder / SUMMARY_FILE

    @property
    def report_file(self) -> Path:
        """The page with the numbers, the pictures and all trials."""
        return self.folder / REPORT_FILE

    @property
    def repeats_published(self) -> bool:
        """Whether the baseline is a published run, and no trial of an earlier sweep."""
        return self.options.baseline is None or self.options.baseline in self.experiment.baselines

    @property
    def resumed(self) -> bool:
        """Whether the sweep has begun before."""
        return self.options.resume is not None

    @property
    def grows(self) -> bool:
        """Whether trials may go on with more devices than they begin with."""
        return isinstance(self.growth, int) and self.growth > self.options.workers_per_trial

    @property
    def changed_settings(self) -> dict[str, Any]:
        """The settings that are not the defaults of the experiment's configuration."""
        defaults = {setting.name: setting.default for setting in fields(self.experiment.config_class)}
        return {name: value for name, value in self.settings.items() if value != defaults.get(name, MISSING)}

    def decided(self) -> dict[str, Any]:
        """Return the options, with what was decided where they left it open."""
        budget = {name: getattr(self.budget, name) or None for name in BUDGET_OPTIONS}
        sources = {name: self.settings[name] for name in ("data", "model") if getattr(self.options, name) is not None}
        chosen = {"name": self.name, "recipe": self.recipe, "device": self.devices.type.kind}
        trials = {"num_samples": self.num_samples, "confirm": self.confirm, "seeds": self.seeds or None}
        return {**asdict(self.options), **chosen, **budget, **sources, **trials}

    def in_brief(self) -> dict[str, Any]:
        """Return the plan as plain data, for programs."""
        return {
            "name": self.name,
            "experiment": self.experiment.name,
            "folder": str(self.folder),
            "recipe": self.recipe,
            "device": self.devices.type.kind,
            "trials_at_a_time": self.groups,
            "workers_per_trial": self.options.workers_per_trial,
            "num_samples": self.num_samples,
            "confirmations": self.confirmations,
            "seed": self.options.seed,
            self.budget.unit: self.budget.total,
            "metric": self.experiment.metric,
            "mode": self.experiment.mode,
            **({"objectives": [str(objective) for objective in self.objectives]} if self.has_front else {}),
            "space": self.experiment.search_space.in_words(),
            "baseline": dict(self.experiment.baseline),
            "settings": self.settings,
            "facts": self.facts,
        }

    def how_to_resume(self, *, with_more_trials: bool = False) -> str:
        """Return what goes on with the sweep: its command, or the call of Python where no command began it."""
        if not self.called:
            more = ", add_trials=N" if with_more_trials else ""
            return f"build_tuner(..., resume={self.name!r}, storage={str(self.options.storage)!r}{more})"
        given = [*self.called, "--resume", self.name]
        if self.options.storage != DEFAULT_STORAGE:
            given += ["--storage", str(self.options.storage)]
        if self.options.tracking_uri is not None:
            given += ["--tracking-uri", self.options.tracking_uri]
        return shlex.join([*given, *(["--add-trials", "N"] if with_more_trials else [])])

    @property
    def confirmations(self) -> int:
        """Trials after the search; fewer, if too few trials of the search can be trained again."""
        return self.seeds * (self.confirm + bool(self.experiment.baseline))
