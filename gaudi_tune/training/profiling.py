"""A trace of some steps of a trial, taken by torch's profiler."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gaudi_tune.base.writing import atomic_write
from gaudi_tune.devices.device import DeviceType

logger = logging.getLogger(__name__)

WARM_UP = 10
"""Steps of a trial before its trace begins: they compile, and fill what loads ahead."""
TRACE_FILE = "trace.json.gz"
"""In the folder of the trial; Perfetto opens it as it is."""


class Profile(NamedTuple):
    """What is wanted of a trial."""

    steps: int
    file: str
    """Path of the trace, on every node."""


_wanted: Profile | None = None


@contextmanager
def profiling(profile: Profile | None) -> Iterator[None]:
    """Have the loop that is called inside the block take this trace; None: it takes none."""
    global _wanted
    previous, _wanted = _wanted, profile
    try:
        yield
    finally:
        _wanted = previous


@contextmanager
def traced(device: DeviceType, steps: int) -> Iterator[Callable[[], None]]:
    """Trace what is wanted of so many steps, the first of a trial, and hand out what must be called after each of them.

    The trace begins after :data:`WARM_UP` steps; where there are too few, with the last that are wanted, and never with
    the first.
    """
    if _wanted is None or steps < 2:
        if _wanted is not None and steps == 1:
            logger.warning("no trace: the first report comes after one step, which is never traced; report less often")
        yield lambda: None
        return
    from torch.profiler import profile, schedule

    file, wanted = Path(_wanted.file), min(_wanted.steps, steps - 1)
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
