"""``gaudi-tune deliver`` delivers to MLflow what sweeps could not deliver before they ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gaudi_tune.base.errors import SweepError
from gaudi_tune.show.trackers.delivery import deliver_left
from gaudi_tune.show.trackers.store import tracking_uri


def deliver(folders: Sequence[Path], uri: str | None) -> int:
    """Deliver the rest of each sweep's records, and return the exit status: 2 if a sweep's could not be delivered.

    Args:
        folders: The folders of the sweeps.
        uri: MLflow's tracking URI. None: the one that a sweep would use.
    """
    status = 0
    for folder in folders:
        try:
            size = deliver_left(folder, tracking_uri(uri))
            print(f"{folder}: delivered {size} bytes" if size else f"{folder}: nothing was left to deliver")
        except SweepError as error:  # noqa: PERF203  (the other sweeps are still delivered)
            print(f"error: {error}", file=sys.stderr)
            status = 2
    return status
