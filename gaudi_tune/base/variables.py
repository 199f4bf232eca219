"""Environment variables that are changed for a while."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def changed_environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables inside the block, whatever the user has set; those of None are removed."""
    originals = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(originals)


@contextmanager
def temporary_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the block, except those that the user has set."""
    with changed_environment({name: value for name, value in variables.items() if name not in os.environ}):
        yield


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
