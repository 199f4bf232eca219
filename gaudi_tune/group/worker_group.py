"""A warm worker group: the workers of one TorchTrainer, kept alive while trial after trial passes through them.

The trial actor owns the group and controls its TorchTrainer. It sends each worker the same command and takes the report
that answers it (``worker.py`` has them all).
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from gaudi_tune.base import names
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.group.device_backend import DeviceBackendConfig, RanksByDevice
from gaudi_tune.group.errors import (
    CANNOT_USE,
    GONE,
    DevicesNotReadyError,
    StartHungError,
    WorkerGroupError,
    WorkerRaisedError,
    WorkersLostError,
    is_loss,
    text_of,
    timed_out,
)
from gaudi_tune.group.mailbox import WarmWorker
from gaudi_tune.private import ray_train
from gaudi_tune.private.ray_core import free_own
from gaudi_tune.private.ray_train_torch import HandOver, LeanTorchTrainer

if TYPE_CHECKING:
    from gaudi_tune.group.worker import TrainLoop
    from gaudi_tune.training.profiling import Profile

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 600
"""How long the workers may take to start. A loaded machine needs more than Ray's own limit, 60 s, and Ray would retry
for ever."""
EXIT_TIMEOUT_S = 90
"""How long the workers may take to end after "exit"; those on HPUs may take 75 s of it (``LEAVE_WITHIN_S``). Then they
are left to Ray, which ends them with their owner."""
FREE_WITHIN_S = 10.0
"""How long to wait for devices of certain numbers, which a trial that has just ended may still have. Another may have
taken them since they were chosen."""
CHECK_EVERY_S = 1.0
"""How often to check, while waiting for the workers, that they are still alive."""
RESIDUE_MAY_GROW = 0.05
"""Share of a device's memory by which the residue of trials may grow, from a group's first trial on. Nobody has
published whether memory leaks on a Gaudi when one process builds model after model."""
FAILURE_KNOWN_WITHIN_S = 15
"""How long Ray Train may take to find out why a worker failed; it looks every 2 s."""


@dataclass(frozen=True, kw_only=True)
class WorkerGroupSpec:
    """What it takes to start a group."""

    train_loop: TrainLoop
    num_workers: int
    device: DeviceType
    storage: str
    """Folder in which the TorchTrainer keeps its own files."""
    over_nodes: bool = False
    """Whether the group takes several whole nodes; else its workers are on one."""
    hung_after_s: float = 0.0
    """How long the workers may take for a report before they count as hung and are killed; 0: for ever. Their first
    report may take :data:`START_TIMEOUT_S` longer."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the worker processes besides those of the device, set before they import torch."""
    numbers: tuple[int, ...] = ()
    """Of the devices that the group takes; empty: whichever Ray hands out."""

    @property
    def placement_strategy(self) -> str:
        """How Ray places the workers. PACK takes whole nodes if nothing else has parts of them."""
        return "PACK" if self.over_nodes else "STRICT_PACK"


