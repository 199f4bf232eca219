"""The plan of a sweep: everything that was decided and checked before a worker starts, as one value."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.sweep.define.budget import BUDGET_OPTIONS, Budget
from experiments.sweep.define.experiment import Experiment, RecipeName
from experiments.sweep.define.options import DEFAULT_STORAGE, SweepOptions
from experiments.sweep.define.words import counted
from trainables.runtime.devices.find import Devices

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

WITH_RUNGS = ("asha", "asha-promote", "hyperband")
"""Schedulers that compare trials at the rungs of the budget."""
WAITING = "weak trials wait at a rung with a checkpoint each (--scheduler asha ends them instead)"
"""What is to be known of the disk before a sweep begins."""
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
    """What every trial has besides its hyperparameters."""
    budget: Budget
    num_samples: int
    confirm: int = 0
    """How many of the best are trained again after the search, besides the baseline; 0: none, nor the baseline."""
    seeds: int = 0
    """How often each of them is."""
    name: str
    tracking_uri: str
    facts: list[str]
    """What the check of data and model found."""
    sampler: BaseSampler | None = None
    """One that the user brought; None: the options name it, and a new one is made for each proposal."""
    cluster: str | None = None
    """The Ray cluster that the sweep has joined, in words; None if the sweep starts its own."""

    @property
    def folder(self) -> Path:
        """Everything the sweep writes."""
        return self.options.storage.expanduser().resolve() / self.name

    @property
    def summary_file(self) -> Path:
        """The file that says what the sweep came to."""
        return self.folder / SUMMARY_FILE

    @property
    def timeline_file(self) -> Path:
        """The picture of what each device did."""
        return self.folder / "timeline.png"

    @property
    def report_file(self) -> Path:
        """The page with the numbers, the pictures and all trials."""
        return self.folder / "report.html"

    @property
    def resumed(self) -> bool:
        """Whether the sweep has begun before."""
        return self.options.resume is not None

    def decided(self) -> dict[str, Any]:
        """Return the options, with what was decided where they left it open."""
        budget = {name: getattr(self.budget, name) or None for name in BUDGET_OPTIONS}
        sources = {name: self.settings[name] for name in ("data", "model") if getattr(self.options, name) is not None}
        chosen = {"name": self.name, "recipe": self.recipe, "device": self.devices.type.kind}
        trials = {"num_samples": self.num_samples, "confirm": self.confirm, "seeds": self.seeds or None}
        return {**asdict(self.options), **chosen, **budget, **sources, **trials}

    def resume_command(self) -> str:
        """Return the command that goes on with the sweep: the script as it was called, and where the sweep is."""
        given = ["python", sys.argv[0], "--resume", self.name]
        if self.options.storage != DEFAULT_STORAGE:
            given += ["--storage", str(self.options.storage)]
        if self.options.tracking_uri is not None:
            given += ["--tracking-uri", self.options.tracking_uri]
        return shlex.join(given)

    @property
    def confirmations(self) -> int:
        """Trials after the search; fewer, if too few trials of the search can be trained again."""
        return self.seeds * (self.confirm + bool(self.experiment.baseline)) if self.confirm else 0

    def _confirmation(self) -> str:
        best = "the best trial" if self.confirm == 1 else f"the best {self.confirm} trials"
        baseline = " and the baseline" if self.experiment.baseline else ""
        return f"{best}{baseline} again, in full, with {self.seeds} seeds each (--confirm, --seeds)"

    def lines(self) -> list[str]:
        """Return the plan in words, a line each."""
        width, same = self.options.workers_per_trial, "as it began" if self.resumed else None
        first = "the baseline first" if self.experiment.baseline else "no baseline, the sampler proposes the first"
        trials = "the baseline alone" if self.options.baseline_only else f"{self.num_samples} trials, {first}"
        at = ", ".join(map(str, self.budget.rungs()))
        rungs = f", rungs at {self.budget.unit} {at}" if at and self.options.scheduler in WITH_RUNGS else ""
        return [
            f"sweep   {self.name}{' goes on' if self.resumed else ''}: {trials}, at most {self.budget} each, "
            f"{self.options.search} search, {self.options.scheduler} scheduler{rungs}",
            *([f"        {WAITING}"] if rungs and self.options.scheduler == "asha-promote" else []),
            *([f"        then {self._confirmation()}"] if self.confirm else []),
            *([f"recipe  {self.recipe}: {same or self.recipe_reason}"] if self.experiment.has_recipes else []),
            f"device  {self.devices.type.kind}: {same or self.devices.reason}; "
            f"{counted(self.groups, 'trial')} at a time, {counted(width, 'worker')} each",
            *(f"        {fact}" for fact in self.facts),
            *([f"ray     joins the cluster at {self.cluster}"] if self.cluster else []),
            f"files   {self.folder}",
            f"mlflow  {self.tracking_uri}",
        ]
