"""Going on with a sweep that was interrupted, however that came."""

from __future__ import annotations

import json
import pickle
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.experiment import Trial

from experiments.sweep.errors import SweepError
from experiments.sweep.options import SweepOptions
from experiments.sweep.outbox import Outbox
from experiments.sweep.tracking_store import store_of

if TYPE_CHECKING:
    from experiments.sweep.plan import Plan

SWEEP_FILE = "sweep.json"
"""What a sweep began with, in its folder."""
SNAPSHOTS = "snapshots"
"""Whole copies of Tune's state, in a sweep's folder; Tune's own files there may be torn."""
KEPT = 2
"""Snapshots kept."""
LOOK_EVERY_S = 1.0
"""How often to see whether Tune has written its state."""
STATE_FILES: dict[str, Callable[[Path], Any]] = {
    "experiment_state-*.json": lambda file: json.loads(file.read_text()),
    "search_gen_state-*.json": lambda file: pickle.loads(file.read_bytes()),  # the ending is Tune's, as the next
    "searcher-state-*.pkl": lambda file: json.loads(file.read_text()),
    "callback-states-*.pkl": lambda file: pickle.loads(file.read_bytes()),
}
"""Tune's state, and how to see that a file of it is whole. The pickles are files of this user's own sweep."""
MAY_DIFFER = {"resume", "add_trials", "storage", "address", "tracking_uri", "dry_run", "retries", "checkpoint_minutes"}
"""Options that a resumed sweep takes from its own command line."""


def write_sweep_file(plan: Plan) -> None:
    """Write what a resumption must know; no address, which may hold a password."""
    budget = {name: getattr(plan.budget, name) or None for name in ("epochs", "steps", "eval_every")}
    decided = {"name": plan.name, "recipe": plan.recipe, "num_samples": plan.num_samples, **budget}
    sources = {name: plan.settings.get(name) for name in ("data", "model") if getattr(plan.options, name) is not None}
    options = {**asdict(plan.options), **decided, **sources, "device": plan.devices.type.kind}
    kept = {name: value for name, value in options.items() if name not in MAY_DIFFER}
    partial = plan.folder / f"{SWEEP_FILE}.partial"
    about = {"experiment": plan.experiment.name, "groups": plan.groups, "options": kept}
    partial.write_text(json.dumps(about, indent=2) + "\n")
    partial.replace(plan.folder / SWEEP_FILE)


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
    if wrong := sorted(set(changed) - MAY_DIFFER):
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise SweepError(f"--resume {given.resume}: the sweep keeps what it began with; leave out {flags}")
    if given.add_trials < 0:
        raise SweepError(f"--add-trials must be at least 0, but got {given.add_trials}")
    with closing(Outbox(folder)) as outbox:
        if not outbox.take():
            raise SweepError(f"--resume {given.resume}: this sweep is running; wait for it, or end it first")
    kept = {**began_with["options"], "settings": tuple(began_with["options"]["settings"])}
    own: dict[str, Any] = {name: getattr(given, name) for name in MAY_DIFFER}
    return SweepOptions(**{**kept, **own, "num_samples": kept["num_samples"] + given.add_trials})


def check_resumable(plan: Plan) -> None:
    """See that the place and the records of the sweep are what they were.

    Raises:
        SweepError: There is less room than its trials need, or its runs are in another tracking store.
    """
    needed = json.loads((plan.folder / SWEEP_FILE).read_text())["groups"]
    if plan.groups < min(needed, plan.num_samples):
        raise SweepError(
            f"--resume {plan.name}: the sweep had {needed} trials at a time, and there is room for {plan.groups}; "
            f"resume it where there are as many devices"
        )
    with closing(Outbox(plan.folder)) as outbox:
        if outbox.interrupted and not outbox.belongs_to(store_of(plan.tracking_uri)):
            raise SweepError(
                f"--resume {plan.name}: its runs are in another tracking store than {plan.tracking_uri}; give the "
                f"--tracking-uri (or $MLFLOW_TRACKING_URI) that it began with"
            )


def make_ready(folder: Path) -> None:
    """Put Tune's last whole state where Tune looks for it, and take away what came after it.

    Raises:
        SweepError: There is none.
    """
    snapshots = sorted((folder / SNAPSHOTS).glob("[0-9]*"), key=lambda path: int(path.name), reverse=True)
    for state in [*snapshots, folder]:
        if files := whole_state(state):
            break
    else:
        raise SweepError(
            f"--resume {folder.name}: Tune's state in {folder} is missing or torn, and there is no whole snapshot of "
            f"it. What finished is in MLflow and in {folder}; start a new sweep under another name."
        )
    kept = {file.name: file.read_bytes() for file in files}
    for pattern in STATE_FILES:
        for old in folder.glob(pattern):
            old.unlink()
    for name, content in kept.items():
        (folder / name).write_bytes(content)
    _let_it_propose(folder)
    known = {f"trial-{number:03d}" for number in _numbers_in(folder)}
    for later in folder.glob("trial-*"):
        if later.name not in known:  # it is proposed again, and must not find its own results
            shutil.rmtree(later)


def whole_state(folder: Path) -> list[Path]:
    """Return the files of the state of Tune in ``folder``, the newest of each kind; none if one is missing or torn."""
    files = []
    for pattern, read in STATE_FILES.items():
        newest = max(folder.glob(pattern), default=None)
        if newest is None:
            return []
        try:
            read(newest)
        except (ValueError, EOFError, IndexError, AttributeError, pickle.UnpicklingError):
            return []
        files.append(newest)
    return files


def _let_it_propose(folder: Path) -> None:
    """Let Tune ask the searcher again, which says itself when it has no more."""
    for file in folder.glob("search_gen_state-*.json"):
        state = pickle.loads(file.read_bytes())
        file.write_bytes(pickle.dumps({**state, "finished": False}))


def _numbers_in(folder: Path) -> Iterator[int]:
    (state,) = folder.glob("experiment_state-*.json")
    for trial, _ in json.loads(state.read_text())["trial_data"]:
        yield int(str(json.loads(trial)["experiment_tag"]).split("_", maxsplit=1)[0])


class KeepSnapshots(tune.Callback):
    """Keeps whole copies of Tune's state: Tune writes its files in place, and a crash leaves torn ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / SNAPSHOTS
        self._copied = 0
        self._looked_at = 0.0

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Copy what Tune has written since the last time."""
        if trials and time.monotonic() - self._looked_at >= LOOK_EVERY_S:
            self._looked_at = time.monotonic()
            self._copy(Path(trials[0].storage.experiment_driver_staging_path))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Copy the last state."""
        if trials:
            self._copy(Path(trials[0].storage.experiment_driver_staging_path))

    def _copy(self, source: Path) -> None:
        # Not the first file of a state, but the last: then the others are there.
        written = max((file.stat().st_mtime_ns for file in source.glob("callback-states-*.pkl")), default=0)
        if written == self._copied or not (files := whole_state(source)):
            return
        self._copied = written
        self._folder.mkdir(exist_ok=True)
        there = sorted(int(path.name) for path in self._folder.glob("[0-9]*"))
        partial, number = self._folder / "partial", (there[-1] + 1 if there else 1)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        for file in files:
            shutil.copy(file, partial)
        partial.rename(self._folder / str(number))
        for old in there[: 1 - KEPT]:
            shutil.rmtree(self._folder / str(old), ignore_errors=True)
