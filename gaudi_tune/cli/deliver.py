"""``gaudi-tune deliver FOLDER...``: bring to MLflow what sweeps could not deliver before they ended."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gaudi_tune.base.errors import SweepError
from gaudi_tune.show.trackers.delivery import deliver_left
from gaudi_tune.show.trackers.store import tracking_uri


def main(arguments: Sequence[str] | None = None) -> int:
    """Deliver, and return the exit status: 2 if something stays where it is."""
    parser = argparse.ArgumentParser(prog="gaudi-tune deliver", description=__doc__.split(": ", 1)[1])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of a sweep, for example results/NAME")
    parser.add_argument("--tracking-uri", help="where the sweeps are tracked (default: as for a sweep)")
    asked, status = parser.parse_args(arguments), 0
    for folder in asked.folders:
        try:
            size = deliver_left(folder, tracking_uri(asked.tracking_uri))
            print(f"{folder}: delivered {size} bytes" if size else f"{folder}: nothing was left to deliver")
        except SweepError as error:  # noqa: PERF203
            print(f"error: {error}", file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main())
