"""The state of a sweep in Tune's files: kept in the sweep's log while it runs, and put back for a resume.

No other module knows the names of Tune's files (Ray 2.60).
"""

from __future__ import annotations

import json
import logging
import pickle
import tempfile
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.result import EXPR_RESULT_FILE, TIMESTAMP, TRAINING_ITERATION

from gaudi_tune.base.errors import SweepError
from gaudi_tune.on_ray.trials import number_in
from gaudi_tune.private.ray_tune import Saved, checkpoints_of, keep_checkpoints
from gaudi_tune.private.tune_state import results_of
from gaudi_tune.sweep.record.state_log import TRIALS, read_log
from gaudi_tune.sweep.record.trial_state import number_in_name, trial_name

logger = logging.getLogger(__name__)

CONTROLLER = "experiment_state-{}.json"
"""Tune's file with the trials and the state of its event loop."""
PROPOSALS = "search_gen_state-{}.json"
"""Tune's file with the generator of trials, which calls the searcher."""
SEARCHER = "searcher-state-{}.pkl"
"""Tune's file with the state of the searcher, which is ours."""
CALLBACKS = "callback-states-{}.pkl"
"""Tune's file with the states of callbacks by their position."""
FILES = (CONTROLLER, PROPOSALS, SEARCHER, CALLBACKS)
DECISIONS = ("_cached_trial_decisions", "_queued_trial_decisions")
"""What Tune does with trials once they have saved. A resumed trial goes on from an earlier checkpoint, and is decided
on again. Tune would keep to the old decision: after any later checkpoint it would pause or end the trial, which for the
record goes on."""
PUT_BACK = "9999"
"""The text in place of the date in these names. Tune reads the latest file, and an earlier sweep of this process may
have left some where Tune looks for them."""
SET_ASIDE = "set-aside-{}"
"""A folder in that of the sweep, for what has the names of trials that a resumed sweep trains again."""


def make_tune_part(
    trials: Mapping[str, tuple[str, str]], changed: Iterable[str], controller: str, search_alg: Any
) -> dict[str, Any]:
    """Return Tune's part of a record of the log, with the trials that have changed.

    See :meth:`~gaudi_tune.private.tune_state.StateKeeper.keep_state`.
    """
    with tempfile.TemporaryDirectory() as folder:
        search_alg.save_to_dir(folder, session_str=PUT_BACK)
        proposals = Path(folder, PROPOSALS.format(PUT_BACK)).read_bytes()
        searcher = Path(folder, SEARCHER.format(PUT_BACK)).read_bytes()
    changes = {trial: trials[trial] for trial in changed}
    return {CONTROLLER: controller, PROPOSALS: proposals, SEARCHER: searcher, TRIALS: changes}


@dataclass(frozen=True)
class KeptState:
    """The state of a sweep, read from its log."""

    tune: dict[str, Any]
    """Tune's part of it, with all trials."""
    trials: list[dict[str, Any]]
    """The trials, decoded, without Tune's metadata of their runs."""
    numbers: list[int]
    """The numbers of the trials, in order."""


def read_kept_state(
    folder: Path, restore: Callable[[dict[str, dict[str, Any]]], None], *, as_data: bool = False
) -> KeptState:
    """Return the state in the log of a sweep, after ``restore`` was called with all of its parts.

    Writes nothing. If there is no state, a SweepError says why, and what to do. With ``as_data``, nothing that the log
    names is imported or run.
    """
    try:
        parts = read_log(folder, as_data=as_data)
        trials = [json.loads(trial) for trial, _ in parts["tune"][TRIALS].values()]
        if not trials:
            raise ValueError("no trial had begun")  # Tune cannot restore such a state
        state = KeptState(parts["tune"], trials, sorted(number_in(trial["experiment_tag"]) for trial in trials))
        restore(parts)
    except Exception as error:  # a log may have any content: each kind of damage raises its own
        raise SweepError(
            f"--resume {folder.name}: its state cannot be read in full ({error or type(error).__name__}). Nothing was "
            f"changed. If another version of this project wrote it, resume with that version. Otherwise start a new "
            f"sweep under another name; what finished is in MLflow and in {folder}"
        ) from error
    return state


def results_so_far(folder: Path, **goal: str) -> tune.ResultGrid:
    """Return the results in the log of a sweep; a SweepError if there are none. ``goal``: see :func:`results_of`."""
    return results_of(folder, read_kept_state(folder, lambda parts: None).tune[TRIALS].values(), **goal)


