"""What a trial trains on: what the sweep asks of a trial actor, and the trial actor of its workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Place:
    """What a trial trains on."""

    workers: int
    """As many devices, all of one node unless all trials take several."""
    leaves: int = 0
    """How many free devices of lower numbers are left free (``WorkerGroupSpec.leaves``)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What its train loop gets beside the settings of all trials."""


def leaves_next(got: Sequence[int], leaves: int) -> int:
    """Return how many free devices of lower numbers the next group leaves free, where these may not train together.

    Args:
        got: The numbers of a group's devices.
        leaves: How many it has left free.
    """
    got = sorted(got)
    for passed, first in enumerate(got):
        following = got[passed:]
        if first % len(got) == 0 and following == list(range(first, first + len(following))):
            return leaves + passed
    return leaves
