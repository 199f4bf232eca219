"""The copy of a running sweep in a storage: a thread sends every change in the sweep's folder to it."""

from __future__ import annotations

import io
import logging
import threading
import time
import zlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from gaudi_tune.base.errors import first_line
from gaudi_tune.base.files import GROUPS_FOLDER, LOCK_FILE, OWNER_FILE, STATE_LOG
from gaudi_tune.storage.owner import BEAT_S, Owner, owner_in, take
from gaudi_tune.storage.remote import Entry, Remote, here
from gaudi_tune.training.checkpoint import SEAL_FILE, read_seal

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""Seconds between two looks at the folder."""
LOOK_SHARE = 0.05
"""The largest share of the time that looking may take."""
RETRY_AFTER_S = 2.0
"""Seconds until the next try, after the storage has failed."""
GIVE_UP_AFTER_S = 60.0
"""How long the end of a sweep waits for a storage that accepts nothing."""
MOST_COMPARED = 2**20
"""The size in bytes of the largest file whose content is compared to see whether it has changed."""
NOT_COPIED = (LOCK_FILE, OWNER_FILE, f"{GROUPS_FOLDER}/", "set-aside-")
"""How the names of files begin that concern this machine only, are unfinished or are not needed."""


Version = tuple[int, float]
"""What tells whether a file has changed: its size, and the checksum of a small one or the time of a large one."""
UNKNOWN: Version = (-1, 0.0)
"""The version of a file in the storage that is not the one in the folder."""


class _TakenOverError(Exception):
    """Another machine has the sweep."""


class Mirror:
    """Brings the folder of a sweep to a storage and keeps trying if that fails, in this order:

    1. whole checkpoints, each with its seal last, then all other files;
    2. the log of the state as it was before step 1, so that every checkpoint that it names is in the storage;
    3. deletions: what is no longer in the folder is deleted from the storage.
    """

    def __init__(self, folder: Path, address: str) -> None:
        """Prepare the copy; :meth:`start` begins it."""
        self._folder, self._here, self._remote = folder, here(folder), Remote(address)
        self._owner = Owner()
        self._sent: dict[str, Version] = {}  # what the storage has
        self._is_unsure = True  # whether that must be compared with the storage
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
        self._here.write(OWNER_FILE, self._owner.text)
        self._thread.start()

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
        return f"{self._remote.address} lacks the end of the sweep ({self._error or 'it does not answer'})"

    def _run(self) -> None:
        while not self._end_event.is_set():
            is_last_round = self._closing.is_set()
            self._is_unsure |= is_last_round
            try:
                pause_s = max(LOOK_EVERY_S, self._bring() / LOOK_SHARE)
                if is_last_round:
                    self._beat(ended=True)
                    self._here.write(OWNER_FILE, self._owner.text)
                    self._end_event.set()
                self._error = ""
            except _TakenOverError:
                logger.error("%s has taken this sweep: %s gets nothing more", self.rival_host, self._remote.address)
                self._end_event.set()
            except Exception as error:  # each library behind Arrow raises its own
                if not self._error:
                    logger.warning("%s does not take it (%s); trying again", self._remote.address, first_line(error))
                self._error, pause_s, self._is_unsure = first_line(error), RETRY_AFTER_S, True
            if is_last_round:
                self._end_event.wait(LOOK_EVERY_S)
            else:
                self._closing.wait(pause_s)

    def _bring(self) -> float:
        """Bring everything that has changed to the storage, and return how long the search for changes took."""
        self._beat()
        if self._is_unsure:  # a bucket may have vanished and come back empty
            stored = self._remote.files()
            self._sent = {name: self._sent.get(name, UNKNOWN) for name in stored}
        started_at = time.thread_time()
        log, log_version = self._changed_log()  # read first: what it names was written before it
        files = self._look()
        look_s = time.thread_time() - started_at
        if self._is_unsure:
            self._find_sent(files, stored)
        lost_trials = set[str]()
        for name in sorted((name for name, version in files.items() if self._sent.get(name) != version), key=_turn):
            try:
                source = self._here.open(name)
            except FileNotFoundError:  # it was just removed
                lost_trials.add(name.partition("/")[0])
                continue
            with source:
                self._send(source, name, files[name])
        if log is not None:
            self._send(io.BytesIO(log), STATE_LOG, log_version)
        self._delete_gone(files, lost_trials)
        return look_s

    def _send(self, source: BinaryIO, name: str, version: Version) -> None:
        self._remote.copy(source, name, sent=self._progress)
        self._sent[name] = version
        self._progress()

    def _progress(self) -> None:
        """Note that the storage has accepted something, and keep recording that this process runs the sweep."""
        self._progress_at = time.monotonic()
        self._beat()

    def _beat(self, *, ended: bool = False) -> None:
        """Record in the storage that this process runs the sweep, or has ended it, unless another one has taken it."""
        if not ended and time.monotonic() - self._beat_at < BEAT_S:
            return
        stored = owner_in(self._remote)
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
            status = file.stat()
            version = _version(file, status.st_size, status.st_mtime)
            if version != self._sent.get(STATE_LOG):
                return file.read_bytes(), version
        return None, UNKNOWN

    def _look(self) -> dict[str, Version]:
        """Return the files that are to be copied, except the log, and those of checkpoints that are not whole."""
        files: dict[str, Version] = {}
        for name, entry in self._here.files().items():
            if name != STATE_LOG and not name.startswith(NOT_COPIED) and ".partial" not in name:
                with suppress(FileNotFoundError):  # it has just been removed
                    files[name] = _version(self._folder / name, *entry)
        checkpoints = {_place(name) for name in files if _place(name) != name}
        torn = {place for place in checkpoints if not self._is_whole(place, files.get(f"{place}/{SEAL_FILE}"))}
        return {name: version for name, version in files.items() if _place(name) not in torn}

    def _is_whole(self, checkpoint: str, seal: Version | None) -> bool:
        is_sent = self._sent.get(f"{checkpoint}/{SEAL_FILE}") == seal
        return seal is not None and (is_sent or read_seal(self._folder / checkpoint).report > 0)

    def _find_sent(self, files: dict[str, Version], stored: dict[str, Entry]) -> None:
        """Find out what the storage has from an earlier process. Files above those of the trials are sent again."""
        for name in stored.keys() & files.keys():
            if self._sent[name] == UNKNOWN and "/" in name and files[name][0] == stored[name].size:
                self._sent[name] = files[name]
        self._is_unsure = False

    def _delete_gone(self, files: dict[str, Version], lost_trials: set[str]) -> None:
        """Delete what the folder no longer has. A trial whose newer checkpoint was lost keeps its older one there."""
        for place in {_place(name) for name in self._sent.keys() - files.keys() - {STATE_LOG}}:
            if place.partition("/")[0] not in lost_trials and not (self._folder / place).exists():
                self._remote.delete(place)
                self._sent = {name: version for name, version in self._sent.items() if _place(name) != place}


@lru_cache(2**16)
def _version(file: Path, size: int, modified_at: float) -> Version:
    # Tune copies all small files of trials again and again: the content alone says whether they have changed.
    return size, zlib.crc32(file.read_bytes()) if size <= MOST_COMPARED else modified_at


def _place(name: str) -> str:
    """Return the folder of a file's checkpoint, such as trial-001/checkpoint_000002, or else the name."""
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 and parts[1].startswith("checkpoint_") else name


def _turn(name: str) -> tuple[object, ...]:
    """Return what files are sorted by: checkpoints first, each with its seal last."""
    place = _place(name)
    return place == name, place, name.endswith(f"/{SEAL_FILE}"), name
