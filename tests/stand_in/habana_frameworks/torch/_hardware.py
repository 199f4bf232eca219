"""Eight modules and the rules of who may have them, kept by the file system: locks end with their processes."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, NamedTuple

_PRESENT = os.environ.get("HABANA_STAND_IN_MODULES", "8")
MODULES = list(range(int(_PRESENT))) if "," not in _PRESENT else [int(module) for module in _PRESENT.split(",")]
"""The modules that are here: a number of them from 0 on, or 4,5 as in a container that was given devices by index."""
FOLDER = Path(os.environ.get("HABANA_STAND_IN_DIR", Path(tempfile.gettempdir()) / "habana-stand-in"))
"""Where the modules' locks are, and ``acquisitions.jsonl``, which tells who had which when."""
BUSY_AFTER_KILL_S = float(os.environ.get("HABANA_STAND_IN_BUSY_S", "3"))
"""How long a module is being reset after its owner was killed. All times are of the clock that counts from the start of
the machine, which nobody sets."""
WAIT_S = float(os.environ.get("HABANA_STAND_IN_WAIT_S", "1"))
"""How long habana waits for a module before it says that it is busy; the real one 60 s."""
BUSY = "synStatus=8 [Device not found] Device acquire failed."
"""What the real one says of a module that is not here, that another process has, or that is being reset."""


class _Ownership(NamedTuple):
    pid: int
    module: int
    lock: IO[str]


_owned: _Ownership | None = None


def acquired() -> bool:
    """Whether this process has its module."""
    return _owned is not None and _owned.pid == os.getpid()


def acquire() -> int:
    """Return this process's module, acquiring it at the first use.

    Raises:
        RuntimeError: With habana's status, if the rules forbid it.
    """
    global _owned
    if _owned is None:
        module, lock = _take()
        _owned = _Ownership(os.getpid(), module, lock)
        atexit.register(_release)
    elif _owned.pid != os.getpid():
        raise RuntimeError("synStatus=26 [Generic failure] forked after the device was acquired")
    return _owned.module


def _take() -> tuple[int, IO[str]]:
    """Return a module and its lock, waiting for it as habana does."""
    modules, until = _candidates(), time.monotonic() + WAIT_S
    while True:
        for module in modules:
            if (lock := _locked(module)) is not None:
                return module, lock
        if time.monotonic() > until:
            raise RuntimeError(BUSY)
        time.sleep(0.1)


def _candidates() -> list[int]:
    """Return the modules that the process may take, the first that is free. One that knows none takes any that is here,
    silently, another's as well."""
    named, visible = os.environ.get("HLS_MODULE_ID"), os.environ.get("HABANA_VISIBLE_MODULES")
    given = _given_by_ray()
    if given is not None and (len(given) != 1 or named not in (None, given[0])):
        raise AssertionError(f"Ray gave this process modules {given}, it takes {named}")  # the real one lets it
    if named is not None or given is not None:
        mine = [int(named if named is not None else given[0])]  # type: ignore[index]
    else:
        mine = MODULES if visible is None else [int(module) for module in visible.split(",")]
    return [module for module in mine if module in MODULES]


def _given_by_ray() -> list[str] | None:
    """Return the modules that Ray gave this process, None outside Ray."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():  # a process that has not even imported it is none of Ray's
        return None
    given: list[str] = ray.get_runtime_context().get_accelerator_ids().get("HPU", [])
    return given


def _locked(module: int) -> IO[str] | None:
    """Return the lock of a module that is free now, else None."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = (FOLDER / f"module-{module}").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    lock.seek(0)
    state: dict[str, Any] = json.loads(lock.read() or "{}")
    if state.get("owner"):  # it never released the module, and its lock is gone: it was killed
        state = {"free_at": time.monotonic() + BUSY_AFTER_KILL_S}
        _write(lock, state)
    if time.monotonic() < state.get("free_at", 0.0):
        lock.close()
        return None
    _write(lock, {"owner": os.getpid()})
    _note(module, "acquired")
    return lock


def _release() -> None:
    if acquired() and _owned is not None:
        _note(_owned.module, "released")
        _write(_owned.lock, {})


def _write(lock: IO[str], state: dict[str, Any]) -> None:
    lock.seek(0)
    lock.truncate()
    json.dump(state, lock)
    lock.flush()


def _note(module: int, what: str) -> None:
    with (FOLDER / "acquisitions.jsonl").open("a") as log:
        entry = {"time": time.monotonic(), "module": module, "pid": os.getpid(), "what": what}
        log.write(json.dumps({**entry, "cores": sorted(os.sched_getaffinity(0))}) + "\n")
