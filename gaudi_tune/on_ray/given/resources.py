"""What Ray Tune books for a trial, such as ``{"gpu": 0.5}``, as options of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gaudi_tune.base.errors import SweepError, written
from gaudi_tune.private.ray_objects import resources_of

KINDS = {"CPU": "cpu", "GPU": "cuda", "HPU": "hpu"}
"""Kinds of devices by Ray's names for them."""
WORDS = ("resources", "resources_per_trial")
"""Ray's arguments with resources."""


def take_resources(arguments: dict[str, Any], train_loop: Any) -> dict[str, Any]:
    """Return the options for Ray's resources among arguments of build_tuner(), or for those of ``tune.with_resources``.

    Raises:
        SweepError: A trial cannot have such resources, or ``trials_per_device`` is given, too.
    """
    resources_by_word = {word: arguments.pop(word) for word in WORDS if word in arguments}
    options: dict[str, Any] = {}
    for word, resources in (resources_by_word or {"tune.with_resources": resources_of(train_loop)}).items():
        options |= {} if resources is None else read_resources(word, resources)
        if options and "trials_per_device" in arguments:
            raise SweepError(f"{word}={written(resources)} says what trials_per_device says, too; give one of them")
    return options


def read_resources(word: str, resources: Any) -> dict[str, Any]:
    """Return the options for the resources of a trial, which are a mapping or a PlacementGroupFactory.

    A whole device is usual, so it needs no option. Nor do cores besides a device, or several: a worker computes with
    one thread, and Ray does not hold its loader processes to the cores that it books.
    """
    bundles = getattr(resources, "bundles", [resources])
    is_mapping = len(bundles) == 1 and isinstance(bundles[0], Mapping)
    amounts = {name.upper(): float(amount) for name, amount in bundles[0].items()} if is_mapping else {}
    cores = min(amounts.pop("CPU", 1.0), 1.0)
    devices = {name: amount for name, amount in amounts.items() if amount} or {"CPU": cores}
    kind, amount = next(iter(devices.items()))
    if not is_mapping or amounts.keys() - KINDS or len(devices) > 1 or amount > 1:
        raise SweepError(
            f"{word}={written(resources)}: a trial books one device, as cpu, gpu or hpu, or a part of one, such as "
            f"{{'gpu': 0.5}}; give trials_per_device=N for N trials on each device, or workers_per_trial=N for N "
            f"devices each, and leave out what else it books"
        )
    if amount in (0, 1):
        return {}
    return {"device": KINDS[kind], "trials_per_device": int(1 / amount + 1e-6)}  # 1 / (1 / 49) is a little below 49
