"""A class of Ray Tune's, a ``tune.Trainable`` with ``step()``, as a train loop."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from gaudi_tune.base import names
from gaudi_tune.training.checkpoint import read_seal
from gaudi_tune.training.session import get_checkpoint, report, trial_folder

if TYPE_CHECKING:
    from ray import tune

DICT_FILE = "class_state.pkl"
"""The file in a checkpoint's folder with the dict that ``save_checkpoint()`` returned."""


class ClassLoop:
    """Makes an object of a class for each trial, and reports what each ``step()`` returns.

    A trial that continues, perhaps with other hyperparameters, gets a new object, which loads the checkpoint.
    ``reset_config()`` is therefore never called.
    """

    def __init__(self, trainable: type[tune.Trainable]) -> None:
        """Take the class, and its module, by which an experiment is named."""
        self.trainable = trainable
        self.__module__ = trainable.__module__

    def __call__(self, config: dict[str, Any]) -> None:
        """Train until a step says ``done``, or the sweep ends the trial."""
        from ray.tune.trainable import Trainable

        from gaudi_tune.private.ray_tune import new_trainable, set_iteration

        trainable = new_trainable(self.trainable, config, trial_folder())
        saves = self.trainable.save_checkpoint is not Trainable.save_checkpoint
        loads = self.trainable.load_checkpoint is not Trainable.load_checkpoint
        try:
            if loads and (checkpoint := get_checkpoint()) is not None:
                set_iteration(trainable, read_seal(folder := Path(checkpoint.path)).report)
                _load(trainable, folder)
            result: dict[str, Any] = {}
            while not result.get(names.DONE):
                result = trainable.step()
                set_iteration(trainable, trainable.training_iteration + 1)
                trainable.log_result(result)
                report(result, save=partial(_save, trainable) if saves else None)
        finally:
            trainable.stop()


def _save(trainable: tune.Trainable, folder: Path) -> None:
    saved = trainable.save_checkpoint(str(folder))
    if isinstance(saved, dict):
        (folder / DICT_FILE).write_bytes(cloudpickle.dumps(saved))
    elif saved not in (None, str(folder)):
        raise ValueError(
            f"save_checkpoint() must return a dict, or None after it has written into the folder that it got, but "
            f"returned {saved!r}"
        )


def _load(trainable: tune.Trainable, folder: Path) -> None:
    file = folder / DICT_FILE
    trainable.load_checkpoint(cloudpickle.loads(file.read_bytes()) if file.exists() else str(folder))
