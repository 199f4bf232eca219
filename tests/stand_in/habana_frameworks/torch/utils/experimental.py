"""What the bridge tells of a device and its tensors."""

import enum
from typing import Any

import torch

from habana_frameworks.torch import _hardware


class synDeviceType(enum.IntEnum):  # noqa: N801  (the real name)
    """Kinds of Gaudi: here the second."""

    synDeviceGaudi2 = 4  # noqa: N815


def _get_device_type() -> synDeviceType:
    _hardware.acquire()
    return synDeviceType.synDeviceGaudi2


def _data_ptr(tensor: torch.Tensor) -> int:
    assert tensor.device.type == "hpu", f"the tensor is on {tensor.device}"
    return tensor.data_ptr()


def _compute_stream() -> int:
    _hardware.acquire()
    return 0


def _record_params(*args: Any, **kwargs: Any) -> None:
    """For a log of memory, which is not kept here."""
