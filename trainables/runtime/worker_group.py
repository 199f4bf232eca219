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
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainables.runtime.contract import SaveFunction, get_context, open_session
from trainables.runtime.device import (
    MODULES_OF_A_NODE,
    DeviceType,
    is_being_released,
    is_out_of_memory,
    own_module,
    why_not_aligned,
)
from trainables.runtime.fresh_start import fresh_start, release_memory
from trainables.runtime.gaudi_backend import GaudiTorchConfig
from trainables.runtime.rendezvous import Rendezvous

logger = logging.getLogger(__name__)

TrainLoop = Callable[[dict[str, Any]], None]
"""A train loop: takes the configuration of a trial, reports through :func:`trainables.runtime.report`."""

START_TIMEOUT_S = 600
"""How long the workers may take to start. Ray's own limit of 60 s is passed by a busy machine, and retried for ever."""
EXIT_TIMEOUT_S = 30
"""How long the workers may take to leave after "exit" before they are left to Ray, which ends them with their owner."""
LOOK_EVERY_S = 1.0
"""How often to see whether the workers are still there while waiting for them."""


class WorkerGroupError(RuntimeError):
    """The workers are gone, or the train loop raised; the group cannot be used again."""


class DevicesNotReadyError(WorkerGroupError):
    """The devices are still someone else's, or being reset after them; a new group may have them soon."""


@dataclass(frozen=True, kw_only=True)
class WorkerGroupSpec:
    """What it takes to start a group."""

    train_loop: TrainLoop
    num_workers: int
    device: DeviceType
    storage: str
    """Folder in which the TorchTrainer keeps its own files."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the worker processes besides those of the device, set before they import torch."""


class WorkerGroup:
    """The trial actor's side of a group. Methods block until every worker has answered."""

    def __init__(self, spec: WorkerGroupSpec, name: str) -> None:
        """Start the workers and wait until they are there.

        Raises:
            WorkerGroupError: They did not start.
            DevicesNotReadyError: They did not start, and may do so in a while.
        """
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        actor = ray.remote(Rendezvous).options(num_cpus=0, scheduling_strategy=here)
        self._rendezvous = actor.remote(spec.num_workers)
        self._failure: BaseException | None = None
        self._trainer = threading.Thread(target=self._run_trainer, args=(spec, name), name=name, daemon=True)
        logger.info("starting %s: %d worker(s) on %s", name, spec.num_workers, spec.device.kind)
        self._trainer.start()
        try:
            reports = self._wait(self._rendezvous.reports.remote())
            self._check_modules([report["module"] for report in reports if report["module"] is not None], name)
        except WorkerGroupError as error:
            self.exit()
            if is_being_released(str(error)):
                raise DevicesNotReadyError(str(error)) from error
            raise

    def start(self, config: Mapping[str, Any], checkpoint: str | None) -> dict[str, Any]:
        """Start a trial (ending the one that is there) and return its first report."""
        return self._tell({"do": "start", "config": dict(config), "checkpoint": checkpoint})

    def next_report(self) -> dict[str, Any]:
        """Let the trial go on, and return its next report."""
        return self._tell({"do": "continue"})

    def save(self, directory: str) -> None:
        """Write a checkpoint of the trial, which waits or has finished, into ``directory``."""
        self._tell({"do": "save", "path": directory})

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
        ray.kill(self._rendezvous)

    def _check_modules(self, modules: list[int], name: str) -> None:
        """See that HPUs of one node are a set that Intel supports, and whether the ranks follow their order."""
        if not modules or len(modules) > MODULES_OF_A_NODE:
            return
        if reason := why_not_aligned(modules):
            raise DevicesNotReadyError(reason)
        if modules != sorted(modules):
            logger.warning("%s: its ranks are on modules %s, not in their order", name, modules)
        logger.info("%s: modules %s", name, modules)

    def _tell(self, command: dict[str, Any]) -> dict[str, Any]:
        reports = self._wait(self._rendezvous.command.remote(command))
        for report in reports:
            if report["kind"] == "error":
                raise WorkerGroupError(report["error"])
        return reports[0]

    def _wait(self, reports: ray.ObjectRef) -> list[dict[str, Any]]:
        while not ray.wait([reports], timeout=LOOK_EVERY_S)[0]:
            if not self._trainer.is_alive():
                raise WorkerGroupError(f"the worker group ended: {self._failure}") from self._failure
        answer: list[dict[str, Any]] = ray.get(reports)
        return answer

    def _run_trainer(self, spec: WorkerGroupSpec, name: str) -> None:
        try:
            self._make_trainer(spec, name).fit()
        except BaseException as error:
            self._failure = error  # raised to the trial by the thread that waits for the workers

    def _make_trainer(self, spec: WorkerGroupSpec, name: str) -> TorchTrainer:
        # Read by Ray Train in this process when the trainer is made.
        os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(START_TIMEOUT_S)
        os.environ["RAY_TRAIN_ENABLE_PREEMPTION_WATCHER"] = "0"  # an actor a group, for clouds that announce evictions
        return TorchTrainer(
            serve_trials,
            train_loop_config={"train_loop": spec.train_loop, "rendezvous": self._rendezvous},
            torch_config=GaudiTorchConfig() if spec.device.kind == "hpu" else TorchConfig(backend=spec.device.backend),
            scaling_config=ScalingConfig(
                num_workers=spec.num_workers,
                use_gpu=spec.device.kind == "cuda",
                resources_per_worker=spec.device.worker_resources(),
                placement_strategy=placement_strategy(spec.num_workers),
            ),
            run_config=RunConfig(
                name=name,
                storage_path=spec.storage,
                # A failed group is rebuilt by the trial actor; -1, the default of the second, would wait for ever.
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
                worker_runtime_env={"env_vars": {**spec.device.worker_environment(), **spec.environment}},
            ),
        )


def placement_strategy(num_workers: int) -> str:
    """Return how Ray places the workers of a group: on one node, unless they are more than a node can have."""
    return "STRICT_PACK" if num_workers <= MODULES_OF_A_NODE else "PACK"


class _Channel:
    """A worker's way to the rendezvous."""

    def __init__(self, rendezvous: Any, rank: int) -> None:
        self._rendezvous = rendezvous
        self.rank = rank

    def hand_in(self, report: dict[str, Any]) -> dict[str, Any]:
        """Hand in a report, and wait for the command that answers it."""
        command: dict[str, Any] = ray.get(self._rendezvous.report.remote(self.rank, report))
        return command

    def fail(self, error: str) -> None:
        """Hand in an error; nothing answers it."""
        ray.get(self._rendezvous.fail.remote(self.rank, error))


def serve_trials(config: dict[str, Any]) -> None:
    """Run the train loop for one trial after another, as the rendezvous says: the TorchTrainer's own train loop."""
    channel = _Channel(config["rendezvous"], get_context().get_world_rank())
    command = channel.hand_in({"kind": "idle", "module": own_module()})
    while command["do"] != "exit":
        if command["do"] == "start":
            command = _run_trial(config["train_loop"], command, channel)
        else:
            command = channel.hand_in({"kind": "idle"})


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
        command = self._answer({"kind": "metrics", "metrics": dict(metrics)})
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
        self._save(directory)


def _run_trial(train_loop: TrainLoop, start: dict[str, Any], channel: _Channel) -> dict[str, Any]:
    """Run one trial to its end, leave nothing of it behind, and return the command that comes next."""
    session = _WarmSession(channel, start["checkpoint"])
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
            told.append("out of memory on the device: a smaller batch_size, or more accumulation, needs less\n")
        channel.fail("".join(told))
        raise
    del session
    release_memory()
    return following
