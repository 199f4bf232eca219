"""Hugging Face's Trainer as a train loop: a callback reports each evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME

from gaudi_tune.base import names
from gaudi_tune.integrations.plateau import after_its_step
from gaudi_tune.training.session import get_checkpoint, report


class ReportCallback(TrainerCallback):
    """Reports each evaluation of a Trainer, with ``eval_strategy="epoch"`` or ``"steps"``.

    A trial that is stopped there ends on all of its workers: all wait for the same answer. A checkpoint is written only
    when one is wanted, so the Trainer need not write any (``save_strategy="no"``). It has model, optimizer,
    schedule and position, and no state of random generators; :func:`checkpoint_folder` goes on from it.
    """

    _training = False

    def on_train_begin(self, *_: Any, **more: Any) -> None:
        """Report from now on."""
        self._training = True

    def on_train_end(self, *_: Any, **more: Any) -> None:
        """Report no more: an evaluation of the trained model is none of the trial."""
        self._training = False

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        model: Any,
        **more: Any,
    ) -> None:
        """Report, and return when the trial goes on."""
        if not self._training or not state.global_step:
            return
        finished = {names.EPOCH: round(state.epoch or 0.0, 3), names.STEP: state.global_step}
        watched = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        report({**metrics, **finished}, save=partial(_save, model, more, state, metrics.get(watched)))


def checkpoint_folder() -> str | None:
    """Return what a trial goes on from, for ``trainer.train(resume_from_checkpoint=...)``; None for a new trial."""
    checkpoint = get_checkpoint()
    return None if checkpoint is None else str(checkpoint.path)


def _save(model: Any, parts: Mapping[str, Any], state: TrainerState, watched: float | None, folder: Path) -> None:
    """Write what ``resume_from_checkpoint`` reads, and ``from_pretrained``; a schedule may look at what is watched."""
    model.save_pretrained(folder)
    with after_its_step(parts["lr_scheduler"], watched):
        torch.save(parts["optimizer"].state_dict(), folder / OPTIMIZER_NAME)
        torch.save(parts["lr_scheduler"].state_dict(), folder / SCHEDULER_NAME)
    state.save_to_json(str(folder / TRAINER_STATE_NAME))
