"""Every private surface: its contract holds here, its loss is seen and survived, and a sweep says or refuses it."""

from __future__ import annotations

import builtins
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.base.errors import SweepError
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.plan.planner import check_versions
from gaudi_tune.private import surfaces
from gaudi_tune.private.surfaces import ANY_VERSION, STOCK, SURFACES, TESTED, Surface
from tests.tools.losses.table import BEGIN, END, PAGE, table

PRIVATE = Path(surfaces.__file__).parent
SCRIPTS = ("fork_server", "setup_worker")
"""Modules that import nothing but Python."""
ITEMS = [pytest.param(surface, id=surface.name) for surface in SURFACES.values()]
CPU = DEVICE_TYPES["cpu"]


@pytest.fixture(autouse=True)
def looked_up_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing of what a test plants stays known."""
    monkeypatch.delenv(STOCK, raising=False)
    surfaces.reason_off.cache_clear()
    yield
    surfaces.reason_off.cache_clear()


def test_the_page_has_the_table() -> None:
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == table()


@pytest.mark.parametrize("surface", ITEMS)
def test_the_contract_of_a_surface_holds(surface: Surface) -> None:
    assert surface.missing() == ""
    assert surface.needs
    assert surface.library in TESTED


@pytest.mark.parametrize(
    "need",
    [
        "ray.no_such_module:name",
        "ray._private.services:no_such_function",
        "ray._private.services:start_raylet(no_such_parameter)",
        "ray.tune.execution.tune_controller:TuneController._no_such_attribute",
    ],
)
def test_what_is_missing_is_found(need: str) -> None:
    assert Surface("any", "ray", "", "", f"ray:init {need}").missing() == need


def lose(monkeypatch: pytest.MonkeyPatch, lost: Surface) -> None:
    """Plant the loss of a surface, in a version that nobody has tested."""
    names = {*lost.needs.replace("?", "").split()}
    others = {name for surface in SURFACES.values() if surface is not lost for name in surface.needs.split()}
    monkeypatch.setattr(surfaces, "_exists", lambda need: need not in names or need in others)
    monkeypatch.setitem(TESTED, lost.library, ("0.1",))


@pytest.mark.parametrize("surface", ITEMS)
def test_a_plan_says_what_is_lost_or_refuses(surface: Surface, monkeypatch: pytest.MonkeyPatch) -> None:
    lose(monkeypatch, surface)
    monkeypatch.delenv(ANY_VERSION, raising=False)
    if surface.fallback:
        assert check_versions(CPU) == (surface.name,)
        assert not surfaces.holds(surface.name)
        return
    with pytest.raises(SweepError, match=rf"{surface.name}: {surface.library} .* lacks .*{surface.library} 0.1 works"):
        check_versions(CPU)
    surfaces.reason_off.cache_clear()
    monkeypatch.setenv(ANY_VERSION, "1")
    assert check_versions(CPU) == ()
    assert surfaces.holds(surface.name)


def test_hpus_need_the_lean_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STOCK, "1")
    assert "lean-trainer" in check_versions(CPU)
    with pytest.raises(SweepError, match=r"lean-trainer: GAUDI_TUNE_STOCK=1, and without this no sweep .*HPUs"):
        check_versions(DEVICE_TYPES["hpu"])


def test_tested_versions_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in TESTED:
        monkeypatch.setitem(TESTED, library, (surfaces.version_of(library),))
    monkeypatch.setattr(surfaces, "_exists", lambda need: pytest.fail(f"{need} was looked up"))
    assert check_versions(CPU) == ()


def private_imports(surface: Surface) -> set[tuple[str, str]]:
    """Return what an import of each private name would name: the module, and the first name in it."""
    places = (need.removeprefix("?").partition("(")[0].partition(":") for need in surface.needs.split())
    names = {(module, path.partition(".")[0]) for module, _, path in places}
    return {(module, name) for module, name in names if "._" in f"{module}.{name}"}


@pytest.mark.parametrize("surface", ITEMS)
def test_modules_can_be_imported_without_what_a_surface_needs(
    surface: Surface, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the modules that only the lean trainer, one GPU's monitor and Lightning's loops import."""
    lost, original = private_imports(surface), builtins.__import__
    modules = {module for module, _ in lost if "._" in module}

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        wanted = arguments[2] if len(arguments) > 2 and arguments[2] else ()
        caller = (arguments[0] if arguments else {}) or {}
        if caller.get("__name__", "").startswith("planted_") and (
            name in modules or any((name, part) in lost or f"{name}.{part}" in modules for part in wanted)
        ):
            raise ImportError(f"planted: {name}")
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    for file in sorted(PRIVATE.glob("*.py")):
        if file.stem in (*SCRIPTS, "__init__", "surfaces", "ray_train_torch", "lightning"):
            continue
        spec = importlib.util.spec_from_file_location(f"planted_{file.stem}", file)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
