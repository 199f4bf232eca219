"""A place that an address such as ``s3://bucket/prefix`` names, through the library that Ray uses: ``pyarrow.fs``."""

from __future__ import annotations

import io
import math
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from gaudi_tune.base.errors import SweepError, first_line
from gaudi_tune.base.files import MAX_JSON_BYTES, open_regular_file

ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)
"""An address; in a Path, the two slashes have become one."""
SCHEMES = ("s3", "gs", "file")
"""The kinds of storage. Arrow knows others, which nobody has tried."""
CHUNK = 2**20
"""Bytes that are sent or received at a time."""
CHECK_WITHIN_S = 20.0
"""How long the check of a plan waits for a storage."""
PROBE = ".gaudi-tune-probe"
"""The name of a small object that the check of a plan writes and deletes."""


def address_of(place: str | Path) -> str | None:
    """Return the address that an option gives, without slashes at its end; None if it is a path."""
    match = ADDRESS.fullmatch(str(place))
    if match is None:
        return None
    scheme, rest = match.groups()
    path, question, query = rest.partition("?")
    query = re.sub(r"=(https?):/(?!/)", r"=\1://", query)  # a Path shortens these, too
    return f"{scheme}://{'/' if scheme == 'file' else ''}{path.rstrip('/')}{question}{query}"


def address_below(address: str, name: str) -> str:
    """Return the address of ``name`` below an address."""
    path, question, query = address.partition("?")
    return f"{path}/{name}{question}{query}"


def split(address: str) -> tuple[str, str]:
    """Return the address above an address, and the last name of its path."""
    path, question, query = address.partition("?")
    parent_address, _, name = path.rpartition("/")
    return f"{parent_address}{question}{query}", name


class Entry(NamedTuple):
    """A file of a storage."""

    size: int
    modified_at: float
    """When it was written, in seconds since 1970."""


class Remote:
    """A folder of a storage. Errors of its methods are OSErrors. No link is followed in a folder (``file://``)."""

    def __init__(self, address: str, option: str = "--storage") -> None:
        """Prepare it without a request. ``option`` is the option that names it, for errors.

        Raises:
            SweepError: The address cannot be read.
        """
        from pyarrow import __version__, fs  # it takes a moment, and most commands have no storage

        self.address, self._option, self._arrow = address, option, fs
        self._scheme, _, path = address.partition("://")
        if self._scheme not in SCHEMES:
            raise SweepError(
                f"{option} {address}: a storage is a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
                f"file:///FOLDER; give one of these"
            )
        if path.partition("/")[0].rpartition("@")[0] not in ("", "anonymous"):
            raise SweepError(
                f"{option} {self._scheme}://...: the address has a password, which would be printed and written to "
                f"files; leave it out, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or use ~/.aws/credentials"
            )
        # A small object takes one request, not three, if it is known to be small when the first is made (Arrow 21).
        knows = self._scheme == "s3" and int(__version__.split(".")[0]) >= 21
        faster = ("&" if "?" in address else "?") + "allow_delayed_open=true" if knows else ""
        try:
            base, self._root = fs.FileSystem.from_uri(address + faster)
        except (ValueError, OSError) as error:
            raise SweepError(
                f"{option} {address}: this address cannot be read ({error}); give one such as s3://BUCKET/PREFIX"
            ) from error
        self._folder = fs.SubTreeFileSystem(self._root, base)

    def check(self) -> None:
        """Check that files can be listed, written and deleted there, within :data:`CHECK_WITHIN_S`.

        Raises:
            SweepError: One of these fails.
        """
        problems: list[str] = ["it does not answer"]
        thread = threading.Thread(target=lambda: problems.__setitem__(0, self._problem()), daemon=True)
        thread.start()
        thread.join(CHECK_WITHIN_S)
        if problems[0]:
            raise SweepError(
                f"{self._option} {self.address}: {problems[0]}; give the address of a storage in which you may list, "
                f"read, write and delete, and its credentials (docs/storage.md)"
            )

    def _problem(self) -> str:
        try:
            self.files(recursive=False)
            self.write(PROBE, b"")
            self.delete(PROBE)
        except Exception as error:  # each library behind Arrow raises its own
            return first_line(error)
        return ""

    def folders(self) -> list[str]:
        """Return the names of the folders in this one.

        Google's storage lists no folder that has no object for the folder itself, so what is below is listed there.
        """
        if self._scheme == "file":
            with suppress(FileNotFoundError), os.scandir(self._root) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            return []
        selector = self._arrow.FileSelector("", recursive=self._scheme == "gs", allow_not_found=True)
        infos, folder = self._folder.get_file_info(selector), self._arrow.FileType.Directory
        return sorted({info.path.partition("/")[0] for info in infos if info.type == folder or "/" in info.path})

    def files(self, *, recursive: bool = True) -> dict[str, Entry]:
        """Return the files in the folder by name, and in subfolders if ``recursive``. Names leading out are skipped."""
        if self._scheme == "file":
            return dict(self._regular_files(recursive=recursive))
        selector = self._arrow.FileSelector("", recursive=recursive, allow_not_found=True)
        return {
            info.path: Entry(info.size, info.mtime.timestamp())
            for info in self._folder.get_file_info(selector)
            if info.type == self._arrow.FileType.File and is_safe(info.path)
        }

    def _regular_files(self, *, recursive: bool) -> Iterator[tuple[str, Entry]]:
        length = len(os.path.join(self._root, ""))
        for parent, folders, names in os.walk(self._root):
            for path in (os.path.join(parent, name) for name in names):
                with suppress(FileNotFoundError):  # it has just been removed
                    status = os.lstat(path)
                    if stat.S_ISREG(status.st_mode):
                        yield path[length:], Entry(status.st_size, status.st_mtime)
            if not recursive:
                folders.clear()

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading; a FileNotFoundError if there is none."""
        if self._scheme == "file":
            return open_regular_file(Path(self._root, name))
        stream: BinaryIO = self._folder.open_input_stream(name)
        return stream

    def read(self, name: str) -> bytes:
        """Return the content of a small file; a FileNotFoundError if there is none."""
        with self.open(name) as stream:
            return stream.read(MAX_JSON_BYTES)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        self.copy(io.BytesIO(content), name)

    def copy(
        self, source: BinaryIO, name: str, size: float = math.inf, sent: Callable[[], None] = lambda: None
    ) -> None:
        """Write what is read from ``source``, at most ``size`` bytes, whole or not at all.

        ``sent`` is called after each part of it.
        """
        partial = name  # an object is there once its stream is closed
        if self._scheme == "file":
            self._folder.create_dir(str(PurePosixPath(name).parent), recursive=True)
            partial = f"{name}.partial"
        with self._folder.open_output_stream(partial) as target:
            while size > 0 and (chunk := source.read(int(min(CHUNK, size)))):
                size -= target.write(chunk)
                sent()
        if partial != name:
            self._folder.move(partial, name)

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it, if it is there."""
        # After its content, Arrow deletes an object of Google's for the folder itself, which no writer has made.
        with suppress(FileNotFoundError):
            is_folder = self._folder.get_file_info(name).type == self._arrow.FileType.Directory
            (self._folder.delete_dir if is_folder else self._folder.delete_file)(name)


def here(folder: Path) -> Remote:
    """Return a folder of this machine as one of a storage."""
    return Remote(folder.resolve().as_uri())


def is_safe(name: str) -> bool:
    """Whether a file of this name stays inside its folder, in the storage and where it is copied to."""
    parts = name.split("/")
    return not any(part in ("", ".", "..") for part in parts) and "\0" not in name and "\\" not in name
