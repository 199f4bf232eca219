"""Worker groups that must be up or end soon, and devices on which something goes wrong."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import Any
from unittest.mock import patch

from gaudi_tune.devices.cpu import CPU, Cpu
from gaudi_tune.group import worker_group


def impatient_group(spec: Any) -> Any:
    """Return a worker group that must be up within two seconds."""
    with patch.object(worker_group, "START_TIMEOUT_S", 2):
        return worker_group.WorkerGroup.start(spec, "late")


class Impatient(worker_group.WorkerGroup):
    """A worker group whose workers may take a second to end."""

    def exit(self) -> None:
        """End it as all are ended."""
        with patch.object(worker_group, "EXIT_TIMEOUT_S", 1):
            super().exit()


class Exclusive(Cpu):
    """Cores that nobody else can have until their process has ended as a Python process does."""

    def __init__(self) -> None:
        super().__init__(**{**_of_cpu(), "exclusive": True})


class Lost(Exclusive):
    """Such cores that cannot be measured once a trial has ended."""

    measures_memory = True

    def reset_peak_memory(self) -> None:
        """Measure nothing."""

    def peak_memory_gb(self) -> float:
        """Measure nothing."""
        return 0.0

    def memory_in_use(self) -> float:
        """Fail."""
        raise OSError("the device is lost")


def _of_cpu() -> dict[str, Any]:
    return {field.name: getattr(CPU, field.name) for field in fields(CPU)}


class Unprepared(Cpu):
    """Cores that take seconds to prepare a worker."""

    def __init__(self) -> None:
        super().__init__(**_of_cpu())

    def prepare_worker(self) -> None:
        """Take longer than a group may."""
        time.sleep(6.0)
