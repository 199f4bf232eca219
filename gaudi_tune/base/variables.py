"""Variables of the environment that are set for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def set_meanwhile(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process inside the block, but for those that the user has set."""
    missing = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)
