"""What a sweep began with, on disk, and whether it can go on with that."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.writing import atomic_write
from gaudi_tune.define.objective import Mode, Objective
from gaudi_tune.define.options import SweepOptions, names_on_resume
from gaudi_tune.define.sweep_plan import SUMMARY_FILE, Plan
from gaudi_tune.sweep.record.lock import is_running

logger = logging.getLogger(__name__)

SWEEP_FILE = "sweep.json"
"""What a sweep began with, in its folder."""
NAME = re.compile(r"\w[\w.-]{0,99}")
"""Names of sweeps: of a folder, a study, and a run in MLflow."""

_made: set[str] = set()
"""Names of sweeps that were planned in this process without one: only ``fit()`` makes their folders."""


class SweepFile(BaseModel, ser_json_inf_nan="constants"):
    """The contents of the file."""

    experiment: str
    metric: str
    mode: Mode
    others: list[str]
    """The objectives beside that one, mode and metric."""
    groups: int
    """Trials at a time."""
    options: dict[str, Any]
    """As they were decided. Addresses, which may hold a password or be one, are left out."""
    space: dict[str, list[str]]
    """The ranges, as :meth:`SearchSpace.describe` returns them."""
    earlier_config: dict[str, Any]
    """The winner of an earlier sweep (``--baseline``), as it was when this one began; or empty."""
    learned: list[dict[str, Any]]
    """Configurations that were good in earlier sweeps (``--learn-from``), as they were when it began."""
    seen_by: list[str]
    """Earlier sweeps that may have chosen by what is this one's test data; see :class:`Plan`."""
    store: str
    """What distinguishes the tracking store from others."""
    began: float
    """When it began (seconds since 1970)."""
    recipes: bool
    """Whether the experiment has more than one recipe."""
    script: str | None
    """The script whose experiment it is, as ``gaudi-tune run`` takes it; None where no script began it."""

    @property
    def objective(self) -> Objective:
        """The first objective."""
        return Objective(self.metric, self.mode)

    @property
    def objectives(self) -> list[str]:
        """All objectives, mode and metric, the first one first."""
        return [f"{self.mode} {self.metric}", *self.others]


def write_sweep_file(plan: Plan) -> None:
    """Write what a resumption must know, whole or not at all."""
    experiment, not_kept = plan.experiment, names_on_resume("as given")
    contents = SweepFile(
        began=time.time() if plan.start_time is None else plan.start_time,
        recipes=experiment.has_recipes,
        experiment=experiment.name,
        metric=experiment.metric,
        mode=experiment.mode,
        others=[str(objective) for objective in plan.objectives[1:]],
        groups=plan.groups,
        options={name: value for name, value in plan.final_options().items() if name not in not_kept},
        space=experiment.search_space.describe(),
        earlier_config=dict(plan.earlier_config),
        learned=list(plan.learned),
        seen_by=list(plan.test_data_seen_by),
        store=_store_key(plan.tracking_uri),
        script=str(Path(plan.command[-1]).resolve()) if plan.command else None,
    )
    _write(plan.folder, contents)


def keep_num_samples(folder: Path, number: int) -> None:
    """Write down that the sweep in ``folder`` is to have another number of trials."""
    began_with = read_sweep_file(folder)
    began_with.options["num_samples"] = number
    _write(folder, began_with)


def _write(folder: Path, contents: SweepFile) -> None:
    with atomic_write(folder / SWEEP_FILE) as partial:
        partial.write_text(contents.model_dump_json(indent=2) + "\n")


def find_sweep(sweep: str, storage: Path, option: str = "") -> Path:
    """Return the folder of a sweep, which goes by its name in ``storage`` or by its folder; ``option`` is what asks for
    it, for errors, with a space."""
    for folder in (storage.expanduser().resolve() / sweep, Path(sweep).expanduser().resolve()):
        if os.path.isfile(folder / SWEEP_FILE):  # False where that may not be read
            return folder
    raise SweepError(
        f"{option}{sweep}: no such sweep; give its folder, or the name of one in {storage}; {_found_in(storage)}"
    )


def _found_in(storage: Path) -> str:
    return f"found there: {', '.join(folder.name for folder in sweeps_in(storage)) or 'none'}"


def sweeps_in(storage: Path) -> list[Path]:
    """Return the folders of the sweeps in a folder, by name."""
    return sorted(found.parent for found in storage.expanduser().resolve().glob(f"*/{SWEEP_FILE}"))


def read_sweep_file(folder: Path, option: str = "") -> SweepFile:
    """Return what the sweep in ``folder`` began with; ``option`` as for :func:`find_sweep`."""
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
        whole = isinstance(found["trials"], dict) and isinstance(found["best"], dict | None)
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return found if whole else {}


def winner_of(folder: Path) -> dict[str, Any]:
    """Return the configuration that won the sweep in ``folder``: its confirmation if it had one, else its search."""
    summary = read_summary(folder)
    try:
        confirmed = (summary.get("confirmation") or {}).get("rivals") or [summary["best"]]
        return dict(confirmed[0]["config"])
    except (LookupError, TypeError, AttributeError) as error:
        why = "no trial of it has reported a value" if summary else f"it has not ended, or {SUMMARY_FILE} is torn"
        raise SweepError(
            f"--baseline {folder.name}: that sweep has no winner ({why}); give the name or the folder of a sweep that "
            f"has one, or NAME:NUMBER for one of its trials"
        ) from error


