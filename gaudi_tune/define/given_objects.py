"""The objects that Python code gives a sweep besides its options: a sampler of Optuna, and objects of Ray Tune."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


@dataclass(frozen=True, kw_only=True)
class GivenObjects:
    """The objects given to ``build_tuner()``, checked. A sweep's files do not have them."""

    sampler: BaseSampler | None = None
    """A sampler of Optuna. None: the options name one, and a new one is made for each proposal."""
    search_alg: Any = None
    """A search algorithm of Ray Tune. None: a sampler proposes the trials."""
    space: Mapping[str, Any] = field(default_factory=dict)
    """The space of Ray's BasicVariantGenerator, as the user wrote it."""
    max_concurrent: int | None = None
    """The most trials that train at a time. None: as many as there are groups."""
    scheduler: Any = None
    """A scheduler of Ray Tune. None: the options name one of the sweep's own."""
    callbacks: Sequence[Any] = ()
    """Callbacks of Ray Tune, which are called after the sweep's own."""
    stop: Any = None
    """Ray Tune's ``stop``: when a trial ends, or the sweep."""

    notes: Sequence[str] = ()
    """What else the plan says of them."""

    def in_words(self) -> list[str]:
        """Return what Ray Tune's objects do in the sweep."""
        words = []
        if self.callbacks:
            names = ", ".join(type(callback).__name__ for callback in self.callbacks)
            words.append(f"callbacks: {names}; an error in one is logged, and the sweep continues")
        if self.stop is not None:
            words.append(f"stop: {describe_stop(self.stop)}")
        words += self.notes
        if self.callbacks or any(given is not None for given in (self.stop, self.scheduler, self.search_alg)):
            words.append("to resume the sweep, give build_tuner() the same objects again")
        return words


NOTHING_GIVEN = GivenObjects()
"""The options say everything, as on the command line."""


def describe_stop(stop: Any) -> str:
    """Return in words when Ray Tune's ``stop`` ends a trial."""
    if isinstance(stop, dict):
        return f"a trial ends when {' or '.join(f'{name} is {value:g} or more' for name, value in stop.items())}"
    return f"a trial ends when {getattr(stop, '__name__', type(stop).__name__)} says so"
