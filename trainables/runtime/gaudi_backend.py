"""Ray Train's torch backend as a Gaudi needs it: ranks in the order of modules, each worker names its HPU first, and
gives it back last."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import ray
from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend
from ray.train.v2._internal.execution.callback import WorkerGroupCallback

from trainables.runtime.device import DEVICE_TYPES, make_recipe_folder, name_own_module

LEAVE_WITHIN_S = 10
"""How long the workers may take to end by themselves before Ray kills them."""


class RanksByModule(WorkerGroupCallback):
    """Gives the ranks of each node in the order of its modules. Ray Train does so for GPUs alone (Ray 2.60)."""

    def before_init_train_context(self, workers: list[Any]) -> dict[str, list[Any]]:
        """Called when Ray Train has given ranks, before any worker is told of its own."""
        of_node = defaultdict(list)
        for worker in workers:
            of_node[worker.metadata.node_id].append(worker)
        for peers in of_node.values():
            ranks = sorted((worker.distributed_context for worker in peers), key=lambda rank: rank.world_rank)
            for worker, rank in zip(sorted(peers, key=_module_of), ranks, strict=True):
                worker.distributed_context = rank
        workers.sort(key=lambda worker: worker.distributed_context.world_rank)
        return {}


def _module_of(worker: Any) -> int:
    (module,) = worker.metadata.accelerator_ids[DEVICE_TYPES["hpu"].resource]
    return int(module)


class _GaudiBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        worker_group.execute(make_recipe_folder)
        worker_group.execute(name_own_module)  # before the process group, which acquires the device
        super().on_start(worker_group, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: TorchConfig) -> None:
        try:
            super().on_shutdown(worker_group, backend_config)
        finally:
            # habana gives the device back when Python ends, and Ray's own way, ray.kill(), skips that: the device would
            # be busy until the driver has reset it.
            leaving = [worker.actor.__ray_terminate__.remote() for worker in worker_group.get_workers()]
            ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_WITHIN_S)


@dataclass
class GaudiTorchConfig(TorchConfig):
    """A TorchConfig for workers that own an HPU each."""

    backend: str | None = "hccl"

    @property
    def backend_cls(self) -> type[_GaudiBackend]:
        """What sets the workers up, and lets them go."""
        return _GaudiBackend
