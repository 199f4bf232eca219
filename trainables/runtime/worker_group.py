"""A warm worker group: the workers of one TorchTrainer, kept alive while trial after trial passes through them.

The trial actor owns the group and tells it what to do; the workers hand in what came of it. Both sides meet in a
:class:`~trainables.runtime.rendezvous.Rendezvous`. Commands and reports are plain data:

    command                                  report that answers it
    {"do": "start", config, checkpoint}      "metrics" of the first epoch, "finished" or "error"
    {"do": "continue"}                       "metrics" of the next epoch, "finished" or "error"
    {"do": "save", path}                     "saved"
    {"do": "stop"}                           "idle"
    {"do": "exit"}                           none: the workers return and the TorchTrainer ends
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import ray
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainables.runtime import names
from trainables.runtime.contract import SaveFunction, get_context, open_session
from trainables.runtime.device import (
    MODULES_OF_A_NODE,
    OUT_OF_MEMORY,
    DeviceType,
    is_being_released,
    is_out_of_memory,
    memory_in_use,
    own_index,
    why_not_aligned,
    worker_device,
)
from trainables.runtime.device_metrics import DeviceMetrics
from trainables.runtime.fresh_start import fresh_start, release_memory
from trainables.runtime.gaudi_backend import GaudiTorchConfig, RanksByModule
from trainables.runtime.group_errors import (
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
from trainables.runtime.rendezvous import Rendezvous
from trainables.runtime.writing import once_there_is_room

logger = logging.getLogger(__name__)

TrainLoop = Callable[[dict[str, Any]], None]
"""A train loop: takes the configuration of a trial, reports through :func:`trainables.runtime.report`."""

START_TIMEOUT_S = 600
"""How long the workers may take to start. Ray's own limit of 60 s is passed by a busy machine, and retried for ever."""
EXIT_TIMEOUT_S = 30
"""How long the workers may take to leave after "exit" before they are left to Ray, which ends them with their owner."""
LOOK_EVERY_S = 1.0
"""How often to see whether the workers are still there while waiting for them."""
MAY_STAY_IN_MEMORY = 0.05
"""Share of a device's memory by which what trials leave behind may grow, from the first trial of a group on. Nobody has
published whether memory leaks when models are made anew in one process on a Gaudi."""
TOLD_WITHIN_S = 15
"""How long Ray Train may take to tell why a worker failed; it looks every 2 s."""


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
    """How long the workers may take for a report before they are taken for hung and killed; 0: for ever. For their
    first sign of life they have Ray's limit of starting them in addition."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the worker processes besides those of the device, set before they import torch."""

    @property
    def placement_strategy(self) -> str:
        """How Ray places the workers. PACK takes whole nodes if nothing else has parts of them."""
        return "PACK" if self.over_nodes else "STRICT_PACK"


