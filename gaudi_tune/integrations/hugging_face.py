"""Hugging Face's Trainer as a train loop: a callback reports each evaluation."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME

from gaudi_tune.base import names
from gaudi_tune.integrations.plateau import stepped_plateau
from gaudi_tune.training.session import get_checkpoint, report

GENERATORS_FILE = "rng_state.pth"
"""The name that the Trainer expects."""


class ReportCallback(TrainerCallback):
    """Reports each evaluation of a Trainer, with ``eval_strategy="epoch"`` or ``"steps"``.

    If the trial is stopped there, it ends on all of its workers, since all wait for the same answer. A checkpoint is
    written only when the sweep requests one, so the Trainer need not write any (``save_strategy="no"``). It has the
    model, the optimizer, the schedule, the position, and the states of the random generators, which the Trainer reads
    where a trial has one worker.

    >>> from transformers import Trainer, TrainingArguments
    >>> from gaudi_tune import Experiment, tune
    >>> def train_loop(config):
    ...     arguments = TrainingArguments("out", eval_strategy="epoch", save_strategy="no", learning_rate=config["lr"])
    ...     data = {"train_dataset": ..., "eval_dataset": ...}
    ...     trainer = Trainer(..., arguments, **data, callbacks=[ReportCallback()])  # your model first
    ...     trainer.train(resume_from_checkpoint=checkpoint_folder())
    >>> space = {"lr": tune.loguniform(1e-6, 1e-3)}
    >>> print(Experiment(train_loop=train_loop, space=space, metric="eval_loss").objective)
    min eval_loss
    """

    _training = False

    def on_init_end(self, args: TrainingArguments, *_: Any, **parts: Any) -> None:
        """Refuse a Trainer that shards its model over the workers.

        Raises:
            ValueError: Rank 0 saves alone, and would wait for ever for what the other ranks have of the model.
        """
        sharding = [name for name in ("fsdp", "deepspeed") if getattr(args, name)]
        if sharding and args.world_size > 1:
            raise ValueError(
                f"{sharding[0]} must be off in a trial on several devices, but got {getattr(args, sharding[0])!r}: a "
                f"checkpoint is written by one worker, which would have a part of the model; leave it out, or train "
                f"an adapter (PEFT), which leaves more memory free"
            )

    def on_train_begin(self, args: TrainingArguments, *_: Any, **parts: Any) -> None:
        """Begin to report, after the same check for a callback that was added later."""
        self.on_init_end(args)
        self._training = True

    def on_train_end(self, *_: Any, **parts: Any) -> None:
        """Stop reporting: an evaluation of the trained model is not part of the trial."""
        self._training = False

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        model: Any,
        **parts: Any,
    ) -> None:
        """Report, and return when the trial may continue."""
        if not self._training or not state.global_step:
            return
        progress = {names.EPOCH: round(state.epoch or 0.0, 3), names.STEP: state.global_step}
        monitored = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        parts["device"] = args.device.type
        report({**metrics, **progress}, save=partial(_save, model, parts, state, metrics.get(monitored)))


def checkpoint_folder() -> str | None:
    """Return the folder for ``trainer.train(resume_from_checkpoint=...)``; None for a new trial."""
    checkpoint = get_checkpoint()
    return None if checkpoint is None else str(checkpoint.path)


def _save(model: Any, parts: Mapping[str, Any], state: TrainerState, monitored: float | None, folder: Path) -> None:
    """Write the files that ``resume_from_checkpoint`` and ``from_pretrained`` read."""
    model.save_pretrained(folder)
    with stepped_plateau(parts["lr_scheduler"], monitored):
        torch.save(parts["optimizer"].state_dict(), folder / OPTIMIZER_NAME)
        torch.save(parts["lr_scheduler"].state_dict(), folder / SCHEDULER_NAME)
    state.save_to_json(str(folder / TRAINER_STATE_NAME))
    torch.save(_states_of_generators(parts["device"]), folder / GENERATORS_FILE)


def _states_of_generators(device: str) -> dict[str, Any]:
    states = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state()}
    if device != "cpu":
        states[device] = getattr(torch, device).random.get_rng_state()
    return states
