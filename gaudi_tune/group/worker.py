"""A worker of a warm group: it runs the train loop for one trial after another, as commands tell it.

Commands and reports are plain data. The trial actor puts commands into each worker's
:class:`~gaudi_tune.group.mailbox.Mailbox` and takes the reports out of it:

    command                                  report that answers it
    {"do": "start", config, checkpoint, ...} "metrics" of the first epoch, "finished" or "error"
    {"do": "continue"}                       "metrics" of the next epoch, "finished" or "error"
    {"do": "save", path, node}               "saved", with the checkpoint if the trial actor is on another node
    {"do": "exit"}                           none: the workers return and the TorchTrainer ends
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import psutil
import ray
from ray.train import Checkpoint

from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.base.files import retry_while_disk_is_full
from gaudi_tune.base.trial_output import begin_prints
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.device_metrics import DeviceMetrics, TrialCounts
from gaudi_tune.devices.find import DEVICE
from gaudi_tune.group.checkpoint_archive import pack, unpack
from gaudi_tune.group.clean.cleaner import Cleaner, TrialFolders
from gaudi_tune.group.errors import failure_of_loop
from gaudi_tune.group.last_written_checkpoint import LastWritten
from gaudi_tune.group.mailbox import MAILBOX
from gaudi_tune.private import ray_train
from gaudi_tune.private.ray_tasks import tasks_outside_trial
from gaudi_tune.private.torch import process_group_kept
from gaudi_tune.training.end_notice import NoticeBoard
from gaudi_tune.training.noted_config import unread_keys
from gaudi_tune.training.session import (
    ON_EVERY_RANK,
    SaveFunction,
    WrittenCheckpoint,
    get_checkpoint,
    get_context,
    open_session,
    report,
)

logger = logging.getLogger(__name__)


def serve_trials(config: dict[str, Any]) -> None:
    """Run the train loop for one trial after another, as commands tell it. This is the TorchTrainer's train loop."""
    device: DeviceType = config["device"]
    tasks_outside_trial()
    os.environ.update({**config["environment"], DEVICE: device.kind})
    device.torch_device()
    device.synchronize()  # acquires the device here: an error fails the group, which is retried, and not a trial
    if config["trials_per_device"] > 1:
        device.limit_memory(config["trials_per_device"])
    index = device.own_index()
    device_metrics = DeviceMetrics(device, index)
    measured = _Measured(device_metrics)
    try:
        with process_group_kept():  # before anything is imported from torch
            cleaner = Cleaner(config["train_loop"], _trial_folders())
            place = {"node": ray.get_runtime_context().get_node_id(), "index": index}
            command = MAILBOX.hand_in({"kind": "idle", **place, **MAILBOX.introduction()})
            while command["do"] == "start":
                if cleaner.problems:
                    _fail(Failure(FailureKind.NOT_CLEAN, f"an earlier trial has left something: {cleaner.problems[0]}"))
                with _checkpoint_here(command) as checkpoint:
                    command = _run_trial(cleaner, {**command, "checkpoint": checkpoint}, measured, device)
    finally:
        device_metrics.close()


def _trial_folders() -> TrialFolders | None:
    """Return the folders of this worker's trials; None if Ray runs them where the sweep was started."""
    folder = Path.cwd()  # one for each group and node, of Ray's making
    if folder == MAILBOX.started_in:
        return None
    return TrialFolders(folder, may_remove=get_context().get_local_rank() == 0)


@contextmanager
def _checkpoint_here(start: dict[str, Any]) -> Iterator[str | None]:
    """Yield the folder on this node of the checkpoint from which a trial starts; None if it has none."""
    if start["archive"] is None or start["archive_from"] == ray.get_runtime_context().get_node_id():
        start["archive"] = None
        yield start["checkpoint"]
        return
    with tempfile.TemporaryDirectory(prefix="checkpoint-of-trial-") as folder:
        archive = ray.get(start.pop("archive"))  # Ray keeps it as long as this process has the reference
        retry_while_disk_is_full(partial(unpack, archive, Path(folder)), f"a checkpoint in {folder}")
        del archive
        yield folder


@dataclass
class _Measured:
    """What a worker measures of its device."""

    metrics: DeviceMetrics
    residue: float | None = None
    """The share of the device's memory that the last trial left behind, and half of that of the host's; None before the
    first has ended."""