def last_summaries(storage: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and summary of each sweep in a folder that has one, the last first; none is read in advance."""
    written: dict[Path, float] = {}
    for folder in sweeps_in(storage):
        with suppress(OSError):  # it has none, or was removed just now
            written[folder / SUMMARY_FILE] = (folder / SUMMARY_FILE).stat().st_mtime
    for file in sorted(written, key=lambda file: -written[file]):
        yield file.parent.name, read_summary(file.parent)


def earlier_sweep(option: str, sweep: str, storage: Path, experiment: str) -> tuple[Path, SweepFile]:
    """Return the folder of the sweep of this experiment that an option names, and what it began with."""
    folder = find_sweep(sweep, storage, f"{option} ")
    began_with = read_sweep_file(folder, f"{option} ")
    if began_with.experiment != experiment:
        raise SweepError(
            f"{option} {sweep}: that is a sweep of {began_with.experiment}, not of {experiment}; leave it out, or "
            f"give the Experiment name={began_with.experiment!r} if it is the same"
        )
    return folder, began_with


def sweep_of_checkpoint(checkpoint: Path, experiment: str) -> SweepFile | None:
    """Return what the sweep of this experiment began with that wrote a checkpoint; None if it is of none."""
    place = checkpoint.expanduser().resolve()
    if os.path.isfile(place / SWEEP_FILE):
        best = (read_summary(place).get("best") or {}).get("checkpoint") or f"{place}/trial-001/checkpoint_000000"
        raise SweepError(f"--evaluate {checkpoint}: that is a sweep; give the folder of a checkpoint, such as {best}")
    if not place.is_dir():
        raise SweepError(f"--evaluate {checkpoint}: there is no such folder; give that of a checkpoint")
    folder = place.parent.parent
    if not os.path.isfile(folder / SWEEP_FILE):  # False where that may not be read
        return None
    began_with = read_sweep_file(folder, "--evaluate ")
    if began_with.experiment != experiment:
        raise SweepError(
            f"--evaluate {checkpoint}: this is a checkpoint of {began_with.experiment}, not of {experiment}; use "
            f"{began_with.script or 'the Experiment that trained it'}"
        )
    return began_with


def sweep_to_resume(experiment: str, given: SweepOptions, tracking_uri: str) -> SweepFile:
    """Return what the sweep that ``given`` wants to resume began with; a SweepError if it cannot go on from here."""
    assert given.resume is not None, "nothing is to be resumed"
    if not given.resume or Path(given.resume).name != given.resume:
        raise SweepError(f"--resume {given.resume}: give the sweep's name, and the folder that it is in as --storage")
    folder = given.storage.expanduser().resolve() / given.resume
    if not os.path.isfile(folder / SWEEP_FILE):
        raise SweepError(f"--resume {given.resume}: no such sweep in {folder.parent}; {_found_in(folder.parent)}")
    began_with = read_sweep_file(folder, "--resume ")
    if began_with.experiment != experiment:
        raise SweepError(
            f"--resume {given.resume}: that is a sweep of {began_with.experiment}, not of {experiment}; resume it with "
            f"{began_with.script or 'its own Experiment'}"
        )
    if is_running(folder):
        raise SweepError(f"--resume {given.resume}: this sweep is running; wait for it, or end it first")
    if began_with.store != _store_key(tracking_uri):
        raise SweepError(
            f"--resume {given.resume}: its runs are in another tracking store than {tracking_uri}; give the "
            f"--tracking-uri (or $MLFLOW_TRACKING_URI) that it began with"
        )
    reached = (read_summary(folder).get("ended_early") or {}).get("option")
    if reached and getattr(given, reached) is None:
        was = began_with.options[reached]
        logger.warning("--resume %s: it goes on without --%s %s, at which it ended", given.resume, reached, was)
        began_with.options[reached] = None
    return began_with


def name_for(experiment: str, options: SweepOptions) -> str:
    """Return the name of a new sweep of this experiment; a SweepError if it cannot be one, or is that of another."""
    name = options.name if options.name is not None else _name_of_now(experiment, options.storage.expanduser())
    if not NAME.fullmatch(name):
        raise SweepError(
            f"--name {name or repr(name)}: a name has 1 to 100 letters, digits, '.', '_' and '-', and begins with a "
            f"letter or digit"
        )
    if os.path.exists(folder := options.storage.expanduser() / name):  # False where that may not be read
        if not os.path.isfile(folder / SWEEP_FILE):
            raise SweepError(f"--name {name}: {folder} exists and is no sweep; take another name, or remove it")
        kind = "a finished" if read_summary(folder).get("complete") else "an unfinished"
        raise SweepError(
            f"--name {name}: {kind} sweep has this name ({folder}); take another, or resume it (--resume {name})"
        )
    return name


def _name_of_now(experiment: str, storage: Path) -> str:
    """Return a name with the time, and a number if one with this second is taken, perhaps by a sweep yet to start."""
    now = f"{experiment}-{time.strftime('%Y%m%d-%H%M%S')}"
    numbered = chain([now], (f"{now}-{number}" for number in count(2)))
    name = next(name for name in numbered if name not in _made and not os.path.exists(storage / name))
    _made.add(name)
    return name


def _store_key(tracking_uri: str) -> str:
    """Return what distinguishes one tracking address from another, without its text."""
    return hashlib.sha256(tracking_uri.encode()).hexdigest()[:16]
