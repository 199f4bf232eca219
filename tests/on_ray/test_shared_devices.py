"""Several trials on one device, each in its own process."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune
from ray.util.placement_group import placement_group, remove_placement_group

import gaudi_tune
from gaudi_tune import Experiment, SweepError, SweepOptions, build_tuner
from gaudi_tune.devices.cuda import PROCESS_BYTES, Cuda
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.devices.hpu import Hpu
from gaudi_tune.on_ray.tuner import SweepTuner
from gaudi_tune.plan.apply import apply_options
from gaudi_tune.plan.decide_plan import decide_plan
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.plan_text import plan_lines
from tests.helpers.loops import quadratic

OWN = Experiment(train_loop=quadratic, space={"x": tune.uniform(-1.0, 1.0)}, metric="score", mode="max")


def plan_of(storage: Path, **options: Any) -> Any:
    return make_plan(OWN, SweepOptions(**{"storage": storage, "device": "cuda", "search": "random", **options}))


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four GPUs, as far as a plan looks at them."""
    monkeypatch.setattr(Cuda, "count_here", lambda self: 4)


@pytest.mark.usefixtures("four_gpus")
def test_the_plan_says_how_many_trials_share_a_device(storage: Path) -> None:
    plan = plan_of(storage, trials_per_device=2)
    assert (plan.groups, plan.trials_per_device, plan.grows) == (8, 2, False)
    (line,) = (line for line in plan_lines(plan) if line.startswith("device"))
    assert line.endswith("; 8 trials at a time on 4 devices (2 each), 1 worker each")
    assert plan.in_brief()["trials_per_device"] == 2
    assert "4 trials at a time, 1 worker each" in "".join(plan_lines(plan_of(storage)))


def test_trials_share_devices_only_as_far_as_there_are_too_many() -> None:
    """Ray fills one device before it takes the next, so that smaller parts would leave devices idle."""
    draw, cuda, applied = random.Random(0), DEVICE_TYPES["cuda"], apply_options(OWN, SweepOptions(), "cuda", None)
    for _ in range(200):
        nodes = tuple(draw.randint(1, 8) for _ in range(draw.randint(1, 3)))
        asked, trials, limit = draw.randint(1, 9), draw.randint(1, 60), draw.choice([None, draw.randint(1, 9)])
        options = SweepOptions(trials_per_device=asked, num_samples=trials, confirm=0)
        devices = Devices(cuda, nodes, "for a test")
        plan = decide_plan(applied, options, devices, "x", "", None, max_concurrent=limit)
        each = plan.trials_per_device
        assert plan.groups == min(trials, devices.count * asked, limit or trials)
        assert 1 <= each <= asked
        assert devices.count * (each - 1) < plan.groups <= devices.count * each
        booked = cuda.worker_resources(each)
        assert each * int(10_000 * booked["GPU"]) <= 10_000, "Ray counts ten-thousandths"
        assert booked["CPU"] == booked["GPU"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials_per_device": 0}, "--trials-per-device 0: must be at least 1"),
        ({"trials_per_device": 101}, "--trials-per-device 101: must be at most 100"),
        (
            {"trials_per_device": 2, "workers_per_trial": 2},
            "--workers-per-trial 2: Ray might put two workers of a trial",
        ),
        (
            {"trials_per_device": 2, "grow": "on"},
            "--grow on: --trials-per-device 2 shares devices, and a trial grows by",
        ),
        (
            {"trials_per_device": 2, "device": "hpu"},
            "--trials-per-device 2: a hpu belongs to one process at a time, so trials cannot share one; leave it out, "
            "and 8 trials train at a time with --workers-per-trial 1. To fill a device, take a larger micro_batch, or",
        ),
    ],
)
@pytest.mark.usefixtures("four_gpus")
def test_a_loop_that_cannot_share_a_device_is_refused_while_planning(
    options: dict[str, Any], message: str, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hpu, "count_here", lambda self: 8)
    with pytest.raises(SweepError, match=message):
        plan_of(storage, **options)


def test_a_gpus_memory_is_divided_among_its_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What each may take is fixed, so that it depends on a trial alone whether it fits."""
    limits: list[float] = []
    torch_cuda = SimpleNamespace(
        get_device_properties=lambda index: SimpleNamespace(total_memory=int(80e9)),
        set_per_process_memory_fraction=lambda part, index: limits.append(part),
    )
    monkeypatch.setattr(Cuda, "_torch", lambda self: torch_cuda)
    for trials in (2, 4, 100):
        DEVICE_TYPES["cuda"].limit_memory(trials)
    assert [80e9 * part + PROCESS_BYTES for part in limits[:2]] == pytest.approx([40e9, 20e9])
    assert limits[2] == 0.005  # of 0.8 GB the process itself takes most


@pytest.mark.workers
def test_trials_of_one_core_train_at_the_same_time(ray_here: None, storage: Path, tmp_path: Path) -> None:
    """Each waits for the other one, in a process of its own. Of the two cores of the tests' Ray, one is taken."""
    here = tmp_path / "here"
    here.mkdir()

    def train_loop(config: dict[str, Any]) -> None:
        (here / str(os.getpid())).touch()
        began = time.time()
        ends_at = time.monotonic() + 120
        while len(list(here.iterdir())) < 2 and time.monotonic() < ends_at:
            time.sleep(0.01)
        time.sleep(0.05)
        gaudi_tune.report({"score": config["x"], "process": os.getpid(), "began": began, "ended": time.time()})

    options: dict[str, Any] = {"num_samples": 2, "epochs": 1, "confirm": 0, "search": "random", "device": "cpu"}
    experiment = Experiment(train_loop=train_loop, space=OWN.space, metric="score", mode="max")
    tuner: Any = build_tuner(experiment, resources={"cpu": 0.5}, name="shared", storage=storage, **options)
    taken = placement_group([{"CPU": 1}])
    try:
        results = SweepTuner(replace(tuner.plan, trials_per_device=2)).fit()  # for two cores the plan has 1
    finally:
        remove_placement_group(taken)
    first, second = (result.metrics for result in results)
    assert first["process"] != second["process"]
    assert max(first["began"], second["began"]) < min(first["ended"], second["ended"])
    summary = json.loads((storage / "shared" / "summary.json").read_text())
    lanes = summary["device_time"]["devices"]
    assert list(lanes) == ["cpu 0", "cpu 0.2", "unused 1", "unused 2"]
    assert [sum(seconds.values()) for seconds in lanes.values()] == pytest.approx([summary["wall_s"]] * 4, abs=0.1)
    assert sum(summary["device_seconds"].values()) == pytest.approx(2 * summary["wall_s"], abs=0.1)
