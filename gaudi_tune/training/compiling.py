"""The compilations of a trial: how long they take, and which group of a node compiles first."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import torch.distributed as dist

from gaudi_tune.base.node_cache import first_alone
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.private.torch import seconds_compiling
from gaudi_tune.training.training_config import TrainingConfig


class Compiling:
    """The compilations of one trial on one worker."""

    def __init__(self, config: TrainingConfig, device_type: DeviceType, rank: int, world: int) -> None:
        self._config, self._device_type, self._rank, self._world = config, device_type, rank, world
        self._parts_run: set[str] = set()
        self._waited_s = 0.0  # waiting for another group that compiled the same graphs
        self._clock = -math.inf

    def seconds(self) -> float:
        """Return the seconds that compilations have taken in this process so far.

        That includes tracing and compiling by torch, compiling by the device's software, and waiting for another group
        that compiled the same graphs.
        """
        counted = self._device_type.counted()
        return seconds_compiling() + (counted.compile_s if counted is not None else 0.0) + self._waited_s

    def clock(self) -> float:
        """Return the time of a clock that stands still during compilations.

        It never runs backwards, although a Gaudi compiles in threads beside the training and beside Dynamo.
        """
        self._clock = max(self._clock, time.perf_counter() - self.seconds())
        return self._clock

    def alone(self, part: Literal["training", "evaluation"]) -> AbstractContextManager[None]:
        """Return the context of a training step or an evaluated batch.

        In a trial's first one, a single group of the node runs the graphs of this signature and compiles them. The
        other groups wait, and then find the graphs on disk: habana itself does not wait for a process that compiles the
        same.
        """
        if part in self._parts_run:
            return nullcontext()
        self._parts_run.add(part)
        folder = self._device_type.compiled_graphs()
        signature = self._config.graph_signature(self._device_type, self._world)
        if folder is None or signature is None:  # graphs are not shared, or nothing is compiled
            return nullcontext()
        return self._first_alone(folder.with_name(f"{folder.name}-compiled"), {**signature, "part": part})

    @contextmanager
    def _first_alone(self, folder: Path, key: Mapping[str, object]) -> Iterator[None]:
        key = {**key, "config": type(self._config).__name__, "workers": self._world}
        entered_at = time.perf_counter()
        with first_alone(folder, key) if self._rank == 0 else nullcontext():
            if self._world > 1 and key["part"] == "training":  # in evaluation, a rank may have nothing to do
                dist.barrier()
            self._waited_s += time.perf_counter() - entered_at
            yield
            self._device_type.synchronize()
