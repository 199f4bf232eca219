"""The file of a sweep, which says what it began with, and the search for sweeps and their results."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import SUMMARY_FILE, SWEEP_FILE, atomic_write, read_json, read_json_text
from gaudi_tune.define.objective import Mode, Objective
from gaudi_tune.define.options import DEFAULT_STORAGE, LIMITS, SweepOptions, names_on_resume
from gaudi_tune.define.reading import read_path
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.storage.fetch import sweeps_in_words, view
from gaudi_tune.storage.remote import address_of, split
from gaudi_tune.sweep.record.comparison import winning_row
from gaudi_tune.sweep.record.lock import is_running

logger = logging.getLogger(__name__)

NAME = re.compile(r"\w[\w.-]{0,99}")
"""The names that a sweep may have, which its folder, its study and its run in MLflow share."""

SUMMARY_VERSION = 2
"""The version of the summaries that are written. One of another version counts as none."""

_invented_names: set[str] = set()
"""Names that this process gave to sweeps; their folders are made later, by ``fit()``."""


class SweepFile(BaseModel, ser_json_inf_nan="constants"):
    """The contents of the file."""

    experiment: str
    metric: str
    mode: Mode
    others: list[str]
    """The objectives beside that one, mode and metric."""
    groups: int
    """How many trials train at a time."""
    options: dict[str, Any]
    """All options, the defaults included, but no addresses, which may hold a password or be one."""
    space: dict[str, list[str]]
    """The ranges, as :meth:`SearchSpace.describe` returns them."""
    earlier_config: dict[str, Any]
    """The winner of an earlier sweep (``--baseline``) at the beginning of this one; or empty."""
    learned: list[dict[str, Any]]
    """The best configurations of earlier sweeps (``--learn-from``) at the beginning of this one."""
    seen_by: list[str]
    """Earlier sweeps that may have chosen by data that is this sweep's test data; see :class:`Plan`."""
    store: str
    """A hash of the tracking store's address."""
    began: float
    """The time at which it began (seconds since 1970)."""
    recipes: bool
    """Whether the experiment has more than one recipe."""
    script: str | None
    """The script whose experiment it is, as ``gaudi-tune run`` takes it; None if no script began it, or a module."""
    module: str | None = None
    """The module whose experiment it is, if Python ran it as such (``-m``)."""
    origin: str = ""
    """The sweep whose folder this one continues under another name; "" if there is none."""

    @property
    def objective(self) -> Objective:
        """The first objective."""
        return Objective(self.metric, self.mode)

    @property
    def all_objectives(self) -> list[Objective]:
        """All objectives, the first one first."""
        pairs = (text.split(" ", 1) for text in self.others)
        return [self.objective, *(Objective(name, cast(Mode, mode)) for mode, name in pairs)]

    @property
    def objectives(self) -> list[str]:
        """All objectives, mode and metric, the first one first."""
        return [f"{self.mode} {self.metric}", *self.others]


def _origin_of(command: Sequence[str]) -> dict[str, str | None]:
    """Return the script and the module of the command that began a sweep."""
    if command[-2:-1] == ("-m",):
        return {"script": None, "module": command[-1]}
    return {"script": str(Path(command[-1]).resolve()) if command else None}


def write_sweep_file(plan: Plan) -> None:
    """Write what a resumed sweep must know, whole or not at all."""
    experiment, changeable = plan.experiment, names_on_resume("as given")
    contents = SweepFile(
        began=time.time() if plan.start_time is None else plan.start_time,
        recipes=experiment.has_recipes,
        experiment=experiment.name,
        metric=experiment.metric,
        mode=plan.objectives[0].mode,
        others=[str(objective) for objective in plan.objectives[1:]],
        groups=plan.groups,
        options={name: value for name, value in plan.final_options().items() if name not in changeable},
        space=experiment.search_space.describe(),
        earlier_config=dict(plan.earlier_config),
        learned=list(plan.learned),
        seen_by=list(plan.test_data_seen_by),
        store=_store_key(plan.tracking_uri),
        **_origin_of(plan.command),
        origin=plan.origin,
    )
    _write(plan.folder, contents)


