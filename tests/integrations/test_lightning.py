"""The arguments of Lightning's Trainer in a worker."""

from __future__ import annotations

from typing import Any

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.plugins import MixedPrecision
from ray.train.lightning import RayLightningEnvironment

from gaudi_tune.devices.find import DEVICE
from gaudi_tune.integrations.lightning import ReportCallback, in_worker


def test_arguments_replace_the_defaults_and_are_added() -> None:
    given = in_worker(enable_progress_bar=True, precision="bf16-true", devices=1)
    assert (given["enable_progress_bar"], given["precision"], given["devices"]) == (True, "bf16-true", 1)
    assert in_worker().items() >= {"enable_progress_bar": False, "logger": False, "devices": "auto"}.items()


def test_an_hpu_is_refused_unless_the_user_brings_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICE, "hpu")
    with pytest.raises(ValueError, match="has none for hpu; tune with --device cpu"):
        in_worker()
    assert in_worker(accelerator="cpu")["accelerator"] == "cpu"


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
