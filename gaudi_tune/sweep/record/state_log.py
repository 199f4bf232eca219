"""The state of a sweep on disk: a log to which changes are appended."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import cloudpickle
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from gaudi_tune.base.files import atomic_write, from_json, open_regular_file
from gaudi_tune.private.unpickler import CautiousUnpickler

logger = logging.getLogger(__name__)

STATE_LOG = "state.log"
"""The log's name in a sweep's folder."""
TRIALS = "trials"
"""The entry of a part that has one value for each trial; a record has only the trials that have changed."""
PAUSED = "paused"
"""The entry of a record's JSON with the numbers of the trials that wait."""
MAX_GROWTH = 64 * 2**20
"""Bytes that may be appended, besides as many as the whole state takes, before the log is rewritten."""
MAX_RECORD_BYTES = 2**31
"""The largest record that is unpacked."""
MAX_PUBLIC_BYTES = 2**20
"""How long the JSON of a record may be."""
PLAIN_TYPES = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        set, frozenset, complex, datetime, timedelta, Counter,
        FrozenTrial, TrialState, FloatDistribution, IntDistribution, CategoricalDistribution,
    )
}  # fmt: skip
"""The types of the objects that :func:`read_log` makes from a log that it reads as data, by module and name."""
_HEADER = struct.Struct(">QI")
"""The header of a record: its length in bytes, and a checksum of that, so that a damaged length is noticed."""


class StateLog:
    """Writes the log of a sweep.

    A record consists of parts with names, each a dictionary of plain data. The parts are pickled, and reading them in
    full runs whatever the file says: only ``--resume`` does. In front of them, each record has JSON for programs that
    only look at a sweep.

    The first record of this process has the whole state, and replaces the log that was there. Each later one has what
    has changed, until as much has been appended as the whole state takes, and :data:`MAX_GROWTH` besides: then the log
    is rewritten. A record is on disk when :meth:`append` returns. A record that was cut off, by a crash or a full disk,
    is ignored.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / STATE_LOG
        self._size = 0  # bytes of the log; 0 before the first record
        self._first_size = 0  # bytes of its first record, which has the whole state

    @property
    def needs_whole_state(self) -> bool:
        """Whether the next record must have all trials."""
        return self._size == 0 or self._size > MAX_GROWTH + 2 * self._first_size

    def append(self, record: bytes) -> None:
        """Write a record that :func:`pack` made.

        Raises:
            OSError: The disk does not take it. The log is as it was before.
        """
        content = zlib.compress(record, level=1)
        content = _header(len(content)) + content
        if self.needs_whole_state:
            with atomic_write(self._path) as partial:
                partial.write_bytes(content)
            self._size = self._first_size = len(content)
            return
        size, self._size = self._size, 0  # if the log is gone, opening it fails, and the next record begins another
        with self._path.open("r+b") as file:
            self._size = size
            file.seek(size)
            file.truncate()  # removes the beginning of a record that a full disk cut off
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # the machine may crash
        self._size += len(content)


def pack(parts: Mapping[str, Mapping[str, Any]], paused: Collection[int] = ()) -> bytes:
    """Return a record of these parts, by name, and of the numbers of all trials that wait."""
    public = json.dumps({PAUSED: sorted(paused)}).encode()
    # A train loop may report what pickle itself does not take, such as an object of a class in its script.
    return public + b"\n" + cloudpickle.dumps(parts)


def read_log(folder: Path, *, as_data: bool = False) -> dict[str, dict[str, Any]]:
    """Return the parts of the state that the log of a sweep has.

    Args:
        folder: The sweep's folder.
        as_data: Whether to import and run nothing that the log names. Objects of other types than
            :data:`PLAIN_TYPES` are then :class:`Unknown`. Otherwise, for ``--resume`` only, it runs what the log says.

    Raises:
        ValueError: There is no log, it has no whole record, or a record that is not the last is damaged.
        Exception: Another version of this project or of Ray wrote it; or somebody made it, to harm.
    """
    parts: dict[str, dict[str, Any]] = {}
    unpickler = _DataUnpickler if as_data else pickle.Unpickler
    for _, pickled in _unpack_records(folder):
        for name, part in unpickler(io.BytesIO(pickled)).load().items():
            if TRIALS in part:  # they are added to the trials so far, which are not copied for each record
                trials = parts.get(name, {}).get(TRIALS, {})
                trials.update(part[TRIALS])
                part[TRIALS] = trials
            parts[name] = part
    if not parts:
        raise ValueError(f"{STATE_LOG} has no whole record")
    return parts


class _Inert(type):
    """The type of :class:`Unknown`: to call it, or to put something into it, has no effect."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls

    def __setitem__(cls, key: Any, value: Any) -> None:
        pass


