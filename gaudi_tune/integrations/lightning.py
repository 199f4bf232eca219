"""Lightning's Trainer as a train loop: a callback reports each epoch."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment
from typing_extensions import override

from gaudi_tune.base import names
from gaudi_tune.devices.find import DEVICE
from gaudi_tune.integrations.plateau import stepped_plateau
from gaudi_tune.private.lightning import write_checkpoint
from gaudi_tune.training.session import get_checkpoint, report

CHECKPOINT_FILE = "checkpoint.ckpt"


class ReportCallback(Checkpoint):
    """Reports what a LightningModule has logged, at the end of each training epoch, validation included. With
    ``check_val_every_n_epoch=N`` that is each Nth epoch.

    Lightning calls a Checkpoint after the module, so what that logs in ``on_train_epoch_end`` is reported, too.

    If the trial is stopped there, it ends on all of its workers, since all wait for the same answer. A checkpoint is
    written only when the sweep requests one.
    """

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report, and return when the trial may continue."""
        epoch = trainer.current_epoch + 1
        if trainer.enable_validation and epoch % (trainer.check_val_every_n_epoch or 1):
            return  # what the last validation has logged would count for this epoch
        progress = {names.EPOCH: epoch, names.STEP: trainer.global_step}
        report({**trainer.callback_metrics, **progress}, save=partial(_save, trainer))


def in_worker(*, callbacks: Any = None, plugins: Any = None, **overrides: Any) -> dict[str, Any]:
    """Return the arguments of a Trainer in a worker of a trial, which has its processes and logs already.

    ``Trainer(max_epochs=..., **in_worker())`` trains with as many workers as the trial has.

    >>> from gaudi_tune import Experiment, tune
    >>> def train_loop(config):
    ...     trainer = Trainer(max_epochs=config["epochs"], **in_worker())
    ...     trainer.fit(..., ckpt_path=checkpoint_file())  # your module and its data, made with config["lr"]
    >>> space = {"lr": tune.loguniform(1e-5, 1e-1)}
    >>> print(Experiment(train_loop=train_loop, space=space, metric="val_loss").objective)
    min val_loss

    Args:
        callbacks: A callback or a list; :class:`ReportCallback` follows them, and reports what they have logged.
        plugins: A plugin or a list; Ray's environment follows them.
        overrides: Other arguments of the Trainer, which replace those set here: ``strategy``, ``devices``, ``logger``
            and ``enable_progress_bar``. Whatever ``enable_checkpointing`` says, Lightning adds no checkpoints.

    Raises:
        ValueError: The worker trains on an HPU, which Lightning does not know.
    """
    if os.environ.get(DEVICE) == "hpu" and "accelerator" not in overrides:
        raise ValueError(
            "Lightning must have an accelerator for the device, and has none for hpu; tune with --device cpu or cuda, "
            "or give in_worker(accelerator=..., strategy=...) those of a Gaudi plugin"
        )
    all_callbacks = _as_list(callbacks)
    if not any(isinstance(callback, ReportCallback) for callback in all_callbacks):
        all_callbacks.append(ReportCallback())
    return {
        "strategy": RayDDPStrategy(),
        "devices": "auto",
        "logger": False,
        "enable_progress_bar": False,
        **overrides,
        "enable_checkpointing": True,  # else Lightning refuses a Checkpoint
        "callbacks": all_callbacks,
        "plugins": [*_as_list(plugins), RayLightningEnvironment()],
    }


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def checkpoint_file() -> str | None:
    """Return the file for ``trainer.fit(..., ckpt_path=...)``; None for a new trial."""
    checkpoint = get_checkpoint()
    return None if checkpoint is None else str(Path(checkpoint.path) / CHECKPOINT_FILE)


def _save(trainer: Trainer, folder: Path) -> None:
    with ExitStack() as stack:
        for schedule in trainer.lr_scheduler_configs:
            if schedule.interval == "epoch" and (trainer.current_epoch + 1) % schedule.frequency == 0:
                stack.enter_context(
                    stepped_plateau(schedule.scheduler, trainer.callback_metrics.get(schedule.monitor or ""))
                )
        write_checkpoint(trainer, folder / CHECKPOINT_FILE)
