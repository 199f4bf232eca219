"""What a sweep began with, on disk, and whether it can go on with that."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.options import SweepOptions, checked, flag
from experiments.sweep.define.plan import SUMMARY_FILE, Plan
from experiments.sweep.state.lock import is_running
from trainables.runtime.writing import written_whole

SWEEP_FILE = "sweep.json"
"""What a sweep began with, in its folder."""
MAY_DIFFER = {
    "resume", "add_trials", "storage", "address", "tracking_uri", "dry_run", "retries", "checkpoint_minutes",
    "hang_minutes", "same_errors", "time_budget", "target", "patience", "json", "notify",
}  # fmt: skip
"""Options that a resumed sweep takes from its own command line."""
KEPT_UNLESS_GIVEN = {"register", "checkpoint_budget", "profile"}
"""Options that it takes from there if they are given, and else keeps."""


class SweepFile(BaseModel):
    """The contents of the file."""

    experiment: str
    metric: str
    mode: str
    others: list[str] = []
    """The objectives beside that one, mode and metric."""
    groups: int
    """Trials at a time."""
    options: dict[str, Any]
    """As they were decided. Addresses, which may hold a password or be one, are left out."""
    space: dict[str, list[str]]
    """The ranges, as :meth:`SearchSpace.describe` returns them."""
    earlier_config: dict[str, Any] = {}
    """The winner of an earlier sweep (``--baseline``), as it was when this one began; or empty."""
    learned: list[dict[str, Any]] = []
    """Configurations that were good in earlier sweeps (``--learn-from``), as they were when it began."""
    seen_by: list[str] = []
    """Earlier sweeps that may have chosen by what is this one's test data; see :class:`Plan`."""
    store: str
    """What distinguishes the tracking store from others."""
    began: float = 0.0
    """When it began (seconds since 1970); 0 where an earlier version did not write it down."""
    recipes: bool = True
    """Whether the experiment has more than one recipe."""
    script: str | None = None
    """The script whose experiment it is, as ``python -m experiments run`` takes it; None where no script began it."""

    @property
    def objectives(self) -> list[str]:
        """All objectives, mode and metric, the first one first."""
        return [f"{self.mode} {self.metric}", *self.others]


def write_sweep_file(plan: Plan) -> None:
    """Write what a resumption must know, whole or not at all."""
    experiment = plan.experiment
    contents = SweepFile(
        began=read_sweep_file(plan.folder).began if plan.resumed else time.time(),
        recipes=experiment.has_recipes,
        experiment=experiment.name,
        metric=experiment.metric,
        mode=experiment.mode,
        others=[str(objective) for objective in plan.others],
        groups=plan.groups,
        options={name: value for name, value in plan.decided().items() if name not in MAY_DIFFER},
        space=experiment.search_space.describe(),
        earlier_config=dict(plan.earlier_config),
        learned=list(plan.learned),
        seen_by=list(plan.seen_by),
        store=_store_key(plan.tracking_uri),
        script=str(Path(plan.called[-1]).resolve()) if plan.called else None,
    )
    _write(plan.folder, contents)


def keep_num_samples(folder: Path, number: int) -> None:
    """Write down that the sweep in ``folder`` is to have another number of trials."""
    began_with = read_sweep_file(folder)
    began_with.options["num_samples"] = number
    _write(folder, began_with)


def _write(folder: Path, contents: SweepFile) -> None:
    with written_whole(folder / SWEEP_FILE) as partial:
        partial.write_text(contents.model_dump_json(indent=2) + "\n")


def find_sweep(sweep: str, storage: Path) -> Path:
    """Return the folder of a sweep, which goes by its name in ``storage`` or by its folder."""
    for folder in (storage.expanduser().resolve() / sweep, Path(sweep).expanduser().resolve()):
        if (folder / SWEEP_FILE).is_file():
            return folder
    raise SweepError(f"{sweep}: no such sweep; give its folder, or the name of one in {storage}; {_found_in(storage)}")


def _found_in(storage: Path) -> str:
    return f"found there: {', '.join(folder.name for folder in sweeps_in(storage)) or 'none'}"


def sweeps_in(storage: Path) -> list[Path]:
    """Return the folders of the sweeps in a folder, by name."""
    return sorted(found.parent for found in storage.expanduser().resolve().glob(f"*/{SWEEP_FILE}"))


