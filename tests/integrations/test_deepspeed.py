"""Trials of two workers whose Trainer shards with DeepSpeed, where that is installed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

from gaudi_tune.group.errors import WorkerGroupError
from gaudi_tune.integrations.hugging_face import ReportCallback, checkpoint_folder
from gaudi_tune.training.session import get_context
from tests.helpers.groups import start_group

pytest.importorskip("deepspeed")
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


class Killed(TrainerCallback):
    """Kills rank 1 once, when the third epoch begins."""

    def __init__(self, once: Path) -> None:
        self._once = once

    def on_epoch_begin(self, args: TrainingArguments, state: Any, *_: Any, **parts: Any) -> None:
        if state.epoch and round(state.epoch) == 2 and get_context().get_world_rank() == 1 and not self._once.exists():
            self._once.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def loop(config: dict[str, Any]) -> None:
    """Train three epochs with ZeRO of a stage; 0: without DeepSpeed."""
    sharding: dict[str, Any] = {}
    if config["stage"]:
        import deepspeed

        # Its kernel for shared memory takes minutes to compile, and gloo does the same.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        own = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
        sharding = {"deepspeed": {"zero_optimization": {"stage": config["stage"]}, **dict.fromkeys(own, "auto")}}
    arguments = TrainingArguments(
        output_dir=f"{config['log']}/{get_context().get_world_rank()}", num_train_epochs=3, learning_rate=0.01,
        per_device_train_batch_size=4, eval_strategy="epoch", save_strategy="no", report_to="none", disable_tqdm=True,
        use_cpu=True, **sharding,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **SIZES))
    data = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(16)]
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data)
    if "killed" in config:
        trainer.add_callback(Killed(Path(config["killed"])))
    trainer.add_callback(ReportCallback(trainer))
    trainer.train(resume_from_checkpoint=checkpoint_folder())


@pytest.fixture
def group(host: Any, tmp_path: Path) -> Iterator[Any]:
    started = start_group(host, loop, 2, tmp_path / "group")
    yield started
    started.exit()


def losses(group: Any, config: dict[str, Any], checkpoint: Path | None = None) -> list[float]:
    reports = [group.start_trial(config, None if checkpoint is None else str(checkpoint))]
    while reports[-1]["kind"] == "metrics":
        reports.append(group.next_report())
    return [report["metrics"]["eval_loss"] for report in reports[:-1]]


@pytest.mark.parametrize("stage", [2, 3])
def test_a_trial_is_saved_paused_killed_and_goes_on(stage: int, group: Any, host: Any, tmp_path: Path) -> None:
    config, saved = {"stage": stage, "log": str(tmp_path)}, tmp_path / "saved"
    whole = losses(group, {**config, "stage": 0})
    through = losses(group, config)
    assert through == pytest.approx(whole, rel=1e-5)
    assert len(set(through)) == 3
    group.start_trial({**config, "killed": str(tmp_path / "killed")}, None)
    group.save(str(saved))
    parts = [file for file in saved.rglob("*_optim_states.pt") if "zero_pp_rank_" in file.name]
    assert len(parts) == 2, "one of each worker"
    assert group.next_report()["metrics"]["eval_loss"] == through[1]
    with pytest.raises(WorkerGroupError):
        group.next_report()
    another = start_group(host, loop, 2, tmp_path / "another")
    assert losses(another, config, saved) == through[1:]
    another.exit()
