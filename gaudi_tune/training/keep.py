"""What one trial leaves to the next on purpose: weights that take long to load and that no trial changes."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

Kept = TypeVar("Kept")
BLOCK = 2**16
"""Bytes that are summed together: their sum is below 2^24, which float32, and so every device, holds exactly."""
BLOCKS_AT_A_TIME = 2**10
"""How many of them are summed at a time: 64 MiB. A device may make floats of the bytes first, which take four times as
much."""

EXACT_IN_64_BITS = ("cpu", "cuda")
"""Devices that add integers of 64 bits, which is six times as fast on a CPU. An HPU may make 32 bits of them."""


@dataclass
class _Entry:
    made_of: Any
    value: Any
    sums: list[Any]
    """Sums of the bytes of each tensor."""


_entries: dict[str, _Entry] = {}


def keep(name: str, make: Callable[[], Kept], made_of: object = None) -> Kept:
    """Return what ``make`` returns. The next trials of this process get it again, and ``make`` is not called.

    It is meant for what is slow to load and what no trial trains, such as the frozen base of an adapter. Each call
    returns new modules and new tensors around the same memory, so that adapters, hooks and gradients stay those of
    their trial. After each trial the bytes are compared with those from the beginning: if a trial has changed them, the
    next one makes them again. ``docs/what-stays.md`` has the rules.

    >>> import torch
    >>> from gaudi_tune import keep
    >>> def load():
    ...     print("loads")
    ...     return torch.nn.Linear(2, 1).requires_grad_(False)
    >>> first = keep("base", load, made_of="base-v1")
    loads
    >>> second = keep("base", load, made_of="base-v1")
    >>> first is second, first.weight.data_ptr() == second.weight.data_ptr()
    (False, True)

    Args:
        name: A name for it. Something else under the same name takes its place, so that a process keeps one.
        make: Loads it, onto the device. It returns a module of a library, a tensor, or a mapping or list of these.
        made_of: Everything that the result depends on, such as a model's name and its precision. If it differs from
            that of the last call, ``make`` is called again.

    Raises:
        TypeError: ``make`` returned something else.
    """
    entry = _entries.get(name)
    if entry is None or entry.made_of != made_of:
        _entries.pop(name, None)  # before the next one is loaded: both may not fit
        entry = None
        value = make()
        entry = _entries[name] = _Entry(made_of, value, [_sums(tensor) for tensor in _tensors_of(value)])
    return copy.deepcopy(entry.value, {id(tensor): _beside(tensor) for tensor in _tensors_of(entry.value)})


def forget_changed(is_of_trial: Callable[[Any], bool]) -> None:
    """Forget what the trial that has ended changed, and what has classes of a trial's own code, which is loaded again.

    Args:
        is_of_trial: Whether a class is such a one.
    """
    for name, entry in list(_entries.items()):
        if any(is_of_trial(kind) for kind in _classes_of(entry.value)):
            del _entries[name]
        elif not all(
            _sums(tensor).equal(sums) for tensor, sums in zip(_tensors_of(entry.value), entry.sums, strict=True)
        ):
            logger.warning("a trial has changed what keep(%r) kept; the next one loads it again", name)
            del _entries[name]


def _beside(tensor: torch.Tensor) -> torch.Tensor:
    """Return another tensor, or parameter, in the same memory."""
    from torch import nn

    alias = tensor.detach()
    return nn.Parameter(alias, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else alias


def _tensors_of(value: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors_of(part)
    else:
        raise TypeError(
            f"keep() takes a module, a tensor, or a mapping or list of these, but make() returned "
            f"{type(value).__name__}; return the weights alone"
        )


def _classes_of(value: Any) -> set[type]:
    import torch

    if isinstance(value, torch.nn.Module):
        return {type(module) for module in value.modules()}
    if isinstance(value, Mapping | list | tuple):
        parts = value.values() if isinstance(value, Mapping) else value
        return {type(value)}.union(*map(_classes_of, parts))
    return {type(value)}


def _sums(tensor: torch.Tensor) -> torch.Tensor:
    """Return sums of a tensor's bytes, on the CPU: of words where 64 bits add up exactly, and else of single bytes."""
    import torch

    data = tensor.detach().contiguous().flatten().view(torch.uint8)
    if data.device.type in EXACT_IN_64_BITS:
        aligned = data if data.storage_offset() % 8 == 0 else data.clone()
        whole = len(aligned) // 8 * 8
        return torch.stack([aligned[:whole].view(torch.int64).sum(), aligned[whole:].sum(dtype=torch.int64)]).cpu()
    whole = len(data) // BLOCK * BLOCK
    blocks = data[:whole].view(-1, BLOCK).split(BLOCKS_AT_A_TIME)
    parts = [part.sum(dim=1, dtype=torch.float32) for part in blocks]
    return torch.cat([*parts, data[whole:].sum(dtype=torch.float32).view(1)]).cpu()
