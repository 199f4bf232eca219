"""The loggers of a process: their levels, handlers and filters, as one value."""

from __future__ import annotations

import logging
import sys
from typing import Any, TypeAlias

from gaudi_tune.group.clean.own_code import is_own_module

State: TypeAlias = tuple[int, bool, bool, list[logging.Handler], list[Any]]
NEW: State = (logging.NOTSET, True, False, [], [])
"""The state of a logger that nobody has set up."""


def read() -> dict[str, State]:
    """Return the state of each logger by its name."""
    return {name: _state_of(logger) for name, logger in _loggers().items()}


def restore(states: dict[str, State]) -> None:
    """Restore each logger. A new one of a library stays: the library set it up when it was imported."""
    for name, logger in _loggers().items():
        current = _state_of(logger)
        state = states.setdefault(name, current if _is_of_library(name) else NEW)
        if current != state:
            _set(logger, state)


def _loggers() -> dict[str, logging.Logger]:
    entries = logging.root.manager.loggerDict.copy().items()  # it also has placeholders, and threads add to it
    return {"root": logging.root, **{name: logger for name, logger in entries if isinstance(logger, logging.Logger)}}


def _is_of_library(name: str) -> bool:
    package = name.partition(".")[0]
    return package in sys.modules and package != "__main__" and not is_own_module(package)


def _state_of(logger: logging.Logger) -> State:
    return logger.level, logger.propagate, logger.disabled, list(logger.handlers), list(logger.filters)


def _set(logger: logging.Logger, state: State) -> None:
    """Set the state of a logger, and close the handlers that it no longer has."""
    level, logger.propagate, logger.disabled, handlers, logger.filters[:] = state
    logger.setLevel(level)
    for handler in [handler for handler in logger.handlers if handler not in handlers]:
        logger.removeHandler(handler)
        handler.close()
    logger.handlers[:] = handlers