def keep_num_samples(folder: Path, number: int) -> None:
    """Write down that the sweep in ``folder`` is to have another number of trials."""
    sweep_file = read_sweep_file(folder)
    sweep_file.options["num_samples"] = number
    _write(folder, sweep_file)


def _write(folder: Path, contents: SweepFile) -> None:
    with atomic_write(folder / SWEEP_FILE) as partial:
        partial.write_text(contents.model_dump_json(indent=2) + "\n", encoding="utf-8")


def find_sweep(sweep: str, storage: Path, option: str = "") -> Path:
    """Return the folder of a sweep.

    Args:
        sweep: Its name in ``storage``, or its folder.
        storage: The folder of the sweeps.
        option: The option that asks for it, with a space at its end, for errors.

    Raises:
        SweepError: There is no such sweep.
    """
    if (address := address_of(sweep)) is not None or (address := address_of(storage)) is not None:
        storage_address, name = split(address) if address_of(sweep) else (address, sweep)
        folder = view(storage_address, name) / name
        if not (folder / SWEEP_FILE).is_file():
            raise SweepError(f"{option}{sweep}: no such sweep; {sweeps_in_words(storage_address)}")
        return folder
    with suppress(ValueError):  # it is no path
        for folder in (storage.expanduser().resolve() / sweep, read_path(sweep).expanduser().resolve()):
            if os.path.isfile(folder / SWEEP_FILE):  # False if it may not be read
                return folder
    names = ", ".join(folder.name for folder in sweeps_in(storage)) or "none"
    raise SweepError(
        f"{option}{sweep}: no such sweep; give its folder, or the name of one in {storage}; found there: {names}"
    )


def sweeps_in(storage: Path) -> list[Path]:
    """Return the folders of the sweeps in a folder or a storage, by name."""
    if (address := address_of(storage)) is not None:
        storage = view(address)
    return sorted(file.parent for file in storage.expanduser().resolve().glob(f"*/{SWEEP_FILE}"))


