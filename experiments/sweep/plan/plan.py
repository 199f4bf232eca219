"""Making the plan of a sweep: in which order it is decided and checked."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.experiment import Experiment
from experiments.sweep.define.options import SweepOptions, checked
from experiments.sweep.define.plan import Plan
from experiments.sweep.plan import check, connect, decide
from experiments.sweep.plan.estimate import seconds_each
from experiments.sweep.plan.learn import learn
from experiments.sweep.plan.packing import pack
from experiments.sweep.show.notify import webhook
from experiments.sweep.show.trackers.store import tracking_uri
from experiments.sweep.state.sweep_file import check_resumable, options_of_sweep
from trainables.runtime.devices.find import find_devices

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage

    from experiments.sweep.decide.search.searcher import StudySearcher


def make_plan(experiment: Experiment, options: SweepOptions, sampler: BaseSampler | None = None) -> Plan:
    """Decide and check everything. Acquires no device, starts no worker and writes nothing.

    A recipe may prepare its data in the cache folder, and with ``--address`` the process joins that cluster. The first
    thing that cannot work is a SweepError with its rule, value and fix. A ``sampler`` takes the place of the one that
    the options name.
    """
    options = checked(asdict(options))
    if options.resume is not None:
        options = options_of_sweep(experiment.name, options)
    elif options.add_trials:
        raise SweepError("--add-trials goes with --resume NAME; a new sweep has --num-samples")
    options = replace(options, notify=webhook(options.notify))
    name = decide.choose_name(experiment, options)
    check.check_folder(options.storage.expanduser(), name, resumed=options.resume is not None)
    experiment, others = decide.choose_objectives(experiment, options)
    check.check_target(experiment, options.target)
    cluster = connect.join(options.address)
    try:
        devices = find_devices(options.device, cluster.nodes if cluster else None)
    except ValueError as error:
        raise SweepError(str(error)) from error
    room = pack(devices, options.workers_per_trial)
    recipe, reason = decide.choose_recipe(experiment, options, devices.type.kind)
    experiment = experiment.at(recipe, options.workers_per_trial)
    if (other := experiment.baselines.get(options.baseline or "")) is not None:
        experiment = experiment.from_baseline(other, recipe, options.workers_per_trial)
        options = decide.with_settings(options, other.settings)
    usual = experiment.recipe(recipe)
    experiment = decide.search_in(experiment, options)
    if options.baseline is not None and other is None:
        experiment = replace(experiment, baseline=check.earlier_config(options.baseline, options.storage, experiment))
    decide.check_inside(experiment, options)
    check.check_baseline(experiment, options)
    check.check_space(experiment)
    budget = decide.choose_budget(options, usual.budget)
    trials = 1 if options.baseline_only else options.num_samples or usual.num_samples
    uri = tracking_uri(options.tracking_uri)
    check.check_store(uri, experiment.name)
    if options.register is not None:
        check.check_register(experiment, options.register, uri)
    confirm, seeds = decide.choose_confirmation(options, usual, trials)
    common, fixed = decide.choose_settings(experiment, options, recipe, hold_out=bool(seeds))
    experiment = decide.fix(experiment, fixed)
    learned = learn(experiment, options, name)
    groups = min(room, trials)
    search, search_reason = decide.choose_search(options, groups)
    sampler = check.check_search(experiment, search, options, sampler, 1 + len(others))
    check.check_sent(experiment)
    config, settings, mode, facts = check.check_trials(
        experiment, {**common, **budget.settings()}, options.workers_per_trial, devices.type
    )
    plan = Plan(
        experiment=experiment,
        others=others,
        options=options,
        devices=devices,
        groups=groups,
        recipe=recipe,
        recipe_reason=reason,
        settings=settings,
        mode=mode,
        budget=budget,
        num_samples=trials,
        confirm=confirm,
        seeds=seeds,
        name=name,
        tracking_uri=uri,
        facts=facts,
        learned=[config for found in learned for config in found.configs],
        learns=[found.said for found in learned],
        graphs=decide.count_graphs(config, experiment.search_space, devices.type, options.workers_per_trial),
        growth=decide.choose_growth(config, options, budget, devices),
        search=search,
        search_reason=search_reason,
        sampler=sampler,
        cluster=str(cluster) if cluster else None,
    )
    check.check_profile(experiment, options.profile, trials + plan.confirmations)
    if plan.resumed:
        check_resumable(plan)
    return replace(plan, seconds_each=seconds_each(plan))


def make_searcher(
    plan: Plan, storage: BaseStorage | None = None, kind: type[StudySearcher] | None = None
) -> StudySearcher:
    """Return the searcher of a plan, its study in the sweep's folder unless it is to be in ``storage``."""
    from experiments.sweep.decide.search.searcher import StudySearcher
    from experiments.sweep.decide.search.study_record import study_address

    return (kind or StudySearcher)(
        plan.experiment.search_space,
        metric=plan.experiment.metric,
        mode=plan.experiment.mode,
        others=plan.others,
        baseline=plan.experiment.baseline,
        sampler=plan.sampler or plan.search,
        seed=plan.options.seed,
        study_name=plan.name,
        storage=storage or study_address(plan.folder),
        budget=plan.budget,
        num_trials=plan.num_samples,
        trial_seed=plan.options.trial_seed,
        learned=plan.learned,
    )
