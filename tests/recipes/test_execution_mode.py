"""How the operations of a model are run: compiled on an HPU unless somebody says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.tune_resnet18 import EXPERIMENT
from gaudi_tune import SweepError, SweepOptions
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.devices.gaudi_node import LAZY_MODE
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from tests.helpers.small_task import SmallConfig


@pytest.mark.parametrize(
    ("device", "settings", "exported", "name", "why"),
    [
        ("hpu", {}, "", "compiled", "the default on hpu"),
        ("cpu", {}, "", "eager", "the default on cpu"),
        ("cuda", {}, "1", "eager", "the default on cuda"),
        ("cpu", {"compile": True}, "", "compiled", "compile=true"),
        ("hpu", {"compile": False}, "", "eager", "compile=false"),
        ("hpu", {}, "1", "lazy", "PT_HPU_LAZY_MODE=1 is set"),
        ("hpu", {"lazy_mode": False}, "1", "compiled", "the default on hpu"),
        ("hpu", {"lazy_mode": True}, "0", "lazy", "lazy_mode=true"),
        ("hpu", {"sync_batch_norm": True}, "", "eager", "sync_batch_norm would break"),
    ],
)
def test_the_mode_and_its_reason(
    device: str, settings: dict[str, Any], exported: str, name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LAZY_MODE, exported)
    mode = SmallConfig.from_dict({"epochs": 1, **settings}).mode_on(DEVICE_TYPES[device])
    assert mode.name == name
    assert mode.reason.startswith(why)


@pytest.fixture
def on_hpus(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Devices(DEVICE_TYPES["hpu"], (2,), "planted")
    monkeypatch.setattr("gaudi_tune.plan.find_devices.find_devices", lambda *given: two)
    monkeypatch.delenv(LAZY_MODE, raising=False)


def planned(storage: Path, *settings: str, **options: Any) -> Any:
    return make_plan(EXPERIMENT, SweepOptions(storage=storage, recipe="sample", settings=settings, **options))


@pytest.mark.usefixtures("on_hpus")
def test_the_plan_says_the_mode_and_passes_it_on(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "mode    compiled: the default on hpu" in plan_lines(planned(storage))
    monkeypatch.setenv(LAZY_MODE, "1")
    lazy = planned(storage)
    assert "mode    lazy: PT_HPU_LAZY_MODE=1 is set" in plan_lines(lazy)
    assert lazy.settings["lazy_mode"] is True  # also for workers on nodes where it is not set
    assert "mode    eager: compile=false" in plan_lines(planned(storage, "compile=false", "lazy_mode=false"))
    with pytest.raises(SweepError, match="compile and lazy_mode exclude each other"):
        planned(storage, "lazy_mode=true", "compile=true")


def test_the_plan_of_cores_says_nothing_of_it_and_has_no_lazy_mode(storage: Path) -> None:
    assert not [line for line in plan_lines(planned(storage, device="cpu")) if line.startswith("mode")]
    assert "mode    compiled: compile=true" in plan_lines(planned(storage, "compile=true", device="cpu"))
    with pytest.raises(SweepError, match="an HPU has a lazy mode, cpu has none; leave it out"):
        planned(storage, "lazy_mode=true", device="cpu")
