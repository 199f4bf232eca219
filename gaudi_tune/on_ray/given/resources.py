"""What Ray Tune books for a trial, such as ``{"gpu": 0.5}``, as options of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.private.ray_objects import resources_of

KINDS = {"CPU": "cpu", "GPU": "cuda", "HPU": "hpu"}
"""Kinds of devices by Ray's names for them."""
WORDS = ("resources", "resources_per_trial")
"""Ray's arguments with resources."""


def take_resources(arguments: dict[str, Any], train_loop: Any) -> None:
    """Replace Ray's resources among arguments of build_tuner(), or those of ``tune.with_resources``, by options.

    Raises:
        SweepError: A trial cannot have such resources, or ``trials_per_device`` is given, too.
    """
    resources_by_word = {word: arguments.pop(word) for word in WORDS if word in arguments}
    resources_by_word = resources_by_word or {"tune.with_resources": resources_of(train_loop)}
    if arguments.get("resume") is not None:  # a resumed sweep keeps what it began with
        return
    for word, resources in resources_by_word.items():
        options = {} if resources is None else read_resources(word, resources)
        if options and "trials_per_device" in arguments:
            raise SweepError(f"{word}={written(resources)} says what trials_per_device says, too; give one of them")
        for name, value in options.items():
            arguments.setdefault(name, value)


def read_resources(word: str, resources: Any) -> dict[str, Any]:
    """Return the options for the resources of a trial, which are a mapping or a PlacementGroupFactory.

    A whole device is usual, so it needs no option. Nor do cores besides a device, or several: a worker computes with
    one thread, and Ray does not hold its loader processes to the cores that it books.
    """
    instead = "give trials_per_device=N for N trials on each device, or workers_per_trial=N for N devices each"
    bundles = getattr(resources, "bundles", [resources])
    given = f"PlacementGroupFactory({bundles})" if bundles[0] is not resources else written(resources)
    if len(bundles) != 1 or not isinstance(bundles[0], Mapping):
        raise SweepError(f"{word}={given}: a trial books one part of a device, such as {{'gpu': 0.5}}; {instead}")
    amounts: dict[str, float] = {}
    for name, amount in bundles[0].items():
        kind = KINDS.get(str(name).upper())
        if kind is None:
            raise SweepError(f"{word}: a sweep does not book {name}, only cpu, gpu or hpu; leave it out")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 <= amount < math.inf:
            raise SweepError(f"{word}: {name}={written(amount)} must be a number from 0; {instead}")
        amounts[kind] = float(amount)
    cores = amounts.pop("cpu", 1.0)
    devices = {kind: amount for kind, amount in amounts.items() if amount} or {"cpu": min(cores, 1.0)}
    kind, amount = next(iter(devices.items()))
    if len(devices) > 1 or amount > 1:
        raise SweepError(f"{word}={given}: a worker has one device; {instead}")
    if amount in (0, 1):
        return {}
    return {"device": kind, "trials_per_device": int(1 / amount + 1e-6)}  # 1 / (1 / 49) is a little below 49
