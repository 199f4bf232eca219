"""The loggers of a process: their levels, handlers and filters, as one value."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

from gaudi_tune.group.clean.own_code import is_own_module

NEW: tuple[Any, ...] = (logging.NOTSET, True, False, [], [])
"""The state of a logger that nobody has set up."""
MODULE_SETTINGS = ("raiseExceptions", "lastResort")


def read() -> dict[str, Any]:
    """Return the state of each logger by its name, and under "" what holds for all."""
    overall = [getattr(logging, name) for name in MODULE_SETTINGS]
    overall += [logging.root.manager.disable, logging.getLoggerClass(), logging.getLogRecordFactory()]
    overall += [warnings.showwarning.__module__ == "logging"]
    states = {name: _state_of(logger) for name, logger in _loggers().items()}
    return {"": overall, **states}


def restore(states: dict[str, Any]) -> None:
    """Restore each logger. A new one of a library stays: the library set it up when it was imported."""
    *module_settings, disabled, logger_class, factory, captures = states[""]
    for name, setting in zip(MODULE_SETTINGS, module_settings, strict=True):
        setattr(logging, name, setting)
    logging.disable(disabled)
    logging.setLoggerClass(logger_class)
    logging.setLogRecordFactory(factory)
    logging.captureWarnings(captures)
    for name, logger in _loggers().items():
        if _state_of(logger) == states.get(name):
            continue
        if name in states:
            _set(logger, states[name])
        elif _is_of_library(name):
            states[name] = _state_of(logger)
        else:
            _set(logger, NEW)


def _loggers() -> dict[str, logging.Logger]:
    entries = logging.root.manager.loggerDict.copy().items()  # it also has placeholders, and threads add to it
    return {"root": logging.root, **{name: logger for name, logger in entries if isinstance(logger, logging.Logger)}}


def _is_of_library(name: str) -> bool:
    package = name.partition(".")[0]
    return package in sys.modules and package != "__main__" and not is_own_module(package)


def _state_of(logger: logging.Logger) -> tuple[Any, ...]:
    return logger.level, logger.propagate, logger.disabled, list(logger.handlers), list(logger.filters)


def _set(logger: logging.Logger, state: tuple[Any, ...]) -> None:
    """Set the state of a logger, and close the handlers that it no longer has."""
    level, logger.propagate, logger.disabled, handlers, filters = state
    logger.setLevel(level)
    logger.filters[:] = filters
    for handler in [handler for handler in logger.handlers if handler not in handlers]:
        logger.removeHandler(handler)
        handler.close()
    logger.handlers[:] = handlers
