"""What a sweep takes from earlier ones: how it began if it is resumed, a baseline, good configurations
(``--learn-from``), and how long an epoch takes. :func:`read_earlier` reads it all, once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.budget import BUDGET_OPTIONS
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import RESUME_AUTO, SEEDS, SweepOptions, checked, names_on_resume
from gaudi_tune.define.ranges import holds
from gaudi_tune.define.search_space import SearchSpace, hyperparameter
from gaudi_tune.define.sweep_plan import HOLD_OUT, Plan
from gaudi_tune.sweep.record.sweep_file import (
    SWEEP_FILE,
    SweepFile,
    earlier_sweep,
    last_summaries,
    read_sweep_file,
    sweep_of_checkpoint,
    sweep_to_resume,
    winner_of,
)

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

MAX_UNIT_S = 1e7
"""Seconds that an epoch may have taken in an earlier sweep: a third of a year. More is damage."""
MAX_LEARNED = 5
"""How many trials of each sweep are learned from: the best of those that fit the search space."""


class EarlierSweeps(NamedTuple):
    """What was read from earlier sweeps."""

    resumed: SweepFile | None = None
    """The file of the sweep that is resumed. It has what that sweep took from earlier ones, so nothing else is read."""
    resumed_folder: Path | None = None
    """The folder of that sweep."""
    sources: Sequence[SweepFile] = ()
    """The files of the sweeps of ``--learn-from``, and then of the one of ``--baseline``."""
    trials: Sequence[Sequence[FrozenTrial]] = ()
    """The trials of each sweep of ``--learn-from``."""
    winner: Mapping[str, Any] | None = None
    """The configuration that becomes the baseline (``--baseline``)."""
    summaries: Iterable[tuple[str, Mapping[str, Any]]] = ()
    """Names and summaries of the sweeps in the storage, the latest first. Each is read when the iterator reaches it."""
    checkpoint_held_out: bool = False
    """Whether the sweep of the checkpoint that ``--evaluate`` names held test data out."""


class Learned(NamedTuple):
    """What an earlier sweep teaches about a search space."""

    configs: list[dict[str, Any]]
    """The best configurations, the best first, by the study's names. New hyperparameters are missing in them."""
    description: str
    """How much could be learned, in words."""


def resumed_if_begun(options: SweepOptions) -> SweepOptions:
    """Return the options that ``--resume auto`` stands for: those of a new sweep, or of one that goes on.

    So the same command line may be run again and again. Options that it kept from the beginning are not said again.

    Raises:
        SweepError: There is no ``--name``, or an option differs from the one with which the sweep began.
    """
    if options.resume != RESUME_AUTO:
        return options
    if options.name is None:
        raise SweepError(f"--resume {RESUME_AUTO} goes with --name NAME: the sweep to begin, or to continue; give one")
    folder = options.storage.expanduser() / options.name
    if not (folder / SWEEP_FILE).is_file():
        return replace(options, resume=None)
    first_options = checked(read_sweep_file(folder, "--resume ").options)
    repeated_names = {
        name for name in names_on_resume("kept") if getattr(options, name) == getattr(first_options, name)
    }
    repeated_names.add("num_samples")  # a person may have added trials meanwhile
    if first_options.learn_from or first_options.baseline:
        repeated_names.add("seed")  # another may have been taken, see unused_seed()
    usual: dict[str, Any] = {option.name: option.default for option in fields(options) if option.name in repeated_names}
    return replace(options, **usual | {"name": None, "resume": options.name})


