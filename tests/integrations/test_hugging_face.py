"""What Hugging Face's Trainer is refused before it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

from gaudi_tune.integrations.hugging_face import ReportCallback


@pytest.mark.parametrize("added", ["at once", "later"])
@pytest.mark.parametrize("sharding", ["fsdp", "deepspeed"])
def test_a_sharded_model_on_several_devices_is_refused(
    sharding: str, added: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 would wait for ever for the others' parts as it saves. The sharding itself would need several devices."""
    arguments = TrainingArguments(output_dir=str(tmp_path), report_to="none", use_cpu=True)
    model, callback = torch.nn.Linear(1, 1), ReportCallback()
    trainer = Trainer(model, arguments, train_dataset=[{"x": 1}])
    setattr(arguments, sharding, "full_shard")
    parts: tuple[Any, ...] = (arguments, trainer.state, trainer.control)
    callback.on_init_end(*parts)  # nothing is sharded over one device
    monkeypatch.setattr(TrainingArguments, "world_size", 2)
    check = callback.on_init_end if added == "at once" else callback.on_train_begin
    with pytest.raises(ValueError, match=f"^{sharding} must be off in a trial on several"):
        check(*parts)