def put_back(state: KeptState, folder: Path, retries: int) -> None:
    """Put a state where Tune looks for it, with today's folder and retries, and set newer trials aside."""
    for name in FILES:
        for old_file in folder.glob(name.format("*")):
            old_file.unlink()
    trials = []
    for trial, (_, run_metadata) in zip(state.trials, state.tune[TRIALS].values(), strict=True):
        trials.append((json.dumps({**trial, "max_failures": retries}), run_metadata))
        last_result = json.loads(run_metadata).get("last_result") or {}
        _cut_results(folder / trial_name(number_in(trial["experiment_tag"])) / EXPR_RESULT_FILE, last_result)
    controller = {**json.loads(state.tune[CONTROLLER]), "trial_data": trials}
    for decisions in DECISIONS:
        controller.get("runner_data", {}).pop(decisions, None)
    # Tune gives each callback the state at its position, if there is one, and refuses an empty dictionary. An entry of
    # None leaves every callback as it is.
    callbacks = {0: None}
    files = {
        CONTROLLER: json.dumps(controller).encode(),
        PROPOSALS: _adapt_proposals(state.tune[PROPOSALS], folder, retries),
        SEARCHER: state.tune[SEARCHER],
        CALLBACKS: pickle.dumps(callbacks),
    }
    for name, content in files.items():
        (folder / name.format(PUT_BACK)).write_bytes(content)
    _set_aside_later_trials(folder, state.numbers)


def _cut_results(file: Path, last_result: Mapping[str, Any]) -> None:
    """Cut a trial's file of reports behind the last one of the state: the sweep may go on otherwise than before."""
    last_key = last_result.get(TRAINING_ITERATION), last_result.get(TIMESTAMP)
    lines = file.read_bytes().splitlines(keepends=True) if file.is_file() else []
    for end in range(len(lines), 0, -1):
        with suppress(ValueError):  # a kill may have torn the last line
            line = json.loads(lines[end - 1])
            if (line[TRAINING_ITERATION], line[TIMESTAMP]) == last_key:
                if end < len(lines):
                    file.write_bytes(b"".join(lines[:end]))
                return


def _set_aside_later_trials(folder: Path, numbers: Iterable[int]) -> None:
    """Move away folders and files with names of trials whose numbers the state does not have.

    Such a trial is proposed again, and must not find its earlier results. They are not deleted: they may belong to
    somebody else, or be all that is left of trials that the state should have.
    """
    own_numbers = {None, *numbers}
    later_paths = [path for path in sorted(folder.glob("trial-*")) if number_in_name(path.name) not in own_numbers]
    if not later_paths:
        return
    target = next(path for n in count(1) if not (path := folder / SET_ASIDE.format(n)).exists())
    target.mkdir()
    for path in later_paths:
        path.rename(target / path.name)
    logger.warning(
        "the state of the sweep does not have %s: moved to %s, which you may remove; these trials are trained again",
        ", ".join(path.name for path in later_paths),
        target,
    )


def _adapt_proposals(proposals: bytes, folder: Path, retries: int) -> bytes:
    """Let Tune ask the searcher again, and give future trials today's folder and retries.

    The searcher itself says when it has no more trials. Tune moves only the trials that exist already.
    """
    state = pickle.loads(proposals)  # noqa: S301  (this user's own sweep)
    spec = state["experiment"].spec
    spec["storage"].storage_fs_path, spec["storage"].experiment_dir_name = folder.parent.as_posix(), folder.name
    spec["max_failures"] = retries
    return pickle.dumps({**state, "finished": False})


def finish_restore(trials: Sequence[Trial], folder: Path) -> None:
    """Remove a state that was put back, once Tune has read it, and have Tune forget deleted checkpoints.

    Tune has copied the state, with all files of such names, to the folder where it writes. It would copy them back
    again and again, over the sweep's own newer files. And it would fail to delete the checkpoints.
    """
    for trial in trials:
        if not trial.is_finished():
            forget_deleted_checkpoints(trial)
    for name in FILES:
        (folder / name.format(PUT_BACK)).unlink(missing_ok=True)
    staging = Path(trials[0].storage.experiment_driver_staging_path)
    for copy in [*staging.glob("*.json"), *staging.glob("*.pkl")]:
        copy.unlink()


def forget_deleted_checkpoints(trial: Trial, being_deleted: Container[Path] = ()) -> None:
    """Have Tune forget the checkpoints of a trial that were or are deleted, the latest only if the trial has ended.

    A snapshot names the latest checkpoint of every other trial. If it is gone, WarmTrainable starts the trial again.
    """

    def stays(saved: Saved) -> bool:
        folder = Path(saved.checkpoint.path)
        return folder not in being_deleted and folder.is_dir()

    checkpoints = checkpoints_of(trial)
    existing = [saved for saved in checkpoints if stays(saved)]
    latest = trial.latest_checkpoint_result
    forget_latest = trial.is_finished() and latest is not None and not stays(latest)
    if len(existing) < len(checkpoints) or forget_latest:
        keep_checkpoints(trial, existing, latest=not forget_latest)
