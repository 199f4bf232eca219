"""Python's unpickler in Python (``pickle._Unpickler``), with what it reads kept from doing harm.

The one in C takes as much memory as a single number in the file says, and nothing in it can be replaced.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, ClassVar


class CautiousUnpickler(pickle._Unpickler):
    """Makes objects and sets their attributes, but never those of a type, which the rest of this process uses."""

    read: Callable[[int], bytes]
    append: Callable[[Any], None]
    stack: list[Any]
    """What was read and not used yet; the object whose attributes are set is the last but one."""

    def load_build(self) -> None:
        """Set the attributes of an object.

        Raises:
            pickle.UnpicklingError: The object is a type.
        """
        if isinstance(self.stack[-2], type):
            raise pickle.UnpicklingError("it sets attributes of a type")
        super().load_build()  # type: ignore[misc]

    def load_bytearray8(self) -> None:
        """Read an array of bytes that can change, for which Python would take the memory before it reads a byte."""
        length = int.from_bytes(self.read(8), "little")
        content = self.read(length)
        if len(content) < length:
            raise pickle.UnpicklingError("it is cut off")
        self.append(bytearray(content))

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,
        pickle.BUILD[0]: load_build,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }
