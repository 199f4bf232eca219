"""What this project uses of Lightning that it does not promise to keep."""

from __future__ import annotations

from pathlib import Path

import torch
from lightning.pytorch import Trainer
from torch.utils.data import DataLoader, TensorDataset

from gaudi_tune.private.lightning import write_checkpoint
from tests.helpers.trainer_loops import Line


def test_a_checkpoint_of_one_worker_is_what_lightning_writes(tmp_path: Path) -> None:
    points = torch.linspace(-1, 1, 16).unsqueeze(1)
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Line(0.1), DataLoader(TensorDataset(points, 3 * points)))
    trainer.save_checkpoint(tmp_path / "lightnings")
    write_checkpoint(trainer, tmp_path / "ours")
    read = [torch.load(tmp_path / name, weights_only=True) for name in ("lightnings", "ours")]
    assert str(read[0]) == str(read[1])
    assert {"state_dict", "optimizer_states", "loops", "epoch"} <= set(read[1])
