"""Making the plan of a sweep: the order in which it is decided and checked."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.given_objects import NOTHING_GIVEN, GivenObjects
from gaudi_tune.define.options import RAYS, SweepOptions, checked, resumed, with_usual
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.plan.apply import apply_options
from gaudi_tune.plan.check import check
from gaudi_tune.plan.decide_plan import decide_plan
from gaudi_tune.plan.earlier_sweeps import add_earlier, read_earlier, resumed_if_begun
from gaudi_tune.plan.find_devices import connect
from gaudi_tune.plan.places import check_places
from gaudi_tune.plan.storage import check_name_is_free, find_storages
from gaudi_tune.private.surfaces import ANY_VERSION, SURFACES, reason_off, surfaces_off, tested
from gaudi_tune.show.notify import webhook
from gaudi_tune.show.trackers.store import tracking_uri
from gaudi_tune.sweep.record.sweep_file import name_for

if TYPE_CHECKING:
    from gaudi_tune.sweep.search.proposer import Proposer

NO_GROWTH = {"moves", "bookings", "lean-trainer"}
"""The surfaces without which no trial moves to other devices."""


def make_plan(
    experiment: Experiment,
    options: SweepOptions,
    objects: GivenObjects = NOTHING_GIVEN,
    when_decided: Callable[[Plan], None] = lambda plan: None,
) -> Plan:
    """Decide and check everything. This acquires no device, starts no worker and writes nothing.

    A recipe may prepare its data in the cache folder, and with ``--address`` the process joins that cluster.

    Args:
        experiment: What to tune.
        options: How to tune it.
        objects: Objects of Optuna and Ray Tune to use, some in place of what the options name.
        when_decided: A function that is called with the plan before data, model and sampler are tried, which may take
            seconds.

    Raises:
        SweepError: The sweep cannot work. The text names the first rule that it breaks, the value and the fix.
    """
    # Like the tracking address, the webhook is not stored in the sweep's file.
    options = replace(checked(asdict(options)), notify=webhook(options.notify))
    uri = tracking_uri(options.tracking_uri)
    places = find_storages(options)
    options = resumed_if_begun(places.options)
    earlier = read_earlier(experiment, options, uri, places.address)
    name = name_for(experiment.name, options, earlier.resumed_folder)
    check_name_is_free(places, name)
    if earlier.resumed is not None:
        options = resumed(in_its_storage(options, earlier.resumed_folder), earlier.resumed.options)
    options = with_usual(options)
    check_given(options, objects)
    check_places(experiment, options, uri, name)
    devices, cluster = connect(options)
    applied = apply_options(experiment, options, devices.type.kind, earlier.winner)
    plan = decide_plan(applied, options, devices, name, uri, cluster, max_concurrent=objects.max_concurrent)
    disabled = check_versions(devices.type)
    growth = options.workers_per_trial if plan.grows and NO_GROWTH & {*disabled} else plan.growth
    plan = add_earlier(replace(plan, disabled=disabled, growth=growth), earlier)
    when_decided(plan)
    from gaudi_tune.sweep.search.samplers import try_sampler  # half a second, in which Ray may start

    if objects.search_alg is None:
        objects = replace(objects, sampler=try_sampler(plan, objects.sampler))
    return replace(
        plan,
        objects=objects,
        facts=check(plan, earlier.resumed),
        address=places.address,
        fetched_from=places.fetched_from,
        owner=places.owner,
    )


def check_versions(device: DeviceType) -> tuple[str, ...]:
    """Return the names of the surfaces that are off in this sweep.

    Raises:
        SweepError: A sweep would lose work without one of them, or these devices need it.
    """
    disabled = tuple(surface.name for surface in surfaces_off())
    for name in disabled:
        surface = SURFACES[name]
        if os.environ.get(ANY_VERSION) == "1":
            continue
        if not surface.fallback or (name == "lean-trainer" and device.exclusive):
            raise SweepError(
                f"{name}: {reason_off(name)}, and without this no sweep {surface.gives}; {tested(surface.library)} "
                f"works. {ANY_VERSION}=1 has the sweep begin nevertheless"
            )
    return disabled


def in_its_storage(options: SweepOptions, folder: Path | None) -> SweepOptions:
    """Return the options of a sweep that is resumed from ``folder``: without a name it continues where it is."""
    if folder is None or options.name is not None or options.storage.expanduser().resolve() == folder.parent:
        return options
    return replace(options, storage=folder.parent)


def check_given(options: SweepOptions, objects: GivenObjects) -> None:
    """Check that the objects of Ray Tune are there that the options name: a resumed sweep needs them again."""
    for option, argument in (("scheduler", "scheduler"), ("search", "search_alg")):
        named, item = getattr(options, option), getattr(objects, argument)
        kind, class_name = type(item).__name__ if item is not None else "", named.rpartition(".")[2]
        if named.startswith(RAYS) and kind != class_name:
            raise SweepError(
                f"--{option} {named}: this is an object of Ray Tune, and {kind or 'none'} was given; give one of that "
                f"class, build_tuner(..., {argument}={class_name}(...))"
            )
        if kind and not named.startswith(RAYS):
            raise SweepError(f"--resume {options.resume}: the sweep has --{option} {named}; leave {kind} out")


def make_proposer(plan: Plan, on_error: Callable[[BaseException], object] | None = None) -> Proposer:
    """Return what proposes the trials of a plan.

    ``on_error`` takes errors of the user's sampler; without it they are raised.
    """
    from gaudi_tune.sweep.search.proposer import Proposer, raised

    return Proposer(
        plan.experiment.search_space,
        objectives=plan.objectives,
        baseline=plan.experiment.baseline,
        sampler="random" if plan.objects.search_alg is not None else plan.objects.sampler or plan.options.search,
        seed=plan.options.seed,
        trial_seed=plan.options.trial_seed,
        learned=plan.learned,
        on_error=on_error or raised,
    )
