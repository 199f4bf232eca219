"""Train loops around the trainers of Hugging Face and Lightning, for workers to import."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, seed_everything
from lightning.pytorch import Trainer as LightningTrainer
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from gaudi_tune.integrations import hugging_face as hf
from gaudi_tune.integrations import lightning as pl
from gaudi_tune.training.session import get_context

TOKENS = torch.arange(32 * 8).reshape(32, 8) * 7 % 11


@contextmanager
def logged(config: dict[str, Any]) -> Iterator[None]:
    """Leave a file with the learning rate of this worker when its loop begins, and with how it ended."""
    log = Path(config["log"]) / str(get_context().get_world_rank())
    log.write_text(f"{config['lr']} begun")
    try:
        yield
    finally:
        log.write_text(f"{config['lr']} ended")


def hugging_face(config: dict[str, Any]) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertForSequenceClassification(
        BertConfig(vocab_size=11, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **sizes)
    )
    if config.get("adapter"):
        from peft import LoraConfig, get_peft_model  # two seconds that no other trial needs

        model = get_peft_model(
            model, LoraConfig(task_type="SEQ_CLS", target_modules=["query", "value"], lora_dropout=0.5)
        )
    data = [{"input_ids": tokens, "label": int(tokens[0]) % 2} for tokens in TOKENS]
    with tempfile.TemporaryDirectory() as folder, logged(config):
        arguments = TrainingArguments(
            output_dir=folder, num_train_epochs=config["epochs"], learning_rate=config["lr"], eval_strategy="epoch",
            save_strategy="no", bf16=config.get("bf16", False), report_to="none", disable_tqdm=True, use_cpu=True,
            gradient_accumulation_steps=config.get("accumulate", 1), **config.get("schedule", {}),
        )  # fmt: skip
        several = {"first": data[:8], "rest": data[8:]} if config.get("several") else None
        callbacks = [] if several else [hf.ReportCallback()]
        evaluated: Any = several or data
        trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=evaluated, callbacks=callbacks)
        if several:
            trainer.add_callback(hf.ReportCallback(trainer))
        trainer.train(resume_from_checkpoint=hf.checkpoint_folder())
        trainer.evaluate()


class Line(LightningModule):
    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr, self.line = lr, torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.line(batch[0]), batch[1])

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.line(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def lightning(config: dict[str, Any]) -> None:
    seed_everything(config.get("seed_everything"), verbose=False)
    points = torch.linspace(-1, 1, 64).unsqueeze(1)
    loader = DataLoader(TensorDataset(points, 3 * points), batch_size=8)
    with logged(config):
        arguments = pl.in_worker(callbacks=Callback(), enable_model_summary=False, enable_progress_bar=False)
        trainer = LightningTrainer(max_epochs=config["epochs"], **arguments)
        trainer.fit(Line(config["lr"]), loader, loader, ckpt_path=pl.checkpoint_file())


LOOPS = {"hugging_face": hugging_face, "lightning": lightning}
