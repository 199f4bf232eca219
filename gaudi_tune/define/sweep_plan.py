"""The plan of a sweep: everything that is decided and checked before a worker starts, in one value.

The folder ``plan`` makes it, ``show/plan_text.py`` prints it, and ``on_ray`` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from gaudi_tune.base.files import REPORT_FILE, SUMMARY_FILE
from gaudi_tune.define.budget import BUDGET_OPTIONS, Budget
from gaudi_tune.define.experiment import Experiment, RecipeName
from gaudi_tune.define.given_objects import NOTHING_GIVEN, GivenObjects
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import SweepOptions, names_module, resume_command
from gaudi_tune.devices.find import Devices
from gaudi_tune.storage.owner import Owner
from gaudi_tune.training.trial_config import ExecutionMode

HOLD_OUT = "hold_out"
"""The setting of a train loop that leaves test data alone until the confirmation."""


class Graphs(NamedTuple):
    """The compiled graphs of a sweep."""

    signatures: int
    """How many different graphs the search space has."""
    values: dict[str, int]
    """The hyperparameters on which a graph depends, with the number of values of each."""
    continuous: tuple[str, ...]
    """The hyperparameters that have so many values that each trial compiles a new graph."""
    most_shapes: int = 1
    """How many shapes, such as padded lengths, the samples of a trial may have, each with its own graphs."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A sweep as it will run."""

    experiment: Experiment
    options: SweepOptions
    devices: Devices
    groups: int
    """Worker groups, and so trials at a time. There are no more than the search or the confirmation has trials."""
    trials_per_device: int = 1
    """How many trials share a device. No more than the groups need: two trials on two devices share none."""
    recipe: RecipeName | None
    """None: the experiment has no recipes."""
    recipe_reason: str
    settings: dict[str, Any]
    """What every trial has besides its hyperparameters."""
    budget: Budget
    num_samples: int
    objectives: tuple[Objective, ...]
    """The objectives of the sweep. The first one is the experiment's, and leads."""
    mode: ExecutionMode | None = None
    """How the models are run. None: the train loop is not the shared one."""
    confirm: int = 0
    """How many of the best trials are trained again after the search, besides the baseline."""
    seeds: int = 0
    """How many times each of them, and the baseline, is trained again. 0: there is no confirmation."""
    most_seeds: int = 0
    """How many times if that leaves open whether the best beats the baseline."""
    name: str
    tracking_uri: str
    facts: list[str] = field(default_factory=list)
    """Facts about data and model that the experiment's check reports."""
    earlier_config: Mapping[str, Any] = field(default_factory=dict)
    """The winner of an earlier sweep (``--baseline``), before ``--set`` fixes some of its values. Empty: none."""
    learned: Sequence[dict[str, Any]] = ()
    """Configurations that were good in earlier sweeps, by the study's names, the best first."""
    learning_notes: Sequence[str] = ()
    """How much could be learned from each of these sweeps, in words."""
    test_data_seen_by: Sequence[str] = ()
    """Earlier sweeps from which this one takes configurations, and whose winners may have been chosen by samples that
    are test data now, because they held no test data out."""
    rungs: Sequence[int] = ()
    """The epochs, steps or seconds at which the scheduler compares trials. Empty: at none."""
    weak_trials: str = ""
    """What becomes of weak trials, in words; "" if that is obvious."""
    growth: int | str = 1
    """How many devices a trial may take when they would be idle; or the reason why it may not, if a user might ask."""
    graphs: Graphs | None = None
    """The compiled graphs. None: nothing is compiled, or the graphs are unknown."""
    objects: GivenObjects = NOTHING_GIVEN
    """The objects that Python code gave besides the options."""
    cluster: str | None = None
    """Address and size of the Ray cluster that the sweep has joined. None: the sweep starts its own Ray."""
    start_time: float | None = None
    """When a sweep that is resumed began, in seconds since 1970. None: the sweep is new."""
    continued_folder: Path | None = None
    """The folder of the sweep that is resumed, which is copied if it is not this one's. None: the sweep is new."""
    origin: str = ""
    """The name of the sweep whose folder was copied or renamed, and that this one continues under another; or ""."""
    command: tuple[str, ...] = ()
    """The command that began the sweep, without options, so that it ends with the script. Empty: Python code did."""

    disabled: Sequence[str] = ()
    """The private surfaces of libraries that are off (``private/surfaces.py``)."""
    address: str = ""
    """The address of the storage that gets a copy of the sweep; "" if there is none."""
    fetched_from: tuple[str, str] | None = None
    """The address of the storage from which a resumed sweep is fetched, and its name there; None if it is here."""
    owner: Owner | None = None
    """The owner of the sweep in the storage when the plan was made; None if it has none there, or is another's."""

    @property
    def has_front(self) -> bool:
        """Whether there are several objectives, so that the result is a front of trials, not one best trial."""
        return len(self.objectives) > 1

    @property
    def folder(self) -> Path:
        """The folder to which the sweep writes everything."""
        return self.options.storage.expanduser().resolve() / self.name

    @property
    def stored_folder(self) -> Path:
        """The folder that has the sweep so far: before ``fit()``, a copied one is elsewhere."""
        return self.continued_folder or self.folder

    @property
    def summary_file(self) -> Path:
        """The file with the result of the sweep."""
        return self.folder / SUMMARY_FILE

    @property
    def report_file(self) -> Path:
        """The page with the numbers, the pictures and all trials."""
        return self.folder / REPORT_FILE

    @property
    def resumed(self) -> bool:
        """Whether an earlier sweep is resumed."""
        return self.options.resume is not None

    @property
    def grows(self) -> bool:
        """Whether trials may take more devices than they begin with."""
        return isinstance(self.growth, int) and self.growth > self.options.workers_per_trial

    @property
    def changed_settings(self) -> dict[str, Any]:
        """The settings that differ from the defaults of the experiment's configuration."""
        defaults = {setting.name: setting.default for setting in fields(self.experiment.config_class)}
        return {name: value for name, value in self.settings.items() if value != defaults.get(name, MISSING)}

    def final_options(self) -> dict[str, Any]:
        """Return the options with the values that were decided where they left it open."""
        budget = {name: getattr(self.budget, name) or None for name in BUDGET_OPTIONS}
        sources = {name: self.settings[name] for name in ("data", "model") if getattr(self.options, name) is not None}
        basics = {"name": self.name, "recipe": self.recipe, "device": self.devices.type.kind}
        trials = {"num_samples": self.num_samples, "confirm": self.confirm, "seeds": self.seeds or None}
        trials |= {"most_seeds": self.most_seeds or None}
        return {**asdict(self.options), **basics, **budget, **sources, **trials}

    def in_brief(self) -> dict[str, Any]:
        """Return the plan as JSON can hold it, for programs."""
        return {
            "name": self.name,
            "experiment": self.experiment.name,
            "folder": str(self.folder),
            **({"storage": self.address} if self.address else {}),
            "recipe": self.recipe,
            "device": self.devices.type.kind,
            "trials_at_a_time": self.groups,
            "workers_per_trial": self.options.workers_per_trial,
            "trials_per_device": self.trials_per_device,
            "num_samples": self.num_samples,
            "confirmations": self.confirmations,
            "seed": self.options.seed,
            self.budget.unit: self.budget.total,
            "metric": self.experiment.metric,
            "mode": self.objectives[0].mode,
            **({"objectives": [str(objective) for objective in self.objectives]} if self.has_front else {}),
            "space": self.experiment.search_space.in_words(),
            "baseline": dict(self.experiment.baseline),
            "settings": self.settings,
            "facts": self.facts,
        }

    def how_to_resume(self, *, with_more_trials: bool = False) -> str:
        """Return the command that resumes the sweep, or the call of Python if no command began it."""
        search, storage = self.options.search, self.address or str(self.options.storage)
        if not self.command:
            argument = f", search={search!r}" if names_module(search) else ""
            argument += ", add_trials=N" if with_more_trials else ""
            return f"build_tuner(..., resume={self.name!r}, storage={storage!r}{argument})"
        line = resume_command(self.command, self.name, search, storage, self.options.tracking_uri)
        return f"{line} --add-trials N" if with_more_trials else line

    @property
    def confirmations(self) -> int:
        """The most trials after the search. There are fewer if the first seeds settle the verdict, or if too few trials
        of the search can be repeated."""
        return self.most_seeds * (self.confirm + bool(self.experiment.baseline))
