"""LoRA as transformers and peft have it, written out: from rows of JSON to losses and weights of the adapter.

Of this project's it has only the adapter to start from, and the batches with their order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_schedule_with_warmup

from gaudi_tune.base import names
from gaudi_tune.recipes.loading import TrainSampler
from gaudi_tune.training.fresh_start import fresh_start

PASSES = 2


def conversations(config: Any, split: str, count: int) -> list[dict[str, list[int]]]:
    """Return tokens and labels: each question and its answer in the chat template, of which the answer is learned."""
    tokenizer = AutoTokenizer.from_pretrained(config.model)
    samples = []
    for line in (Path(config.data) / f"{split}.jsonl").read_text().splitlines()[:count]:
        row = json.loads(line)
        chat = [{"role": "user", "content": row["instruction"]}, {"role": "assistant", "content": row["output"]}]
        asked = tokenizer.apply_chat_template(chat[:1], add_generation_prompt=True, return_dict=False)
        ids = tokenizer.apply_chat_template(chat, return_dict=False)
        labels = [-100] * len(asked) + ids[len(asked) :]
        samples.append({"input_ids": ids[: config.max_length], "labels": labels[: config.max_length]})
    return samples


def collated(samples: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Return a batch with padding at the right, and a mask of it."""
    longest = max(len(sample["input_ids"]) for sample in samples)
    fills = {"input_ids": 0, "labels": -100, "attention_mask": 0}
    rows: dict[str, list[list[int]]] = {name: [] for name in fills}
    for sample in samples:
        for name, values in {**sample, "attention_mask": [1] * len(sample["labels"])}.items():
            rows[name].append(values + [fills[name]] * (longest - len(values)))
    return {name: torch.tensor(values) for name, values in rows.items()}


def learned(batch: dict[str, torch.Tensor]) -> int:
    """Return the number of tokens in the answers."""
    return int((batch["labels"][:, 1:] != -100).sum())


def train_with_peft(
    config: Any, world: int, epochs: int, steps: int, val_samples: int
) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Train a trial for so many steps an epoch. Return the losses of each epoch, and the adapter's weights."""
    fresh_start(config.seed)
    base = AutoModelForCausalLM.from_pretrained(config.model, torch_dtype=torch.float32)
    lora = LoraConfig(
        r=config.rank, lora_alpha=int(2 * config.rank), target_modules="all-linear", task_type="CAUSAL_LM"
    )
    fresh_start(config.seed)
    model = get_peft_model(base, lora)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=config.lr, weight_decay=config.weight_decay)
    schedule = get_cosine_schedule_with_warmup(optimizer, round(config.warmup * epochs * steps), epochs * steps)
    train, val = (
        conversations(config, "train", config.train_samples),
        conversations(config, "validation", val_samples),
    )
    samplers = [TrainSampler(len(train), config, rank, world) for rank in range(world)]
    reports = []
    for epoch in range(epochs):
        for sampler in samplers:
            sampler.start_at(epoch, 0)
        orders, epoch_loss = [iter(sampler) for sampler in samplers], 0.0
        for _ in range(steps):
            model.train()
            passes = [next(order).indices for order in orders for _ in range(PASSES)]
            batches = [collated([train[index] for index in indices]) for indices in passes]
            tokens = sum(map(learned, batches))
            for batch in batches:
                loss = model(**batch, num_items_in_batch=torch.tensor(tokens)).loss
                loss.backward()
                epoch_loss += float(loss.detach())
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            parts = [(float(model(**batch).loss), learned(batch)) for batch in (collated([sample]) for sample in val)]
        val_loss = sum(loss * count for loss, count in parts) / sum(count for _, count in parts)
        reports.append({names.TRAIN_LOSS: epoch_loss / steps, names.VAL_LOSS: val_loss})
    return reports, {name: weight.detach() for name, weight in get_peft_model_state_dict(model).items()}
