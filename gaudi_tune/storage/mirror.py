"""The copy of a running sweep in a storage: a thread sends every change in the sweep's folder to it."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import tempfile
import threading
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from gaudi_tune.base.files import atomic_write, read_regular_file
from gaudi_tune.storage.appended import PART, AppendedFile
from gaudi_tune.storage.owner import BEAT_S, OWNER_FILE, Owner, beaten, new_owner, stored_owner, take
from gaudi_tune.storage.remote import Remote
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
NOT_COPIED = ("running.lock", OWNER_FILE, "worker_groups")
"""Names of files and folders that concern this machine only."""
CHECKPOINT = "checkpoint_"
"""What the names of folders of checkpoints begin with."""


class Version(NamedTuple):
    """What tells whether a file has changed."""

    size: int
    modified_ns: int


class _TakenOverError(Exception):
    """Another machine has the sweep."""


class Mirror:
    """Brings the folder of a sweep to a storage and keeps trying if that fails, in this order:

    1. whole checkpoints, then the study, then all other files;
    2. the log of the state as it was before step 1, so that every checkpoint that it names is in the storage;
    3. deletions: what is no longer in the folder is deleted from the storage.
    """

    def __init__(self, folder: Path, address: str, log: str, study: str, outbox: str) -> None:
        """Prepare the copy; :meth:`start` begins it. The last three are names of files; log and outbox grow."""
        self._folder, self._remote = folder, Remote(address)
        self._log, self._study, self._outbox = log, study, outbox
        self._grown = {name: AppendedFile(self._remote, name) for name in (log, outbox)}
        self._unstable = (f"{study}-", "set-aside-")  # how the names of unfinished or needless files begin
        self._owner = new_owner(uuid.uuid4().hex)
        self._sent: dict[str, Version] = {}
        self._checksums: dict[str, int] = {}  # of the small files of trials that this process sent
        self._checkpoints: dict[str, Version] = {}  # those that were sent, with the versions of their seals
        self._unsent = 0  # files and checkpoints
        self._knows_sent = False  # whether it knows what the storage has from an earlier process
        self._beat_at = 0.0  # monotonic time
        self._due_at: dict[str, float] = {}  # monotonic times before which files are not sent again
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
        with atomic_write(self._folder / OWNER_FILE) as partial:
            partial.write_bytes(self._owner.text)
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
        unsent = f"{self._unsent} files and checkpoints" if self._unsent > 0 else "the end of the sweep"
        return f"{self._remote.address} lacks {unsent} ({self._error or 'it does not answer'})"

    def _run(self) -> None:
        pause_s, warned_at = 0.0, 0.0
        while True:
            was_closing = self._closing.is_set()
            try:
                look_s = self._bring(is_last_round=was_closing)
                pause_s, self._error = max(LOOK_EVERY_S, look_s / LOOK_SHARE), ""
                if was_closing:
                    self._end()
                    return
            except _TakenOverError:
                logger.error("%s has taken this sweep: %s gets nothing more", self.rival_host, self._remote.address)
                self._end_event.set()
                return
            except Exception as error:  # each library behind Arrow raises its own
                self._error = f"{type(error).__name__}: {error}".splitlines()[0]
                pause_s = min(max(2 * pause_s, LOOK_EVERY_S), MOST_PAUSE_S)
                if time.monotonic() - warned_at >= WARN_EVERY_S or not warned_at:
                    warned_at = time.monotonic()
                    logger.warning("%s does not take it (%s); trying again", self._remote.address, self._error)
            if was_closing:
                time.sleep(LOOK_EVERY_S)
            else:
                self._closing.wait(pause_s)

    def _bring(self, *, is_last_round: bool) -> float:
        """Bring everything that has changed to the storage, and return how long the search for changes took."""
        self._beat()
        if not self._knows_sent:
            self._find_sent()
            self._knows_sent = True
        log, log_version = self._changed_log()
        started_at = time.thread_time()
        files, checkpoints = self._look()
        latest_time = math.inf if is_last_round else time.monotonic()
        changed = [
            name
            for name, version in files.items()
            if self._sent.get(name) != version
            and self._due_at.get(name, 0.0) <= latest_time
            and not self._was_only_copied(name, version)
        ]
        look_s = time.thread_time() - started_at
        new = [place for place, seal in checkpoints.items() if self._checkpoints.get(place) != seal]
        self._unsent = len(changed) + len(new) + (log is not None)
        lost_trials = {place.partition("/")[0] for place in new if not self._send_checkpoint(place, checkpoints[place])}
        for name in sorted(changed, key=lambda name: name != self._study):
            started_at = time.monotonic()
            self._send(name, files[name])
            if name not in self._grown:
                self._due_at[name] = time.monotonic() + (time.monotonic() - started_at) / RESEND_SHARE
        if log is not None:
            self._grown[self._log].send(log)
            self._sent[self._log] = log_version
            self._note_sent()
        self._forget_gone(files, checkpoints, lost_trials)
        return look_s

    def _beat(self) -> None:
        """Record in the storage that this process runs the sweep, unless another one has taken it."""
        if time.monotonic() - self._beat_at < BEAT_S:
            return
        stored = stored_owner(self._remote)
        if stored is not None and stored.id != self._owner.id:
            self.rival_host = stored.host or "another machine"
            raise _TakenOverError
        self._owner = beaten(self._owner)
        self._owner.write(self._remote)
        self._progress_at = self._beat_at = time.monotonic()

    def _end(self) -> None:
        self._owner = beaten(self._owner, ended=True)
        self._owner.write(self._remote)
        with atomic_write(self._folder / OWNER_FILE) as partial:
            partial.write_bytes(self._owner.text)
        self._end_event.set()

    def _find_sent(self) -> None:
        """Find out what the storage has from an earlier process. Files above those of the trials are sent again."""
        stored_files = self._remote.files()
        files, checkpoints = self._look()
        for name, version in files.items():
            if "/" in name and name in stored_files and stored_files[name].size == version.size:
                self._sent[name] = version
        for place, seal in checkpoints.items():
            names = [str(file.relative_to(self._folder)) for file in _files_in(self._folder / place)]
            sizes = [(self._folder / name).stat().st_size for name in names]
            if [stored_files[name].size if name in stored_files else None for name in names] == sizes:
                self._checkpoints[place] = seal
        for match in map(PART.fullmatch, stored_files):
            if match and match[1] in self._grown:
                self._grown[match[1]].adopt(match[0])
        for name in stored_files:  # what the folder lacks is deleted after everything else was sent
            checkpoint = _checkpoint_of(name)
            if checkpoint is not None:
                self._checkpoints.setdefault(checkpoint, Version(-1, 0))
            elif name != OWNER_FILE and not PART.fullmatch(name):
                self._sent.setdefault(name, Version(-1, 0))

    def _look(self) -> tuple[dict[str, Version], dict[str, Version]]:
        """Return the files that are to be copied, without those of checkpoints, and the seals of whole checkpoints."""
        files: dict[str, Version] = {}
        checkpoints: dict[str, Version] = {}
        folders = [(self._folder, "")]
        while folders:
            folder, prefix = folders.pop()
            with suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    name = f"{prefix}{entry.name}"
                    if name in NOT_COPIED or name.startswith(self._unstable) or ".partial" in entry.name:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if _checkpoint_of(f"{name}/") is None:
                            folders.append((Path(entry.path), f"{name}/"))
                        elif (seal := self._seal_of(name)) is not None:
                            checkpoints[name] = seal
                    elif entry.is_file(follow_symlinks=False):
                        files[name] = _version(entry.stat(follow_symlinks=False))
        files.pop(self._log, None)
        return dict(sorted(files.items())), checkpoints

    def _seal_of(self, place: str) -> Version | None:
        """Return the version of the seal of a checkpoint; None if the checkpoint is not whole."""
        try:
            seal = _version(os.lstat(self._folder / place / SEAL_FILE))
        except OSError:
            return None
        if self._checkpoints.get(place) != seal and not read_seal(self._folder / place).report:
            return None
        return seal

    def _send_checkpoint(self, place: str, seal: Version) -> bool:
        """Send a checkpoint, its seal last, and return whether it was still there."""
        try:
            files = sorted(_files_in(self._folder / place), key=lambda file: file.name == SEAL_FILE)
            for file in files:
                self._remote.upload(file, str(file.relative_to(self._folder)), self._progress)
        except FileNotFoundError:
            if (self._folder / place / SEAL_FILE).exists():
                raise
            self._checkpoints.setdefault(place, Version(-1, 0))  # the part that was sent is deleted later
            return False
        self._checkpoints[place] = seal
        self._note_sent()
        return True

    def _send_study(self, version: Version) -> None:
        """Send a copy of the study's database, which SQLite makes between two transactions."""
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary, self._study)
            try:
                with (
                    closing(sqlite3.connect(f"{(self._folder / self._study).as_uri()}?mode=ro", uri=True)) as source,
                    closing(sqlite3.connect(copy)) as target,
                ):
                    source.backup(target)
            except sqlite3.Error:  # it is locked, damaged or brand-new; the log has all of its content
                return
            self._remote.upload(copy, self._study, self._progress)
        self._sent[self._study] = version
        self._note_sent()

    def _send(self, name: str, version: Version) -> None:
        if name == self._study:
            self._send_study(version)
            return
        with suppress(FileNotFoundError):  # it has just been removed or replaced, which the next look finds
            if name in self._grown:
                content = self._content(name)
                if content is not None:
                    self._grown[name].send(content)
            else:
                if "/" in name and version.size <= MOST_COMPARED:
                    self._checksums[name] = self._checksum(name)  # before it is sent: it may change meanwhile
                self._remote.upload(self._folder / name, name, self._progress)
            self._sent[name] = version
            self._note_sent()

    def _changed_log(self) -> tuple[bytes | None, Version]:
        """Return the log (None if it has not changed since it was sent) and its version."""
        try:
            version = _version(os.lstat(self._folder / self._log))
        except FileNotFoundError:
            return None, Version(0, 0)
        return (None if self._sent.get(self._log) == version else self._content(self._log)), version

    def _was_only_copied(self, name: str, version: Version) -> bool:
        """Whether only the time of a trial's small file has changed: Tune copies all of these files again and again."""
        sent = self._sent.get(name)
        if sent is None or "/" not in name or sent.size != version.size or version.size > MOST_COMPARED:
            return False
        is_same_content = self._checksums.get(name) in (None, self._checksum(name))
        if is_same_content:
            self._sent[name] = version
        return is_same_content

    def _checksum(self, name: str) -> int:
        return zlib.crc32(self._content(name) or b"")

    def _content(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return read_regular_file(self._folder / name)
        return None

    def _forget_gone(self, files: dict[str, Version], checkpoints: dict[str, Version], lost_trials: set[str]) -> None:
        """Delete what the folder no longer had when it was looked at. A trial whose newer checkpoint could not be sent
        keeps its older one."""
        for place in [place for place in self._checkpoints if place not in checkpoints]:
            if place.partition("/")[0] not in lost_trials and not (self._folder / place).exists():
                self._remote.delete_folder(place)
                del self._checkpoints[place]
        for name in [name for name in self._sent if name not in files and name != self._log]:
            self._remote.delete(name)
            del self._sent[name]

    def _progress(self) -> None:
        """Note that the storage has accepted something, and keep recording that this process runs the sweep."""
        self._progress_at = time.monotonic()
        self._beat()

    def _note_sent(self) -> None:
        self._unsent -= 1
        self._progress()


def _version(status: os.stat_result) -> Version:
    return Version(status.st_size, status.st_mtime_ns)


def _checkpoint_of(name: str) -> str | None:
    """Return the folder of a file's checkpoint, such as trial-001/checkpoint_000002; None if it is in none."""
    parts = name.split("/")
    return "/".join(parts[:2]) if len(parts) > 2 and parts[1].startswith(CHECKPOINT) else None


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the regular files in a folder and below it."""
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            if not file.is_symlink():
                yield file
