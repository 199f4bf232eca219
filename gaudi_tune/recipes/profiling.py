"""A trace of some steps of a trial, taken by torch's profiler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gaudi_tune.base.files import atomic_write
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.training.session import TRACE_FILE

logger = logging.getLogger(__name__)

WARM_UP = 10
"""How many steps of a trial run before its trace begins. They compile, and fill the queue of loaded batches."""


@contextmanager
def traced(device: DeviceType, steps: int, traced_steps: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Trace some of a trial's first steps, and yield a function that must be called after each step.

    The trace begins after :data:`WARM_UP` steps. If there are too few, it has the last ones, and never the first.

    Args:
        device: The kind of device that the trial trains on.
        steps: How many steps are taken inside the block.
        traced_steps: How many of them to trace. 0: none.
        folder: Where to write :data:`TRACE_FILE`.
    """
    if traced_steps and steps == 1:
        logger.warning("no trace: the first report comes after one step, which is never traced; report less often")
    if not traced_steps or steps < 2:
        yield lambda: None
        return
    from torch.profiler import profile, schedule

    file, traced_steps = folder / TRACE_FILE, min(traced_steps, steps - 1)
    untraced_steps = max(1, min(WARM_UP, steps - traced_steps))

    def write(profiler: Any) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as partial:
            profiler.export_chrome_trace(str(partial))
        logger.info("steps %d to %d are in %s", untraced_steps + 1, untraced_steps + traced_steps, file)

    with profile(
        activities=_activities(device),
        schedule=schedule(wait=untraced_steps - 1, warmup=1, active=traced_steps, repeat=1),
        on_trace_ready=write,
        record_shapes=True,
    ) as profiler:
        yield profiler.step


def _activities(device: DeviceType) -> list[Any]:
    """Return what torch's profiler records: the CPU, and the device if possible."""
    from torch.profiler import ProfilerActivity, profile  # here, since habana replaces them

    try:
        activities = [getattr(ProfilerActivity, kind) for kind in dict.fromkeys(("CPU", device.kind.upper()))]
        with profile(activities=activities):  # an unsupported device raises here, and not in the trial
            return activities
    except (AttributeError, AssertionError, RuntimeError, ValueError) as error:
        logger.warning("the trace covers the CPU alone: %s: %s", type(error).__name__, error)
        return [ProfilerActivity.CPU]
