"""What the switches leave alone: what libraries set up for themselves. tests/leaks has what they restore."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

from gaudi_tune.group.clean import loggers, patches, switches
from gaudi_tune.group.clean.own_code import is_own

Library = Callable[[str, str], Any]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """Installs and imports a module."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    names: list[str] = []

    def install(name: str, text: str) -> Any:
        (folder / f"{name}.py").write_text(text)
        names.append(name)
        return __import__(name)

    yield install
    for name in names:
        del sys.modules[name]


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., switches.Switches]]:
    """Reads only some switches."""
    made: list[switches.Switches] = []

    def read(*some: switches.Switch) -> switches.Switches:
        monkeypatch.setattr(switches, "SWITCHES", some)
        made.append(switches.Switches())
        return made[0]

    yield read
    for one in made:
        one.close()


def test_a_switch_of_a_library_is_read_when_a_trial_imports_it(library: Library, chosen: Callable[..., Any]) -> None:
    found = chosen(switches.attribute("late_library", "level"))
    late = library("late_library", "level = 1")
    late.level = 2
    assert found.restore() == []
    assert late.level == 1


def test_a_switch_that_cannot_be_restored_is_named(chosen: Callable[..., Any]) -> None:
    values = iter(range(10))
    stuck = switches.Switch("priority", "os", lambda: next(values), lambda value: None)
    assert chosen(stuck).restore() == ["priority"]


def test_a_patch_of_own_code_is_undone_and_one_of_a_library_stays(library: Library) -> None:
    library("patching", "import json\ndef loads(text):\n    return 'patched'\n")
    found, dump, loads = patches.read("json"), json.dump, json.loads
    try:
        json.loads = sys.modules["patching"].loads
        json.dump = lambda *arguments: None
        del json.load
        assert not patches.are_same(found)
        patches.restore(found)
        assert json.dump is dump
        assert callable(json.load)
        assert json.loads("1") == "patched"
    finally:
        json.loads = loads
    assert patches.are_same(found)


def test_one_function_of_a_library_in_the_place_of_another_is_undone() -> None:
    found, relu = patches.read("torch.nn"), torch.nn.ReLU
    torch.nn.ReLU = torch.nn.GELU  # type: ignore[assignment,misc]
    patches.restore(found)
    assert torch.nn.ReLU is relu


def test_new_loggers_stay_as_libraries_set_them_up(library: Library) -> None:
    states = loggers.read()
    library("chatty", "import logging\nlogging.getLogger('chatty').setLevel(logging.ERROR)\n")
    own = logging.getLogger("of_a_script")
    own.setLevel(logging.ERROR)
    loggers.restore(states)
    assert logging.getLogger("chatty").level == logging.ERROR
    assert own.level == logging.NOTSET
    assert loggers.read()["chatty"] == states["chatty"]


def test_what_wraps_own_code_is_own(library: Library) -> None:
    wrapping = library("wrapping", "import functools\ndef wrap(f):\n    return functools.wraps(f)(lambda *a: f(*a))\n")

    def own() -> None: ...

    assert is_own(own)
    assert is_own(wrapping.wrap(own))
    assert not is_own(wrapping.wrap)
    assert not is_own(wrapping.wrap(json.dumps))
    assert isinstance(wrapping.wrap(json.dumps), FunctionType)
