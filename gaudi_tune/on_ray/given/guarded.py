"""Calls of what a user gave besides the train loop: an error there is logged once, and the sweep continues."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from gaudi_tune.base.errors import USER_CODE_ERRORS

logger = logging.getLogger(__name__)


class Guarded:
    """Calls the methods of an object that a user gave.

    >>> def careless():
    ...     raise KeyError("lr")
    >>> Guarded("the callback Careless").call("on_trial_start", careless)
    """

    def __init__(self, subject: str) -> None:
        """Take what to call the object in the log."""
        self._subject, self._failed = subject, set[str]()

    def call(self, place: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function, and return what it returns; None if it fails. Errors are logged once for each place."""
        try:
            return function(*arguments, **named)
        except USER_CODE_ERRORS:
            if place not in self._failed:
                self._failed.add(place)
                logger.exception(
                    "%s failed in %s(); the sweep continues, and further errors there are not shown",
                    self._subject,
                    place,
                )
            return None
