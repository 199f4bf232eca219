"""When Python is not to look for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Have Python not look for garbage inside the block: it does so again and again while libraries are imported, which
    takes a fifth to a quarter of their time and finds next to nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
