"""The places of the records in the log of a sweep's state."""

from __future__ import annotations

import struct
from collections.abc import Iterator

HEADER = struct.Struct(">QI")
"""A record's length in bytes, and a checksum of that."""


def records_in(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each record of a log begins, after its header, and ends."""
    offset = 0
    while offset + HEADER.size <= len(content):
        begin = offset + HEADER.size
        offset = begin + HEADER.unpack_from(content, offset)[0]
        yield begin, offset
