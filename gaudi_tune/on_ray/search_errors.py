"""Errors of what the user gave for the search: the sweep ends in good order, and raises them at its end."""

from __future__ import annotations

from collections.abc import Callable

from gaudi_tune.base.errors import SweepError, place_of, users_error
from gaudi_tune.define.given_objects import GivenObjects
from gaudi_tune.sweep.record.events import Ending


class SearchErrors:
    """Takes an error of the search, and ends the sweep for it."""

    def __init__(self, objects: GivenObjects, end_sweep: Callable[[Ending], object]) -> None:
        """Begin without an error."""
        self._objects, self._end_sweep = objects, end_sweep
        self.error: SweepError | None = None
        """The error that has ended the sweep; None if there was none."""

    def take(self, error: BaseException) -> None:
        """End the sweep for an error of the user's sampler, search algorithm or space, and raise any other."""
        for word, item in (("search_alg", self._objects.search_alg), ("sampler", self._objects.sampler)):
            if item is not None:
                name = f"{word}={type(item).__name__}"
                break
        else:
            if not place_of(error):
                raise error
            name = "the function of the search space"
        why = f"{name} failed: {users_error(error)}; correct it and resume the sweep, which has lost nothing"
        self.error = SweepError(why)
        self.error.__cause__ = error
        self._end_sweep(Ending(why, status=1))
