"""The end of the process where Tune can no longer end the sweep: Ray is gone, or soon will be after a signal."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gaudi_tune.base.errors import errors_are_logged
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.on_ray.early_end import EarlyEnd
from gaudi_tune.on_ray.ray_watch import RayWatch
from gaudi_tune.on_ray.signals import STATUSES
from gaudi_tune.sweep.record.events import Ending
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.training.end_notice import LOOK_EVERY_S, give_notice, saved_since

logger = logging.getLogger(__name__)


class Leaving:
    """Closes the sweep without Ray, and ends the process."""

    def __init__(
        self, plan: Plan, state: SweepState, early_end: EarlyEnd, close: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Prepare only. ``close`` writes and shows everything that needs no Ray, and returns the summary."""
        self._plan, self._state, self._early_end, self._close = plan, state, early_end, close
        self.watch = RayWatch(early_end.signals, self.leave, partial(give_notice, plan.folder))
        self._lock = threading.Lock()

    def leave_if_signalled(self) -> None:
        """End the process if it received SIGTERM, SIGHUP or SIGUSR1, once its trials have saved. If Ray received the
        signal, too, the next call of Ray would end the process without a message."""
        requested = self._early_end.signals.ending
        if requested is not None and requested.status in STATUSES.values():
            self._let_trials_save()
            self.leave(requested)

    def _let_trials_save(self) -> None:
        """Wait until the running trials have saved, as long as the notice is. This calls nothing of Ray."""
        folder, deadline = self._plan.folder, time.monotonic() + (self._plan.options.notice or 0)
        running = {trial.name for trial in self._state.trials.values() if trial.status == "running"}
        if not running or time.monotonic() >= deadline:
            return
        notice_time, unsaved = give_notice(folder), running
        while unsaved and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
            unsaved = {name for name in unsaved if not saved_since(folder / name, notice_time)}
        logger.warning(
            "%d of %d running trials saved after their last step; the others continue from their last checkpoint",
            len(running) - len(unsaved), len(running),
        )  # fmt: skip

    def leave(self, ending: Ending) -> None:
        """Close the sweep and end the process: Tune's event loop would wait for a Ray that is gone or ending."""
        self._lock.acquire()  # never released: a second caller waits here until the process ends
        try:
            with errors_are_logged("the sweep could not be closed; it can be resumed from its last snapshot"):
                self._early_end.ask(ending)
                summary = self._close()
                if self._plan.options.json:  # the command line, which prints it otherwise, has sys.stdout go to stderr
                    print(json.dumps(summary, indent=2, default=str), file=sys.__stdout__, flush=True)
                print(f"resume it with: {self._plan.how_to_resume()}", file=sys.stderr, flush=True)
        finally:
            os._exit(ending.status)
