"""Making the plan of a sweep: in which order it is decided and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.options import SweepOptions, checked, resumed, with_usual
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.plan.apply import apply_options
from gaudi_tune.plan.check import check
from gaudi_tune.plan.connect import connect, with_what_is_free
from gaudi_tune.plan.earlier import look_back, read_earlier
from gaudi_tune.plan.places import check_places
from gaudi_tune.plan.settle import decide
from gaudi_tune.show.notify import webhook
from gaudi_tune.show.trackers.store import tracking_uri
from gaudi_tune.sweep.record.sweep_file import name_for

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

    from gaudi_tune.sweep.search.searcher import StudySearcher


def make_plan(
    experiment: Experiment,
    options: SweepOptions,
    sampler: BaseSampler | None = None,
    when_decided: Callable[[Plan], None] = lambda plan: None,
) -> Plan:
    """Decide and check everything. Acquires no device, starts no worker and writes nothing.

    A recipe may prepare its data in the cache folder, and with ``--address`` the process joins that cluster. The first
    thing that cannot work is a SweepError with its rule, value and fix. A ``sampler`` takes the place of the one that
    the options name. ``when_decided`` hears of the plan when all that is left is to see that data, model and sampler
    can be used, which may take seconds.
    """
    options = replace(checked(asdict(options)), notify=webhook(options.notify))  # as uri, it is in no sweep's file
    uri = tracking_uri(options.tracking_uri)
    earlier = read_earlier(experiment, options, uri)
    name = options.resume or name_for(experiment.name, options)
    if earlier.own is not None:
        options = resumed(options, earlier.own.options)
    options = with_usual(options)
    check_places(experiment, options, uri)
    devices, cluster = connect(options)
    asked = apply_options(experiment, options, devices.type.kind, earlier.winner)
    plan = decide(asked, devices, name, uri, cluster, holds_out=earlier.held_out)
    plan = with_what_is_free(look_back(plan, earlier))
    when_decided(plan)
    from gaudi_tune.sweep.search.samplers import tried_sampler  # half a second, which Ray may use to start

    sampler = tried_sampler(plan, sampler)
    return replace(plan, sampler=sampler, facts=check(plan, earlier.own))


def make_searcher(plan: Plan, storage: BaseStorage | None = None) -> StudySearcher:
    """Return the searcher of a plan, its study in the sweep's folder unless it is to be in ``storage``."""
    from gaudi_tune.sweep.search.searcher import StudySearcher
    from gaudi_tune.sweep.search.study_record import study_address

    return StudySearcher(
        plan.experiment.search_space,
        objectives=plan.objectives,
        baseline=plan.experiment.baseline,
        sampler=plan.sampler or plan.options.search,
        seed=plan.options.seed,
        study_name=plan.name,
        storage=storage or study_address(plan.folder),
        budget=plan.budget,
        num_trials=plan.num_samples,
        trial_seed=plan.options.trial_seed,
        learned=plan.learned,
    )
