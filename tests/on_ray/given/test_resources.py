"""Ray Tune's resources of a trial, such as half a GPU: what becomes of them. Only plans are made."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune import Experiment, SweepError, build_tuner
from gaudi_tune.devices.cuda import Cuda
from gaudi_tune.devices.hpu import Hpu
from tests.helpers.loops import quadratic


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with GPUs and HPUs, as far as a plan looks at it."""
    monkeypatch.setattr(Cuda, "count_here", lambda self: 4)
    monkeypatch.setattr(Hpu, "count_here", lambda self: 8)


def plan_of(storage: Path, train_loop: Any = quadratic, **arguments: Any) -> Any:
    experiment = Experiment(train_loop=train_loop, space={"x": tune.uniform(-1.0, 1.0)}, metric="score", mode="max")
    tuner: Any = build_tuner(experiment, storage=storage, **arguments)
    return tuner.plan


@pytest.mark.parametrize(
    ("resources", "options"),
    [
        ({"gpu": 0.5}, ("cuda", 2)),
        ({"cpu": 4, "gpu": 0.25}, ("cuda", 4)),
        ({"GPU": 0.4}, ("cuda", 2)),  # as Ray counts: 0.2 of each device are left over
        ({"gpu": 1 / 49}, ("cuda", 49)),
        ({"gpu": 0.75}, ("cuda", 1)),
        ({"cpu": 2, "gpu": 1}, ("auto", 1)),
        ({"cpu": 2, "gpu": 0}, ("auto", 1)),
        ({"cpu": 0.5}, ("cpu", 2)),
        ({"cpu": 8}, ("auto", 1)),
        (tune.PlacementGroupFactory([{"CPU": 1, "GPU": 0.2}]), ("cuda", 5)),
    ],
)
def test_rays_resources_are_taken(resources: Any, options: tuple[str, int], storage: Path) -> None:
    def train_loop(config: dict[str, Any]) -> None:
        quadratic(config)

    booked = tune.with_resources(train_loop, resources)
    with_constant: dict[str, Any] = {"param_space": {"x": tune.uniform(-1.0, 1.0), "layers": [3, 3]}, "metric": "score"}
    tuner: Any = build_tuner(booked, storage=storage, **with_constant)
    for plan in (plan_of(storage, resources=resources), plan_of(storage, booked), tuner.plan):
        assert (plan.options.device, plan.options.trials_per_device) == options


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"resources": {"gpu": 2}},
            r"resources={'gpu': 2}: a trial books one device, as cpu, .*; give trials_",
        ),
        ({"resources": {"gpu": 1, "hpu": 1}}, "a trial books one device"),
        ({"resources": {"gpu": 0.5, "memory": 1e9}}, "a trial books one device, .* and leave out what else it books"),
        ({"resources": lambda config: None}, r"or a part of one, such as {'gpu': 0.5}; give trials_"),
        ({"resources": tune.PlacementGroupFactory([{"CPU": 1}, {"GPU": 0.5}])}, "a trial books one device"),
        ({"resources": {"gpu": 0.001}}, "--trials-per-device 1000: must be at most 100"),
        ({"resources": {"hpu": 0.5}}, "--trials-per-device 2: a hpu belongs to one process"),
        ({"resources": {"gpu": 0.5}, "trials_per_device": 2}, "says what trials_per_device says, too; give one"),
    ],
)
def test_resources_that_no_trial_can_have_are_refused(arguments: dict[str, Any], message: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=message):
        plan_of(storage, **arguments)


class Booking(tune.Trainable):
    """A class that books by its configuration."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([{"CPU": 1, "GPU": 1 / config["sharers"]}])

    def step(self) -> dict[str, Any]:
        return {"score": 0.0}


def by_configuration(config: dict[str, Any]) -> dict[str, float]:
    return {"gpu": 1 / config["sharers"]}


@pytest.mark.parametrize(
    ("trainable", "given"),
    [
        (tune.with_resources(partial(quadratic), by_configuration), "by_configuration"),
        (tune.with_resources(Booking, by_configuration), "default_resource_request"),
        (Booking, "default_resource_request"),
        (tune.with_resources(partial(quadratic), tune.PlacementGroupFactory([{"CPU": 1}, {"GPU": 0.5}])), "bundles"),
    ],
)
def test_resources_by_configuration_or_in_parts_are_refused(trainable: Any, given: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=f"tune.with_resources=.*{given}.*: a trial books one device"):
        plan_of(storage, trainable)
