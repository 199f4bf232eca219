"""The state of a sweep on disk: a log to which changes are appended, a line of JSON each."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gaudi_tune.base.errors import damage_is_an_error
from gaudi_tune.base.files import STATE_LOG, atomic_write, open_regular_file
from gaudi_tune.sweep.record.plain_json import from_json_form, json_form
from gaudi_tune.sweep.record.trial_state import TrialState

logger = logging.getLogger(__name__)

TRIALS = "trials"
"""The entry of a part that has one value for each trial; a record has only the trials that have changed."""
PARTS = "parts"
"""The entry of a record with the parts of the state."""
MAX_GROWTH = 64 * 2**20
"""Bytes that may be appended, besides as many as the whole state takes, before the log is rewritten."""
BEGINNING, CHECKSUM_BYTES = b'{"crc32": "', len('00000000", ')
"""How each line begins, and how long the checksum is that follows."""


class StateLog:
    """Writes the log of a sweep.

    A record is a line of JSON, and consists of parts with names, each a dictionary of plain data. Readers run nothing
    of it. The few things that are no data, such as what Tune keeps of a searcher, are in it as pickled bytes, and only
    ``--resume`` loads those.

    The first record of this process has the whole state, and replaces the log that was there. Each later one has what
    has changed, until as much has been appended as the whole state takes, and :data:`MAX_GROWTH` besides: then the log
    is rewritten. So it is after an error, such as that of a full disk. A record is on disk when :meth:`append` returns.
    A record that was cut off, by a crash or a full disk, is ignored.
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
            OSError: The disk does not take it. The log counts as it was before, and the next record begins another.
        """
        if self.needs_whole_state:
            with atomic_write(self._path) as partial:
                partial.write_bytes(record)
            self._size = self._first_size = len(record)
            return
        size, self._size = self._size, 0  # until the record is there: the log may be gone, or the disk full
        with self._path.open("r+b") as file:
            file.seek(size)
            file.write(record)
            file.flush()
            os.fsync(file.fileno())  # the machine may crash
        self._size = size + len(record)


def pack(parts: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return a record of these parts, by name."""
    text = json.dumps({PARTS: {name: json_form(part) for name, part in parts.items()}})
    return _checked(text.encode()[1:] + b"\n")


def read_log(folder: Path, *, as_data: bool = False) -> dict[str, dict[str, Any]]:
    """Return the parts of the state that the log of a sweep has.

    Args:
        folder: The sweep's folder.
        as_data: Whether to leave out what is pickled: it is None then. Otherwise, for ``--resume`` only, it is loaded,
            which runs what the log says.

    Raises:
        ValueError: There is no log, it has no whole record, or a record that is not the last is damaged.
        Exception: Somebody made it, to harm.
    """
    parts: dict[str, dict[str, Any]] = {}
    hook = from_json_form(load_objects=not as_data)
    for line in _whole_lines(folder):
        for name, part in json.loads(line, object_hook=hook)[PARTS].items():
            if TRIALS in part:  # they are added to the trials so far, which are not copied for each record
                trials = parts.get(name, {}).get(TRIALS, {})
                trials.update(part[TRIALS])
                part[TRIALS] = trials
            parts[name] = part
    if not parts:
        raise ValueError(f"{STATE_LOG} has no whole record")
    return parts


def logged_trials(folder: Path) -> list[TrialState]:
    """Return the trials that the log of a sweep has, by number, also those that confirm; none if there is no log.

    Raises:
        SweepError: The log cannot be read.
    """
    if not (folder / STATE_LOG).exists():
        return []
    with damage_is_an_error(str(folder / STATE_LOG)):
        trials = read_log(folder, as_data=True)["sweep"][TRIALS]
        return [TrialState.from_snapshot(trials[number]) for number in sorted(trials)]


def _whole_lines(folder: Path) -> Iterator[bytes]:
    """Yield the records of a log. The last one may be cut off, and is left out then.

    Raises:
        ValueError: There is no log, another version wrote it, or a record that is not the last is damaged.
    """
    try:
        file = open_regular_file(folder / STATE_LOG)
    except FileNotFoundError as error:
        raise ValueError(f"there is no {STATE_LOG}") from error
    with file:
        is_damaged = False
        for number, line in enumerate(file):
            if not number and line.strip(b"\0") and not line.startswith(BEGINNING[: len(line)]):
                raise ValueError(f"{STATE_LOG} is damaged, or another version of this project wrote it")
            if is_damaged:
                raise ValueError(f"a record in the middle of {STATE_LOG} is damaged")
            if not line.endswith(b"\n"):
                return  # it was cut off; or a running sweep may just write the rest
            rest = line[len(BEGINNING) + CHECKSUM_BYTES :]
            is_damaged = line != _checked(rest)
            if not is_damaged:
                yield line
        if is_damaged:
            logger.warning("%s: its last record is damaged, and the one before it counts", folder / STATE_LOG)


def _checked(rest: bytes) -> bytes:
    """Return a line with the checksum of what follows the checksum in it."""
    return b'%s%08x", %s' % (BEGINNING, zlib.crc32(rest), rest)
