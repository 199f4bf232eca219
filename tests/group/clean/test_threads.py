"""What a worker looks at changes meanwhile, if another thread imports modules and makes loggers."""

from __future__ import annotations

import logging
import sys
import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from ray import cloudpickle

from gaudi_tune.group.clean import loggers, switches
from gaudi_tune.group.clean.own_code import OwnCode

TIMES = 10


@contextmanager
def changing() -> Iterator[None]:
    """A module whose members come and go in another thread, as do modules and loggers."""
    module, ended, before = types.ModuleType("changing"), threading.Event(), sys.getswitchinterval()
    sys.modules["changing"] = module

    def change() -> None:
        for number in count():
            if ended.wait(1e-4):
                return
            logging.getLogger(f"changing_{number}")
            name = f"changing_{number % 500}"
            for names in (sys.modules, vars(module)):
                if names.pop(name, None) is None:
                    names[name] = types.ModuleType(name)

    thread = threading.Thread(target=change)
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(before)
        for names in (sys.modules, logging.root.manager.loggerDict):
            for name in [name for name in names if name.startswith("changing")]:
                del names[name]


def test_a_worker_is_set_up_while_another_thread_imports_and_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switches, "PATCHED", ("changing",))
    with changing():  # within the test, since pytest looks at all loggers between fixtures and test
        for _ in range(TIMES):
            OwnCode(cloudpickle.dumps(print)).forget()
            loggers.restore(loggers.read())
            assert switches._replaced_functions() == []
