"""A trial of each trainer goes on from its checkpoint, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertForSequenceClassification

from gaudi_tune.base import names
from gaudi_tune.integrations.lightning import ReportCallback, checkpoint_file
from gaudi_tune.training.fresh_start import fresh_start
from tests.helpers.sessions import hyperparameters_of_each_step, reports_of
from tests.helpers.trainer_loops import Line, hugging_face


def test_hugging_face(tmp_path: Path) -> None:
    config: dict[str, Any] = {"lr": 1e-2, "epochs": 3, "log": str(tmp_path)}
    fresh_start(0)
    through = reports_of(hugging_face, config, save_at=1, save_to=tmp_path / "checkpoint")
    assert [(report[names.EPOCH], report[names.STEP]) for report in through] == [(1, 4), (2, 8), (3, 12)]
    fresh_start(1)
    resumed = reports_of(hugging_face, config, start_from=tmp_path / "checkpoint")
    assert [report["eval_loss"] for report in resumed] == [report["eval_loss"] for report in through[1:]]
    assert through[0]["eval_loss"] != through[1]["eval_loss"]
    assert BertForSequenceClassification.from_pretrained(tmp_path / "checkpoint").config.vocab_size == 11


def test_hugging_face_with_several_datasets_to_evaluate_makes_one_report_of_all(tmp_path: Path) -> None:
    losses = []
    for several in (False, True):
        fresh_start(0)
        reports = reports_of(hugging_face, {"lr": 1e-2, "epochs": 3, "log": str(tmp_path), "several": several})
        parts = [("eval_first_loss", 8), ("eval_rest_loss", 24)] if several else [("eval_loss", 32)]
        losses.append([sum(report[name] * rows for name, rows in parts) / 32 for report in reports])
    assert losses[1] == pytest.approx(losses[0], abs=1e-6)


WAITS: dict[str, Any] = {"patience": 1, "threshold": 1e9, "threshold_mode": "abs"}
"""Any epoch is as bad as the one before."""


class Plateau(Line):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **WAITS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}


def lightning_on_a_plateau(config: dict[str, Any]) -> None:
    points = torch.linspace(-1, 1, 16).unsqueeze(1)
    loader = DataLoader(TensorDataset(points, 3 * points), batch_size=16)
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False}
    trainer = Trainer(max_epochs=6, accelerator="cpu", callbacks=[ReportCallback()], **quiet)
    trainer.fit(Plateau(1.0), loader, loader, ckpt_path=checkpoint_file())


def hugging_face_on_a_plateau(config: dict[str, Any]) -> None:
    schedule = {"lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": WAITS}
    hugging_face({**config, "lr": 1.0, "epochs": 6, "schedule": schedule})


@pytest.mark.parametrize("loop", [hugging_face_on_a_plateau, lightning_on_a_plateau])
def test_a_schedule_that_waits_for_a_plateau_goes_on_as_if_nothing_had_happened(loop: Any, tmp_path: Path) -> None:
    """Trainers take its step after the report at which a trial is saved."""
    config = {"log": str(tmp_path)}
    rates = []
    for session in ({"save_at": 2, "save_to": tmp_path / "checkpoint"}, {"start_from": tmp_path / "checkpoint"}):
        fresh_start(0)
        with hyperparameters_of_each_step() as steps:
            epochs = len(reports_of(loop, config, **session))
        each = len(steps) // epochs
        rates.append([step["lr"] for step in steps[::each]])
    through, resumed = rates
    assert (len(through), len(resumed)) == (6, 4)
    assert resumed == through[2:]
    assert through[2] > through[3] > through[5]


def test_an_adapter_of_peft(tmp_path: Path) -> None:
    """A checkpoint has the adapter alone, and the layers that are trained beside it; dropout goes on, too."""
    config: dict[str, Any] = {"lr": 1e-2, "epochs": 3, "log": str(tmp_path), "adapter": True}
    fresh_start(0)
    through = reports_of(hugging_face, config, save_at=1, save_to=tmp_path / "checkpoint")
    assert (tmp_path / "checkpoint" / "adapter_model.safetensors").exists()
    assert not (tmp_path / "checkpoint" / "model.safetensors").exists()
    fresh_start(0)  # the same base model
    resumed = reports_of(hugging_face, config, start_from=tmp_path / "checkpoint")
    assert [report["eval_loss"] for report in resumed] == [report["eval_loss"] for report in through[1:]]
    assert through[0]["eval_loss"] != through[1]["eval_loss"]