class WorkerGroup:
    """The trial actor's side of a group. Methods block until every worker has answered."""

    def __init__(self, spec: WorkerGroupSpec, name: str) -> None:
        """Start the workers and wait for their first reports.

        Raises:
            WorkerRaisedError: They could not be set up.
            WorkersLostError: They were lost while they started.
            DevicesNotReadyError: They could not start, and may be able to in a while.
            StartHungError: They have not reported for so long that they must hang.
        """
        self._node = ray.get_runtime_context().get_node_id()
        self._failure: BaseException | None = None
        self._storage, self._hung_after_s = Path(spec.storage), spec.hung_after_s
        self._workers: list[Any] = []
        self._have_devices, self._have_started = threading.Event(), threading.Event()
        self._leaving = self._given_up = False
        self._first_residue: float | None = None
        self._residue = 0.0
        self._trainer = threading.Thread(target=self._run_trainer, args=(spec, name), name=name, daemon=True)
        logger.info("starting %s: %d workers on %s", name, spec.num_workers, spec.device.kind)
        try:
            with lower_booked(spec.device.resource, spec.numbers):
                self._trainer.start()
                self._wait_until(self._have_devices)
            started = self._first_reports()
            self._places: list[tuple[str, int | None]] = [(report["node"], report["index"]) for report in started]
            self._check_placement(spec, name)
        except WorkerGroupError as error:
            self.exit()
            if spec.device.is_being_released(str(error)) or timed_out(self._failure):
                raise DevicesNotReadyError(str(error)) from error
            raise

    @property
    def devices(self) -> str:
        """What the workers train on, as :data:`names.DEVICES` has it."""
        named = [names.NODE_DEVICE.format(node=node, index="" if i is None else i) for node, i in self._places]
        return " ".join(named)

    @property
    def outgrown(self) -> bool:
        """Whether trials leave so much behind in a device's memory that the next should have new workers."""
        return self._first_residue is not None and self._residue - self._first_residue > RESIDUE_MAY_GROW

    def start(
        self, config: Mapping[str, Any], checkpoint: str | None, profile: Profile | None = None
    ) -> dict[str, Any]:
        """Start a trial, ending the one that runs, and return its first report."""
        return self._send({"do": "start", "config": dict(config), "checkpoint": checkpoint, "profile": profile})

    def next_report(self) -> dict[str, Any]:
        """Let the trial go on, and return its next report."""
        return self._send({"do": "continue"})

    def save(self, directory: str) -> None:
        """Write a checkpoint of the trial into ``directory`` of this node. The trial waits, or has finished."""
        node_of_rank_0, _ = self._places[0]
        if node_of_rank_0 == self._node:
            self._send({"do": "save", "path": directory})
            return
        # Rank 0 runs on another node; both nodes see the folder of the sweep.
        self._storage.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="from-rank-0-", dir=self._storage) as shared:
            self._send({"do": "save", "path": shared})
            shutil.copytree(shared, directory, dirs_exist_ok=True)

    def exit(self) -> None:
        """Let the workers end by themselves, so that each releases its device."""
        self._leaving = True
        if self._trainer.is_alive():
            self._have_workers_end()
            self._trainer.join(EXIT_TIMEOUT_S)
        self._given_up = self._trainer.is_alive()
        if self._given_up:
            logger.warning("%s: the workers did not end within %d s", self._trainer.name, EXIT_TIMEOUT_S)
        self._workers = []  # a handle keeps its actor's process alive

    def _check_placement(self, spec: WorkerGroupSpec, name: str) -> None:
        """Check that the devices on each node may train one trial together."""
        device = spec.device
        of_node: dict[str, list[int]] = {}
        for node, index in self._places:
            if index is not None:
                of_node.setdefault(node, []).append(index)
        for indices in of_node.values():
            if reason := device.why_not_together(indices, nodes=len(of_node)):
                raise DevicesNotReadyError(reason)
            logger.info("%s: %s %s", name, device.kind, indices)

    def _first_reports(self) -> list[dict[str, Any]]:
        """Return what the workers report once they are up."""
        ends_at = time.monotonic() + START_TIMEOUT_S + self._hung_after_s if self._hung_after_s else math.inf
        self._wait_until(self._have_started, ends_at)
        return self._wait([worker.report.remote() for worker in self._workers], ends_at)

    def _wait_until(self, event: threading.Event, ends_at: float = math.inf) -> None:
        """Wait for an event of the start."""
        while not event.wait(CHECK_EVERY_S):
            self._check_alive()
            if time.monotonic() > ends_at:
                raise StartHungError(f"{self._late()}: the workers hang while they start")

    def _send(self, command: dict[str, Any]) -> dict[str, Any]:
        ends_at = time.monotonic() + self._hung_after_s if self._hung_after_s else math.inf
        reports = self._wait([worker.answer.remote(command) for worker in self._workers], ends_at)
        _check_all_report(reports)
        first = reports[0]
        for report in reports:  # each worker measures its own device
            first.get("metrics", {}).update(report.get("system", {}))
        residues = [report["residue"] for report in reports if report.get("residue") is not None]
        if residues:  # "saved" and "finished" say nothing of it, nor does a worker before its first trial has ended
            self._residue = max(residues)
            if self._first_residue is None:  # 0.0 is one, too
                self._first_residue = self._residue
        return first

    def _wait(self, references: list[ray.ObjectRef], ends_at: float) -> list[dict[str, Any]]:
        """Return all reports, by rank. The first error ends the wait: it is the cause of others', and those that wait
        for its rank in a collective never report."""
        reports: dict[ray.ObjectRef, dict[str, Any]] = {}
        pending = references
        while pending:
            ready, pending = ray.wait(pending, timeout=CHECK_EVERY_S)
            reports |= {reference: self._report_in(reference) for reference in ready}
            if not ready:
                self._check_alive()
            if pending and time.monotonic() > ends_at:
                for worker in self._workers:
                    ray.kill(worker)
                raise WorkersLostError(f"{self._late()}: the workers hung and were killed")
        return [reports[reference] for reference in references]

    def _report_in(self, reference: ray.ObjectRef) -> dict[str, Any]:
        """Return a report that is there; raise what it says of an error, or that its worker is gone."""
        try:
            report: dict[str, Any] = ray.get(reference)
        except GONE as error:
            self._trainer.join(FAILURE_KNOWN_WITHIN_S)
            self._check_alive()
            raise WorkersLostError(f"a worker is gone: {text_of(error)}") from error
        if report["kind"] == "ending":
            self._trainer.join(EXIT_TIMEOUT_S)  # it knows why
            self._check_alive()
            raise WorkersLostError("the workers do not end")
        if report["kind"] == "error":
            self._trainer.join(FAILURE_KNOWN_WITHIN_S)  # it may have failed only because another rank is gone
            lost = f"\n{text_of(self._failure)}" if is_loss(self._failure) else ""
            raise self._ended_by(report["error"] + lost)
        return report

    def _check_alive(self) -> None:
        if not self._trainer.is_alive():
            raise self._ended_by(f"the worker group ended: {text_of(self._failure)}") from self._failure

    def _ended_by(self, text: str) -> WorkerGroupError:
        return WorkersLostError(text) if is_loss(self._failure) else WorkerRaisedError(text)

    def _late(self) -> str:
        return f"no report for {self._hung_after_s / 60:g} minutes"

    def _up(self, workers: list[Any]) -> None:
        """Take the workers, by rank. The TorchTrainer's thread calls this."""
        self._workers = workers
        self._have_started.set()
        if self._leaving:
            self._have_workers_end()

    def _have_workers_end(self) -> None:
        for worker in self._workers:
            worker.end.remote()

    def _run_trainer(self, spec: WorkerGroupSpec, name: str) -> None:
        try:
            self._make_trainer(spec, name).fit()
        except BaseException as error:
            self._failure = error  # raised to the trial by the thread that waits for the workers
        finally:
            if not self._given_up:  # else what this actor has booked by now is the next group's
                free_own()

    def _make_trainer(self, spec: WorkerGroupSpec, name: str) -> LeanTorchTrainer:
        # Ray Train reads these in this process when the trainer is made.
        os.environ[ray_train.START_TIMEOUT_S] = str(START_TIMEOUT_S)
        os.environ[ray_train.ENABLE_PREEMPTION_WATCHER] = "0"  # an actor per group, for clouds that announce evictions
        ray_train.synchronize_on_demand()
        ranked = spec.device.resource not in ("CPU", "GPU")  # Ray Train ranks by GPU itself, and cores have no number
        config = {"train_loop": cloudpickle.dumps(spec.train_loop), "device": spec.device}
        return LeanTorchTrainer(
            _serve_trials,
            worker_class=WarmWorker,
            when_placed=self._have_devices.set,
            callbacks=[HandOver(self._up), *([RanksByDevice(spec.device.resource)] if ranked else [])],
            train_loop_config=config,
            backend_config=DeviceBackendConfig(device=spec.device),
            scaling_config=ScalingConfig(
                num_workers=spec.num_workers,
                use_gpu=spec.device.resource == "GPU",
                resources_per_worker=spec.device.worker_resources(),
                placement_strategy=spec.placement_strategy,
            ),
            run_config=RunConfig(
                name=name,
                storage_path=spec.storage,
                # The trial actor replaces a failed group. The second's default, -1, would wait for ever.
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
                worker_runtime_env={"env_vars": {**spec.device.worker_environment(), **spec.environment}},
            ),
        )


