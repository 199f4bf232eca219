"""Has every trial of a worker begin as in a new process, as far as Python allows."""

from __future__ import annotations

import gc
import logging
from contextvars import copy_context
from typing import Any

from gaudi_tune.group.clean.leftovers import Leftovers
from gaudi_tune.group.clean.own_code import OwnCode
from gaudi_tune.group.clean.own_process import TrialFolders
from gaudi_tune.group.clean.switches import Switches
from gaudi_tune.training.fresh_start import fresh_start, release_memory

logger = logging.getLogger(__name__)


class Cleaner:
    """Runs trials, and clears away what each leaves behind."""

    def __init__(self, pickled_loop: bytes, folders: TrialFolders | None = None) -> None:
        """Note the state of the process, which no trial has changed yet. Without ``folders`` all trials share one."""
        self._code, self._folders = OwnCode(pickled_loop), folders
        gc.enable()
        self._leftovers = Leftovers()  # it replaces functions, which count as the originals below
        self._switches = Switches()
        gc.disable()  # until the first trial has imported what it needs
        self.problems: list[str] = []
        """Why the process is not as it was. It should run no other trial then."""

    def close(self) -> None:
        """Leave the process alone from now on."""
        self._switches.close()
        self._leftovers.close()

    def run(self, config: dict[str, Any], trial: str = "") -> None:
        """Load the train loop, and run it with the configuration of the trial that is called ``trial``."""
        if self._folders is not None:
            self._folders.enter_next(trial)
        self._leftovers.watch()
        fresh_start(config.get("seed", 0))
        copy_context().run(self._run, config)  # so that context variables are forgotten, too

    def _run(self, config: dict[str, Any]) -> None:
        train_loop = self._code.load()
        gc.enable()
        train_loop(config)

    def clean(self) -> None:
        """Clear away what the trial has left."""
        try:
            self.problems += self._leftovers.end()
            self.problems += [f"{name} cannot be restored" for name in self._switches.restore()]
            self._code.forget()
            release_memory()
            self.problems += self._leftovers.sweep()
        except Exception as error:
            logger.warning("what a trial has left could not be cleared away", exc_info=True)
            self.problems.append(f"clearing away what a trial left has failed ({type(error).__name__}: {error})")
