"""A warm worker group: the workers of one TorchTrainer, which stay alive while they run trial after trial.

The trial actor owns the group and runs its TorchTrainer in a thread. It sends every worker the same command, and each
worker answers with a report; ``worker.py`` lists them.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from typing_extensions import Self

from gaudi_tune.base import names
from gaudi_tune.base.awaited import Awaited
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.group.checkpoint_archive import pack, unpack
from gaudi_tune.group.device_numbers import lower_numbers_booked
from gaudi_tune.group.errors import (
    LOSS_ERRORS,
    DevicesNotReadyError,
    MisplacedError,
    StartHungError,
    WorkerGroupError,
    WorkerRaisedError,
    WorkersLostError,
    failure_of,
    is_loss,
)
from gaudi_tune.group.report_check import check_all_report
from gaudi_tune.group.trainer import START_TIMEOUT_S, WorkerGroupSpec
from gaudi_tune.private.ray_core import free_own
from gaudi_tune.private.ray_train import timed_out
from gaudi_tune.private.surfaces import holds
from gaudi_tune.training.end_notice import notice_for, save_between

logger = logging.getLogger(__name__)

PAUSES_S = (2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait before each retry to get devices that are being released. Their sum is above the 60 s that habana may
take to close a device, and for which it waits itself before it says that a device is busy."""
EXIT_TIMEOUT_S = 90
"""How long the workers may take to end after "exit", of which closing HPUs may take 75 s (``LEAVE_WITHIN_S``). After
that they are left to Ray, which ends them with their owner."""
CHECK_EVERY_S = 1.0
"""How often to check, while waiting for the workers, that they are still alive."""
RESIDUE_MAY_GROW = 0.05
"""Share of a device's memory by which the residue of trials may grow after a group's first trial. Whether memory leaks
on a Gaudi when one process builds model after model is not published. Of the host's memory it is twice as much."""
DIAGNOSED_WITHIN_S = 15
"""How long Ray Train may take to find out why a worker failed. It looks at the workers every 2 s, each time from the
beginning, and what it finds says more than the error of one worker: that another worker's process is gone."""


