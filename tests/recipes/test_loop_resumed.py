"""The shared loop goes on from a checkpoint as if nothing had happened, also with other hyperparameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gaudi_tune.base import names
from gaudi_tune.training.checkpoint import read_state, write_state
from gaudi_tune.training.session import open_session
from tests.helpers.sessions import Collector, Interrupted, hyperparameters_of_each_step, numbers_of, reports_of
from tests.helpers.small_task import small_loop
from tests.recipes.test_loop import QUIET


@pytest.mark.parametrize("budget", [{"epochs": 2}, {"steps": 7, "eval_every": 3}])
def test_a_trial_that_saved_after_any_step_reports_what_an_uninterrupted_one_does(
    budget: dict[str, int], tmp_path: Path
) -> None:
    config = {**budget, **QUIET, "momentum": 0.5, "train_accuracy": True, "ema_decay": 0.8}
    whole = Collector()
    with open_session(whole):
        small_loop(dict(config))
    assert whole.asks > len(whole.reports) > 1
    for ask in range(1, whole.asks + 1):
        first = Collector(asked_at=ask, save_to=tmp_path / str(ask))
        with open_session(first), pytest.raises(Interrupted):
            small_loop(dict(config))
        second = reports_of(small_loop, config, start_from=tmp_path / str(ask))
        assert [*map(numbers_of, first.reports + second)] == [*map(numbers_of, whole.reports)]
        assert all(report[names.SAMPLES_PER_SECOND] > 0 for report in second)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "lars"])
def test_the_configuration_wins_over_a_checkpoint_of_other_hyperparameters(optimizer: str, tmp_path: Path) -> None:
    """What a trial of a population does that takes over another's weights."""
    budget = {"steps": 20, "eval_every": 5, "optimizer": optimizer, "decayed": "weights"}
    donor = {**budget, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4, "warmup": 0.1, "seed": 1}
    clone = {**budget, "lr": 0.003, "momentum": 0.1, "weight_decay": 1e-2, "warmup": 0.5, "seed": 1}
    of_donor = reports_of(small_loop, donor, save_at=1, save_to=tmp_path / "saved")
    with hyperparameters_of_each_step() as alone:
        reports_of(small_loop, clone)
    with hyperparameters_of_each_step() as steps:
        of_clone = reports_of(small_loop, clone, start_from=tmp_path / "saved")
    assert steps == alone[5:]  # as if it had trained with them from the beginning
    assert {step["weight_decay"] for step in steps} == {1e-2}
    assert {step.get("momentum", 0.1) for step in steps} == {0.1}
    assert max(step["lr"] for step in steps) == 0.003
    assert [report[names.LEARNING_RATE] for report in of_clone] == [steps[at - 1]["lr"] for at in (5, 10, 15)]
    for theirs, ours in zip(of_donor[1:], of_clone, strict=True):
        assert theirs[names.TRAIN_LOSS] != ours[names.TRAIN_LOSS]
    # The optimizer's momenta do come with the weights.
    forgetful = read_state(tmp_path / "saved")
    forgetful["optimizer"]["state"] = {}
    (tmp_path / "forgetful").mkdir()
    write_state(tmp_path / "forgetful", forgetful)
    without = reports_of(small_loop, clone, start_from=tmp_path / "forgetful")
    assert without[0][names.TRAIN_LOSS] != of_clone[0][names.TRAIN_LOSS]


class CountingSGD(torch.optim.SGD):
    """Counts its steps in its groups, as habana's FusedAdamW does for its bias correction."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        return super().step(closure)


def test_counters_in_an_optimizers_groups_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("gaudi_tune.devices.device.DeviceType.optimizer_class", lambda device, name: CountingSGD)
    config = {"steps": 10, "eval_every": 5}
    reports_of(small_loop, config, save_at=1, save_to=tmp_path / "saved")
    reports_of(small_loop, {**config, "lr": 0.01}, start_from=tmp_path / "saved", save_at=1, save_to=tmp_path / "end")
    (group,) = read_state(tmp_path / "end")["optimizer"]["param_groups"]
    assert group["step"] == 10


def test_a_clone_with_another_seed_sees_other_batches(tmp_path: Path) -> None:
    config = {"steps": 10, "eval_every": 5, "seed": 1, "dropout": 0.0}
    donor = reports_of(small_loop, config, save_at=1, save_to=tmp_path / "saved")
    clone = reports_of(small_loop, {**config, "seed": 2}, start_from=tmp_path / "saved")
    assert clone[0][names.TRAIN_LOSS] != donor[1][names.TRAIN_LOSS]


@pytest.mark.parametrize(
    ("saved_after", "changes"),
    [
        (1, {}),
        (2, {}),
        pytest.param(1, {"loader_workers": 1}, marks=pytest.mark.processes),
        pytest.param(2, {"loader_workers": 1}, marks=pytest.mark.processes),
        (2, {"optimizer": "adamw", "warmup": 0.4, "weight_decay": 0.1}),
        (2, {"ema_decay": 0.7, "train_accuracy": True, "balanced_metrics": True, "nesterov": True}),
    ],
)
def test_a_break_in_the_middle_of_an_epoch_changes_nothing(
    saved_after: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    config = {"steps": 17, "eval_every": 4, **changes}
    whole = reports_of(small_loop, config, save_at=saved_after, save_to=tmp_path / "saved")
    rest = reports_of(small_loop, config, start_from=tmp_path / "saved")
    assert list(map(numbers_of, rest)) == list(map(numbers_of, whole[saved_after:]))
    assert read_state(tmp_path / "saved")["steps_done"] == 4 * saved_after


def test_a_clone_may_average_its_weights_where_its_donor_did_not_or_the_other_way_round(tmp_path: Path) -> None:
    budget = {"steps": 10, "eval_every": 5}
    for donor, clone in ((0.0, 0.7), (0.7, 0.0)):
        saved, end = tmp_path / f"{donor}", tmp_path / f"{donor}-end"
        reports_of(small_loop, {**budget, "ema_decay": donor}, save_at=1, save_to=saved)
        reports_of(small_loop, {**budget, "ema_decay": clone}, start_from=saved, save_at=1, save_to=end)
        whole = reports_of(small_loop, {**budget, "ema_decay": clone}, save_at=2, save_to=tmp_path / f"{donor}-whole")
        assert len(whole) == 2
        trained_model, same = (
            state.get("trained_model", state["model"])
            for state in (read_state(end), read_state(tmp_path / f"{donor}-whole"))
        )
        assert all(torch.equal(trained_model[name], same[name]) for name in same)
