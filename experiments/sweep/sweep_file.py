"""What a sweep began with, on disk, and whether it can go on with that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import Experiment, SearchSpace
from experiments.sweep.options import SweepOptions
from experiments.sweep.search.searcher import described
from experiments.sweep.tracking.outbox import Outbox
from experiments.sweep.tracking.store import store_of
from trainables.runtime.writing import written_whole

SWEEP_FILE = "sweep.json"
"""What a sweep began with, in its folder."""
MAY_DIFFER = {
    "resume", "add_trials", "storage", "address", "tracking_uri", "dry_run", "retries", "checkpoint_minutes",
    "hang_minutes", "same_errors", "time_budget", "target", "patience",
}  # fmt: skip
"""Options that a resumed sweep takes from its own command line."""
KEPT_UNLESS_GIVEN = {"register", "checkpoint_budget"}
"""Options that it takes from there if they are given, and else keeps."""


def write_sweep_file(folder: Path, experiment: Experiment, groups: int, options: Mapping[str, Any]) -> None:
    """Write what a resumption must know, whole or not at all.

    Args:
        folder: Of the sweep.
        experiment: What is tuned.
        groups: Trials at a time.
        options: As they were decided. Addresses, which may hold a password, are left out.
    """
    kept = {name: value for name, value in options.items() if name not in MAY_DIFFER}
    told = {"experiment": experiment.name, "groups": groups, "options": kept, "space": described(experiment.space)}
    with written_whole(folder / SWEEP_FILE) as partial:
        partial.write_text(json.dumps(told, indent=2) + "\n")


def options_of_sweep(experiment: str, given: SweepOptions) -> SweepOptions:
    """Return the options of the sweep that ``given`` wants to resume.

    Raises:
        SweepError: There is none, it is of another experiment, it still runs, or ``given`` wants to change it.
    """
    assert given.resume is not None, "nothing is to be resumed"
    if Path(given.resume).name != given.resume:
        raise SweepError(f"--resume {given.resume}: give the sweep's name, and the folder that it is in as --storage")
    folder = given.storage.expanduser().resolve() / given.resume
    file = folder / SWEEP_FILE
    if not file.is_file():
        there = ", ".join(sorted(found.parent.name for found in folder.parent.glob(f"*/{SWEEP_FILE}"))) or "none"
        raise SweepError(f"--resume {given.resume}: no such sweep in {folder.parent}; there: {there}")
    began_with = _read(folder)
    if began_with["experiment"] != experiment:
        raise SweepError(f"--resume {given.resume}: that is a sweep of {began_with['experiment']}, not of {experiment}")
    usual = SweepOptions()
    changed = [f.name for f in fields(SweepOptions) if getattr(given, f.name) != getattr(usual, f.name)]
    if wrong := sorted(set(changed) - MAY_DIFFER - KEPT_UNLESS_GIVEN):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise SweepError(f"--resume {given.resume}: the sweep keeps what it began with; leave out {flags}")
    if given.add_trials < 0:
        raise SweepError(f"--add-trials must be at least 0, but got {given.add_trials}")
    with closing(Outbox(folder)) as outbox:
        if not outbox.take():
            raise SweepError(f"--resume {given.resume}: this sweep is running; wait for it, or end it first")
    kept = {**began_with["options"], "settings": tuple(began_with["options"]["settings"])}
    own: dict[str, Any] = {name: getattr(given, name) for name in MAY_DIFFER | (KEPT_UNLESS_GIVEN & set(changed))}
    try:
        return SweepOptions(**{**kept, **own, "num_samples": kept["num_samples"] + given.add_trials})
    except TypeError as error:
        raise SweepError(f"--resume {given.resume}: another version of this project began it ({error})") from error


def _read(folder: Path) -> dict[str, Any]:
    try:
        began_with: dict[str, Any] = json.loads((folder / SWEEP_FILE).read_text())
    except ValueError as error:
        raise SweepError(
            f"--resume {folder.name}: {folder / SWEEP_FILE} is torn ({error}); put it back from a backup, or "
            f"start a new sweep under another name"
        ) from error
    return began_with


def check_resumable(folder: Path, space: SearchSpace, *, groups: int, num_samples: int, tracking_uri: str) -> None:
    """See that the place and the records of a sweep are what they were.

    Args:
        folder: Of the sweep.
        space: Where it would search now.
        groups: Trials for which there is room now.
        num_samples: Trials that it is to have.
        tracking_uri: Where it is to be tracked.

    Raises:
        SweepError: The space is another, there is less room than its trials need, or its runs are in another tracking
            store.
    """
    began_with, now = _read(folder), described(space)
    needed, before = began_with["groups"], began_with.get("space", now)
    if changed := sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
        raise SweepError(
            f"--resume {folder.name}: the search space is another for {', '.join(changed)}, and a study has one space; "
            f"put back what was, or start a new sweep"
        )
    if groups < min(needed, num_samples):
        raise SweepError(
            f"--resume {folder.name}: the sweep had {needed} trials at a time, and there is room for {groups}; resume "
            f"it where there are as many devices"
        )
    with closing(Outbox(folder)) as outbox:
        if outbox.interrupted and not outbox.belongs_to(store_of(tracking_uri)):
            raise SweepError(
                f"--resume {folder.name}: its runs are in another tracking store than {tracking_uri}; give the "
                f"--tracking-uri (or $MLFLOW_TRACKING_URI) that it began with"
            )
