"""The devices of a trial, which the sweep tells its trial actor, and the trial actor its workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Place:
    """What a trial trains on."""

    workers: int
    """How many workers train it, with one device each. They are on one node, unless all trials span several nodes."""
    numbers: tuple[int, ...] = ()
    """The numbers of the devices on their node. Empty: any that Ray assigns."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the train loop for this trial alone, besides those of all trials."""