class WorkerGroup:
    """The trial actor's side of a group. Methods block until every worker has answered."""

    def __init__(self, spec: WorkerGroupSpec, name: str) -> None:
        """Prepare the thread of the TorchTrainer; :meth:`start` starts it."""
        self._node = ray.get_runtime_context().get_node_id()
        self._failure: BaseException | None = None
        self._hung_after_s = spec.hung_after_s
        self._workers: list[Any] = []
        self._processes: list[Any] = []
        """The workers themselves, which are not what is called if their mailboxes are elsewhere."""
        self._places: list[tuple[str, int | None]] = []
        """The node and the device's number of each worker, by rank."""
        self._have_devices, self._have_started = threading.Event(), threading.Event()
        self._leaving, self._abandoned = threading.Event(), False
        self._first_residue: float | None = None
        self._residue = 0.0
        self._trial = Path()
        """The folder of the trial."""
        self._saved_for: int | None = None
        """The time of the notice for which a trial on another node was to save."""
        self._saving: ray.ObjectRef | None = None
        """What it saves for that."""
        self.used = False
        """Whether the workers have begun a trial."""
        self._trainer = threading.Thread(target=self._run_trainer, args=(spec, name), name=name, daemon=True)

    @classmethod
    def start(cls, spec: WorkerGroupSpec, name: str, note: Callable[[Awaited], None] = lambda _: None) -> Self:
        """Start a group, and wait for the first reports of its workers. ``note`` gets what is awaited.

        Raises:
            WorkerRaisedError: They could not be set up.
            WorkersLostError: They were lost while they started.
            DevicesNotReadyError: They could not start, and may be able to start later.
            StartHungError: They have not reported for so long that they must hang.
        """
        logger.info("starting %s: %d workers on %s", name, spec.num_workers, spec.device.kind)
        group = cls(spec, name)
        note("devices")
        try:
            with lower_numbers_booked(spec.device.resource, spec.numbers):
                group._trainer.start()
                group._wait_until(group._have_devices)
            note("workers")
            reports = group._first_reports()
            group._places = [(report["node"], report["index"]) for report in reports]
            pairs = zip(reports, group._workers, strict=True)
            group._processes = [report.get("worker", worker) for report, worker in pairs]
            group._check_placement(spec, name)
        except WorkerGroupError as error:
            group.exit()
            # The text decides: habana has no type for a device that another process still has.
            if spec.device.is_being_released(str(error)) or timed_out(group._failure):
                raise DevicesNotReadyError(error.failure.text) from error
            raise
        return group

    @classmethod
    def start_when_free(
        cls, spec: WorkerGroupSpec, name: str, note: Callable[[Awaited | None], None], *, waits: bool
    ) -> Self:
        """Start a group as :meth:`start` does, and wait for devices that another process is still releasing.

        Without ``waits`` only a group that was misplaced is tried again.
        """
        for pause_s in PAUSES_S:
            try:
                return cls.start(spec, name, note)
            except DevicesNotReadyError as error:  # noqa: PERF203  (each attempt takes seconds)
                if not waits and not isinstance(error, MisplacedError):
                    raise
                reason = str(error).strip().splitlines()[-1]
                logger.warning("%s: trying again in %.0f s (%s)", name, pause_s, reason)
                time.sleep(pause_s)
        return cls.start(spec, name, note)

    @property
    def devices(self) -> str:
        """The devices of the workers, in the format of :data:`names.DEVICES`."""
        return " ".join(
            names.NODE_DEVICE.format(node=node, index="" if index is None else index) for node, index in self._places
        )

    @property
    def outgrown(self) -> bool:
        """Whether trials have left so much in the memory of a device or of the host that the next one should get new
        workers."""
        return self._first_residue is not None and self._residue - self._first_residue > RESIDUE_MAY_GROW

    def start_trial(
        self, config: Mapping[str, Any], checkpoint: str | None, folder: str = "", reports: int = 0
    ) -> dict[str, Any]:
        """Start a trial, ending the one that runs, and return its first report.

        Args:
            config: The configuration of the trial.
            checkpoint: The folder on this node of the checkpoint that it starts from; None for a new trial.
            folder: The folder of the trial on this node; other nodes may see it or not.
            reports: How many reports it had made when the checkpoint was written.
        """
        # The first trial imports what the loop needs, which may take as long as the start of the workers.
        import_s, self.used = 0 if self.used else START_TIMEOUT_S, True
        node_of_rank_0, _ = self._places[0]
        self._trial, self._saved_for, self._saving = Path(folder), None, None
        trial = {"config": dict(config), "checkpoint": checkpoint, "folder": folder, "reports": reports}
        archive = None
        if checkpoint is not None and any(node != self._node for node, _ in self._places):
            archive = ray.put(pack(Path(checkpoint)))  # once for all workers; Ray keeps it until they have answered
        command = {"do": "start", "node": node_of_rank_0, "archive": archive, "archive_from": self._node, **trial}
        return self._send(command, import_s)

    def next_report(self) -> dict[str, Any]:
        """Let the trial continue, and return its next report."""
        return self._send({"do": "continue"})

    def save(self, directory: str) -> None:
        """Write a checkpoint of the trial, which is waiting or has finished, into ``directory`` on this node."""
        for archive in self._send({"do": "save", "path": directory, "node": self._node})["archives"]:
            unpack(archive, Path(directory))

    def exit(self) -> None:
        """Let the workers end by themselves, so that each releases its device."""
        self._leaving.set()
        if self._trainer.is_alive():
            self._have_workers_end()
            self._trainer.join(EXIT_TIMEOUT_S)
        self._abandoned = self._trainer.is_alive()
        if self._abandoned:
            logger.warning("%s: the workers did not end within %d s", self._trainer.name, EXIT_TIMEOUT_S)
        self._workers, self._processes = [], []  # a handle keeps its actor's process alive

    def _check_placement(self, spec: WorkerGroupSpec, name: str) -> None:
        """Check that the devices are those that were asked for, and that those on each node may train together."""
        device = spec.device
        got = sorted(index for _, index in self._places if index is not None)
        if spec.numbers and got != sorted(spec.numbers):
            raise MisplacedError(f"Ray gave it {device.kind} {got} in place of {sorted(spec.numbers)}")
        indices_by_node: dict[str, list[int]] = {}
        for node, index in self._places:
            if index is not None:
                indices_by_node.setdefault(node, []).append(index)
        for indices in indices_by_node.values():
            if reason := device.placement_problem(indices, nodes=len(indices_by_node)):
                raise DevicesNotReadyError(reason)
            logger.info("%s: %s %s", name, device.kind, indices)

    def _first_reports(self) -> list[dict[str, Any]]:
        ends_at = time.monotonic() + START_TIMEOUT_S + self._hung_after_s if self._hung_after_s else math.inf
        self._wait_until(self._have_started, ends_at)
        return self._wait([worker.report.remote() for worker in self._workers], ends_at)

    def _wait_until(self, event: threading.Event, ends_at: float = math.inf) -> None:
        """Wait for an event of the start, as long as the trainer runs."""
        while not event.wait(CHECK_EVERY_S):
            self._check_alive()
            if time.monotonic() > ends_at:
                raise StartHungError(f"{self._no_report()}: the workers hang while they start")

    def _send(self, command: dict[str, Any], import_s: float = 0) -> dict[str, Any]:
        ends_at = time.monotonic() + self._hung_after_s + import_s if self._hung_after_s else math.inf
        reports = self._wait([worker.answer.remote(command) for worker in self._workers], ends_at)
        check_all_report(reports)
        rank_0 = reports[0]
        for report in reports:  # each worker measures its own device
            rank_0.get("metrics", {}).update(report.get("system", {}))
        # Only reports of metrics have a residue, and only after the worker's first trial has ended.
        residues = [report["residue"] for report in reports if report.get("residue") is not None]
        if residues:
            self._residue = max(residues)
            if self._first_residue is None:  # a residue of 0.0 is one, too
                self._first_residue = self._residue
        return {**rank_0, "archives": [report["archive"] for report in reports if report.get("archive")]}

    def _wait(self, references: list[ray.ObjectRef], ends_at: float) -> list[dict[str, Any]]:
        """Return the reports of all ranks, in order.

        The first error ends the wait: it causes those of other ranks, or they wait for its rank in a collective and
        never report.
        """
        reports: dict[ray.ObjectRef, dict[str, Any]] = {}
        pending = references
        while pending:
            ready, pending = ray.wait(pending, timeout=CHECK_EVERY_S)
            for reference in ready:
                reports[reference] = self._read_report(reference)
            if not ready:
                self._check_alive()
                self._pass_notice()
            if pending and time.monotonic() > ends_at:
                for process in self._processes or self._workers:
                    ray.kill(process)
                raise WorkersLostError(f"{self._no_report()}: the workers hung and were killed")
        return [reports[reference] for reference in references]

    def _pass_notice(self) -> None:
        """Have a trial whose rank 0 is on another node save if the sweep was given notice, and write what it saves.

        A node that sees the folder of the sweep does so by itself.
        """
        if not self.used or self._places[0][0] == self._node:
            return
        if self._saving is not None and ray.wait([self._saving], timeout=0)[0]:
            with suppress(OSError, *LOSS_ERRORS):  # then the trial continues from its last checkpoint
                saved = ray.get(self._saving)
                if saved:
                    save_between(self._trial, saved["reports"], partial(unpack, saved["archive"]))
                elif saved is not None:  # there was no room, or it was the trial before: it is asked again
                    self._saved_for = None
            self._saving = None
        notice_time = notice_for(self._trial.parent, self._places[0][0])
        if notice_time not in (None, self._saved_for):
            self._saved_for = notice_time
            self._saving = self._workers[0].save_now.remote(str(self._trial.parent))

    def _read_report(self, reference: ray.ObjectRef) -> dict[str, Any]:
        """Return a report that has arrived.

        Raises:
            WorkerRaisedError: It is the report of an error.
            WorkersLostError: The worker is gone, or the group is ending.
        """
        try:
            report: dict[str, Any] = ray.get(reference)
        except LOSS_ERRORS as error:
            self._trainer.join(DIAGNOSED_WITHIN_S)
            self._check_alive()
            loss = failure_of(error)
            raise WorkersLostError(replace(loss, text=f"a worker is gone: {loss.text}")) from error
        if report["kind"] == "ending":
            self._trainer.join(EXIT_TIMEOUT_S)  # then its failure says why
            self._check_alive()
            raise WorkersLostError("the workers do not end")
        if report["kind"] == "error":
            # The rank may have failed only because another one is gone, and then the trainer fails with that.
            self._trainer.join(DIAGNOSED_WITHIN_S)
            failure = Failure.from_plain(report["failure"])
            if self._failure is None or not is_loss(self._failure):
                raise WorkerRaisedError(failure)
            loss = failure_of(self._failure)
            raise WorkersLostError(replace(loss, text=f"{failure.text}\n{loss.text}"))
        return report

    def _check_alive(self) -> None:
        if self._trainer.is_alive():
            return
        if self._failure is None:
            raise WorkerRaisedError(Failure(FailureKind.GROUP_ERROR, "the worker group ended without an error"))
        failure = failure_of(self._failure)
        error_class = WorkersLostError if is_loss(self._failure) else WorkerRaisedError
        raise error_class(replace(failure, text=f"the worker group ended: {failure.text}")) from self._failure

    def _no_report(self) -> str:
        return f"no report for {self._hung_after_s / 60:g} minutes"

    def _take_workers(self, workers: list[Any]) -> None:
        """Take the workers, in the order of ranks. The TorchTrainer's thread calls this."""
        self._workers = workers
        self._have_started.set()
        if self._leaving.is_set():
            self._have_workers_end()

    def _have_workers_end(self) -> None:
        for worker in self._workers:
            worker.end.remote()

    def _make_trainer(self, spec: WorkerGroupSpec, name: str) -> Any:
        """Return the TorchTrainer. A stock one does not say when its workers have devices, or run."""
        if holds("lean-trainer"):
            from gaudi_tune.group.lean_trainer import lean_trainer
            from gaudi_tune.private.ray_train_torch import Hooks

            return lean_trainer(spec, name, Hooks(self._have_devices.set, self._take_workers, self._leaving))
        from gaudi_tune.group.stock_trainer import stock_trainer

        trainer, mailboxes = stock_trainer(spec, name)
        self._have_devices.set()
        self._take_workers(mailboxes)
        return trainer

    def _run_trainer(self, spec: WorkerGroupSpec, name: str) -> None:
        try:
            self._make_trainer(spec, name).fit()
        except BaseException as error:  # of the user's loop or of Ray, in a thread
            self._failure = error  # raised to the trial by the thread that waits for the workers
        finally:
            if not self._abandoned:  # otherwise this actor's bookings are the next group's by now
                free_own()
