"""Worker groups in an actor, as in a sweep; running trials in a group, and a sweep in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ray

from experiments.sweep.on_ray.tuner import SweepTuner
from tests.sessions import numbers_of


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


def run_trial(group: Any, config: Mapping[str, Any], checkpoint: str | None = None) -> list[dict[str, Any]]:
    """Run a trial to its end and return the numbers of its reports."""
    reports = [group.start(config, checkpoint)]
    while reports[-1]["kind"] == "metrics":
        reports.append(group.next_report())
    return [numbers_of(report["metrics"]) for report in reports[:-1]]


def in_one_group(tuner: Any) -> SweepTuner:
    """Return the tuner of a sweep with one group, which starts sooner than one for each core of the tests' Ray."""
    return SweepTuner(replace(tuner.plan, groups=1))
