"""The state of a sweep on disk: it is kept while the sweep runs, and restored when the sweep is resumed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.on_ray.trials import number_of
from gaudi_tune.on_ray.tune_files import finish_restore, make_tune_part
from gaudi_tune.on_ray.users_callback import UsersCallback
from gaudi_tune.private.tune_state import StateKeeper
from gaudi_tune.sweep.record.state_log import STATE_LOG, StateLog
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.searcher import StudySearcher

logger = logging.getLogger(__name__)


class StateOnDisk(KeptInProcess, StateKeeper):
    """Appends the state of a sweep to its log, with Tune's part of it, and checks that Tune restores all of it."""

    def __init__(
        self,
        folder: Path,
        state: SweepState,
        scheduler: SweepScheduler,
        searcher: StudySearcher,
        callbacks: Sequence[UsersCallback],
        *,
        resumed: bool,
    ) -> None:
        """Prepare only: nothing is written before Tune asks for it."""
        self._folder, self._state, self._scheduler, self._searcher = folder, state, scheduler, searcher
        self._callbacks = callbacks
        self._log, self._logged_trials = StateLog(folder), dict[str, Any]()  # as Tune wrote them
        self.is_complete = True
        """Whether the log has everything that it was given."""
        self._has_tune_files = resumed  # put where Tune looks for them, and removed once it has read them
        self._not_restored: set[int] = set()  # numbers of the trials that Tune has yet to read

    def keep_state(self, trials: Mapping[str, tuple[str, str]], controller: str, search_alg: Any) -> None:
        """Append to the log what has changed since the last call."""
        everything = self._log.needs_whole_state
        changed = [
            trial_id
            for trial_id, state in trials.items()
            if everything or self._logged_trials.get(trial_id) is not state
        ]
        self.is_complete = False
        try:
            tune_part = make_tune_part(trials, changed, controller, search_alg)
            record = {"tune": tune_part, **self.snapshot(None if everything else self._state.changed)}
            self._log.append(record, [trial.number for trial in self._state.paused])
        except OSError as error:  # the next attempt may find space
            logger.warning("the state of the sweep could not be written (%s)", error)
            return
        self._logged_trials = dict(trials)
        self._state.forget_changes()
        self._searcher.forget_changes()
        self.is_complete = True

    def snapshot(self, numbers: Set[int] | None = None) -> dict[str, Any]:
        """Return the parts of the state that are not Tune's, with the trials of these numbers, or with all if None."""
        study = self._searcher.study_snapshot(everything=numbers is None)
        scheduler, callbacks = self._scheduler.get_state(), [(c.name, c.kept_state()) for c in self._callbacks]
        return {
            **self._state.snapshot(numbers),
            "study": study,
            "scheduler": scheduler,
            "callbacks": {"states": callbacks},
        }

    def restore(self, parts: Mapping[str, Any]) -> None:
        """Restore the parts of a log, before Tune adds its trials again."""
        self._state.restore(parts)
        self._searcher.restore_study(parts["study"])
        self._scheduler.set_state(parts["scheduler"])
        kept = parts.get("callbacks", {}).get("states", [])
        if [name for name, _ in kept] == [callback.name for callback in self._callbacks]:
            for callback, (_, state) in zip(self._callbacks, kept, strict=True):
                if state is not None:
                    callback.restore_state(state)

    def expect(self, trials: Sequence[int]) -> None:
        """Note that Tune is about to read its state, which has the trials of these numbers."""
        self._not_restored = set(trials)

    def trial_added(self, trial: Trial) -> None:
        """Note that Tune has a trial, a new one or one that it restored."""
        self._not_restored.discard(number_of(trial))

    def check_restored(self) -> None:
        """Raise a SweepError if Tune has not read its state in full. Tune itself would log an error and start from the
        beginning."""
        if self._not_restored:
            raise SweepError(
                f"--resume {self._folder.name}: Tune could not read the state of {len(self._not_restored)} trials (its "
                f"error is above). {self._folder / STATE_LOG} is unchanged: fix what the error says, and try again"
            )

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Remove the files that Tune has read."""
        self._remove_tune_files(trials)

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Remove the files that Tune has read, also if the sweep had nothing left to train."""
        self._remove_tune_files(trials)

    def _remove_tune_files(self, trials: Sequence[Trial]) -> None:
        if self._has_tune_files and trials:
            self._has_tune_files = False
            finish_restore(trials, self._folder)
