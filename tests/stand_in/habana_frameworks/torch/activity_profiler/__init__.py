"""Takes the place of torch's profiler, as the real one does: it knows HPUs, and torch's own may not."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

import torch.profiler

_TORCHS = torch.profiler.ProfilerActivity


class HabanaProfilerActivity(Enum):
    CPU = 1
    CUDA = 2
    HPU = 3


class HabanaProfile(torch.profiler.profile):
    """A trace that says what was asked for; what an HPU would do, the CPU does here."""

    def __init__(self, *, activities: Iterable[HabanaProfilerActivity], **others: Any) -> None:
        self.asked = [HabanaProfilerActivity(activity).name for activity in activities]
        super().__init__(activities=[_TORCHS.CPU], **others)

    def start_trace(self) -> None:
        super().start_trace()
        self.add_metadata("stand-in", " ".join(self.asked))


torch.profiler.profile = HabanaProfile  # type: ignore[assignment, misc]
torch.profiler.ProfilerActivity = HabanaProfilerActivity  # type: ignore[assignment, misc]
