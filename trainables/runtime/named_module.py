"""Ray Train's torch backend, with one thing before all others: each worker tells habana which HPU is its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray.train.torch import TorchConfig
from ray.train.torch.config import _TorchBackend

from trainables.runtime.device import name_own_module


class _NamedModuleBackend(_TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        worker_group.execute(name_own_module)  # before the process group, which acquires the device
        super().on_start(worker_group, backend_config)


@dataclass
class NamedModuleConfig(TorchConfig):
    """A TorchConfig whose workers have ``HLS_MODULE_ID`` set before they use their device."""

    @property
    def backend_cls(self) -> type[_NamedModuleBackend]:
        """What sets the workers up."""
        return _NamedModuleBackend
