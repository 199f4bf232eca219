"""The state of a sweep as Tune has it: kept in the sweep's log while it runs, and put back for one that is resumed.

No other module knows the names of Tune's files (Ray 2.60).
"""

from __future__ import annotations

import json
import logging
import pickle
import tempfile
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial

from gaudi_tune.base import names
from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.sweep_plan import STUDY_FILE
from gaudi_tune.on_ray.trials import number_in
from gaudi_tune.private.ray_tune import checkpoints_of, keep_checkpoints
from gaudi_tune.private.tune_state import results_of
from gaudi_tune.sweep.record.state_log import TRIALS, UNREADABLE, read_log
from gaudi_tune.sweep.record.trial_state import number_in_name, trial_name
from gaudi_tune.sweep.search.study_record import count_trials

logger = logging.getLogger(__name__)

CONTROLLER, PROPOSALS, SEARCHER = "experiment_state-{}.json", "search_gen_state-{}.json", "searcher-state-{}.pkl"
"""Tune's files: the trials and its event loop, what proposes the trials, and our part of that."""
CALLBACKS = "callback-states-{}.pkl"
"""Another, with the states of callbacks by their position."""
FILES = (CONTROLLER, PROPOSALS, SEARCHER, CALLBACKS)
PUT_BACK = "9999"
"""Stands for the date in their names: later than those of an earlier sweep of this process, which are still where Tune
reads its own. It reads the latest."""
SET_ASIDE = "set-aside-{}"
"""A folder in that of the sweep: what had the names of trials that a resumed sweep is to train again."""


def reports_of(folder: Path, number: int) -> list[dict[str, Any]]:
    """Return the reports of a trial of the sweep in ``folder``; of a step that was reported again, the last."""
    lines = (folder / trial_name(number) / "result.json").read_text().splitlines()
    reports = [json.loads(line) for line in lines]
    return list({report.get(names.STEP, report["training_iteration"]): report for report in reports}.values())


def as_part(
    trials: Mapping[str, tuple[str, str]], changed: Iterable[str], controller: str, search_alg: Any
) -> dict[str, Any]:
    """Return Tune's part of a record of the log, with the trials that have changed.

    See :meth:`~gaudi_tune.private.tune_state.StateKeeper.keep_state`.
    """
    with tempfile.TemporaryDirectory() as folder:
        search_alg.save_to_dir(folder, session_str=PUT_BACK)
        proposals, searcher = (Path(folder, name.format(PUT_BACK)).read_bytes() for name in (PROPOSALS, SEARCHER))
    changes = {trial: trials[trial] for trial in changed}
    return {CONTROLLER: controller, PROPOSALS: proposals, SEARCHER: searcher, TRIALS: changes}


@dataclass(frozen=True)
class KeptState:
    """The state of a sweep, read from its log."""

    tune: dict[str, Any]
    """Tune's part of it, with all trials."""
    trials: list[dict[str, Any]]
    """The trials, decoded, without what Tune keeps of their runs."""
    numbers: list[int]
    """Of the trials."""


def kept_state_of(folder: Path, see: Callable[[dict[str, dict[str, Any]]], None]) -> KeptState:
    """Return the state that the log of a sweep has, and whose parts ``see`` takes over.

    Writes nothing. Where there is none, or the study lacks trials, a SweepError says why, and what to do.
    """
    try:
        parts = read_log(folder)
        trials = [json.loads(of_trial) for of_trial, _ in parts["tune"][TRIALS].values()]
        if not trials:
            raise ValueError("no trial had begun")  # and Tune restores no such state
        state = KeptState(parts["tune"], trials, sorted(number_in(trial["experiment_tag"]) for trial in trials))
        see(parts)
    except UNREADABLE as error:
        raise SweepError(
            f"--resume {folder.name}: its state cannot be read in full ({error or type(error).__name__}). Nothing was "
            f"changed. If another version of this project wrote it, resume with that version. Otherwise start a new "
            f"sweep under another name; what finished is in MLflow and in {folder}"
        ) from error
    _check_study(folder, json.loads(state.tune[SEARCHER])["in_database"])
    return state


