"""An actor for what tests make in an actor, as a sweep makes worker groups.

It imports little: workers import the module of the actor that has started them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray


class Host:
    """An actor that makes objects and keeps them. To a group that is made outside an actor Ray Train adds one of its
    own, which imports torch once more."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def make(self, kind: Callable[..., Any], *arguments: Any) -> int:
        """Make an object, and return its number."""
        self._made.append(kind(*arguments))
        return len(self._made) - 1

    def ask(self, number: int, name: str, *arguments: Any) -> Any:
        """Return an attribute of an object, or what its method returns."""
        attribute = getattr(self._made[number], name)
        return attribute(*arguments) if callable(attribute) else attribute


class Hosted:
    """An object in a :class:`Host`: its methods and attributes, all of them to be called."""

    def __init__(self, host: Any, kind: Callable[..., Any], *arguments: Any) -> None:
        self._host, self._number = host, ray.get(host.make.remote(kind, *arguments))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: ray.get(self._host.ask.remote(self._number, name, *arguments))
