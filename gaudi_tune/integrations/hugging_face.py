"""Hugging Face's Trainer as a train loop: a callback reports each evaluation."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, save_fsdp_model, save_fsdp_optimizer
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME

from gaudi_tune.base import names
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.integrations.plateau import stepped_plateau
from gaudi_tune.training.session import Sharded, get_checkpoint, report

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

    _training = _shards = False

    def __init__(self, trainer: Trainer | None = None) -> None:
        """Make the callback of any Trainer. One that uses ``deepspeed`` has to be named, since its engine saves; and
        one whose ``eval_dataset`` has several by name, since all of them make one report.

        ``trainer.add_callback(ReportCallback(trainer))`` adds it.
        """
        self._trainer = trainer
        self._evaluated: dict[str, float] = {}

    def on_init_end(self, args: TrainingArguments, *_: Any, **parts: Any) -> None:
        """Refuse a Trainer whose sharded model cannot be saved.

        Raises:
            ValueError: It shards with DeepSpeed, and this callback does not have it; or it would train without
                sharding, since accelerate does not shard on CPUs.
        """
        if args.deepspeed and self._trainer is None:
            raise _without_trainer("with deepspeed, whose engine saves")
        self._shards = bool(args.world_size > 1 and args.fsdp)
        if self._shards and AcceleratorState().distributed_type != DistributedType.FSDP:
            raise ValueError(
                f"fsdp must be off on a {args.device.type}, on which accelerate does not shard, but got {args.fsdp!r}; "
                f"leave it out"
            )

    def on_train_begin(self, args: TrainingArguments, *_: Any, model: Any = None, **parts: Any) -> None:
        """Begin to report, after the same check for a callback that was added later."""
        self.on_init_end(args)
        if self._shards:
            DEVICE_TYPES[args.device.type].adapt_sharded(model)
        self._training = True

    def on_train_end(self, *_: Any, **parts: Any) -> None:
        """Stop reporting: an evaluation of the trained model is not part of the trial."""
        self._training = False

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, *_: Any, metrics: dict[str, float], model: Any, **parts: Any
    ) -> None:
        """Report, and return when the trial may continue."""
        if not self._training or not state.global_step:
            return
        self._evaluated |= metrics
        datasets = self._trainer.eval_dataset if self._trainer is not None else None
        if isinstance(datasets, dict):
            if f"eval_{list(datasets)[-1]}_runtime" not in metrics:
                return  # the Trainer goes on to the next one
        elif "eval_runtime" not in metrics and any(name.endswith("_runtime") for name in metrics):
            raise _without_trainer("with several datasets to evaluate, which make one report")
        metrics, self._evaluated = self._evaluated, {}
        progress = {names.EPOCH: state.epoch or 0.0, names.STEP: state.global_step}
        monitored = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        engine = self._trainer.model_wrapped if self._trainer is not None and args.deepspeed else None
        parts |= {"device": args.device.type, "shards": self._shards or engine is not None, "engine": engine}
        save = partial(_save, model, parts, state, metrics.get(monitored))
        report({**metrics, **progress}, save=Sharded(save) if parts["shards"] else save)


def _without_trainer(where: str) -> ValueError:
    return ValueError(
        f"ReportCallback must have its Trainer {where}, but got none; make the Trainer first, and call "
        f"trainer.add_callback(ReportCallback(trainer))"
    )


def checkpoint_folder() -> str | None:
    """Return the folder for ``trainer.train(resume_from_checkpoint=...)``; None for a new trial."""
    checkpoint = get_checkpoint()
    return None if checkpoint is None else str(checkpoint.path)


def _save(model: Any, parts: Mapping[str, Any], state: TrainerState, monitored: float | None, folder: Path) -> None:
    """Write the files that ``resume_from_checkpoint`` and, if the model is not sharded, ``from_pretrained`` read."""
    if parts["engine"] is not None:
        parts["engine"].save_checkpoint(str(folder), exclude_frozen_parameters=hasattr(model, "peft_config"))
    elif parts["shards"]:
        accelerate = AcceleratorState()
        save_fsdp_model(accelerate.fsdp_plugin, accelerate, model, str(folder), adapter_only=True)
        save_fsdp_optimizer(accelerate.fsdp_plugin, accelerate, parts["optimizer"], model, str(folder))
    else:
        model.save_pretrained(folder)
    if not state.is_world_process_zero:
        return
    with stepped_plateau(parts["lr_scheduler"], monitored):
        if not parts["shards"]:
            torch.save(parts["optimizer"].state_dict(), folder / OPTIMIZER_NAME)
        torch.save(parts["lr_scheduler"].state_dict(), folder / SCHEDULER_NAME)
    state.save_to_json(str(folder / TRAINER_STATE_NAME))
    torch.save(_states_of_generators(parts["device"]), folder / GENERATORS_FILE)


def _states_of_generators(device: str) -> dict[str, Any]:
    states = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.random.get_rng_state()}
    if device != "cpu":
        states[device] = getattr(torch, device).random.get_rng_state()
    return states
