"""The state of a sweep on disk: a log, to which what has changed is appended."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle

from gaudi_tune.base.writing import atomic_write

STATE_LOG = "state.log"
"""The log's name in a sweep's folder."""
TRIALS = "trials"
"""The entry of a part that has one value for each trial; a record has only those that have changed."""
PAUSED = "paused"
"""What the JSON of a record has: the numbers of the trials that wait."""
MAY_GROW = 64 * 2**20
"""Bytes that are appended before a log begins again, besides as many as the whole state takes."""
UNREADABLE = (
    ValueError, EOFError, LookupError, AttributeError, ImportError, TypeError, OSError, pickle.UnpicklingError,
)  # fmt: skip
"""What reading a log raises that is torn, or of another version of this project or of Ray."""
_LENGTH = struct.Struct(">QI")
"""What is in front of a record: its length in bytes, and a checksum of that, so that a damaged length is noticed."""


class StateLog:
    """Writes the log of a sweep. A record is a number of parts by name, each a dictionary of plain data.

    The parts are pickled, and reading them runs whatever the file says: only ``--resume`` does. In front of them, each
    record has as JSON what those who only look at a sweep read.

    The first record of this process has the state as a whole, and takes the place of what was there. Each one after it
    has what has changed, until as much has been appended as the whole takes, and :data:`MAY_GROW` besides: then the log
    begins again. A record is on disk when :meth:`append` returns; one that was cut off, by a crash or a full disk,
    counts for nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / STATE_LOG
        self._size = self._whole = 0  # bytes of the log, and of its first record

    @property
    def wants_all(self) -> bool:
        """Whether the next record must have all trials."""
        return self._size == 0 or self._size > MAY_GROW + 2 * self._whole

    def append(self, record: Mapping[str, Mapping[str, Any]], paused: Collection[int] = ()) -> None:
        """Write a record; an OSError, after which the log is as it was, if the disk does not take it.

        ``paused`` are the trials that wait, all of them.
        """
        # A train loop may report what pickle itself does not take, such as an object of a class in its script.
        shown = json.dumps({PAUSED: sorted(paused)}).encode()
        packed = zlib.compress(shown + b"\n" + cloudpickle.dumps(record), level=1)
        packed = _header(len(packed)) + packed
        if self.wants_all:
            with atomic_write(self._path) as new:
                new.write_bytes(packed)
            self._size = self._whole = len(packed)
            return
        at, self._size = self._size, 0  # should the log be gone, the next record begins another
        with self._path.open("r+b") as file:
            self._size = at
            file.seek(at)
            file.truncate()  # what a full disk took of a record before
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())  # the machine may crash
        self._size += len(packed)


def read_log(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the parts of the state that the log of a sweep has. For ``--resume`` only: it runs what the log says.

    Raises:
        ValueError: There is none, it has no whole record, or one that is not the last is damaged. What else unpickling
            raises: another version of this project wrote it.
    """
    parts: dict[str, dict[str, Any]] = {}
    for _, pickled in _unpacked(folder):
        for name, part in pickle.loads(pickled).items():  # noqa: S301  (of this user's own sweep)
            if TRIALS in part:  # added to the dictionary of before, which is not copied for each record
                before = parts.get(name, {}).get(TRIALS, {})
                before.update(part[TRIALS])
                part[TRIALS] = before
            parts[name] = part
    if not parts:
        raise ValueError(f"{STATE_LOG} has no whole record")
    return parts


def read_paused(folder: Path) -> set[int]:
    """Return the trials that waited when the log was written last; none if it cannot be read.

    Reads data alone, and runs nothing.
    """
    found = set[int]()
    with suppress(ValueError, LookupError, TypeError, OSError, RecursionError):
        for shown, _ in _unpacked(folder):
            found = {int(number) for number in shown[PAUSED]}
    return found


def _unpacked(folder: Path) -> Iterator[tuple[Any, bytes]]:
    """Yield what each whole record of a log has: what those who look read, and the pickled parts."""
    try:
        content = (folder / STATE_LOG).read_bytes()
    except FileNotFoundError as error:
        raise ValueError(f"there is no {STATE_LOG}") from error
    for begins, ends in records_in(content):
        try:
            unpacked = zlib.decompress(content[begins:ends])  # which has a checksum
        except zlib.error as error:
            if begins < ends < len(content):
                raise ValueError(f"a record in the middle of {STATE_LOG} is damaged") from error
            break  # it is the last, and was cut off
        shown, _, pickled = unpacked.partition(b"\n")
        yield json.loads(shown), pickled


def _header(length: int) -> bytes:
    """Return what is in front of a record of this length."""
    return _LENGTH.pack(length, zlib.crc32(length.to_bytes(8, "big")))


def records_in(content: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each record of a log begins and ends, without what is in front of it.

    Raises:
        ValueError: The length of a record is damaged.
    """
    at = 0
    while at + _LENGTH.size <= len(content):
        length, _ = _LENGTH.unpack_from(content, at)
        begin = at + _LENGTH.size
        if content[at:begin] != _header(length):
            if not content[at:].strip(b"\0"):
                return  # a crash left room for a record that was not written
            raise ValueError(f"the length of a record in {STATE_LOG} is damaged, at byte {at}")
        at = begin + length
        yield begin, at
