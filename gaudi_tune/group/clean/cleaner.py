"""Has every trial of a worker begin as in a new process, as far as Python allows."""

from __future__ import annotations

import gc
import logging
import os
import shutil
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import USER_CODE_ERRORS
from gaudi_tune.group.clean.leftovers import Leftovers
from gaudi_tune.group.clean.own_code import OwnCode, is_own
from gaudi_tune.group.clean.switches import Switches
from gaudi_tune.training.fresh_start import fresh_start, release_memory
from gaudi_tune.training.keep import forget_changed
from gaudi_tune.training.noted_config import noted

logger = logging.getLogger(__name__)


class TrialFolders:
    """The current folders of a worker's trials: each trial begins in an empty one.

    Otherwise a loop that looks for a checkpoint in its current folder would continue from that of an earlier trial.
    """

    def __init__(self, parent: Path, *, may_remove: bool) -> None:
        """Make the folders in ``parent``. Of the workers that share it, one may remove files."""
        self._parent, self._may_remove = parent, may_remove
        self._folder: Path | None = None
        self._count = 0
        if may_remove:  # those of lost workers of the same group
            for folder in parent.glob("[0-9]*-*"):
                shutil.rmtree(folder, ignore_errors=True)

    def enter_next(self, trial: str) -> None:
        """Make the folder of a trial, and the current one, and remove the files of the trial before it."""
        self.empty()
        self._count += 1
        self._folder = self._parent / f"{self._count:04d}-{trial}"
        self._folder.mkdir(parents=True, exist_ok=True)
        os.chdir(self._folder)

    def empty(self) -> None:
        """Remove the files of the last trial. Its folder stays: processes that are kept may be in it."""
        with suppress(OSError):  # the trial may have removed its folder
            for path in self._folder.iterdir() if self._folder is not None and self._may_remove else ():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)


class Cleaner:
    """Runs trials, and clears away what each leaves behind."""

    def __init__(self, pickled_loop: bytes, folders: TrialFolders | None = None) -> None:
        """Note the state of the process, which no trial has changed yet. Without ``folders`` all trials share one."""
        self._code, self._folders, self._shared_folder = OwnCode(pickled_loop), folders, os.getcwd()
        gc.enable()
        self._leftovers = Leftovers()
        self._switches = Switches()
        gc.disable()  # until the first trial has imported what it needs
        self.config: dict[str, Any] | None = None
        """The configuration of the trial that runs, which may note what the loop reads of it."""
        self.problems: list[str] = []
        """Why the process is not as it was. It should run no other trial then."""

    def run(self, config: dict[str, Any], trial: str = "") -> None:
        """Load the train loop, and run it with the configuration of the trial that is called ``trial``."""
        if self._folders is not None:
            self._folders.enter_next(trial)
        else:
            os.chdir(self._shared_folder)
        self._leftovers.watch()
        fresh_start(config.get("seed", 0))
        copy_context().run(self._run, config)  # so that context variables are forgotten, too

    def _run(self, config: dict[str, Any]) -> None:
        train_loop = self._code.load()
        gc.enable()
        self.config = noted(config)
        train_loop(self.config)

    def clean(self) -> None:
        """Clear away what the trial has left."""
        self.config = None
        try:
            self._leftovers.end()  # first, since it may run code of the trial
            if self._folders is not None:
                self._folders.empty()
            self._switches.restore()
            forget_changed(is_own)
            self._code.forget()
            release_memory()
            self.problems += self._leftovers.find()
            fresh_start(0)  # so that the switches that it sets back are not taken for differences
            self.problems += self._switches.differences()
        except USER_CODE_ERRORS as error:  # the trial's objects are asked and ended here, and may raise anything
            logger.warning("what a trial has left could not be cleared away", exc_info=True)
            self.problems.append(f"clearing away what a trial left has failed ({type(error).__name__}: {error})")
