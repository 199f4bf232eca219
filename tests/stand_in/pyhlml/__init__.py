"""A stand-in for Intel's habana-pyhlml, with the names, structs, units and errors of its versions 1.20 to 1.24.

Devices are counted in another order than their module ids, which each value tells. A module is busy while a process of
the stand-in for habana_frameworks owns it; nothing here acquires one.
"""

# ruff: noqa: N801, N802  (the real names)
from __future__ import annotations

import ctypes
import json
import os
import tempfile
from pathlib import Path

__all__ = [
    "HLMLError", "hlmlDeviceGetCount", "hlmlDeviceGetHandleByIndex", "hlmlDeviceGetMemoryInfo",
    "hlmlDeviceGetModuleID", "hlmlDeviceGetPowerUsage", "hlmlDeviceGetTemperature", "hlmlDeviceGetUtilizationRates",
    "hlmlInit", "hlmlShutdown",
]  # fmt: skip

# As in habana_frameworks/torch/_hardware.py, whose import would make "hpu" a device of torch in this process.
_PRESENT = os.environ.get("HABANA_STAND_IN_MODULES", "8")
_MODULES = list(range(int(_PRESENT))) if "," not in _PRESENT else [int(module) for module in _PRESENT.split(",")]
_FOLDER = Path(os.environ.get("HABANA_STAND_IN_DIR", Path(tempfile.gettempdir()) / "habana-stand-in"))
_GIB = 2**30
_FIRST_MODULE = 3
"""Module of the device of index 0."""
_UNINITIALIZED, _INVALID_ARGUMENT, _ALREADY_INITIALIZED = 1, 2, 5
"""Of enum hlml_return."""


class HLMLError(Exception):
    """Like the real one it has an equality, and so no hash."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return f"HLML Error with code {self.value}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HLMLError) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class c_hlml_utilization(ctypes.Structure):
    """Percentages."""

    _fields_ = (("aip", ctypes.c_uint), ("memory", ctypes.c_uint))


class c_hlml_memory(ctypes.Structure):
    """Bytes."""

    _fields_ = (("free", ctypes.c_ulonglong), ("total", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Library:
    """What the real one loads at the first hlmlInit()."""

    initialised = True


_library: _Library | None = None


def hlmlInit() -> None:
    """Must come first."""
    global _library
    if _library is not None and _library.initialised:
        raise HLMLError(_ALREADY_INITIALIZED)
    _library = _Library()


def hlmlShutdown() -> None:
    """Nothing but hlmlInit may follow."""
    _check()
    assert _library is not None
    _library.initialised = False


def hlmlDeviceGetCount() -> int:
    _check()
    return len(_MODULES)


def hlmlDeviceGetHandleByIndex(index: int) -> ctypes.c_void_p:
    _check()
    if not 0 <= index < len(_MODULES):
        raise HLMLError(_INVALID_ARGUMENT)
    return ctypes.c_void_p(1 + _MODULES[(index + _FIRST_MODULE) % len(_MODULES)])


def hlmlDeviceGetModuleID(device: ctypes.c_void_p) -> int:
    _check()
    assert device.value is not None
    return device.value - 1


def hlmlDeviceGetUtilizationRates(device: ctypes.c_void_p) -> c_hlml_utilization:
    """Percentages: 90 and the module's number while it is owned, else 0."""
    module = hlmlDeviceGetModuleID(device)
    return c_hlml_utilization(90 + module if _owned(module) else 0, 0)


def hlmlDeviceGetMemoryInfo(device: ctypes.c_void_p) -> c_hlml_memory:
    """Bytes of 96 GiB: 1 GiB and one for each number of the module while it is owned, else 512 MiB."""
    module = hlmlDeviceGetModuleID(device)
    used = (1 + module) * _GIB if _owned(module) else _GIB // 2
    return c_hlml_memory(96 * _GIB - used, 96 * _GIB, used)


def hlmlDeviceGetPowerUsage(device: ctypes.c_void_p) -> int:
    """Milliwatts: 400 W while it is owned, else 100 W, and a watt for each number of the module."""
    module = hlmlDeviceGetModuleID(device)
    return ((400 if _owned(module) else 100) + module) * 1000


def hlmlDeviceGetTemperature(device: ctypes.c_void_p, sensor_type: int) -> int:
    """Degrees Celsius: 25 of the board (1); of the chip 60 while it is owned, else 30, and the module's number."""
    module = hlmlDeviceGetModuleID(device)
    if sensor_type == 1:
        return 25
    return (60 if _owned(module) else 30) + module


def _check() -> None:
    # Before the first hlmlInit() the real one has no library to ask either, and says so in these words.
    if _library is None:
        raise AttributeError("'NoneType' object has no attribute 'get_func_ptr'")
    if not _library.initialised:
        raise HLMLError(_UNINITIALIZED)


def _owned(module: int) -> bool:
    # Read and not locked: a lock that is held for a moment would refuse the module to whoever is about to acquire it.
    lock = _FOLDER / f"module-{module}"
    owner = json.loads(lock.read_text() or "{}").get("owner") if lock.exists() else None
    return owner is not None and Path(f"/proc/{owner}").exists()
