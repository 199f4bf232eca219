"""The contract between a train loop and whatever runs it: report, checkpoint, rank.

The same loop runs unchanged in three places, and these functions detect where they are called:

- in a warm worker group, which opens a :class:`Session` around the call of the loop;
- in a plain ``TorchTrainer``, where they call ``ray.train``;
- in this process, without Ray, for debugging: there is one worker, metrics are logged, and nothing is saved.

``ray.train`` is imported inside functions: it takes seconds, and every process of a sweep imports this module.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gaudi_tune.base.files import is_disk_full
from gaudi_tune.training.report_values import plain_report

if TYPE_CHECKING:
    from ray.train import Checkpoint, TrainContext

logger = logging.getLogger(__name__)

TrainLoop = Callable[[dict[str, Any]], None]
"""A train loop: takes the configuration of a trial, and reports through :func:`report` or ``ray.train.report``."""
SaveFunction = Callable[[Path], None]
"""A function that writes the state of the trial into a directory, which exists and is empty. It runs only on rank 0,
unless it is :class:`Sharded`."""


class Session(Protocol):
    """The caller of a loop, which receives its reports."""

    folder: Path
    """The trial's folder in the storage of the sweep."""

    def report(self, metrics: Mapping[str, Any], save: SaveFunction | None) -> None:
        """Take the metrics of one epoch, and return when the trial may continue."""

    def get_checkpoint(self) -> Checkpoint | None:
        """Return the checkpoint that the trial starts from; None for a new trial."""

    def save_if_asked(self, save: SaveFunction) -> None:
        """Save between two reports if the machine will be gone soon."""


_session: Session | None = None


@dataclass(frozen=True)
class WrittenCheckpoint:
    """A checkpoint that a loop has written itself, as a :data:`SaveFunction`."""

    folder: Path

    def __call__(self, directory: Path) -> None:
        """Copy the checkpoint. Where several ranks have a file of one name, as of a random state, rank 0's counts."""
        shutil.copytree(self.folder, directory, dirs_exist_ok=True, copy_function=_copy_whole)


def _copy_whole(source: str, target: str) -> None:
    """Copy a file that other ranks may be copying to the same place: two that write into one file would tear it."""
    partial_file = Path(f"{target}.{os.getpid()}.partial")
    shutil.copy2(source, partial_file)
    if get_context().get_world_rank() == 0 or not Path(target).exists():
        partial_file.replace(target)
    else:
        partial_file.unlink()


@dataclass(frozen=True)
class Sharded:
    """A :data:`SaveFunction` that every rank calls, each with its part of a sharded model: for ``report(save=...)``.

    All write into one folder, as ``torch.distributed.checkpoint`` does, or each into a folder of its node, whose files
    are then brought together. The checkpoint counts when all have written. A trial that continues, on any number of
    workers, finds all parts on each of its nodes. ``docs/llm.md`` has an example.

    >>> import torch
    >>> import torch.distributed.checkpoint as dcp
    >>> from gaudi_tune import Sharded, report
    >>> def save(folder):
    ...     dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id=folder)
    >>> model, step = torch.nn.Linear(2, 1), 7
    >>> report({"loss": 0.5}, save=Sharded(save))
    """

    write: SaveFunction

    def __call__(self, directory: Path) -> None:
        """Write this rank's part.

        Raises:
            OSError: A disk was full, on every rank, so that all try again together.
        """
        from torch.distributed.checkpoint.api import CheckpointException

        try:
            self.write(directory)
        except CheckpointException as error:  # no Exception, and without the causes of the other ranks' errors
            if full := next((cause for cause, _ in error.failures.values() if is_disk_full(cause)), None):
                raise OSError(*full.args) from error
            raise


ON_EVERY_RANK = (Sharded, WrittenCheckpoint)
"""What each rank saves that has it: a folder that a rank has written may have its part alone, as in Ray Train."""


@contextmanager
def open_session(session: Session) -> Iterator[None]:
    """Make ``session`` serve the loop that is called inside the block."""
    global _session
    previous, _session = _session, session
    try:
        yield
    finally:
        _session = previous