def _check_study(folder: Path, length: int) -> None:
    """See that the study's database still has the trials that it had: it would give their numbers to others."""
    there = count_trials(folder)
    if there < length:
        raise SweepError(
            f"--resume {folder.name}: its study, {folder / STUDY_FILE}, has only {there} of the sweep's {length} "
            f"trials; put that file back from a backup, or start a new sweep under another name"
        )


def results_so_far(folder: Path) -> tune.ResultGrid:
    """Return the results that the log of a sweep has; a SweepError if it has none."""
    return results_of(folder, kept_state_of(folder, lambda parts: None).tune[TRIALS].values())


def put_back(state: KeptState, folder: Path, retries: int) -> None:
    """Put a state where Tune looks for it, adapted to today, and move what came after it out of the way."""
    for name in FILES:
        for old in folder.glob(name.format("*")):
            old.unlink()
    trials = [
        (json.dumps({**trial, "max_failures": retries}), of_run)
        for trial, (_, of_run) in zip(state.trials, state.tune[TRIALS].values(), strict=True)
    ]
    whole = {**json.loads(state.tune[CONTROLLER]), "trial_data": trials}
    files = {
        CONTROLLER: json.dumps(whole).encode(),
        PROPOSALS: _at(state.tune[PROPOSALS], folder, retries),
        SEARCHER: state.tune[SEARCHER],
        CALLBACKS: pickle.dumps({None: None}),  # no callback is given the state of another
    }
    for name, content in files.items():
        (folder / name.format(PUT_BACK)).write_bytes(content)
    _set_aside_later_trials(folder, set(state.numbers))


def _set_aside_later_trials(folder: Path, known: Container[int]) -> None:
    """Move away what has the name of a trial that the state does not know.

    Such a trial is proposed again, and must not find its own results. But what is there may also be somebody else's, or
    all that is left of trials that the state should have had.
    """
    numbers = {path: number_in_name(path.name) for path in sorted(folder.glob("trial-*"))}
    later = [path for path, number in numbers.items() if number is not None and number not in known]
    if not later:
        return
    place = next(place for n in count(1) if not (place := folder / SET_ASIDE.format(n)).exists())
    place.mkdir()
    for path in later:
        path.rename(place / path.name)
    logger.warning(
        "the state of the sweep does not have %s: moved to %s, which you may remove; these trials are trained again",
        ", ".join(path.name for path in later),
        place,
    )


def _at(proposals: bytes, folder: Path, retries: int) -> bytes:
    """Let Tune ask the searcher again, which says itself when it has no more, and give trials to come today's place.

    Tune itself moves the trials that are there alone.
    """
    state = pickle.loads(proposals)  # noqa: S301  (of this user's own sweep)
    spec = state["experiment"].spec
    spec["storage"].storage_fs_path, spec["storage"].experiment_dir_name = folder.parent.as_posix(), folder.name
    spec["max_failures"] = retries
    return pickle.dumps({**state, "finished": False})


def settle(trials: Sequence[Trial], folder: Path) -> None:
    """Once Tune has read a state that was put back, remove it, and have Tune forget checkpoints that are gone.

    Tune has copied it to where it writes, with all files like it, and would copy them back again and again: over the
    sweep's own files, which are newer by then. And it would fail to delete the checkpoints.
    """
    for trial in trials:
        if not trial.is_finished():
            forget_deleted_checkpoints(trial)
    for name in FILES:
        (folder / name.format(PUT_BACK)).unlink(missing_ok=True)
    place = Path(trials[0].storage.experiment_driver_staging_path)
    for copied in [*place.glob("*.json"), *place.glob("*.pkl")]:
        copied.unlink()


def forget_deleted_checkpoints(trial: Trial) -> None:
    """Have Tune forget checkpoints that are gone; only a trial that has ended may lose its last.

    Where the last of another is gone, which a snapshot names, the trial starts again: WarmTrainable sees to it.
    """
    known = checkpoints_of(trial)
    there = [saved for saved in known if Path(saved.checkpoint.path).is_dir()]
    last = trial.latest_checkpoint_result
    last_is_gone = trial.is_finished() and last is not None and not Path(last.checkpoint.path).is_dir()
    if len(there) < len(known) or last_is_gone:
        keep_checkpoints(trial, there, latest=not last_is_gone)
