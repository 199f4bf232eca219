"""The compilations of a trial: how long they take, and which group of a node compiles first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Literal

import torch.distributed as dist

from gaudi_tune.base.node_cache import first_alone
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.private.torch import seconds_compiling
from gaudi_tune.recipes.loading import Batch
from gaudi_tune.recipes.training_config import TrainingConfig


class Compiling:
    """The compilations of one trial on one worker."""

    def __init__(self, config: TrainingConfig, device_type: DeviceType, rank: int, world: int) -> None:
        self._config, self._device_type, self._rank, self._world = config, device_type, rank, world
        self._run: set[str] = set()
        self._waited_s = 0.0  # waiting for another group that compiled the same graphs
        self._previous_reading, self._counted_s = time.perf_counter(), self._counted()
        self._clock = self._seconds = 0.0

    def seconds(self) -> float:
        """Return the seconds of this trial so far that went to compilations.

        That includes tracing and compiling by torch, compiling by the device's software, and waiting for another group
        that compiled the same graphs.
        """
        self._advance()
        return self._seconds

    def clock(self) -> float:
        """Return the seconds of this trial so far that did not go to compilations: a clock that stands still meanwhile.

        Read it where the device has finished its work, since each reading ends an interval.
        """
        self._advance()
        return self._clock

    def _advance(self) -> None:
        """Divide the time since the last reading into compilations and the rest.

        A Gaudi compiles in eight threads beside Dynamo and counts the seconds of all of them, so the sum may exceed the
        time that has passed. Then all of that time counts as compilation, and the excess is dropped: the next interval
        has nothing to do with it.
        """
        reading, counted_s = time.perf_counter(), self._counted()
        passed_s = reading - self._previous_reading
        compile_s = min(passed_s, max(0.0, counted_s - self._counted_s))
        self._clock += passed_s - compile_s
        self._seconds += compile_s
        self._previous_reading, self._counted_s = reading, counted_s

    def _counted(self) -> float:
        """Return the seconds of compilations in this process, in which those that ran side by side count each."""
        counted = self._device_type.counted()
        return seconds_compiling() + (counted.compile_s if counted is not None else 0.0) + self._waited_s

    def alone(self, part: Literal["training", "evaluation"], batch: Batch) -> AbstractContextManager[None]:
        """Return the context of a training step or an evaluated batch.

        In a trial's first one with samples of this shape, a single group of the node runs the graphs of this signature
        and compiles them. The other groups wait, and then find the graphs on disk: habana itself does not wait for a
        process that compiles the same.
        """
        shapes = {name: [*tensor.shape[1:]] for name, tensor in batch.items()}
        graph = f"{part} of {shapes}"
        if graph in self._run:
            return nullcontext()
        self._run.add(graph)
        folder = self._device_type.compiled_graphs()
        signature = self._config.graph_signature(self._device_type, self._world)
        if folder is None or signature is None:  # graphs are not shared, or nothing is compiled
            return nullcontext()
        key = {**signature, "part": part, "shapes": shapes}
        return self._first_alone(folder.with_name(f"{folder.name}-compiled"), key)

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
