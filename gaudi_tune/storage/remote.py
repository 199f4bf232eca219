"""A place that an address such as ``s3://bucket/prefix`` names, through the library that Ray uses: ``pyarrow.fs``."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import open_regular_file

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
    """A folder of a storage. Errors of its methods are OSErrors."""

    def __init__(self, address: str, option: str = "--storage") -> None:
        """Prepare it without a request. ``option`` is the option that names it, for errors.

        Raises:
            SweepError: The address cannot be read.
        """
        from pyarrow import fs  # it takes a moment, and most commands have no storage

        self.address, self._option = address, option
        scheme, path = address.partition("://")[::2]
        if scheme not in SCHEMES:
            raise SweepError(
                f"{option} {address}: a storage is a folder, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or "
                f"file:///FOLDER; give one of these"
            )
        user = path.partition("/")[0].rpartition("@")[0]
        if user not in ("", "anonymous"):
            raise SweepError(
                f"{option} {scheme}://...: the address has a password, which would be printed and written to files; "
                f"leave it out, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or use ~/.aws/credentials"
            )
        try:
            # A small object takes one request, not three, if it is known to be small when the first is made.
            faster = ("&" if "?" in address else "?") + "allow_delayed_open=true" if scheme == "s3" else ""
            self._fs, self._root = fs.FileSystem.from_uri(address + faster)
        except (ValueError, OSError) as error:
            raise SweepError(
                f"{option} {address}: this address cannot be read ({error}); give one such as s3://BUCKET/PREFIX"
            ) from error
        if not self._root.strip("/"):
            raise SweepError(f"{option} {address}: it names no bucket; give one, such as {scheme}://BUCKET/PREFIX")
        self._is_local, self._is_google = isinstance(self._fs, fs.LocalFileSystem), scheme == "gs"
        self._selector: Any = fs.FileSelector
        self._file_type = fs.FileType

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
        bucket = self._root.partition("/")[0]
        try:
            if bucket and self._fs.get_file_info(bucket).type == self._file_type.NotFound:
                return f"there is no bucket {bucket}, or you may not see it"
            list(self._infos("", recursive=False))
            self.write(PROBE, b"")
            self.delete(PROBE)
        except Exception as error:  # each library behind Arrow raises its own
            return f"{type(error).__name__}: {error}".splitlines()[0]
        return ""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _infos(self, name: str, *, recursive: bool) -> Iterator[tuple[str, Any]]:
        selector = self._selector(self._path(name), recursive=recursive, allow_not_found=True)
        for info in self._fs.get_file_info(selector):
            yield info.path.removeprefix(self._root.lstrip("/") if not self._is_local else self._root).strip("/"), info

    def folders(self) -> list[str]:
        """Return the names of the folders in this one.

        Google's storage lists no folder that has no object for the folder itself, so what is below is listed there.
        """
        infos = self._infos("", recursive=self._is_google)
        folder = self._file_type.Directory
        return sorted({name.partition("/")[0] for name, info in infos if info.type == folder or "/" in name})

    def files(self, *, recursive: bool = True) -> dict[str, Entry]:
        """Return the files in the folder by name, and in subfolders if ``recursive``. Names leading out are skipped."""
        return {
            name: Entry(info.size, info.mtime.timestamp() if isinstance(info.mtime, datetime) else 0.0)
            for name, info in self._infos("", recursive=recursive)
            if info.type == self._file_type.File and is_safe(name)
        }

    def read(self, name: str, limit: int = -1) -> bytes:
        """Return the content of a file, or its first ``limit`` bytes; a FileNotFoundError if there is none."""
        with self._fs.open_input_stream(self._path(name)) as stream:
            content: bytes = stream.read(limit) if limit >= 0 else stream.read()
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        self._write(name, lambda target: target.write(content))

    def upload(self, file: Path, name: str, sent: Callable[[], None]) -> None:
        """Write a local file, whole or not at all; ``sent`` is called after each part of it."""

        def copy(target: Any) -> None:
            while chunk := source.read(CHUNK):
                target.write(chunk)
                sent()

        with open_regular_file(file) as source:  # first: if the file is gone, no empty object is begun
            self._write(name, copy)

    def _write(self, name: str, write: Callable[[Any], object]) -> None:
        path = self._path(name)
        if not self._is_local:  # an object is there once its stream is closed
            with self._fs.open_output_stream(path) as target:
                write(target)
            return
        self._fs.create_dir(str(PurePosixPath(path).parent), recursive=True)
        with self._fs.open_output_stream(f"{path}.partial") as target:
            write(target)
        self._fs.move(f"{path}.partial", path)

    def download(self, name: str, file: Path) -> None:
        """Write a file of the storage to a local one."""
        file.parent.mkdir(parents=True, exist_ok=True)
        with self._fs.open_input_stream(self._path(name)) as source, file.open("wb") as target:
            while chunk := source.read(CHUNK):
                target.write(chunk)

    def delete(self, name: str) -> None:
        """Delete a file, if it is there."""
        if self._fs.get_file_info(self._path(name)).type == self._file_type.File:
            self._fs.delete_file(self._path(name))

    def delete_folder(self, name: str) -> None:
        """Delete a folder with all that is in it, if it is there."""
        if self._fs.get_file_info(self._path(name)).type == self._file_type.Directory:
            # After its content, Arrow deletes an object of Google's for the folder itself, which no writer has made.
            with suppress(FileNotFoundError):
                self._fs.delete_dir(self._path(name))


def is_safe(name: str) -> bool:
    """Whether a file of this name stays inside its folder, in the storage and where it is copied to."""
    parts = name.split("/")
    return not any(part in ("", ".", "..") for part in parts) and "\0" not in name and "\\" not in name
