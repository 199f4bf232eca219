from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from gaudi_tune import Experiment, SweepOptions
from gaudi_tune.base import names
from gaudi_tune.cli.run import score_checkpoint
from gaudi_tune.devices.cuda import Cuda
from gaudi_tune.devices.find import worker_device
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.training.session import report
from tests.helpers.sessions import reports_of
from tests.helpers.small_task import SmallConfig, small_loop

SPACE = {"lr": tune.loguniform(1e-3, 1.0), "batch_size": 8}


@pytest.mark.parametrize("baseline", [{}, {"lr": 0.1}])
def test_a_checkpoint_is_scored_with_what_the_space_says_of_every_trial(
    baseline: dict[str, Any], storage: Path
) -> None:
    """With a baseline or without one, and with constants among the ranges."""
    checkpoint = storage / "checkpoint"
    trained = reports_of(small_loop, {"lr": 0.1, "batch_size": 8, "epochs": 1}, save_at=1, save_to=checkpoint)
    experiment = Experiment(
        name="small", train_loop=small_loop, config_class=SmallConfig, space=SPACE, baseline=baseline,
        metric=names.VAL_ACCURACY, mode="max",
    )  # fmt: skip
    plan = make_plan(experiment, SweepOptions(storage=storage, device="cpu", evaluate=checkpoint, epochs=1))
    assert score_checkpoint(plan, checkpoint)[names.VAL_ACCURACY] == trained[-1][names.VAL_ACCURACY]
    less_than_a_batch = replace(plan, settings={**plan.settings, "size": 5})  # to train on, and nothing trains
    assert score_checkpoint(less_than_a_batch, checkpoint)[names.VAL_ACCURACY] == trained[-1][names.VAL_ACCURACY]


def test_a_checkpoint_is_scored_on_the_device_of_the_plan_and_not_on_the_best_that_is_here(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loop(config: dict[str, Any]) -> None:
        report({"on": worker_device().type})

    storage.mkdir()
    monkeypatch.setattr(Cuda, "is_available", lambda self: True)
    monkeypatch.setattr(Cuda, "count_here", lambda self: 1)
    experiment = Experiment(name="small", train_loop=loop, config_class=SmallConfig, space=SPACE)
    for device in ("cpu", "cuda"):
        plan = make_plan(experiment, SweepOptions(storage=storage, device=device, evaluate=storage, epochs=1))
        assert score_checkpoint(plan, storage) == {"on": device}
        assert worker_device().type == "cuda"  # as before