def read_earlier(experiment: Experiment, options: SweepOptions, tracking_uri: str, address: str = "") -> EarlierSweeps:
    """Read the sweeps that the options name, and prepare to read those in the storage.

    If the storage has an ``address``, sweeps are found there by their names.

    ``--baseline SWEEP`` means the winner of that sweep's confirmation, or of its search if nothing was confirmed.

    Raises:
        SweepError: A sweep does not exist, is of another experiment, or does not have what the option needs.
    """
    if options.resume is not None:
        folder, resumed = sweep_to_resume(experiment.name, options, tracking_uri)
        return EarlierSweeps(resumed, folder, winner=resumed.earlier_config or None)
    checkpoint_held_out = False
    if options.evaluate is not None:
        checkpoint_sweep = sweep_of_checkpoint(options.evaluate, experiment.name)
        checkpoint_held_out = checkpoint_sweep is not None and bool(checkpoint_sweep.options.get("seeds"))
    storage = Path(address) if address else options.storage
    baseline_is_sweep = options.baseline is not None and options.baseline not in experiment.baselines
    if not (options.learn_from or baseline_is_sweep):
        return EarlierSweeps(summaries=last_summaries(options.storage), checkpoint_held_out=checkpoint_held_out)
    from gaudi_tune.sweep.search.stored_study import config_of_trial, stored_trials  # half a second

    # By folder: a sweep may be named twice, by its name and by its folder.
    files = dict(earlier_sweep("--learn-from", sweep, storage, experiment.name) for sweep in options.learn_from)
    sources, trials = list(files.values()), [stored_trials(folder) for folder in files]
    winner = None
    if baseline_is_sweep:
        sweep, number = options.baseline_trial
        folder, sweep_file = earlier_sweep("--baseline", sweep, storage, experiment.name)
        sources.append(sweep_file)
        winner = winner_of(folder) if number is None else config_of_trial(folder, number)
    return EarlierSweeps(None, None, sources, trials, winner, last_summaries(options.storage), checkpoint_held_out)


def add_earlier(plan: Plan, earlier: EarlierSweeps) -> Plan:
    """Return the plan with what it takes from earlier sweeps.

    Raises:
        SweepError: See :func:`learned_from`.
    """
    learn_from, resumed = plan.options.learn_from, earlier.resumed
    if resumed is not None:
        notes = [f"learns from {', '.join(learn_from)}, as it began"] if learn_from else []
        original = str(resumed.options["name"])
        return replace(
            plan,
            continued_folder=earlier.resumed_folder,
            origin=resumed.origin if plan.name == original else original,
            start_time=resumed.began,
            learned=resumed.learned,
            learning_notes=notes,
            test_data_seen_by=resumed.seen_by,
        )
    sources = earlier.sources[: len(earlier.trials)]  # the last source may be a baseline's
    learned = [
        learned_from(source, trials, plan.experiment) for source, trials in zip(sources, earlier.trials, strict=True)
    ]
    # A sweep that proposes nothing repeats nothing.
    seed = plan.options.seed if plan.options.baseline_only else unused_seed(plan.options.seed, earlier.sources)
    moved = f"--seed {seed}, since {plan.options.seed} would propose again what they tried"
    return replace(
        plan,
        options=replace(plan.options, seed=seed),
        learned=without_repeats(plan.experiment, [config for lesson in learned for config in lesson.configs]),
        learning_notes=[*(lesson.description for lesson in learned), *([moved] if seed != plan.options.seed else [])],
        test_data_seen_by=sweeps_that_saw_test_data(plan, earlier.sources),
        seconds_each=unit_seconds(plan, earlier.summaries),
    )


def unused_seed(seed: int, sources: Sequence[SweepFile]) -> int:
    """Return this seed, or the next one if an earlier sweep had it, or a sweep that the earlier one learned from may
    have had it: trials with the same seed would be proposed and trained again."""
    seeds = [int(source.options.get("seed", 0)) for source in sources]
    lowest = [
        0 if source.options.get("learn_from") or source.options.get("baseline") else seed
        for source, seed in zip(sources, seeds, strict=True)
    ]
    is_repeat = any(low <= seed <= high for low, high in zip(lowest, seeds, strict=True))
    return (max(seeds) + 1) % SEEDS if is_repeat else seed