def _check_all_report(reports: Sequence[Mapping[str, Any]]) -> None:
    """See that either all ranks have reported or all have returned: one that has returned answers no "continue".

    Raises:
        WorkerRaisedError: Says which ranks have.
    """
    reported, returned = (
        ", ".join(str(rank) for rank, report in enumerate(reports) if report["kind"] == kind)
        for kind in ("metrics", "finished")
    )
    if reported and returned:
        raise WorkerRaisedError(
            f"{CANNOT_USE}: report() must be called on every rank, equally often, but rank {reported} has reported and "
            f"rank {returned} has returned; call it outside of any condition on the rank"
        )


def _serve_trials(config: dict[str, Any]) -> None:
    from gaudi_tune.group.worker import serve_trials  # here, so that torch is imported in workers alone

    serve_trials(config)


@contextmanager
def lower_booked(resource: str, numbers: Collection[int]) -> Iterator[None]:
    """Book the free devices of this node that come before these inside the block: Ray hands out the lowest numbers.

    Two groups that do so for different sets cannot wait for each other: the one with the lower set holds nothing that
    the other wants.

    Raises:
        DevicesNotReadyError: They are not free within :data:`FREE_WITHIN_S`.
    """
    booked: dict[int, PlacementGroup] = {}
    ends_at = time.monotonic() + FREE_WITHIN_S
    try:
        while missing := {*numbers} - booked.keys():
            if time.monotonic() > ends_at:
                raise DevicesNotReadyError(f"{resource} {sorted(missing)} are not free")
            group = placement_group([{resource: 1.0}])
            number = _number_of(group, resource) if group.wait(CHECK_EVERY_S) else None
            if number is not None and number <= max(numbers):
                booked[number] = group
            else:
                remove_placement_group(group)
                time.sleep(CHECK_EVERY_S)
        for number in numbers:
            remove_placement_group(booked.pop(number))
        yield
    finally:
        for group in booked.values():
            remove_placement_group(group)


def _number_of(group: PlacementGroup, resource: str) -> int | None:
    """Return the number of the device that a placement group has booked, which Ray tells a process that gets it; None
    if that died."""
    runs_there = PlacementGroupSchedulingStrategy(group)
    ask = ray.remote(num_cpus=0, resources={resource: 1.0}, scheduling_strategy=runs_there)(
        lambda: ray.get_runtime_context().get_accelerator_ids()[resource]
    )
    try:
        return int(ray.get(ask.remote())[0])
    except RayError:
        return None
