"""``gaudi-tune deliver``: what sweeps could not deliver to MLflow before they ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gaudi_tune.base.errors import SweepError
from gaudi_tune.show.trackers.delivery import deliver_left
from gaudi_tune.show.trackers.store import tracking_uri


def deliver(folders: Sequence[Path], uri: str | None) -> int:
    """Deliver what is left of each sweep, and return the exit status: 2 if something stays where it is.

    Args:
        folders: The folders of the sweeps.
        uri: MLflow's tracking URI; None means the one that a sweep takes.
    """
    status = 0
    for folder in folders:
        try:
            size = deliver_left(folder, tracking_uri(uri))
            print(f"{folder}: delivered {size} bytes" if size else f"{folder}: nothing was left to deliver")
        except SweepError as error:  # noqa: PERF203  (the other sweeps are delivered)
            print(f"error: {error}", file=sys.stderr)
            status = 2
    return status
