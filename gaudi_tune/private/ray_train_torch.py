"""Ray Train's TorchTrainer and its setup of torch, for a process that does not import torch."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import psutil
import ray.train
from ray.train import Result
from ray.train._internal.utils import get_address_and_port
from ray.train.backend import Backend, BackendConfig
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker
from ray.train.v2._internal.execution.worker_group.worker_group import WorkerGroup

# A TorchTrainer is this class with a TorchConfig.
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from gaudi_tune.private.surfaces import holds

LOOPBACK = "127.0.0.1"
ACCELERATE_DEVICE = "ACCELERATE_TORCH_DEVICE"
"""Accelerate's variable for the device of a process."""
DISPENSABLE = ("DatasetsCallback", "DatasetsSetupCallback", "PlacementGroupCleanerCallback")
"""Callbacks that start an actor in each group, which takes 2 s of CPU and 150 MB. The first hands out shards of Ray
Data, which is not used; Ray 2.53 calls it as the second. The last frees devices that a dead trial actor has booked: it
needs Ray's dashboard, and the sweep does the same (``free_orphans``)."""


class FixedSize(FixedScalingPolicy):
    """A scaling policy that requests no machines from Ray's autoscaler, which sees a group's placement group in any
    case.

    The request would start an actor in each Ray, which takes 1.8 s of CPU and 190 MB.
    """

    def after_controller_start(self, train_run_context: Any) -> None:
        """Do not request the workers' resources."""

    def _maybe_send_resource_request(self) -> None:
        """Do not repeat the request every 20 s."""

    async def before_controller_shutdown(self) -> None:
        """Take nothing back: in Ray 2.55 that would start the actor, too."""

    def before_controller_abort(self) -> None:
        """Take nothing back."""


class TorchBackend(Backend):
    """Sets up torch with the functions of Ray's own backend, which only the workers import."""

    share_cuda_visible_devices = False
    """Whether each worker sees the GPUs of all workers of its node, as with Ray's backend: here its own has index 0."""

    def on_start(self, worker_group: Any, backend_config: Any) -> None:
        """Have the workers create their process group. If all are on one node, nothing of it listens on the network."""
        address, port = worker_group.execute_single(0, get_address_and_port)
        if len({worker.metadata.node_id for worker in worker_group.get_workers()}) == 1:
            address = LOOPBACK
        worker_group.execute(_join_process_group, backend_config.backend, address, port)


class TorchBackendConfig(BackendConfig):
    """The counterpart of Ray's TorchConfig."""

    backend: str
    """The backend of torch.distributed, such as gloo."""

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[Any]]:
        """The context in which the train loop runs."""
        return _device_context


def _join_process_group(backend: str, address: str, port: int) -> None:
    from ray.train.torch import config

    os.environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
    # Else gloo listens where the host's name points, which Debian puts on loopback: ranks on other hosts wait in vain.
    interface = interface_of(address if address == LOOPBACK else ray.util.get_node_ip_address())
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
    config._set_torch_distributed_env_vars()
    # Accelerate passes the index of this device to DDP, and torch knows no current one of an HPU.
    if os.environ[ACCELERATE_DEVICE] == "hpu":
        os.environ[ACCELERATE_DEVICE] = "hpu:0"
    context = ray.train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    store = store_at(address, port, world_size) if rank == 0 and interface is not None else None
    config._setup_torch_process_group(backend, rank, world_size, "env://")
    del store  # the process group has one of its own by now


def store_at(address: str, port: int, world_size: int) -> Any:
    """Return a store whose server listens at one address. A store that torch makes afterwards there uses it, too.

    The server that torch starts by itself listens on all addresses of the machine, and takes what anybody sends it.
    With libuv, that of torch 2.7 takes no socket.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server((address, port), family=socket.getaddrinfo(address, port)[0][0])
    return TCPStore(
        address, port, world_size, is_master=True, wait_for_workers=False, multi_tenant=True, use_libuv=False,
        master_listen_fd=listener.detach(),
    )  # fmt: skip


def interface_of(address: str) -> str | None:
    """Return the name of this host's network interface that has an address; None if none has it."""
    for name, entries in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in entries):
            return name
    return None


def _device_context() -> AbstractContextManager[Any]:
    from ray.train.torch import config

    return config.TorchConfigContextManager()


def shut_torch_down() -> None:
    """Shut torch down in a worker, as Ray's backend does at the end."""
    from ray.train.torch import config

    config._shutdown_torch(destroy_process_group=ray.train.get_context().get_world_size() > 1)


class Hooks(NamedTuple):
    """What a trainer tells of its workers while it runs, and is told. They are no callbacks of ``RunConfig``, because
    Ray Train sends those to each worker."""

    when_placed: Callable[[], object]
    """A function that is called when the workers have their devices, before their processes start."""
    when_started: Callable[[list[Any]], object]
    """A function that is called with the workers' actors, by rank, when they run."""
    ending: threading.Event
    """Is set when the workers are told to end: Ray Train then looks at them without its pause of 2 s."""


class LeanTorchTrainer(DataParallelTrainer):
    """A TorchTrainer without the parts that are not needed here, for which Ray has no arguments.

    It is controlled from the actor that makes it, not from another actor, which saves 3.5 s of CPU and 690 MB. So it
    can call functions of this process. It does not import torch, which Ray's trainer does only to name its backend, and
    that saves 1.6 s of CPU and 500 MB.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., None],
        *,
        worker_class: type[RayTrainWorker],
        hooks: Hooks,
        **arguments: Any,
    ) -> None:
        """Prepare, as a TorchTrainer does.

        Args:
            train_loop_per_worker: The function that each worker runs.
            worker_class: The class of the worker actors.
            hooks: What to tell of the workers.
            **arguments: Arguments of a DataParallelTrainer.
        """
        super().__init__(train_loop_per_worker, **arguments)
        self._worker_class, self._hooks = worker_class, hooks

    def _initialize_and_run_controller(self, *, scaling_policy: Any, callbacks: list[Any], **parts: Any) -> Result:
        dispensable = DISPENSABLE if holds("bookings") else DISPENSABLE[:2]
        kept_callbacks = [callback for callback in callbacks if type(callback).__name__ not in dispensable]
        hooks = self._hooks

        class Group(WorkerGroup):
            _worker_cls = self._worker_class

            def _create_workers(self, *arguments: Any, **options: Any) -> list[Any]:
                hooks.when_placed()
                return super()._create_workers(*arguments, **options)

        class Controller(TrainController):
            worker_group_cls = Group

            async def _poll_workers(self) -> Any:
                if await asyncio.to_thread(hooks.ending.wait, self._health_check_interval_s):
                    await asyncio.sleep(0.05)
                    self._latest_poll_time = 0.0
                return await super()._poll_workers()

        controller = Controller(
            scaling_policy=FixedSize(scaling_policy.scaling_config),
            callbacks=[*kept_callbacks, HandOver(hooks.when_started)],
            **parts,
        )
        asyncio.run(controller.run())
        return controller.get_result()


class HandOver(WorkerGroupCallback):
    """Passes on the workers' actors in the order of ranks, once they run."""

    def __init__(self, receive: Callable[[list[Any]], object]) -> None:
        """Pass the actors to ``receive``."""
        self._receive = receive

    def after_worker_group_training_start(self, worker_group: WorkerGroup) -> None:
        """Pass the actors on."""
        self._receive([worker.actor for worker in worker_group.get_workers()])
