"""A warm worker group: the workers of one TorchTrainer, kept alive while trial after trial passes through them.

The trial actor owns the group. It sends commands, and the workers answer each with a report; both go through a
:class:`~trainables.runtime.group.mailbox.Mailbox`. Commands and reports are plain data:

    command                                  report that answers it
    {"do": "start", config, checkpoint, ...} "metrics" of the first epoch, "finished" or "error"
    {"do": "continue"}                       "metrics" of the next epoch, "finished" or "error"
    {"do": "save", path}                     "saved"
    {"do": "stop"}                           "idle"
    {"do": "exit"}                           none: the workers return and the TorchTrainer ends
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainables import runtime
from trainables.runtime import names
from trainables.runtime.devices.device import OUT_OF_MEMORY, DeviceType
from trainables.runtime.devices.device_metrics import DeviceMetrics, TrialCounts
from trainables.runtime.devices.find import DEVICE
from trainables.runtime.group.device_backend import DeviceTorchConfig, RanksByDevice
from trainables.runtime.group.errors import (
    GONE,
    DevicesNotReadyError,
    StartHungError,
    WorkerGroupError,
    WorkerRaisedError,
    WorkersLostError,
    is_loss,
    text_of,
    text_of_loop,
    timed_out,
)
from trainables.runtime.group.mailbox import Mailbox
from trainables.runtime.internals import ray_train
from trainables.runtime.internals.ray_core import free_own
from trainables.runtime.internals.ray_train_torch import LeanTorchTrainer
from trainables.runtime.internals.torch import process_group_kept
from trainables.runtime.session import SaveFunction, get_context, open_session
from trainables.runtime.training.fresh_start import environment_restored, fresh_start, release_memory
from trainables.runtime.training.profiling import Profile, profiling
from trainables.runtime.writing import once_there_is_room

logger = logging.getLogger(__name__)

# Sent whole, the mailbox imports nothing: 1.1 s of CPU in each group instead of 1.8.
cloudpickle.register_pickle_by_value(sys.modules[Mailbox.__module__])

TrainLoop = Callable[[dict[str, Any]], None]
"""A train loop: takes the configuration of a trial, reports through :func:`trainables.runtime.report`."""

START_TIMEOUT_S = 600
"""How long the workers may take to start. A loaded machine needs more than Ray's own limit, 60 s, and Ray would retry
for ever."""
EXIT_TIMEOUT_S = 90
"""How long the workers may take to end after "exit"; those on HPUs may take 75 s of it (``LEAVE_WITHIN_S``). Then they
are left to Ray, which ends them with their owner."""
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
    leaves: int = 0
    """How many free devices of lower numbers the group leaves free. Ray hands out the lowest."""

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
        here = NodeAffinitySchedulingStrategy(self._node, soft=False)
        actor = ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here)
        self._mailbox = actor.remote(spec.num_workers)
        self._failure: BaseException | None = None
        self._storage, self._hung_after_s = Path(spec.storage), spec.hung_after_s
        self._workers: list[Any] = []
        self._first_residue = self._residue = 0.0
        self._trainer = threading.Thread(target=self._run_trainer, args=(spec, name), name=name, daemon=True)
        logger.info("starting %s: %d workers on %s", name, spec.num_workers, spec.device.kind)
        within_s = START_TIMEOUT_S + self._hung_after_s if self._hung_after_s else 0.0
        try:
            with lowest_booked(spec.device.resource, spec.leaves):
                self._trainer.start()
                started = self._wait(self._mailbox.reports.remote(), within_s)
            self._places: list[tuple[str, int | None]] = [(report["node"], report["index"]) for report in started]
            self._workers = [cloudpickle.loads(report["actor"]) for report in started]
            self._check_placement(spec.device, name)
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
        return self._residue - self._first_residue > RESIDUE_MAY_GROW

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

    def stop_trial(self) -> None:
        """End the trial, if one runs; the workers stay."""
        self._send({"do": "stop"})

    def exit(self) -> None:
        """Let the workers end by themselves, so that each releases its device."""
        if self._trainer.is_alive():
            self._mailbox.command.remote({"do": "exit"})
            self._trainer.join(EXIT_TIMEOUT_S)
        if self._trainer.is_alive():
            logger.warning("%s: the workers did not end within %d s", self._trainer.name, EXIT_TIMEOUT_S)
        self._workers = []  # a handle keeps its actor's process alive
        ray.kill(self._mailbox)

    def _check_placement(self, device: DeviceType, name: str) -> None:
        """Check that the devices on each node may train one trial together."""
        of_node: dict[str, list[int]] = {}
        for node, index in self._places:
            if index is not None:
                of_node.setdefault(node, []).append(index)
        for indices in of_node.values():
            if reason := device.why_not_together(indices, nodes=len(of_node)):
                raise DevicesNotReadyError(reason)
            logger.info("%s: %s %s", name, device.kind, indices)

    def _send(self, command: dict[str, Any]) -> dict[str, Any]:
        reports = self._wait(self._mailbox.command.remote(command), self._hung_after_s)
        for report in reports:
            if report["kind"] == "error":
                self._trainer.join(FAILURE_KNOWN_WITHIN_S)  # it may have failed only because another rank is gone
                lost = f"\n{text_of(self._failure)}" if is_loss(self._failure) else ""
                raise self._ended_by(report["error"] + lost)
        first = reports[0]
        for report in reports:  # each worker measures its own device
            first.get("metrics", {}).update(report.get("system", {}))
        self._residue = max((report["residue"] for report in reports if report.get("residue") is not None), default=0.0)
        self._first_residue = self._first_residue or self._residue
        return first

    def _ended_by(self, text: str) -> WorkerGroupError:
        return WorkersLostError(text) if is_loss(self._failure) else WorkerRaisedError(text)

    def _wait(self, reports: ray.ObjectRef, within_s: float = 0.0) -> list[dict[str, Any]]:
        began = time.monotonic()
        while not ray.wait([reports], timeout=CHECK_EVERY_S)[0]:
            if not self._trainer.is_alive():
                raise self._ended_by(f"the worker group ended: {text_of(self._failure)}") from self._failure
            if within_s and time.monotonic() - began > within_s:
                raise self._hung(f"no report for {within_s / 60:g} minutes")
        try:
            answer: list[dict[str, Any]] = ray.get(reports)
        except GONE as error:
            raise WorkersLostError(f"the group's mailbox is gone: {text_of(error)}") from error
        return answer

    def _hung(self, why: str) -> WorkerGroupError:
        """Kill the workers, and return the error to raise."""
        if not self._workers:  # only their first report says which actors they are
            return StartHungError(f"{why}: the workers hang while they start")
        for worker in self._workers:
            ray.kill(worker)
        return WorkersLostError(f"{why}: the workers hung and were killed")

    def _run_trainer(self, spec: WorkerGroupSpec, name: str) -> None:
        try:
            self._make_trainer(spec, name).fit()
        except BaseException as error:
            self._failure = error  # raised to the trial by the thread that waits for the workers
        finally:
            free_own()

    def _make_trainer(self, spec: WorkerGroupSpec, name: str) -> LeanTorchTrainer:
        # Ray Train reads these in this process when the trainer is made.
        os.environ[ray_train.START_TIMEOUT_S] = str(START_TIMEOUT_S)
        os.environ[ray_train.ENABLE_PREEMPTION_WATCHER] = "0"  # an actor per group, for clouds that announce evictions
        ranked = spec.device.resource not in ("CPU", "GPU")  # Ray Train ranks by GPU itself, and cores have no number
        config = {"train_loop": cloudpickle.dumps(spec.train_loop), "mailbox": self._mailbox, "device": spec.device}
        return LeanTorchTrainer(
            serve_trials,
            train_loop_config=config,
            torch_config=DeviceTorchConfig(device=spec.device),
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
                callbacks=[RanksByDevice(spec.device.resource)] if ranked else [],
            ),
        )


@contextmanager
def lowest_booked(resource: str, count: int) -> Iterator[None]:
    """Book so many devices of one node inside the block: of those that are free, the ones with the lowest numbers."""
    if not count:
        yield
        return
    booked = placement_group([{resource: 1.0}] * count, strategy="STRICT_PACK")
    try:
        booked.wait(START_TIMEOUT_S)  # if they are not free by then, the group is found to be out of place
        yield
    finally:
        remove_placement_group(booked)


class _Channel:
    """A worker's end of the mailbox, and what it reports about its device."""

    def __init__(self, mailbox: Any, rank: int, device_metrics: DeviceMetrics) -> None:
        self._mailbox = mailbox
        self.rank, self.device_metrics = rank, device_metrics
        self.residue: float | None = None
        """Share of the device's memory that the last trial left behind; None before the first has ended."""

    def hand_in(self, report: dict[str, Any]) -> dict[str, Any]:
        """Hand in a report, and wait for the command that answers it."""
        command: dict[str, Any] = ray.get(self._mailbox.report.remote(self.rank, report))
        return command

    def fail(self, error: str) -> None:
        """Hand in an error; nothing answers it."""
        ray.get(self._mailbox.fail.remote(self.rank, error))


