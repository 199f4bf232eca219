"""A model that is sharded over the workers of a trial: each has a part of its weights, and of the optimizer's state.

A checkpoint has the optimizer's state in parts, one of each worker, which torch redistributes to any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from gaudi_tune.devices.find import DEVICE_TYPES

PARTS_FOLDER = "optimizer"
"""The folder in a checkpoint's directory with the parts of the optimizer's state."""


def shard(model: nn.Module, device: torch.device) -> None:
    """Shard a model in place, onto the device, and each of its layers by itself (torch's FSDP2).

    So a worker has all weights of a layer only while it computes that. Layers are what is in a ``ModuleList``.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for module in [*_layers_of(model), model]:
        fully_shard(module, mesh=mesh)
    DEVICE_TYPES[device.type].adapt_sharded(model)


def _layers_of(model: nn.Module) -> Iterator[nn.Module]:
    for part in model.children():
        yield from part if isinstance(part, nn.ModuleList) else _layers_of(part)


def trained_weights(model: nn.Module) -> dict[str, Any]:
    """Return the weights that are trained, whole and on the host: on rank 0, while all ranks call it; {} on others."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True)
    return get_model_state_dict(model, options=options)


def save_optimizer(model: nn.Module, optimizer: Optimizer, directory: Path) -> None:
    """Write this rank's part of the optimizer's state; all ranks call it."""
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict_saver import save

    # Copied one by one: torch copies ahead in a queue of the device, which it finds on GPUs only.
    writer = FileSystemWriter(directory / PARTS_FOLDER, per_thread_copy_ahead=0)
    save(get_optimizer_state_dict(model, optimizer)["state"], storage_writer=writer)


def load_optimizer(model: nn.Module, optimizer: Optimizer, directory: Path) -> None:
    """Read this rank's part of what any number of ranks have written. Hyperparameters stay as they are."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load

    state = get_optimizer_state_dict(model, optimizer)  # which has the moments already, as zeros
    load(state["state"], checkpoint_id=directory / PARTS_FOLDER)
    set_optimizer_state_dict(model, optimizer, state)
