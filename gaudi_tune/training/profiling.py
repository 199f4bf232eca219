"""A trace of some steps of a trial, taken by torch's profiler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gaudi_tune.base.writing import atomic_write
from gaudi_tune.devices.device import DeviceType

logger = logging.getLogger(__name__)

WARM_UP = 10
"""Steps of a trial before its trace begins: they compile, and fill what loads ahead."""
TRACE_FILE = "trace.json.gz"
"""In the folder of the trial; Perfetto opens it as it is."""


@contextmanager
def traced(device: DeviceType, steps: int, wanted: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Trace some of a trial's first steps, and yield a function that must be called after each step.

    The trace begins after :data:`WARM_UP` steps. If there are too few, it has the last ones, and never the first.

    Args:
        device: The kind of device that the trial trains on.
        steps: How many steps are taken inside the block.
        wanted: How many of them to trace. 0: none.
        folder: Where to write :data:`TRACE_FILE`.
    """
    if wanted and steps == 1:
        logger.warning("no trace: the first report comes after one step, which is never traced; report less often")
    if not wanted or steps < 2:
        yield lambda: None
        return
    from torch.profiler import profile, schedule

    file, wanted = folder / TRACE_FILE, min(wanted, steps - 1)
    before = max(1, min(WARM_UP, steps - wanted))

    def write(profiler: Any) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as partial:
            profiler.export_chrome_trace(str(partial))
        logger.info("steps %d to %d are in %s", before + 1, before + wanted, file)

    with profile(
        activities=_activities(device),
        schedule=schedule(wait=before - 1, warmup=1, active=wanted, repeat=1),
        on_trace_ready=write,
        record_shapes=True,
    ) as profiler:
        yield profiler.step


def _activities(device: DeviceType) -> list[Any]:
    """Return what torch's profiler is to watch: the CPU, and the device if it can."""
    from torch.profiler import ProfilerActivity, profile  # habana puts its own in their place

    try:
        both = [getattr(ProfilerActivity, kind) for kind in dict.fromkeys(("CPU", device.kind.upper()))]
        with profile(activities=both):  # it says so when it starts, which would end the trial
            return both
    except Exception as error:
        logger.warning("the trace covers the CPU alone: %s: %s", type(error).__name__, error)
        return [ProfilerActivity.CPU]