def read_sweep_file(folder: Path, option: str = "", *, may_be_renamed: bool = False) -> SweepFile:
    """Return the file of the sweep in ``folder``.

    Args:
        folder: The sweep's folder.
        option: The option that asks for it, with a space at its end, for errors.
        may_be_renamed: Whether the sweep may have another name than the folder.

    Raises:
        SweepError: The file is torn, or the folder was renamed.
    """
    file = folder / SWEEP_FILE
    try:
        sweep_file = SweepFile.model_validate_json(read_json_text(file))
        name = str(sweep_file.options["name"])
    except (OSError, ValueError, KeyError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else repr(error)
        raise SweepError(
            f"{option}{folder.name}: {file} is torn, or is not the file of a sweep ({reason}); put it back from a "
            f"backup, or start a new sweep under another name"
        ) from error
    if name != folder.name and not may_be_renamed:
        raise SweepError(
            f"{option}{folder.name}: this is a copy of the sweep {name}, or the folder was renamed; the study and the "
            f"runs in MLflow have the name {name}. Continue it as a separate sweep (--resume {folder} --name NEW) or "
            f"as the original (--name {name}), or rename the folder to {name}"
        )
    return sweep_file


def read_summary(folder: Path) -> dict[str, Any]:
    """Return the summary of the sweep in ``folder``; {} if it has not ended, or the file is torn or not a summary."""
    try:
        summary: dict[str, Any] = read_json(folder / SUMMARY_FILE)
        return summary if summary["version"] == SUMMARY_VERSION else {}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def winner_of(folder: Path) -> dict[str, Any]:
    """Return the configuration that won the sweep in ``folder``: its confirmation if it had one, perhaps the baseline;
    else its search."""
    summary = read_summary(folder)
    try:
        objective = Objective(summary["metric"], summary["mode"])
        return dict((winning_row(summary.get("confirmation"), objective) or summary["best"])["config"])
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        reason = "no trial of it has reported a value" if summary else f"it has not ended, or {SUMMARY_FILE} is torn"
        raise SweepError(
            f"--baseline {folder.name}: that sweep has no winner ({reason}); give the name or the folder of a sweep "
            f"that has one, or NAME:NUMBER for one of its trials"
        ) from error


def earlier_sweep(option: str, sweep: str, storage: Path, experiment: str) -> tuple[Path, SweepFile]:
    """Return the folder of the sweep of this experiment that an option names, and the sweep's file."""
    folder = find_sweep(sweep, storage, f"{option} ")
    sweep_file = read_sweep_file(folder, f"{option} ")
    if sweep_file.experiment != experiment:
        raise SweepError(
            f"{option} {sweep}: that is a sweep of {sweep_file.experiment}, not of {experiment}; leave it out, or "
            f"give the Experiment name={sweep_file.experiment!r} if it is the same"
        )
    return folder, sweep_file


def sweep_to_resume(experiment: str, options: SweepOptions, tracking_uri: str) -> tuple[Path, SweepFile]:
    """Return the folder and the file of the sweep that the options want to resume.

    Raises:
        SweepError: There is no such sweep, or it cannot be resumed from here.
    """
    assert options.resume is not None, "nothing is to be resumed"
    folder = find_sweep(options.resume, options.storage, "--resume ")
    sweep_file = read_sweep_file(folder, "--resume ", may_be_renamed=options.name is not None)
    storage = options.storage.expanduser().resolve()
    if options.name is None and options.storage != DEFAULT_STORAGE and storage != folder.parent:
        raise SweepError(
            f"--resume {options.resume} --storage {options.storage}: without --name, a sweep goes on in its own "
            f"folder; leave --storage out, or copy it there as a separate sweep (--name NEW) or as the original "
            f"(--name {sweep_file.options['name']})"
        )
    if sweep_file.experiment != experiment:
        raise SweepError(
            f"--resume {options.resume}: that is a sweep of {sweep_file.experiment}, not of {experiment}; resume it "
            f"with {sweep_file.script or 'its own Experiment'}"
        )
    if is_running(folder):
        raise SweepError(f"--resume {options.resume}: this sweep is running; wait for it, or end it first")
    if sweep_file.store != _store_key(tracking_uri) and options.name is None:
        raise SweepError(
            f"--resume {options.resume}: its runs are in another tracking store than {tracking_uri}; give the "
            f"--tracking-uri (or $MLFLOW_TRACKING_URI) that it began with, or --name {folder.name} to have all of its "
            f"runs made there"
        )
    limit = (read_summary(folder).get("ended_early") or {}).get("option")  # the option that ended it, if one did
    if limit in LIMITS and getattr(options, limit) is None:
        value = sweep_file.options.get(limit)
        logger.warning("--resume %s: it goes on without --%s %r, at which it ended", options.resume, limit, value)
        sweep_file.options[limit] = None
    return folder, sweep_file


def name_for(experiment: str, options: SweepOptions, resumed: Path | None = None) -> str:
    """Return the name of a sweep of this experiment: a new one, or one that continues the sweep in ``resumed``.

    Raises:
        SweepError: The name in the options is not one that a sweep may have, or another sweep has it.
    """
    if resumed is not None and options.name is None:
        return resumed.name
    name = options.name if options.name is not None else _invent_name(experiment, options.storage.expanduser())
    if not NAME.fullmatch(name):
        raise SweepError(
            f"--name {name or repr(name)}: a name has 1 to 100 letters, digits, '.', '_' and '-', and begins with a "
            f"letter or digit"
        )
    folder = options.storage.expanduser() / name
    if os.path.exists(folder) and folder.resolve() != resumed:  # False if it may not be read
        if not os.path.isfile(folder / SWEEP_FILE):
            raise SweepError(f"--name {name}: {folder} exists and is no sweep; take another name, or remove it")
        kind = "a finished" if read_summary(folder).get("complete") else "an unfinished"
        raise SweepError(
            f"--name {name}: {kind} sweep has this name ({folder}); take another, or resume it (--resume {name}; in "
            f"Python, resume={name!r})"
        )
    return name


def _invent_name(experiment: str, storage: Path) -> str:
    """Return a name with the time, and with a number if that name is taken, perhaps by a sweep yet to start."""
    base = f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = chain([base], (f"{base}-{number}" for number in count(2)))
    name = next(name for name in candidates if name not in _invented_names and not os.path.exists(storage / name))
    _invented_names.add(name)
    return name


def _store_key(tracking_uri: str) -> str:
    """Return a hash of a tracking address, which may hold a password."""
    return hashlib.sha256(tracking_uri.encode()).hexdigest()[:16]