def read_sweep_file(folder: Path, option: str = "") -> SweepFile:
    """Return what the sweep in ``folder`` began with; ``option`` is what asks for it, for errors, with a space."""
    file = folder / SWEEP_FILE
    try:
        began_with = SweepFile.model_validate_json(file.read_bytes())
        name = str(began_with.options["name"])
    except (OSError, ValidationError, KeyError) as error:
        why = error.errors()[0]["msg"] if isinstance(error, ValidationError) else repr(error)
        raise SweepError(
            f"{option}{folder.name}: {file} is torn, or is not the file of a sweep ({why}); put it back from a "
            f"backup, or start a new sweep under another name"
        ) from error
    if name != folder.name:
        raise SweepError(
            f"{option}{folder.name}: this is a copy of the sweep {name}, or the folder was renamed; the study and the "
            f"runs in MLflow have the name {name}. Rename the folder to {name}, in another --storage if the original "
            f"is still in {folder.parent}"
        )
    return began_with


def read_summary(folder: Path) -> dict[str, Any]:
    """Return what the sweep in ``folder`` came to; {} where it has not ended, or its file is torn or another's."""
    try:
        found = json.loads((folder / SUMMARY_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def options_of_sweep(experiment: str, given: SweepOptions) -> SweepOptions:
    """Return the options of the sweep that ``given`` wants to resume; a SweepError if it cannot go on, or not so."""
    assert given.resume is not None, "nothing is to be resumed"
    if not given.resume or Path(given.resume).name != given.resume:
        raise SweepError(f"--resume {given.resume}: give the sweep's name, and the folder that it is in as --storage")
    folder = given.storage.expanduser().resolve() / given.resume
    if not (folder / SWEEP_FILE).is_file():
        raise SweepError(f"--resume {given.resume}: no such sweep in {folder.parent}; {_found_in(folder.parent)}")
    began_with = read_sweep_file(folder, "--resume ")
    if began_with.experiment != experiment:
        raise SweepError(f"--resume {given.resume}: that is a sweep of {began_with.experiment}, not of {experiment}")
    changed = {field.name for field in fields(given) if getattr(given, field.name) != field.default}
    if wrong := sorted(changed - MAY_DIFFER - KEPT_UNLESS_GIVEN):
        raise SweepError(
            f"--resume {given.resume}: it keeps the options it began with; leave out {', '.join(map(flag, wrong))}"
        )
    if is_running(folder):
        raise SweepError(f"--resume {given.resume}: this sweep is running; wait for it, or end it first")
    own = {name: value for name, value in asdict(given).items() if name in MAY_DIFFER | (KEPT_UNLESS_GIVEN & changed)}
    kept = began_with.options
    try:
        return checked({**kept, **own, "num_samples": kept["num_samples"] + given.add_trials})
    except (SweepError, KeyError, TypeError) as error:
        raise SweepError(
            f"--resume {given.resume}: another version of this project began it ({error}); go on with that version, or "
            f"start a new sweep"
        ) from error


def check_resumable(plan: Plan) -> None:
    """See that what a sweep searches, and where it runs and is tracked, is what it was; else a SweepError."""
    began_with, experiment = read_sweep_file(plan.folder, "--resume "), plan.experiment

    def refuse(why: str) -> NoReturn:
        raise SweepError(f"--resume {plan.name}: {why}")

    before, now = f"{began_with.mode} {began_with.metric}", str(experiment.objective)
    if before != now:
        refuse(
            f"the sweep's objective is {before}, and the experiment's is {now}; a study has one objective: put back "
            f"what it was, or start a new sweep"
        )
    old, new = began_with.space, experiment.search_space.describe()
    if changed := sorted(name for name in {*old, *new} if old.get(name) != new.get(name)):
        refuse(
            f"the search space is another for {', '.join(changed)}, and a study has one space; put back what it was, "
            f"or start a new sweep"
        )
    if plan.groups < min(began_with.groups, plan.num_samples):
        refuse(
            f"the sweep had {began_with.groups} trials at a time, and there is room for {plan.groups}; resume it where "
            f"there are as many devices"
        )
    if began_with.store != _store_key(plan.tracking_uri):
        refuse(
            f"its runs are in another tracking store than {plan.tracking_uri}; give the --tracking-uri (or "
            f"$MLFLOW_TRACKING_URI) that it began with"
        )


def _store_key(tracking_uri: str) -> str:
    """Return what distinguishes one tracking address from another, without its text."""
    return hashlib.sha256(tracking_uri.encode()).hexdigest()[:16]
