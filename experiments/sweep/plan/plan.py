"""Making the plan of a sweep: in which order it is decided and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from experiments.sweep.define.experiment import Experiment
from experiments.sweep.define.options import SweepOptions, checked, resumed, with_usual
from experiments.sweep.define.plan import Plan
from experiments.sweep.plan.apply import apply_options
from experiments.sweep.plan.check import check
from experiments.sweep.plan.connect import connect, with_what_is_free
from experiments.sweep.plan.decide import decide
from experiments.sweep.plan.earlier import look_back, read_earlier
from experiments.sweep.plan.places import check_places
from experiments.sweep.show.notify import webhook
from experiments.sweep.show.trackers.store import tracking_uri
from experiments.sweep.state.sweep_file import name_for

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

    from experiments.sweep.decide.search.searcher import StudySearcher


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
    from experiments.sweep.decide.search.samplers import tried_sampler  # half a second, which Ray may use to start

    sampler = tried_sampler(plan, sampler)
    return replace(plan, sampler=sampler, facts=check(plan, earlier.own))


def make_searcher(plan: Plan, storage: BaseStorage | None = None) -> StudySearcher:
    """Return the searcher of a plan, its study in the sweep's folder unless it is to be in ``storage``."""
    from experiments.sweep.decide.search.searcher import StudySearcher
    from experiments.sweep.decide.search.study_record import study_address

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
