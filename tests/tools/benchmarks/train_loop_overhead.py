"""What the shared training loop costs over a loop written by hand for the same model.

Runs the sample recipe of every experiment in this process, one thread, an epoch of the one and an epoch of the other in
turn, training and validation included. Both see the same data set, batch size, optimizer and schedule; the hand-written
loop is what a PyTorch tutorial has, with a plain DataLoader. Prints, last, a JSON object with the ratio of the medians
per model: 1.03 means that the shared loop takes 3 % longer. It measures the CPU time of this process, so that other
processes on the machine hardly matter. About 6 minutes.

    python tests/tools/benchmarks/train_loop_overhead.py [model ...]
"""

from __future__ import annotations

import copy
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F  # noqa: N812
from torch.utils.data import DataLoader

import gaudi_tune.recipes.loop
import trainables.image_classifier
from gaudi_tune import Experiment
from gaudi_tune.recipes.loop import train
from gaudi_tune.recipes.task import Task
from gaudi_tune.recipes.training_config import TrainingConfig, num_micro_batches
from gaudi_tune.training.session import open_session

MODELS = ("bert", "resnet50", "resnet50_imagenet", "vit", "resnet18")
EPOCHS = 13
"""Of each loop; the first is left out, for it fills caches."""


class ByHand:
    """A loop written for one model, on one device."""

    def __init__(self, task: Task, config: TrainingConfig) -> None:
        self.task, self.config = task, config
        self.prepare = task.prepare or (lambda batch: batch)
        self.accumulation = num_micro_batches(config, workers=1)
        self.model = copy.deepcopy(task.model)
        self.optimizer = config.make_optimizer(self.model, torch.device("cpu"))
        self.train_loader: DataLoader[Any] = DataLoader(
            task.train_data,
            config.batch_size // self.accumulation,
            shuffle=True,
            drop_last=True,
            collate_fn=lambda batch: batch,
        )
        self.val_loader: DataLoader[Any] = DataLoader(task.val_data, 64, collate_fn=lambda batch: batch)
        steps = len(self.train_loader) // self.accumulation
        self.passes = steps * self.accumulation  # no last step of fewer passes
        schedule = config.make_schedule()
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: schedule.factor(step, EPOCHS * steps, steps)
        )

    def epoch(self) -> float:
        """Train and validate once, and return the seconds."""
        began = time.process_time()
        self.model.train()
        loss_sum = 0.0
        for number, loaded in enumerate(islice(self.train_loader, self.passes), start=1):
            batch = self.prepare(loaded)
            loss = F.cross_entropy(self.task.forward(self.model, batch), batch["labels"])
            (loss / self.accumulation).backward()
            if number % self.accumulation == 0:
                if self.config.clip_norm:
                    torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.schedule.step()
            loss_sum += loss.item()
        self.model.eval()
        right = 0
        with torch.no_grad():
            for loaded in self.val_loader:
                batch = self.prepare(loaded)
                logits = self.task.forward(self.model, batch)
                loss_sum += F.cross_entropy(logits, batch["labels"]).item()
                right += int((logits.argmax(dim=1) == batch["labels"]).sum())
        return time.process_time() - began


class InTurn:
    """A session that runs an epoch by hand after each epoch of the shared loop."""

    folder = Path()

    def __init__(self, by_hand: ByHand) -> None:
        self.by_hand, self.shared_s, self.by_hand_s = by_hand, list[float](), list[float]()
        self._resumed = time.process_time()

    def report(self, metrics: Mapping[str, Any], save: Callable[..., None] | None) -> None:
        self.shared_s.append(time.process_time() - self._resumed)
        self.by_hand_s.append(self.by_hand.epoch())
        self._resumed = time.process_time()

    def save_if_asked(self, save: Callable[..., None]) -> None:
        pass

    def get_checkpoint(self) -> None:
        return None


def compare(experiment: Experiment) -> dict[str, float]:
    """Return the seconds of an epoch of both loops, and their ratio."""
    session: InTurn | None = None

    def in_turn(task: Task, config: TrainingConfig) -> None:
        nonlocal session
        session = InTurn(ByHand(task, config))
        with open_session(session):
            train(task, config)

    config = {**experiment.recipes["sample"].settings(), **experiment.baseline, "epochs": EPOCHS, "lr": 1e-3}
    modules = (gaudi_tune.recipes.loop, trainables.image_classifier)
    with patch.object(modules[0], "train", in_turn), patch.object(modules[1], "train", in_turn):
        experiment.train_loop(config)
    assert session is not None
    shared, by_hand = statistics.median(session.shared_s[1:]), statistics.median(session.by_hand_s[1:])
    return {"shared_s": round(shared, 3), "by_hand_s": round(by_hand, 3), "ratio": round(shared / by_hand, 3)}


def main() -> None:
    results = {}
    for model in sys.argv[1:] or MODELS:
        results[model] = compare(importlib.import_module(f"experiments.tune_{model}").EXPERIMENT)
        print(model, results[model], flush=True)
    print(json.dumps({"ratio": {model: found["ratio"] for model, found in results.items()}, "epochs": results}))


if __name__ == "__main__":
    main()
