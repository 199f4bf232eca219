"""What a trial trains on: what the sweep asks of a trial actor, and the trial actor of its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Place:
    """What a trial trains on."""

    workers: int
    """As many devices, all of one node unless all trials take several."""
    numbers: tuple[int, ...] = ()
    """Of these devices; empty: whichever Ray hands out."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What its train loop gets beside the settings of all trials."""
