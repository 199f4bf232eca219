"""What may propose trials in place of a sampler: the user's own search algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Source(Protocol):
    """Proposes configurations, and is told of the trials that have them.

    It knows trials by Tune's ids, and is not told of those that it has not proposed: the baseline, and what people
    request.
    """

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration; None while there is none; ``Searcher.FINISHED`` if there is no more."""

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Take note of a result after which the trial does not end."""

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None, *, error: bool) -> None:
        """Take note of the end of a trial, with its last result if it has one."""

    def save(self) -> dict[str, Any]:
        """Return what a resumed sweep must know, as JSON can hold it."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what :meth:`save` returned."""
