"""The state of a sweep on disk: it is kept while the sweep runs, and restored when the sweep is resumed."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ray.tune.experiment import Trial

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import STATE_LOG, STUDY_FILE
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.on_ray.given.user_callback import UserCallback
from gaudi_tune.on_ray.scheduler import SweepScheduler
from gaudi_tune.on_ray.tune_files import finish_restore, make_tune_part
from gaudi_tune.private.tune_state import Paced, StateKeeper, state_in
from gaudi_tune.sweep.record.state_log import StateLog, pack
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.proposer import Proposer
from gaudi_tune.sweep.search.study_file import StudyFile

logger = logging.getLogger(__name__)

KEPT_SHARE, KEPT_EVERY_S = 0.05, 5.0
"""The share of the event loop's time that keeping the state may take, and the seconds from one record to the next while
no checkpoint is written. A crash loses this much of the state, besides the work since the last checkpoint. So the share
is more where a record takes long, on a busy machine."""
WRITE_WARNING = "the state of the sweep could not be written (%s)"


class StateOnDisk(KeptInProcess, StateKeeper):
    """Appends the state of a sweep to its log, with Tune's part of it, and checks that Tune restores all of it.

    A thread writes to the log, so that nothing else waits for a disk that is slow.
    """

    def __init__(
        self,
        folder: Path,
        state: SweepState,
        scheduler: SweepScheduler,
        proposer: Proposer,
        callbacks: Sequence[UserCallback],
        flush_trackers: Callable[[], object],
        *,
        resumed: bool,
    ) -> None:
        """Prepare only: nothing is written before Tune asks for it.

        ``flush_trackers`` is called before a record is written: what the log has is never told to trackers again.
        """
        self._folder, self._state, self._scheduler, self._proposer = folder, state, scheduler, proposer
        self._callbacks = callbacks
        self._flush_trackers = flush_trackers
        self._log, self._logged_trials = StateLog(folder), dict[str, Any]()  # as Tune wrote them
        self._study_file = StudyFile(folder / STUDY_FILE, folder.name)
        self._thread = ThreadPoolExecutor(1, "state")
        self._writing: Future[None] | None = None
        """What is being written, or was written last."""
        self._is_behind = False  # what was given last could not even be made a record
        self._has_tune_files = resumed  # put where Tune looks for them, and removed once it has read them
        self._pace, self._record_time = Paced(KEPT_SHARE, (0.0, KEPT_EVERY_S)), -math.inf
        self._has_checkpoint = False  # which the log does not have
        self._expected: set[int] = set()  # numbers of the trials that Tune is to read

    @property
    def is_writing(self) -> bool:
        """Whether a record is being written."""
        return self._writing is not None and not self._writing.done()

    @property
    def is_complete(self) -> bool:
        """Whether the log has everything that it was given, once a record that is being written is there."""
        return not self._is_behind and (self._writing is None or self._writing.exception() is None)

    def keep(self, trials: Sequence[Trial]) -> None:
        """Keep the state now, unless no trial has begun: Tune cannot restore such a state."""
        if trials:
            self.keep_state(*state_in(self._scheduler.tune_controller, trials))
            self._record_time, self._has_checkpoint = time.monotonic(), False

    def keep_state(self, trials: Mapping[str, tuple[str, str]], controller: str, search_alg: Any) -> None:
        """Have what has changed since the last call appended to the log. The arguments are of Tune's part of it, see
        :func:`~gaudi_tune.private.tune_state.state_in`."""
        self._settle()
        everything = self._log.needs_whole_state  # also where the disk did not take the last record
        changed = [
            trial_id for trial_id, state in trials.items() if everything or self._logged_trials.get(trial_id) != state
        ]
        self._is_behind = True
        try:
            tune_part = make_tune_part(trials, changed, controller, search_alg)
        except OSError as error:
            logger.warning(WRITE_WARNING, error)
            return
        record = pack({"tune": tune_part, **self.snapshot(None if everything else self._state.changed)})
        self._logged_trials = dict(trials)
        self._state.changed.clear()
        self._proposer.record.unlogged.clear()
        self._writing = self._thread.submit(self._write, record)
        self._is_behind = False

    def _write(self, record: bytes) -> None:
        self._flush_trackers()
        self._log.append(record)
        self._study_file.write(self._proposer.study)

    def _settle(self) -> None:
        """Wait for the last record."""
        if self._writing is None:
            return
        try:
            self._writing.result()
        except OSError as error:  # the next attempt may find space
            logger.warning(WRITE_WARNING, error)

    def snapshot(self, numbers: Set[int] | None = None) -> dict[str, Any]:
        """Return the parts of the state that are not Tune's, with the trials of these numbers, or with all if None."""
        study = self._proposer.record.snapshot(everything=numbers is None)
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
        self._proposer.restore_study(parts["study"])
        self._scheduler.set_state(parts["scheduler"])
        callback_states = parts.get("callbacks", {}).get("states", [])
        if [name for name, _ in callback_states] == [callback.name for callback in self._callbacks]:
            for callback, (_, state) in zip(self._callbacks, callback_states, strict=True):
                if state is not None:
                    callback.restore_state(state)

    def expect(self, trials: Sequence[int]) -> None:
        """Note that Tune is about to read its state, which has the trials of these numbers."""
        self._expected = set(trials)

    def check_restored(self) -> None:
        """Raise a SweepError if Tune has not read its state in full. Tune itself would log an error and start from the
        beginning."""
        missing = self._expected - self._scheduler.trials.keys()
        if missing:
            raise SweepError(
                f"--resume {self._folder.name}: Tune could not read the state of {len(missing)} trials (its "
                f"error is above). {self._folder / STATE_LOG} is unchanged: fix what the error says, and try again"
            )

    def on_step_begin(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Remove the files that Tune has read."""
        self._remove_tune_files(trials)

    def on_checkpoint(self, *arguments: Any, **info: Any) -> None:
        """Have the log name a checkpoint soon: Tune deletes the one before it."""
        self._has_checkpoint = True

    def on_step_end(self, iteration: int, trials: Sequence[Trial], **info: Any) -> None:
        """Keep the state if that is due."""
        is_due = self._has_checkpoint or time.monotonic() - self._record_time >= KEPT_EVERY_S
        if is_due and self._pace.is_due and not self.is_writing:
            self._pace.begin()
            self.keep(trials)
            self._pace.end()

    def on_experiment_end(self, trials: Sequence[Trial], **info: Any) -> None:
        """Remove the files that Tune has read, also if the sweep had nothing left to train."""
        self._remove_tune_files(trials)

    def _remove_tune_files(self, trials: Sequence[Trial]) -> None:
        if self._has_tune_files and trials:
            self._has_tune_files = False
            finish_restore(trials, self._folder)
