"""The TorchTrainer of a worker group by Ray's public API alone, where the one of :mod:`.lean_trainer` does not fit Ray.

Its workers are Ray's own, and the trial actor cannot call them. So each has its mailbox in a separate actor.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.train import get_context
from ray.train.torch import TorchConfig, TorchTrainer
from typing_extensions import override

from gaudi_tune.base.failure import Failure
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.group.mailbox import Mailbox, MailboxActor
from gaudi_tune.group.trainer import WorkerGroupSpec


def stock_trainer(spec: WorkerGroupSpec, name: str) -> tuple[TorchTrainer, list[Any]]:
    """Return the TorchTrainer of a group, and the mailboxes of its workers, by rank, which are started."""
    arguments = spec.for_trainer(name)
    mailboxes = [ray.remote(num_cpus=0)(MailboxActor).remote() for _ in range(spec.num_workers)]
    arguments["train_loop_config"]["mailboxes"] = mailboxes
    return TorchTrainer(_serve_trials, torch_config=DeviceTorchConfig(device=spec.device), **arguments), mailboxes


def _serve_trials(config: dict[str, Any]) -> None:
    from gaudi_tune.group import worker

    worker.MAILBOX = FarMailbox(  # type: ignore[attr-defined]
        config.pop("mailboxes")[get_context().get_world_rank()]
    )
    worker.serve_trials(config)


class FarMailbox(Mailbox):
    """The mailbox of this worker, which is in another process."""

    def __init__(self, actor: Any) -> None:
        super().__init__()
        self._actor = actor
        # Without this variable of Ray's, each worker runs in a folder that Ray makes.
        self.started_in = Path.cwd() if os.environ.get("RAY_CHDIR_TO_TRIAL_DIR") == "0" else None

    @override
    def introduction(self) -> dict[str, Any]:
        """Return this worker, which the trial actor kills if it hangs."""
        return {"worker": ray.get_runtime_context().current_actor}

    @override
    def hand_in(self, report: dict[str, Any]) -> dict[str, Any]:
        """Hand in a report, and wait for the command that answers it."""
        command: dict[str, Any] = ray.get(self._actor.call.remote("hand_in", report))
        return command

    @override
    def fail(self, failure: Failure) -> None:
        """Hand in why the trial failed."""
        ray.get(self._actor.call.remote("fail", failure))


@dataclass
class DeviceTorchConfig(TorchConfig):
    """Ray's configuration of torch, for workers that prepare their device first."""

    device: DeviceType | None = None

    def __post_init__(self) -> None:
        """Choose the collective library of the device, such as gloo."""
        assert self.device is not None, "it was given"
        self.backend = self.device.backend

    @property
    def backend_cls(self) -> type[Any]:
        """The class that sets the workers up."""
        return _DeviceBackend


class _DeviceBackend(TorchConfig().backend_cls):  # type: ignore[misc]  # Ray has no public name for it
    def on_start(self, worker_group: Any, backend_config: DeviceTorchConfig) -> None:
        assert backend_config.device is not None, "it was given"
        worker_group.execute(backend_config.device.prepare_worker)
        super().on_start(worker_group, backend_config)