def serve_trials(config: dict[str, Any]) -> None:
    """Run the train loop for one trial after another, as the commands say. This is the TorchTrainer's train loop."""
    device: DeviceType = config["device"]
    os.environ[DEVICE] = device.kind
    device.torch_device()
    device.synchronize()  # acquires it: an error is the group's, which is tried again, and not the first trial's
    index = device.own_index()
    device_metrics = DeviceMetrics(device, [] if index is None else [index])
    channel = _Channel(config["mailbox"], get_context().get_world_rank(), device_metrics)
    here = ray.get_runtime_context()
    actor = cloudpickle.dumps(here.current_actor)  # so that the mailbox does not import what a handle's class needs
    place = {"node": here.get_node_id(), "index": index, "actor": actor}
    try:
        with process_group_kept():
            train_loop = cloudpickle.loads(config["train_loop"])  # what it imports gets the kept group, too
            command = channel.hand_in({"kind": "idle", **place})
            while command["do"] != "exit":
                if command["do"] == "start":
                    command = _run_trial(train_loop, command, channel, device)
                else:
                    command = channel.hand_in({"kind": "idle"})
    finally:
        device_metrics.close()


class _TrialStopped(BaseException):
    """Raised out of ``report()`` to end a trial. Not an Exception: a loop's ``except Exception`` must let it pass."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.command = command


class _WarmSession:
    """Answers the loop's reports with the commands of the trial actor."""

    def __init__(self, channel: _Channel, checkpoint: str | None, counts: TrialCounts) -> None:
        self._channel, self._counts = channel, counts
        self._checkpoint = Checkpoint.from_directory(checkpoint) if checkpoint else None
        self._save: SaveFunction | None = None
        self._asked = False  # whether the loop has asked for its checkpoint

    def report(self, metrics: Mapping[str, Any], save: SaveFunction | None) -> None:
        self._save = save
        sampled = self._channel.device_metrics.take()
        counted = self._counts.added_to(metrics, sampled)
        device = {"system": sampled, "residue": self._channel.residue}
        does = {"saves": save is not None, "asked": self._asked}
        command = self._answer({"kind": "metrics", "metrics": counted, **does, **device})
        if command["do"] != "continue":
            raise _TrialStopped(command)

    def finished(self) -> dict[str, Any]:
        """Report that the loop returned, and return the command that ends the trial."""
        return self._answer({"kind": "finished"})

    def get_checkpoint(self) -> Checkpoint | None:
        self._asked = True
        return self._checkpoint

    def _answer(self, report: dict[str, Any]) -> dict[str, Any]:
        command = self._channel.hand_in(report)
        while command["do"] == "save":
            if self._channel.rank == 0:
                if self._save is None:
                    raise ValueError("a checkpoint is wanted, and report() has neither save= nor checkpoint=; add one")
                directory = Path(command["path"])
                directory.mkdir(parents=True, exist_ok=True)
                once_there_is_room(partial(self._save, directory), f"a checkpoint in {directory}")
            command = self._channel.hand_in({"kind": "saved"})
        return command


def _run_trial(train_loop: TrainLoop, start: dict[str, Any], channel: _Channel, device: DeviceType) -> dict[str, Any]:
    """Run one trial to its end, leave nothing of it behind, and return the command that comes next."""
    session = _WarmSession(channel, start["checkpoint"], TrialCounts(device))
    channel.device_metrics.take()  # the time between two trials belongs to neither
    fresh_start(start["config"].get("seed", 0))
    try:
        with (
            open_session(session),
            profiling(start["profile"]),
            ray_train.answered_by(runtime.report, runtime.get_checkpoint),
            environment_restored(),
        ):
            train_loop(start["config"])
        following = session.finished()
    except _TrialStopped as stopped:
        following = stopped.command
        stopped.__traceback__ = None  # it holds the loop's frames, and they hold the model
    except BaseException as error:
        text = text_of_loop(error)
        if device.is_out_of_memory(error):
            text += f"\n{OUT_OF_MEMORY}: a smaller pass_size or batch_size needs less"
        channel.fail(text)
        if isinstance(error, Exception):
            raise
        raise RuntimeError("the train loop ended its process") from error  # Ray Train would end with the loop
    del session
    release_memory()
    device.free_cached_memory()
    channel.residue = device.memory_in_use()
    return following
