"""SFTTrainer of TRL computes the same as this project's loop, where it is installed: losses and weights of 20 steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.tune_llm import sample_settings
from gaudi_tune.base import names
from gaudi_tune.recipes.loading import TrainSampler
from gaudi_tune.training.fresh_start import fresh_start
from search_spaces.llm import SAMPLE_BASELINE
from tests.helpers.sessions import reports_of
from trainables import llm
from trainables.llm_config import LlmConfig

trl = pytest.importorskip("trl", reason="TRL is not one of the project's libraries: pip install trl")

STEPS, BATCH = 20, 16


def sft_losses(config: LlmConfig, folder: Path) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Return the loss of each step, and the adapter's weights after the last."""
    rows = list(map(json.loads, (Path(config.data) / "train.jsonl").read_text().splitlines()))
    sampler = TrainSampler(config.train_samples, config, 0, 1)
    order = [index for batch in sampler for index in batch.indices]
    data = []
    for index in order:
        question = [{"role": "user", "content": rows[index]["instruction"]}]
        answer = [{"role": "assistant", "content": rows[index]["output"]}]
        data.append({"prompt": question, "completion": answer})
    fresh_start(config.seed)
    base = AutoModelForCausalLM.from_pretrained(config.model, dtype=torch.float32)
    fresh_start(config.seed)
    lora = LoraConfig(r=config.rank, lora_alpha=2 * config.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    arguments = trl.SFTConfig(
        output_dir=str(folder / "sft"),
        per_device_train_batch_size=BATCH // 2,
        gradient_accumulation_steps=2,
        max_steps=STEPS,
        learning_rate=config.lr,
        weight_decay=config.weight_decay,
        lr_scheduler_type="cosine",
        warmup_steps=4,
        max_grad_norm=0.0,  # its default clips at 1.0
        max_length=config.max_length,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = trl.SFTTrainer(
        model=get_peft_model(base, lora),
        args=arguments,
        train_dataset=Dataset.from_list(data),
        processing_class=AutoTokenizer.from_pretrained(config.model),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, {name: weight.detach() for name, weight in get_peft_model_state_dict(trainer.model).items()}


def test_sft_trainer_takes_the_same_steps(tmp_path: Path) -> None:
    trial: dict[str, Any] = {
        **sample_settings(), **SAMPLE_BASELINE, "steps": STEPS, "eval_every": 1, "seed": 3, "warmup": 4 / STEPS,
        "train_samples": STEPS * BATCH, "val_samples": 1, "batch_size": BATCH, "micro_batch": BATCH // 2,
        "packing": False, "padded_lengths": 1, "lr": 3e-3,
    }  # fmt: skip
    reports = reports_of(llm.train_loop, trial, save_at=STEPS, save_to=tmp_path / "end")
    losses, weights = sft_losses(LlmConfig.from_dict(trial), tmp_path)
    assert [report[names.TRAIN_LOSS] for report in reports] == pytest.approx(losses, rel=1e-5)
    saved = load_file(tmp_path / "end" / "adapter_model.safetensors")
    assert saved.keys() == weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(saved[name], weight, rtol=0, atol=1e-6)