class TrialStopped(BaseException):
    """Raised out of ``report()`` to end a trial. Not an Exception: a loop's ``except Exception`` must let it pass."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.command = command


class _WarmSession:
    """Answers the loop's reports with the commands of the trial actor."""

    def __init__(self, measured: _Measured, start: Mapping[str, Any], counts: TrialCounts, cleaner: Cleaner) -> None:
        self._measured, self._counts, self._cleaner, self.folder = measured, counts, cleaner, Path(start["folder"])
        checkpoint = start["checkpoint"]
        with suppress(OSError):  # another node may not see the folder, and may not let this user make one
            self.folder.mkdir(parents=True, exist_ok=True)
        self._notices = NoticeBoard(self.folder, start["node"], start["reports"])
        self._checkpoint = Checkpoint.from_directory(checkpoint) if checkpoint else None
        self._save: SaveFunction | None = None
        saves = checkpoint is not None and get_context().get_world_rank() == 0
        self.last_written = LastWritten(self.folder, Path(checkpoint) if checkpoint and saves else None)
        self._process = os.getpid()
        self._checkpoint_read = False  # whether the loop has called get_checkpoint()
        self.ended_by: dict[str, Any] | None = None
        """The command that ended the trial while its loop ran. Whatever the loop does afterwards is ignored."""

    def report(self, metrics: Mapping[str, Any], save: SaveFunction | None) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("report() must be called in the worker itself, and not in a process that it has forked")
        if self.ended_by is not None:  # the loop swallowed the stop, or reports as it cleans up
            raise TrialStopped(self.ended_by)
        self._save = self.last_written.to_save(save)
        sampled = self._measured.metrics.take()
        counted = self._counts.add_to_report(metrics, sampled)
        device = {"system": sampled, "residue": self._measured.residue}
        saves = {"saves": self._save is not None, "behind": self.last_written.behind}
        reads = {"reads_checkpoint": self._checkpoint_read, "unread": unread_keys(self._cleaner.config)}
        loop = {**saves, **reads}
        command = self._answer({"kind": "metrics", "metrics": counted, **loop, **device})
        self._notices.reports += 1
        if command["do"] != "continue":
            self.ended_by = command
            raise TrialStopped(command)
        if isinstance(save, WrittenCheckpoint):
            self.last_written.copy_written(save)

    def save_if_asked(self, save: SaveFunction) -> None:
        if get_context().get_world_rank() == 0 and self.ended_by is None:
            self._notices.save_if_asked(save)
            if MAILBOX.wants_save():
                MAILBOX.hand_over(self._saved_now(save))

    def _saved_now(self, save: SaveFunction) -> dict[str, Any]:
        """Return a checkpoint and how many reports the trial has made; {} if there is no room for it."""
        with suppress(OSError):
            return {"archive": _saved_archive(save), "reports": self._notices.reports}
        return {}

    def finished(self) -> dict[str, Any]:
        """Report that the loop returned, and return the command that ends the trial."""
        return self.ended_by or self._answer({"kind": "finished"})

    def get_checkpoint(self) -> Checkpoint | None:
        self._checkpoint_read = True
        return self._checkpoint

    def _answer(self, report: dict[str, Any]) -> dict[str, Any]:
        command = MAILBOX.hand_in(report)
        while command["do"] == "save":
            archive = None
            if get_context().get_world_rank() == 0 or isinstance(self._save, ON_EVERY_RANK):
                archive = self._saved(command["path"], command["node"])
            command = MAILBOX.hand_in({"kind": "saved", "archive": archive})
        return command

    def _saved(self, path: str, node: str) -> bytes | None:
        """Save into a folder of a node, and return the files where this is another node."""
        if self._save is None:
            raise ValueError("a checkpoint is wanted, and report() has neither save= nor checkpoint=; add one")
        if node != ray.get_runtime_context().get_node_id():
            return retry_while_disk_is_full(partial(_saved_archive, self._save), "a checkpoint in /tmp")
        retry_while_disk_is_full(partial(_save_into, Path(path), self._save), f"a checkpoint in {path}")
        return None


def _saved_archive(save: SaveFunction) -> bytes:
    """Have a loop save for a trial actor on another node, and return the checkpoint."""
    with tempfile.TemporaryDirectory(prefix="checkpoint-to-pass-") as folder:
        save(Path(folder))
        return pack(Path(folder))


def _save_into(directory: Path, save: SaveFunction) -> None:
    """Have a loop save into an empty folder: an earlier attempt, which found the disk full, may have left files.

    Parts have the same names again, and other ranks write theirs.
    """
    if not isinstance(save, ON_EVERY_RANK):
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    save(directory)


def _run_trial(cleaner: Cleaner, start: dict[str, Any], measured: _Measured, device: DeviceType) -> dict[str, Any]:
    """Run one trial to its end, clear away what it leaves behind, and return the next command."""
    session = _WarmSession(measured, start, TrialCounts(device), cleaner)
    begin_prints(session.folder)
    measured.metrics.take()  # the time between two trials belongs to neither
    try:
        continues = start["checkpoint"] is not None
        with open_session(session), ray_train.answered_by(report, get_checkpoint, session.folder, continues=continues):
            cleaner.run(start["config"], session.folder.name)
        next_command = session.finished()
    except TrialStopped as stopped:
        next_command = stopped.command
        stopped.__traceback__ = None  # it holds the loop's frames, and they hold the model
    except BaseException as error:  # the user's loop, which may raise anything, also SystemExit
        out_of_memory = device.is_out_of_memory(error)
        failure = failure_of_loop(error, out_of_memory=out_of_memory, started_in=MAILBOX.started_in)
        if session.ended_by is None:
            _fail(failure)
        logger.warning("a trial that was stopped has failed as it cleaned up:\n%s", failure.text)
        next_command = session.ended_by
    finally:
        session.last_written.forget()
    MAILBOX.hand_over({})
    del session
    cleaner.clean()
    device.free_cached_memory()
    # A later trial may be the first to import a large library, for which a host has more room than a device.
    measured.residue = psutil.Process().memory_percent() / 200
    if device.measures_memory:
        measured.residue += device.memory_in_use()
    return next_command


def _fail(failure: Failure) -> NoReturn:
    """Hand in why the trial cannot continue, and end the group."""
    MAILBOX.fail(failure)
    # Not the error itself: if it cannot be pickled and read back, Ray Train takes its worker for lost, and a SystemExit
    # would end Ray Train, too.
    raise RuntimeError(failure.text) from None
