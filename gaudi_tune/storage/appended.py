"""Files that grow. Objects cannot grow, so the storage gets the new bytes of a large file as a part beside it."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection

from gaudi_tune.storage.remote import Remote

MAX_WHOLE_SIZE = 4 * 2**20
"""The size in bytes up to which a file is sent whole each time."""
PART = re.compile(r"(.+)\.part-([0-9a-f]{8})-([0-9]{15})")
"""The name of a part: the file's name, the checksum of what was sent whole, and where in the file the part begins."""


class AppendedFile:
    """The copy in a storage of a file that grows. If the file was rewritten, it is sent whole again."""

    def __init__(self, remote: Remote, name: str) -> None:
        self._remote, self._name = remote, name
        self._checksum = 0  # of the content that was last sent whole
        self._whole_size = 0  # the size of that content
        self._sent_size = 0  # the size with the parts
        self._sent_tail = b""  # the last bytes that were sent; a file that was rewritten has others there
        self._parts: list[str] = []

    def adopt(self, part: str) -> None:
        """Note a part that an earlier process wrote. It is deleted when the file is sent whole."""
        self._parts.append(part)

    def send(self, content: bytes) -> bool:
        """Send the content to the storage, and return whether it was new."""
        size = len(content)
        has_grown = 0 < self._sent_size <= size and content[: self._sent_size].endswith(self._sent_tail)
        if has_grown and size == self._sent_size:
            return False
        if has_grown and MAX_WHOLE_SIZE < size <= 2 * self._whole_size:
            name = f"{self._name}.part-{self._checksum:08x}-{self._sent_size:015d}"
            self._remote.write(name, content[self._sent_size :])
            self._parts.append(name)
        else:
            self._remote.write(self._name, content)
            self._checksum, self._whole_size = zlib.crc32(content), size
            for part in self._parts:  # they belong to the earlier content
                self._remote.delete(part)
            self._parts = []
        self._sent_size, self._sent_tail = size, content[-4096:]
        return True


def whole_content(remote: Remote, name: str, names: Collection[str]) -> bytes:
    """Return the content of a file with its parts; ``names`` are the names of the files beside it."""
    content = remote.read(name)
    parts = {int(match[3]): match[0] for match in map(PART.fullmatch, names) if match and match[1] == name}
    checksum = f"{zlib.crc32(content):08x}"
    while (part := parts.get(len(content))) is not None and part == f"{name}.part-{checksum}-{len(content):015d}":
        content += remote.read(part)
    return content