def without_repeats(experiment: Experiment, configs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the different ones of learned configurations, without the baseline, which is tried anyway."""
    distinct_configs: list[dict[str, Any]] = []
    if experiment.baseline:
        draw = experiment.search_space.draw_with(experiment.baseline)
        distinct_configs.append({study_name: draw.config[name] for name, study_name in draw.study_names.items()})
    baseline = distinct_configs[:]
    for config in configs:
        if config not in distinct_configs:
            distinct_configs.append(config)
    return distinct_configs[len(baseline) :]


def sweeps_that_saw_test_data(plan: Plan, sources: Sequence[SweepFile]) -> list[str]:
    """Return the earlier sweeps whose winners may have been chosen by data that is test data now.

    A sweep without a confirmation holds no test data out. Where the data has no separate test part, such a sweep
    validated on samples that this sweep holds out. This also counts for sweeps that began with such a sweep.
    """
    if not plan.settings.get(HOLD_OUT):
        return []
    sweeps: list[str] = []
    data = None if plan.options.data is None else plan.settings["data"]
    for source in sources:
        if plan.recipe in (None, source.options.get("recipe")) and source.options.get("data") == data:
            sweeps += source.seen_by if source.options.get("seeds") else [source.options["name"]]
    return list(dict.fromkeys(sweeps))


def unit_seconds(plan: Plan, summaries: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[float, str] | None:
    """Return how many seconds an epoch (or step) took in the latest sweep that trained the same on the same kind of
    device, and that sweep's name; None if there is no such sweep."""
    fingerprint = _training_fingerprint(
        {
            "experiment": plan.experiment.name,
            "recipe": plan.recipe,
            "device": plan.devices.type.kind,
            "workers_per_trial": plan.options.workers_per_trial,
            "trials_per_device": plan.trials_per_device,
            "settings": plan.settings,
        }
    )
    for name, summary in summaries:
        seconds = (summary.get("seconds_each") or {}).get(plan.budget.unit)
        if isinstance(seconds, float) and 0 < seconds < MAX_UNIT_S and _training_fingerprint(summary) == fingerprint:
            return seconds, name
    return None


def _training_fingerprint(summary: Mapping[str, Any]) -> str:
    """Return a text that is equal for sweeps that trained the same."""
    entries = {key: summary.get(key) for key in ("experiment", "recipe", "device", "workers_per_trial")}
    entries["recipe"] = entries["recipe"] or "full"  # as older summaries say of an experiment without recipes
    entries["trials_per_device"] = summary.get("trials_per_device", 1)
    settings = {name: value for name, value in (summary.get("settings") or {}).items() if name not in BUDGET_OPTIONS}
    return json.dumps({**entries, "settings": settings}, sort_keys=True, default=str)


def learned_from(source: SweepFile, trials: Sequence[FrozenTrial], experiment: Experiment) -> Learned:
    """Return what the trials of an earlier sweep teach about the search space of an experiment.

    Raises:
        SweepError: The sweep has another objective, or none of its trials fits.
    """
    sweep = source.options["name"]
    old_objective, new_objective = source.objectives[0], str(experiment.objective)
    if old_objective != new_objective:
        raise SweepError(
            f"--learn-from {sweep}: its objective is {old_objective}, and the experiment's is {new_objective}, so its "
            f"best trials may not be good here; leave it out"
        )
    if not trials:
        raise SweepError(f"--learn-from {sweep}: its study is gone, or has no trials; leave it out")
    learned = best_that_fit(trials, experiment.search_space, experiment.objective)
    if not learned.configs:
        raise SweepError(f"--learn-from {sweep}: {learned.description}; leave it out, or widen the ranges")
    return learned._replace(description=f"learns from {sweep}: {learned.description}")


def best_that_fit(trials: Sequence[FrozenTrial], space: SearchSpace, objective: Objective) -> Learned:
    """Return the best trials that fit a search space, which may differ from the one that they were drawn from.

    Args:
        trials: The trials of one study.
        space: The search space that the configurations must fit.
        objective: What makes a trial better than another.
    """
    from gaudi_tune.sweep.search.sampler_view import best_report  # which imports Optuna

    best_reports = [(trial, report) for trial in trials if (report := best_report(trial, objective))]
    outside: Counter[str] = Counter()
    fitting: list[tuple[float, dict[str, Any]]] = []
    for trial, (_, value) in best_reports:
        if trial.state.name == "FAIL":
            continue
        misfits = [name for name, value in trial.params.items() if not _fits(space, name, value)]
        outside.update(misfits)
        config = {name: value for name, value in trial.params.items() if name in space.study_ranges}
        if config and not misfits:
            fitting.append((objective.score(value), config))
    old_names = {name for trial, _ in best_reports for name in trial.params}
    facts = [
        f"{len(fitting)} of {len(trials)} trials fit",
        *(f"{name} is new" for name in sorted(space.study_ranges.keys() - old_names)),
        *(f"{name} is gone" for name in sorted(old_names - space.study_ranges.keys())),
        *(f"{number} lie outside {name}'s range" for name, number in outside.items()),
    ]
    best: list[dict[str, Any]] = []
    for _, config in sorted(fitting, key=lambda pair: -pair[0]):
        if config not in best:
            best.append(config)
    return Learned(best[:MAX_LEARNED], ", ".join(facts))


def _fits(space: SearchSpace, name: str, value: Any) -> bool:
    """Whether a trial of the space could have this value. A hyperparameter that the space lacks may have any value."""
    short_name = hyperparameter(name)
    if short_name in space.fixed:
        return bool(space.fixed[short_name] == value)
    return name not in space.study_ranges or holds(space.study_ranges[name], value)
