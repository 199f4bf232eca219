"""Files that grow: of a large one, the storage gets what is new as a part beside it, since objects cannot grow."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection

from gaudi_tune.storage.remote import Remote

WHOLE_UP_TO = 4 * 2**20
"""Files of at most so many bytes are sent whole each time."""
PART = re.compile(r"(.+)\.part-([0-9a-f]{8})-([0-9]{15})")
"""The name of a part: the file's name, the checksum of what was sent whole, and where in the file the part begins."""


class AppendedFile:
    """A file that grows, as a storage has it. A file that was written anew is sent whole."""

    def __init__(self, remote: Remote, name: str) -> None:
        self._remote, self._name = remote, name
        self._checksum = 0  # of what was sent whole
        self._whole = 0  # its bytes
        self._sent = 0  # the bytes with the parts
        self._last = b""  # the end of what was sent, by which a file that was written anew is known
        self._parts: list[str] = []

    def adopt(self, part: str) -> None:
        """Note a part that an earlier process wrote. It goes when the file is sent whole."""
        self._parts.append(part)

    def send(self, content: bytes) -> bool:
        """Have the storage get the content, and return whether it was new."""
        size = len(content)
        has_grown = 0 < self._sent <= size and content[: self._sent].endswith(self._last)
        if has_grown and size == self._sent:
            return False
        if has_grown and WHOLE_UP_TO < size <= 2 * self._whole:
            name = f"{self._name}.part-{self._checksum:08x}-{self._sent:015d}"
            self._remote.write(name, content[self._sent :])
            self._parts.append(name)
        else:
            self._remote.write(self._name, content)
            self._checksum, self._whole = zlib.crc32(content), size
            for part in self._parts:  # they belong to what the file had before
                self._remote.delete(part)
            self._parts = []
        self._sent, self._last = size, content[-4096:]
        return True


def whole(remote: Remote, name: str, names: Collection[str]) -> bytes:
    """Return the content of a file with its parts; ``names`` are those of the files beside it."""
    content = remote.read(name)
    parts = {int(match[3]): match[0] for match in map(PART.fullmatch, names) if match and match[1] == name}
    checksum = f"{zlib.crc32(content):08x}"
    while (part := parts.get(len(content))) is not None and part == f"{name}.part-{checksum}-{len(content):015d}":
        content += remote.read(part)
    return content
