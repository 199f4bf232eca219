"""The arguments of Lightning's Trainer in a worker."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins import MixedPrecision
from ray.train.lightning import RayLightningEnvironment
from torch.utils.data import DataLoader, TensorDataset

from gaudi_tune.devices.find import DEVICE
from gaudi_tune.integrations.lightning import ReportCallback, in_worker
from tests.helpers.sessions import reports_of
from tests.helpers.trainer_loops import Line


def test_arguments_replace_the_defaults_and_are_added() -> None:
    given = in_worker(enable_progress_bar=True, precision="bf16-true", devices=1)
    assert (given["enable_progress_bar"], given["precision"], given["devices"]) == (True, "bf16-true", 1)
    assert in_worker().items() >= {"enable_progress_bar": False, "logger": False, "devices": "auto"}.items()
    assert in_worker(enable_checkpointing=False)["enable_checkpointing"]


def test_an_hpu_is_refused_unless_the_user_brings_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICE, "hpu")
    with pytest.raises(ValueError, match="has none for hpu; tune with --device cpu"):
        in_worker()
    assert in_worker(accelerator="cpu")["accelerator"] == "cpu"


class Counts(Line):
    """Logs the epoch in validation, and ten times as much where Lightning wants what a training epoch comes to."""

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("validated", float(self.current_epoch + 1))

    def on_train_epoch_end(self) -> None:
        self.log("trained", 10.0 * (self.current_epoch + 1))


@pytest.mark.parametrize("every", [1, 2])
def test_a_report_has_what_its_own_epoch_has_logged(every: int) -> None:
    def loop(config: dict[str, Any]) -> None:
        points = torch.linspace(-1, 1, 16).unsqueeze(1)
        loader = DataLoader(TensorDataset(points, 3 * points), batch_size=16)
        quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "check_val_every_n_epoch": every}
        trainer = Trainer(max_epochs=4, accelerator="cpu", callbacks=[ReportCallback()], **quiet)
        trainer.fit(Counts(0.1), loader, loader)
        assert type(trainer.callbacks[-1]) is ReportCallback, "Lightning would write checkpoints of its own"

    reports = [{name: float(value) for name, value in report.items()} for report in reports_of(loop, {})]
    expected = [{"epoch": n, "step": n, "validated": n, "trained": 10 * n} for n in range(every, 5, every)]
    assert reports == expected


class Mine(ReportCallback):
    """A callback that reports in another way."""


@pytest.mark.parametrize(
    ("callbacks", "kinds"),
    [
        (None, [ReportCallback]),
        (Callback(), [Callback, ReportCallback]),
        ([Callback(), Callback()], [Callback, Callback, ReportCallback]),
        ([Mine(), Callback()], [Mine, Callback]),
    ],
)
def test_callbacks_come_before_the_one_that_reports(callbacks: Any, kinds: list[type]) -> None:
    assert [type(callback) for callback in in_worker(callbacks=callbacks)["callbacks"]] == kinds


def test_plugins_keep_rays_environment() -> None:
    plugins = in_worker(plugins=MixedPrecision("bf16-mixed", "cpu"))["plugins"]
    assert [type(plugin) for plugin in plugins] == [MixedPrecision, RayLightningEnvironment]
