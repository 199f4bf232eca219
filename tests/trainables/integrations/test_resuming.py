"""A trial of each trainer goes on from its checkpoint, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import BertForSequenceClassification

from tests.sessions import reports_of
from tests.trainer_loops import hugging_face
from trainables.runtime import names
from trainables.runtime.training.fresh_start import fresh_start


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