class Unknown(metaclass=_Inert):
    """Stands in a log that was read as data for functions, types and objects of unknown names alike."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return this type itself, which may be that of another object."""
        return cls

    @classmethod
    def append(cls, *values: Any) -> None:
        """Do nothing."""

    extend = add = append


class _DataUnpickler(CautiousUnpickler):
    """An unpickler that knows a few types, and looks no other name up."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a type of :data:`PLAIN_TYPES`; :class:`Unknown` in place of anything else."""
        return PLAIN_TYPES.get((module, name), Unknown)

    def load_build(self) -> None:
        """Set the attributes of an object; those of :class:`Unknown`, which has none, are dropped."""
        if self.stack[-2] is Unknown:
            self.stack.pop()
        else:
            super().load_build()

    dispatch: ClassVar[dict[int, Any]] = {**CautiousUnpickler.dispatch, pickle.BUILD[0]: load_build}


def read_paused(folder: Path) -> set[int]:
    """Return the trials that waited when the log was written last; none if it cannot be read.

    Reads data alone, and runs nothing.
    """
    paused = set[int]()
    with (
        suppress(ValueError, LookupError, TypeError, OSError, zlib.error),
        open_regular_file(folder / STATE_LOG) as file,
    ):
        for record, is_whole in _packed_records(file):
            # The JSON is at the beginning of a record, and the rest is not needed.
            public, end_of_line, _ = zlib.decompressobj().decompress(record, MAX_PUBLIC_BYTES).partition(b"\n")
            if is_whole and end_of_line:
                paused = {int(number) for number in from_json(public)[PAUSED]}
    return paused


def _unpack_records(folder: Path) -> Iterator[tuple[Any, bytes]]:
    """Yield the JSON and the pickled parts of each whole record of a log."""
    try:
        file = open_regular_file(folder / STATE_LOG)
    except FileNotFoundError as error:
        raise ValueError(f"there is no {STATE_LOG}") from error
    with file:
        problem: Exception | None = None
        was_whole = has_one_before = False
        for record, is_whole in _packed_records(file):
            if problem is not None:
                raise ValueError(f"a record in the middle of {STATE_LOG} is damaged") from problem
            try:
                unpacked = _unpack(record)
            except zlib.error as error:
                problem, was_whole = error, is_whole
                continue
            public, _, pickled = unpacked.partition(b"\n")
            yield from_json(public[:MAX_PUBLIC_BYTES]), pickled
            has_one_before = True
        if was_whole and has_one_before:  # it was not cut off, as by a crash
            logger.warning("%s: its last record is damaged, and the one before it counts", folder / STATE_LOG)


def _packed_records(file: BinaryIO) -> Iterator[tuple[bytes, bool]]:
    """Yield the records of a log, packed, and whether each has its whole length. The last one may be cut off.

    Raises:
        ValueError: The length of a record is damaged, or too large.
    """
    while len(header := file.read(_HEADER.size)) == _HEADER.size:
        length, _ = _HEADER.unpack(header)
        if header != _header(length):
            offset = file.tell() - len(header)
            if not header.strip(b"\0") and not any(part.strip(b"\0") for part in iter(partial(file.read, 2**20), b"")):
                return  # a crash left room for a record that was not written
            raise ValueError(f"the length of a record in {STATE_LOG} is damaged, at byte {offset}")
        if length > MAX_RECORD_BYTES:
            raise ValueError(f"a record of {STATE_LOG} has more than {MAX_RECORD_BYTES / 2**30:.0f} GB")
        record = file.read(length)
        yield record, len(record) == length
        if len(record) < length:
            return  # a running sweep may just write the rest


def _unpack(record: bytes) -> bytes:
    """Return what was packed into a record; a ``zlib.error`` if it is damaged, which its checksum tells."""
    packed = zlib.decompressobj()
    unpacked = packed.decompress(record, MAX_RECORD_BYTES)
    if packed.unconsumed_tail:
        raise ValueError(f"a record of {STATE_LOG} has more than {MAX_RECORD_BYTES / 2**30:.0f} GB")
    if not packed.eof:
        raise zlib.error("the record is cut off")
    return unpacked


def _header(length: int) -> bytes:
    return _HEADER.pack(length, zlib.crc32(length.to_bytes(8, "big")))
