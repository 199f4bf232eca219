"""The copy of a running sweep in a storage: a thread sends every change in the sweep's folder to it."""

from __future__ import annotations

import io
import logging
import math
import os
import sqlite3
import tempfile
import threading
import time
import zlib
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gaudi_tune.base.errors import first_line
from gaudi_tune.base.files import (
    GROUPS_FOLDER,
    LOCK_FILE,
    OWNER_FILE,
    STATE_LOG,
    STUDY_FILE,
    atomic_write,
    open_regular_file,
    read_regular_file,
)
from gaudi_tune.storage.owner import BEAT_S, Owner, stored_owner, take
from gaudi_tune.storage.remote import Remote, regular_files
from gaudi_tune.training.checkpoint import SEAL_FILE, read_seal

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Seconds between two looks at the folder."""
LOOK_SHARE = 0.05
"""The largest share of the time that looking may take."""
RESEND_SHARE = 0.1
"""The largest share of the time that sending one file again and again may take while the sweep runs: the study, whose
content the log has, or the report."""
MOST_PAUSE_S = 8.0
"""The most seconds until the next try, after the storage has failed several times."""
WARN_EVERY_S = 60.0
"""Seconds between two warnings that the storage fails."""
GIVE_UP_AFTER_S = 60.0
"""How long the end of a sweep waits for a storage that accepts nothing."""
MOST_COMPARED = 2**20
"""The size in bytes of the largest file whose content is compared to see whether it has changed."""
NOT_COPIED = (LOCK_FILE, OWNER_FILE, f"{GROUPS_FOLDER}/", f"{STUDY_FILE}-", "set-aside-")
"""How the names of files begin that concern this machine only, are unfinished or are not needed."""


class Version(NamedTuple):
    """What tells whether a file has changed: a large one by its time, a small one by its content."""

    size: int
    mark: int


UNKNOWN = Version(-1, 0)
"""The version of a file in the storage that is not the one in the folder."""


class _TakenOverError(Exception):
    """Another machine has the sweep."""


class Mirror:
    """Brings the folder of a sweep to a storage and keeps trying if that fails, in this order:

    1. whole checkpoints, each with its seal last, then the study, then all other files;
    2. the log of the state as it was before step 1, so that every checkpoint that it names is in the storage;
    3. deletions: what is no longer in the folder is deleted from the storage.
    """

    def __init__(self, folder: Path, address: str) -> None:
        """Prepare the copy; :meth:`start` begins it."""
        self._folder, self._remote, self._owner = folder, Remote(address), Owner()
        self._sent: dict[str, Version] = {}  # what the storage has
        self._unsent = 0  # files
        self._due_at: dict[str, float] = {}  # monotonic times before which files are not sent again
        self._beat_at = 0.0  # monotonic time
        self._progress_at = time.monotonic()
        self._error = ""
        self._closing, self._end_event = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="storage", daemon=True)
        self.rival_host = ""
        """The machine that has taken the sweep from this one, which should then end it; "" if none has."""

    def take(self, seen_owner: Owner | None) -> None:
        """Become the owner of the sweep, if ``seen_owner`` still is, or raise a SweepError."""
        take(self._remote, seen_owner, self._owner)

    def start(self) -> None:
        """Start the thread. The folder must be complete, and only this process may write to it or to the storage."""
        self._write_local_owner()
        self._thread.start()

    def _write_local_owner(self) -> None:
        with atomic_write(self._folder / OWNER_FILE) as partial:
            partial.write_bytes(self._owner.text)

    def close(self) -> str:
        """Wait until the storage has everything, or has accepted nothing for a minute.

        Returns:
            What it lacks, in words; "" if nothing.
        """
        if self._closing.is_set() or not (self._thread.is_alive() or self.rival_host):
            return ""  # it was said before, or there is nothing to say
        self._progress_at = time.monotonic()
        self._closing.set()
        while not self._end_event.wait(0.1) and time.monotonic() - self._progress_at < GIVE_UP_AFTER_S:
            pass
        if self.rival_host:
            return f"{self._remote.address} is now written by {self.rival_host}, which has taken the sweep"
        if self._end_event.is_set():
            return ""
        unsent = f"{self._unsent} files" if self._unsent > 0 else "the end of the sweep"
        return f"{self._remote.address} lacks {unsent} ({self._error or 'it does not answer'})"

    def _run(self) -> None:
        pause_s, warned_at = 0.0, -math.inf
        while not self._end_event.is_set():
            is_last_round = self._closing.is_set()
            try:
                look_s = self._bring(is_last_round=is_last_round)
                if is_last_round:
                    self._beat(ended=True)
                    self._write_local_owner()
                    self._end_event.set()
                pause_s, self._error = max(LOOK_EVERY_S, look_s / LOOK_SHARE), ""
            except _TakenOverError:
                logger.error("%s has taken this sweep: %s gets nothing more", self.rival_host, self._remote.address)
                self._end_event.set()
            except Exception as error:  # each library behind Arrow raises its own
                self._error = first_line(error)
                pause_s = min(max(2 * pause_s, LOOK_EVERY_S), MOST_PAUSE_S)
                if time.monotonic() - warned_at >= WARN_EVERY_S:
                    warned_at = time.monotonic()
                    logger.warning("%s does not take it (%s); trying again", self._remote.address, self._error)
            if is_last_round:
                self._end_event.wait(LOOK_EVERY_S)
            else:
                self._closing.wait(pause_s)

    def _bring(self, *, is_last_round: bool) -> float:
        """Bring everything that has changed to the storage, and return how long the search for changes took."""
        self._beat()
        started_at = time.thread_time()
        # The log is read first: what it names was written before it.
        log, log_version = self._changed_log()
        files = self._look()
        look_s = time.thread_time() - started_at
        if not self._sent:
            self._find_sent(files)
        latest_time = math.inf if is_last_round else time.monotonic()
        changed = [
            name
            for name, version in files.items()
            if self._sent.get(name) != version and self._due_at.get(name, 0.0) <= latest_time
        ]
        self._unsent = len(changed) + (log is not None)
        lost_trials = set[str]()
        for name in sorted(changed, key=_turn):
            started_at = time.monotonic()
            try:
                source = (
                    _study_copy(self._folder / name) if name == STUDY_FILE else open_regular_file(self._folder / name)
                )
            except (FileNotFoundError, sqlite3.Error):  # it was just removed; the log has all that a locked study has
                lost_trials.add(name.partition("/")[0])
                continue
            with source:
                self._upload(source, name, files[name])
            self._due_at[name] = time.monotonic() + (time.monotonic() - started_at) / RESEND_SHARE
        if log is not None:
            self._upload(io.BytesIO(log), STATE_LOG, log_version)
        self._delete_gone(files, lost_trials)
        return look_s

    def _upload(self, source: BinaryIO, name: str, version: Version) -> None:
        self._remote.upload(source, name, self._progress)
        self._sent[name] = version
        self._unsent -= 1
        self._progress()

    def _progress(self) -> None:
        """Note that the storage has accepted something, and keep recording that this process runs the sweep."""
        self._progress_at = time.monotonic()
        self._beat()

    def _beat(self, *, ended: bool = False) -> None:
        """Record in the storage that this process runs the sweep, or has ended it, unless another one has taken it."""
        if not ended and time.monotonic() - self._beat_at < BEAT_S:
            return
        stored = stored_owner(self._remote)
        if stored is not None and stored.id != self._owner.id:
            self.rival_host = stored.host or "another machine"
            raise _TakenOverError
        self._owner = self._owner.beaten(ended=ended)
        self._remote.write(OWNER_FILE, self._owner.text)
        self._progress_at = self._beat_at = time.monotonic()

    def _changed_log(self) -> tuple[bytes | None, Version]:
        """Return the log and its version; None if it has not changed since it was sent."""
        file = self._folder / STATE_LOG
        with suppress(FileNotFoundError):
            status = os.lstat(file)
            version = _version(file, status.st_size, status.st_mtime_ns)
            if version != self._sent.get(STATE_LOG):
                return read_regular_file(file), version
        return None, UNKNOWN

    def _look(self) -> dict[str, Version]:
        """Return the files that are to be copied, except the log, and those of checkpoints that are not whole."""
        files: dict[str, Version] = {}
        for name, status in regular_files(self._folder):
            if name != STATE_LOG and not name.startswith(NOT_COPIED) and ".partial" not in name:
                with suppress(FileNotFoundError):  # it has just been removed
                    files[name] = _version(self._folder / name, status.st_size, status.st_mtime_ns)
        checkpoints = {_place(name) for name in files if _place(name) != name}
        torn = {place for place in checkpoints if not self._is_whole(place, files.get(f"{place}/{SEAL_FILE}"))}
        return {name: version for name, version in files.items() if _place(name) not in torn}

    def _is_whole(self, checkpoint: str, seal: Version | None) -> bool:
        is_sent = self._sent.get(f"{checkpoint}/{SEAL_FILE}") == seal
        return seal is not None and (is_sent or read_seal(self._folder / checkpoint).report > 0)

    def _find_sent(self, files: dict[str, Version]) -> None:
        """Find out what the storage has from an earlier process. Files above those of the trials are sent again."""
        for name, entry in self._remote.files().items():
            is_sent = "/" in name and name in files and files[name].size == entry.size
            self._sent[name] = files[name] if is_sent else UNKNOWN

    def _delete_gone(self, files: dict[str, Version], lost_trials: set[str]) -> None:
        """Delete what the folder no longer has. A trial whose newer checkpoint was lost keeps its older one there."""
        for place in {_place(name) for name in self._sent.keys() - files.keys() - {STATE_LOG}}:
            if place.partition("/")[0] not in lost_trials and not (self._folder / place).exists():
                self._remote.delete(place)
                self._sent = {name: version for name, version in self._sent.items() if _place(name) != place}


@lru_cache(2**16)
def _version(file: Path, size: int, modified_ns: int) -> Version:
    # Tune copies all small files of trials again and again: the content alone says whether they have changed.
    return Version(size, zlib.crc32(read_regular_file(file)) if size <= MOST_COMPARED else modified_ns)


def _place(name: str) -> str:
    """Return the folder of a file's checkpoint, such as trial-001/checkpoint_000002, or else the name."""
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 and parts[1].startswith("checkpoint_") else name


def _turn(name: str) -> tuple[object, ...]:
    """Return what files are sorted by: checkpoints first, each with its seal last, then the study."""
    place = _place(name)
    return place == name, name != STUDY_FILE, place, name.endswith(f"/{SEAL_FILE}"), name


def _study_copy(file: Path) -> BinaryIO:
    """Return a copy of the study's database, which SQLite makes between two transactions."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary, STUDY_FILE)
        with (
            closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
        return copy.open("rb")  # an open file outlasts its folder
