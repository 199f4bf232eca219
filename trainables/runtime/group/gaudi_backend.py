"""Ray Train's torch backend as a Gaudi needs it: ranks follow the order of modules, each worker names its HPU before
anything else, and releases it last."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ray.train.torch import TorchConfig

from trainables.runtime.devices.cores import bind_to_cores_near
from trainables.runtime.devices.hpu import HPU, make_recipe_folder, name_own_module
from trainables.runtime.internals.ray_train import Worker, WorkerGroupCallback, end_workers, run_on_all
from trainables.runtime.internals.ray_train_torch import TorchBackend

ANSWER_WITHIN_S = 5
"""How long a worker may take to show that it lives."""
LEAVE_WITHIN_S = 75
"""How long the workers may take to end by themselves; closing a device alone may take 60 s. Then Ray kills them."""


class RanksByModule(WorkerGroupCallback):
    """Orders the ranks of each node by its modules. Ray Train does so for GPUs alone (Ray 2.60)."""

    def before_init_train_context(self, workers: list[Worker]) -> dict[str, list[Any]]:
        """Reorder the ranks. Ray Train calls it after it has chosen ranks, and before any worker knows its rank."""
        of_node = defaultdict(list)
        for worker in workers:
            of_node[worker.metadata.node_id].append(worker)
        for peers in of_node.values():
            ranks = sorted((worker.distributed_context for worker in peers), key=lambda rank: rank.world_rank)
            for worker, rank in zip(sorted(peers, key=_module_of), ranks, strict=True):
                worker.distributed_context = rank
        workers.sort(key=lambda worker: worker.distributed_context.world_rank)
        return {}


def _module_of(worker: Worker) -> int:
    (module,) = worker.metadata.accelerator_ids[HPU.resource]
    return int(module)


class _GaudiBackend(TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        worker_group.execute(make_recipe_folder)
        worker_group.execute(name_own_module)  # before the process group, which acquires the device
        worker_group.execute(_bind_to_cores)  # before it starts threads and loader processes
        super().on_start(worker_group, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: TorchConfig) -> None:
        ends_at = time.monotonic() + LEAVE_WITHIN_S
        # hccl ends a process group when all its ranks have come: where one is dead, the others would wait for ever.
        if run_on_all(worker_group, _do_nothing, ANSWER_WITHIN_S):
            run_on_all(worker_group, _leave_process_group, LEAVE_WITHIN_S)
        # habana releases the device when Python exits. Ray would use ray.kill(), which skips that: nobody could use
        # the device until the driver has reset it.
        end_workers(worker_group, max(ANSWER_WITHIN_S, ends_at - time.monotonic()))


def _bind_to_cores() -> None:
    bind_to_cores_near(HPU.own_index())


def _do_nothing() -> None:
    pass


def _leave_process_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.destroy_process_group()


@dataclass
class GaudiTorchConfig(TorchConfig):
    """A TorchConfig for workers that own an HPU each."""

    backend: str | None = "hccl"

    @property
    def backend_cls(self) -> type[_GaudiBackend]:
        """The class that sets the workers up and ends them."""
        return _GaudiBackend
