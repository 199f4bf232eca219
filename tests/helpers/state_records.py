"""The places of the records in the log of a sweep's state."""

from __future__ import annotations

from collections.abc import Iterator


def records_in(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each record of a log begins, and ends."""
    offset = 0
    for line in content.splitlines(keepends=True):
        yield offset, offset + len(line)
        offset += len(line)
