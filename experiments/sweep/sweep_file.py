"""What a sweep began with, on disk, and whether it can go on with that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from experiments.sweep.errors import SweepError
from experiments.sweep.options import SweepOptions
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


def write_sweep_file(folder: Path, experiment: str, groups: int, options: Mapping[str, Any]) -> None:
    """Write what a resumption must know, whole or not at all.

    Args:
        folder: Of the sweep.
        experiment: Its name.
        groups: Trials at a time.
        options: As they were decided. Addresses, which may hold a password, are left out.
    """
    kept = {name: value for name, value in options.items() if name not in MAY_DIFFER}
    text = json.dumps({"experiment": experiment, "groups": groups, "options": kept}, indent=2) + "\n"
    with written_whole(folder / SWEEP_FILE) as partial:
        partial.write_text(text)


def options_of_sweep(experiment: str, given: SweepOptions) -> SweepOptions:
    """Return the options of the sweep that ``given`` wants to resume.

    Raises:
        SweepError: There is none, it is of another experiment, it still runs, or ``given`` wants to change it.
    """
    assert given.resume is not None, "nothing is to be resumed"
    folder = given.storage.expanduser().resolve() / given.resume
    file = folder / SWEEP_FILE
    if not file.is_file():
        there = ", ".join(sorted(found.parent.name for found in folder.parent.glob(f"*/{SWEEP_FILE}"))) or "none"
        raise SweepError(f"--resume {given.resume}: no such sweep in {folder.parent}; there: {there}")
    began_with = json.loads(file.read_text())
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
    return SweepOptions(**{**kept, **own, "num_samples": kept["num_samples"] + given.add_trials})


def check_resumable(folder: Path, *, groups: int, num_samples: int, tracking_uri: str) -> None:
    """See that the place and the records of a sweep are what they were.

    Args:
        folder: Of the sweep.
        groups: Trials for which there is room now.
        num_samples: Trials that it is to have.
        tracking_uri: Where it is to be tracked.

    Raises:
        SweepError: There is less room than its trials need, or its runs are in another tracking store.
    """
    needed = json.loads((folder / SWEEP_FILE).read_text())["groups"]
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
