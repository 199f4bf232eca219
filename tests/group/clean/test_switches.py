"""Which switches are set back, which are only compared, and what libraries set up for themselves.

tests/tools/leaks has each of the switches.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

from gaudi_tune.group.clean import loggers, switches
from gaudi_tune.group.clean.own_code import is_own
from gaudi_tune.group.clean.switches import Switches, attribute, compared

Library = Callable[[str, str], Any]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Installs and imports a module."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    names: list[str] = []

    def install(name: str, text: str) -> Any:
        (folder / f"{name}.py").write_text(text)
        names.append(name)
        assert find_spec(name), "as libraries ask whether others are installed"
        return __import__(name)

    yield install
    for name in names:
        del sys.modules[name]


def test_a_switch_of_a_library_is_read_when_a_trial_imports_it(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switches, "RESTORED", (attribute("late_library:level"), attribute("late_library:missing")))
    monkeypatch.setattr(switches, "COMPARED", (compared("late_library:limits()"),))
    before = Switches()
    late = library("late_library", "level, most = [1], 3\ndef limits(): return most")
    late.level.append(2)
    late.most = 4
    for _ in range(2):
        before.restore()
        assert late.level == [1]
        late.level.append(3)
    assert before.differences() == ["the setting 'late_library.limits()' is now 4"]


def test_every_switch_of_an_imported_module_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = Switches()
    known = [switch for switch in (*switches.RESTORED, *switches.COMPARED) if switch.module in sys.modules]
    assert {switch.name for switch in known} == {switch.name for switch in before._settings}


def test_a_function_that_own_code_has_replaced_is_named_and_one_of_a_library_is_not(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = switches._replaced_functions()
    monkeypatch.setattr(json, "loads", library("patching", "def loads(text):\n    return 'patched'\n").loads)
    monkeypatch.setattr(torch, "load", functools.partial(torch.load, weights_only=False))
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor: tensor)
    assert {*switches._replaced_functions()} - {*before} == {"Tensor.cuda", "torch.load"}


def test_new_loggers_stay_as_libraries_set_them_up(library: Library) -> None:
    states = loggers.read()
    library("chatty", "import logging\nlogging.getLogger('chatty').setLevel(logging.ERROR)\n")
    own = logging.getLogger("of_a_script")
    own.setLevel(logging.ERROR)
    loggers.restore(states)
    assert logging.getLogger("chatty").level == logging.ERROR
    assert own.level == logging.NOTSET
    assert loggers.read()["chatty"] == states["chatty"]


def test_wrappers_of_own_code_are_own(library: Library) -> None:
    wrapping = library("wrapping", "import functools\ndef wrap(f):\n    return functools.wraps(f)(lambda *a: f(*a))\n")

    def own() -> None: ...

    assert is_own(own)
    assert is_own(wrapping.wrap(own))
    assert not is_own(wrapping.wrap)
    assert not is_own(wrapping.wrap(json.dumps))
    assert isinstance(wrapping.wrap(json.dumps), FunctionType)