class WorkerGroup:
    """The trial actor's side of a group. Methods block until every worker has answered."""

    def __init__(self, spec: WorkerGroupSpec, name: str) -> None:
        """Start the workers and wait until they are there.

        Raises:
            WorkerRaisedError: They could not be set up.
            WorkersLostError: They were lost while they started.
            DevicesNotReadyError: They did not start, and may do so in a while.
            StartHungError: Nothing was heard of them for so long that they must hang.
        """
        self._node = ray.get_runtime_context().get_node_id()
        here = NodeAffinitySchedulingStrategy(self._node, soft=False)
        actor = ray.remote(Rendezvous).options(num_cpus=0, scheduling_strategy=here)
        self._rendezvous = actor.remote(spec.num_workers)
        self._failure: BaseException | None = None
        self._storage, self._hung_after_s = Path(spec.storage), spec.hung_after_s
        self._workers: list[Any] = []
        self._left_first = self._left_most = 0.0
        self._trainer = threading.Thread(target=self._run_trainer, args=(spec, name), name=name, daemon=True)
        logger.info("starting %s: %d worker(s) on %s", name, spec.num_workers, spec.device.kind)
        self._trainer.start()
        try:
            # Until Ray has started them its own limit counts.
            within_s = START_TIMEOUT_S + self._hung_after_s if self._hung_after_s else 0.0
            there = self._wait(self._rendezvous.reports.remote(), within_s)
            self._places: list[tuple[str, int | None]] = [(report["node"], report["index"]) for report in there]
            self._workers = [report["actor"] for report in there]
            if spec.device.kind == "hpu":
                self._check_modules(name)
        except WorkerGroupError as error:
            self.exit()
            if is_being_released(str(error)) or timed_out(self._failure):
                raise DevicesNotReadyError(str(error)) from error
            raise

    @property
    def devices(self) -> str:
        """What the workers train on, as :data:`names.DEVICES` has it."""
        named = [names.NODE_DEVICE.format(node=node, index="" if i is None else i) for node, i in self._places]
        return " ".join(named)

    @property
    def outgrown(self) -> bool:
        """Whether trials leave so much behind on a device that the next should have new workers."""
        return self._left_most - self._left_first > MAY_STAY_IN_MEMORY

    def start(self, config: Mapping[str, Any], checkpoint: str | None) -> dict[str, Any]:
        """Start a trial (ending the one that is there) and return its first report."""
        return self._tell({"do": "start", "config": dict(config), "checkpoint": checkpoint})

    def next_report(self) -> dict[str, Any]:
        """Let the trial go on, and return its next report."""
        return self._tell({"do": "continue"})

    def save(self, directory: str) -> None:
        """Write a checkpoint of the trial, which waits or has finished, into ``directory`` of this node."""
        node_of_rank_0, _ = self._places[0]
        if node_of_rank_0 == self._node:
            self._tell({"do": "save", "path": directory})
            return
        # Rank 0 writes on a node of its own, and both nodes see the folder of the sweep.
        self._storage.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="handed-over-", dir=self._storage) as shared:
            self._tell({"do": "save", "path": shared})
            shutil.copytree(shared, directory, dirs_exist_ok=True)

    def stop_trial(self) -> None:
        """End the trial, if there is one; the workers stay."""
        self._tell({"do": "stop"})

    def exit(self) -> None:
        """End the workers in good order, so that each releases its device itself."""
        if self._trainer.is_alive():
            self._rendezvous.command.remote({"do": "exit"})
            self._trainer.join(EXIT_TIMEOUT_S)
        if self._trainer.is_alive():
            logger.warning("%s: the workers did not leave within %d s", self._trainer.name, EXIT_TIMEOUT_S)
        self._workers = []  # a handle keeps an actor's process
        ray.kill(self._rendezvous)

    def _check_modules(self, name: str) -> None:
        """See that the HPUs of each node are a set that Intel supports."""
        of_node: dict[str, list[int]] = {}
        for node, module in self._places:
            of_node.setdefault(node, []).append(cast(int, module))
        for modules in of_node.values():
            reason = why_not_aligned(modules)
            if reason is None and len(of_node) > 1 and len(modules) < MODULES_OF_A_NODE:
                reason = f"of a group over several nodes, one has modules {modules} only; something holds the others"
            if reason is not None:
                raise DevicesNotReadyError(reason)
            logger.info("%s: modules %s", name, modules)

    def _tell(self, command: dict[str, Any]) -> dict[str, Any]:
        reports = self._wait(self._rendezvous.command.remote(command), self._hung_after_s)
        for report in reports:
            if report["kind"] == "error":
                raise self._why(report["error"])
        first = reports[0]
        for report in reports:  # each worker tells of its own device
            first.get("metrics", {}).update(report.get("system", {}))
        left = max((report["left"] for report in reports if report.get("left") is not None), default=0.0)
        self._left_first, self._left_most = self._left_first or left, left
        return first

    def _why(self, error: str) -> WorkerGroupError:
        """Return what an error on one rank means: it may have failed only because another rank is gone."""
        self._trainer.join(TOLD_WITHIN_S)
        return WorkersLostError(error) if is_loss(self._failure) else WorkerRaisedError(error)

    def _wait(self, reports: ray.ObjectRef, within_s: float = 0.0) -> list[dict[str, Any]]:
        began = time.monotonic()
        while not ray.wait([reports], timeout=LOOK_EVERY_S)[0]:
            if not self._trainer.is_alive():
                kind = WorkersLostError if is_loss(self._failure) else WorkerRaisedError
                raise kind(f"the worker group ended: {text_of(self._failure)}") from self._failure
            if within_s and time.monotonic() - began > within_s:
                raise self._hung(f"no report for {within_s / 60:g} minutes")
        try:
            answer: list[dict[str, Any]] = ray.get(reports)
        except GONE as error:
            raise WorkersLostError(f"the group's rendezvous is gone: {text_of(error)}") from error
        return answer

    def _hung(self, why: str) -> WorkerGroupError:
        """Kill the workers, and return what their silence means."""
        if not self._workers:  # who they are, their first report tells
            return StartHungError(f"{why}: the workers hang while they start")
        for worker in self._workers:
            ray.kill(worker)
        return WorkersLostError(f"{why}: the workers were hung, and killed")

    def _run_trainer(self, spec: WorkerGroupSpec, name: str) -> None:
        try:
            self._make_trainer(spec, name).fit()
        except BaseException as error:
            self._failure = error  # raised to the trial by the thread that waits for the workers

    def _make_trainer(self, spec: WorkerGroupSpec, name: str) -> TorchTrainer:
        # Read by Ray Train in this process when the trainer is made.
        os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(START_TIMEOUT_S)
        os.environ["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"  # an actor a group, for clouds that announce evictions
        on_gaudi = spec.device.kind == "hpu"
        about = {"train_loop": spec.train_loop, "rendezvous": self._rendezvous, "kind": spec.device.kind}
        return TorchTrainer(
            serve_trials,
            train_loop_config=about,
            torch_config=GaudiTorchConfig() if on_gaudi else TorchConfig(backend=spec.device.backend),
            scaling_config=ScalingConfig(
                num_workers=spec.num_workers,
                use_gpu=spec.device.kind == "cuda",
                resources_per_worker=spec.device.worker_resources(),
                placement_strategy=spec.placement_strategy,
            ),
            run_config=RunConfig(
                name=name,
                storage_path=spec.storage,
                # A failed group is rebuilt by the trial actor; -1, the default of the second, would wait for ever.
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
                worker_runtime_env={"env_vars": {**spec.device.worker_environment(), **spec.environment}},
                callbacks=[RanksByModule()] if on_gaudi else [],
            ),
        )


class _Channel:
    """A worker's way to the rendezvous, and what it tells there of its device."""

    def __init__(self, rendezvous: Any, rank: int, device_metrics: DeviceMetrics) -> None:
        self._rendezvous = rendezvous
        self.rank, self.device_metrics = rank, device_metrics
        self.left: float | None = None
        """Share of the device's memory that the last trial left behind; None before there was one."""

    def hand_in(self, report: dict[str, Any]) -> dict[str, Any]:
        """Hand in a report, and wait for the command that answers it."""
        command: dict[str, Any] = ray.get(self._rendezvous.report.remote(self.rank, report))
        return command

    def fail(self, error: str) -> None:
        """Hand in an error; nothing answers it."""
        ray.get(self._rendezvous.fail.remote(self.rank, error))


def serve_trials(config: dict[str, Any]) -> None:
    """Run the train loop for one trial after another, as the rendezvous says: the TorchTrainer's own train loop."""
    index = own_index(config["kind"])
    device_metrics = DeviceMetrics(config["kind"], [] if index is None else [index])
    channel = _Channel(config["rendezvous"], get_context().get_world_rank(), device_metrics)
    here = ray.get_runtime_context()
    about = {"node": here.get_node_id(), "index": index, "actor": here.current_actor}
    command = channel.hand_in({"kind": "idle", **about})
    try:
        while command["do"] != "exit":
            if command["do"] == "start":
                command = _run_trial(config["train_loop"], command, channel)
            else:
                command = channel.hand_in({"kind": "idle"})
    finally:
        device_metrics.close()


class _TrialStopped(BaseException):
    """Raised out of ``report()`` to end a trial; no Exception, so that a loop's ``except Exception`` lets it pass."""

    def __init__(self, command: dict[str, Any]) -> None:
        self.command = command


class _WarmSession:
    """Answers the loop's reports with the commands of the trial actor."""

    def __init__(self, channel: _Channel, checkpoint: str | None) -> None:
        self._channel = channel
        self._checkpoint = Checkpoint.from_directory(checkpoint) if checkpoint else None
        self._save: SaveFunction | None = None

    def report(self, metrics: Mapping[str, Any], save: SaveFunction | None) -> None:
        self._save = save
        system = self._channel.device_metrics.take()
        about = {"system": system, "left": self._channel.left}
        command = self._answer({"kind": "metrics", "metrics": dict(metrics), **about})
        if command["do"] != "continue":
            raise _TrialStopped(command)

    def finished(self) -> dict[str, Any]:
        """Tell that the loop returned, and return the command that ends the trial."""
        return self._answer({"kind": "finished"})

    def get_checkpoint(self) -> Checkpoint | None:
        return self._checkpoint

    def _answer(self, report: dict[str, Any]) -> dict[str, Any]:
        command = self._channel.hand_in(report)
        while command["do"] == "save":
            if self._channel.rank == 0:
                self._save_to(Path(command["path"]))
            command = self._channel.hand_in({"kind": "saved"})
        return command

    def _save_to(self, directory: Path) -> None:
        if self._save is None:
            raise ValueError("a checkpoint was asked for, but the train loop's report() gives no save= function")
        directory.mkdir(parents=True, exist_ok=True)
        save = self._save
        once_there_is_room(lambda: save(directory), f"a checkpoint in {directory}")


def _run_trial(train_loop: TrainLoop, start: dict[str, Any], channel: _Channel) -> dict[str, Any]:
    """Run one trial to its end, leave nothing of it behind, and return the command that comes next."""
    session = _WarmSession(channel, start["checkpoint"])
    channel.device_metrics.take()  # of the time between two trials: nobody's
    fresh_start(start["config"].get("seed", 0))
    try:
        with open_session(session):
            train_loop(start["config"])
        following = session.finished()
    except _TrialStopped as stopped:
        following = stopped.command
        stopped.__traceback__ = None  # it holds the loop's frames, and with them the model
    except Exception as error:
        told = traceback.format_exception(error)
        if is_out_of_memory(error):
            told.append(f"{OUT_OF_MEMORY}: a smaller batch_size, or more accumulation, needs less\n")
        channel.fail("".join(told))
        raise
    del session
    release_memory()
    channel.left = memory_in_use(worker_device())
    return following
