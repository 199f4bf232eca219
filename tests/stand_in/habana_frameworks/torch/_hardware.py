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

MODULES = int(os.environ.get("HABANA_STAND_IN_MODULES", "8"))
FOLDER = Path(os.environ.get("HABANA_STAND_IN_DIR", Path(tempfile.gettempdir()) / "habana-stand-in"))
"""Where the modules' locks are, and ``acquisitions.jsonl``, which tells who had which when."""
BUSY_AFTER_KILL_S = float(os.environ.get("HABANA_STAND_IN_BUSY_S", "3"))
"""How long a module is being reset after its owner was killed; Intel publishes no figure. All times are of the clock
that counts from the start of the machine, which nobody sets."""


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
        module = _given_module()
        lock = _locked(module)
        _owned = _Ownership(os.getpid(), module, lock)
        atexit.register(_release)
    elif _owned.pid != os.getpid():
        raise RuntimeError("synStatus=26 [Generic failure] forked after the device was acquired")
    return _owned.module


def _given_module() -> int:
    named = os.environ.get("HLS_MODULE_ID")
    given = _given_by_ray()
    if given is None and named is None:
        raise RuntimeError("synStatus=8 [Device not found] nobody gave this process a module (HLS_MODULE_ID)")
    if given is not None and (len(given) != 1 or named not in (None, given[0])):
        raise RuntimeError(f"synStatus=8 [Device not found] Ray gave this process modules {given}, it takes {named}")
    return int(given[0] if given is not None else str(named))


def _given_by_ray() -> list[str] | None:
    """Return the modules that Ray gave this process, None outside Ray."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():  # a process that has not even imported it is none of Ray's
        return None
    given: list[str] = ray.get_runtime_context().get_accelerator_ids().get("HPU", [])
    return given


def _locked(module: int) -> IO[str]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = (FOLDER / f"module-{module}").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.close()
        raise RuntimeError(f"synStatus=20 [Device already acquired] module {module} has another owner") from error
    lock.seek(0)
    state: dict[str, Any] = json.loads(lock.read() or "{}")
    if state.get("owner"):  # it never released the module, and its lock is gone: it was killed
        state = {"free_at": time.monotonic() + BUSY_AFTER_KILL_S}
        _write(lock, state)
    if time.monotonic() < state.get("free_at", 0.0):
        lock.close()
        raise RuntimeError(f"synStatus=26 [Generic failure] module {module} is being reset, try again (EAGAIN)")
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
        log.write(json.dumps({"time": time.monotonic(), "module": module, "pid": os.getpid(), "what": what}) + "\n")