def report(
    metrics: Mapping[str, Any], checkpoint: Checkpoint | None = None, *, save: SaveFunction | None = None
) -> None:
    """Report the metrics of one epoch. Every rank must call it; the metrics of rank 0 count.

    In a warm worker group the call returns when the scheduler lets the trial continue. If the trial is stopped, it
    raises an exception through the loop, so that ``finally`` blocks and context managers run.

    >>> from gaudi_tune import report
    >>> def train_loop(config):
    ...     for epoch in range(1, 3):
    ...         loss = config["lr"] / epoch  # train your epoch here
    ...         report({"loss": loss, "epoch": epoch}, save=lambda folder: (folder / "epoch").write_text(str(epoch)))
    >>> train_loop({"lr": 0.1})  # without a sweep, metrics are logged and nothing is saved

    Args:
        metrics: Numbers by name, also as tensors without dimensions. A non-finite objective or loss ends the trial as
            failed.
        checkpoint: A checkpoint that is already written, as in loops for Ray Train; if several ranks give one, all
            files together. Prefer ``save``.
        save: Writes a checkpoint. It is called only when the sweep requests one. A plain TorchTrainer cannot request
            one, so there it is called at every report.

    Raises:
        ValueError: The metrics are not a mapping, a name is not a text, or a metric is neither a number nor a text.
    """
    plain = plain_report(metrics)
    if checkpoint is not None and save is None:
        save = WrittenCheckpoint(Path(checkpoint.path))
    if _session is not None:
        _session.report(plain, save)
    elif _in_ray_train():
        _report_to_ray_train(plain, save)
    else:
        logger.info("%s", plain)


def save_if_asked(save: SaveFunction) -> None:
    """Save the trial between two reports if its machine will be gone soon; call it after each step, on every rank.

    A :class:`Sharded` trial is not saved between reports: ranks would have to agree after each step whether to.

    Without it a trial saves at its next report, which may be too late. ``save`` writes what :func:`get_checkpoint`
    returns when the trial continues, so it must also write how far the trial is.

    >>> from gaudi_tune import save_if_asked
    >>> for step in range(3):  # train a step in each round
    ...     save_if_asked(lambda folder: (folder / "step").write_text(str(step)))
    """
    if _session is not None and not isinstance(save, Sharded):
        _session.save_if_asked(save)


def get_checkpoint() -> Checkpoint | None:
    """Return the checkpoint that the trial starts from; None for a new trial.

    >>> from pathlib import Path
    >>> from gaudi_tune import get_checkpoint
    >>> checkpoint = get_checkpoint()
    >>> 0 if checkpoint is None else int(Path(checkpoint.path, "epoch").read_text())  # the epochs trained so far
    0
    """
    if _session is not None:
        return _session.get_checkpoint()
    if not _in_ray_train():
        return None
    from ray import train

    return train.get_checkpoint()


def trial_folder() -> Path:
    """Return the trial's folder in the storage of the sweep; the current folder if no sweep runs the loop."""
    return Path() if _session is None else _session.folder


def get_context() -> TrainContext | LocalContext:
    """Return this worker's place in its group: ``get_world_rank()``, ``get_world_size()``, ``get_local_rank()``."""
    if not _in_ray_train():
        return LocalContext()
    from ray import train

    return train.get_context()


@dataclass(frozen=True)
class LocalContext:
    """The context of a loop that runs without Ray. It has those methods of Ray Train's context that loops call."""

    def get_world_size(self) -> int:
        """Return the number of workers."""
        return 1

    def get_world_rank(self) -> int:
        """Return this worker's rank among all workers."""
        return 0

    def get_local_rank(self) -> int:
        """Return this worker's rank on its node."""
        return 0


def _in_ray_train() -> bool:
    from ray import train

    try:
        train.get_context()
    except (RuntimeError, DeprecationWarning):  # outside of Ray; in a function trainable of Ray Tune
        return False
    return True


def _report_to_ray_train(metrics: Mapping[str, Any], save: SaveFunction | None) -> None:
    from ray import train

    if save is None or (train.get_context().get_world_rank() != 0 and not isinstance(save, ON_EVERY_RANK)):
        train.report(dict(metrics))
        return
    with tempfile.TemporaryDirectory() as directory:
        save(Path(directory))
        train.report(dict(metrics), checkpoint=train.Checkpoint.from_directory(directory))
