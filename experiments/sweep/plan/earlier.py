"""What earlier sweeps know: a baseline, configurations that were good (``--learn-from``), how long an epoch takes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.sweep.define.budget import BUDGET_OPTIONS
from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.experiment import Experiment
from experiments.sweep.define.options import SweepOptions, trial_of_sweep
from experiments.sweep.define.plan import HOLD_OUT, SUMMARY_FILE, Plan
from experiments.sweep.define.ranges import holds
from experiments.sweep.define.search_space import SearchSpace, hyperparameter
from experiments.sweep.state.sweep_file import SweepFile, find_sweep, read_summary, read_sweep_file, sweeps_in

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

BEST = 5
"""How many trials of each sweep are learned from: the best that fit."""


class Learned(NamedTuple):
    """What is known of a space."""

    configs: list[dict[str, Any]]
    """Values that were good, under the names of the study, the best first; those of new hyperparameters are missing."""
    said: str
    """What could be used, in words."""


def look_back(plan: Plan) -> Plan:
    """Return the plan with what the sweeps that its options name know, and with how long an epoch took.

    A sweep that goes on knows what it knew when it began.

    Raises:
        SweepError: As :func:`learned_from`.
    """
    options = plan.options
    if plan.resumed and options.learn_from:
        configs = read_sweep_file(plan.folder, "--resume ").learned
        found = [Learned(configs, f"learns from {', '.join(options.learn_from)}, as it began")]
    else:
        storage = options.storage.expanduser()
        found = [learned_from(sweep, storage, plan.experiment) for sweep in dict.fromkeys(options.learn_from)]
    return replace(
        plan,
        learned=[config for learned in found for config in learned.configs],
        learns=[learned.said for learned in found],
        seen_by=seen_by(plan),
        seconds_each=seconds_each(plan),
    )


def seen_by(plan: Plan) -> list[str]:
    """Return the earlier sweeps whose results the plan begins with and that had no confirmation, or began with such a
    sweep: where the data has no test part, what is held out now was among what chose their winners."""
    options = plan.options
    if plan.resumed:
        return read_sweep_file(plan.folder, "--resume ").seen_by
    if not plan.settings.get(HOLD_OUT):
        return []
    named = [*options.learn_from]
    if options.baseline is not None and options.baseline not in plan.experiment.baselines:
        named.append(trial_of_sweep(options.baseline)[0])
    found: list[str] = []
    own = plan.decided()
    for folder in (find_sweep(sweep, options.storage) for sweep in named):
        began_with = read_sweep_file(folder)
        if all(began_with.options.get(name) == own[name] for name in ("recipe", "data")):
            found += began_with.seen_by if began_with.options.get("seeds") else [folder.name]
    return list(dict.fromkeys(found))


def learned_from(sweep: str, storage: Path, experiment: Experiment) -> Learned:
    """Return what an earlier sweep knows.

    Args:
        sweep: Its name or its folder.
        storage: Where a name is looked for.
        experiment: Whose search space is to be learned about.

    Raises:
        SweepError: There is no such sweep, it is of another experiment or objective, or none of its trials fits.
    """
    from experiments.sweep.decide.search.study_record import stored_trials

    folder, began_with = _sweep_of("--learn-from", sweep, storage, experiment)
    before, now = f"{began_with.mode} {began_with.metric}", str(experiment.objective)
    if before != now:
        raise SweepError(
            f"--learn-from {sweep}: its objective is {before}, and the experiment's is {now}, so its best trials may "
            f"not be good here; leave it out"
        )
    found = best_that_fit(stored_trials(folder), experiment.search_space, most=experiment.mode == "max")
    if not found.configs:
        raise SweepError(f"--learn-from {sweep}: {found.said}; leave it out, or widen the ranges")
    return found._replace(said=f"learns from {folder.name}: {found.said}")


def best_that_fit(trials: Sequence[FrozenTrial], space: SearchSpace, *, most: bool) -> Learned:
    """Return what trials know of a space, which may be another than theirs.

    Args:
        trials: Of one study.
        space: Where to search.
        most: Whether more is better.
    """
    best, sign = (max, -1) if most else (min, 1)
    scored = [(sign * best(t.intermediate_values.values()), t) for t in trials if t.intermediate_values]
    good: list[tuple[float, dict[str, Any]]] = []
    outside: Counter[str] = Counter()
    for score, trial in scored:
        if trial.state.name == "FAIL":
            continue
        params = trial.params
        wrong = [name for name, value in params.items() if not _possible(space, name, value)]
        outside.update(wrong)
        kept = {name: value for name, value in params.items() if name in space.of_study}
        if not wrong and kept:
            good.append((score, kept))
    known = {name for _, trial in scored for name in trial.params}
    facts = [
        f"{len(good)} of {len(trials)} trials fit",
        *(f"{name} is new" for name in sorted(space.of_study.keys() - known)),
        *(f"{name} is gone" for name in sorted(known - space.of_study.keys())),
        *(f"{number} lie outside {name}'s range" for name, number in outside.items()),
    ]
    ranked = [config for _, config in sorted(good, key=lambda pair: pair[0])]
    return Learned([config for i, config in enumerate(ranked) if config not in ranked[:i]][:BEST], ", ".join(facts))


def _possible(space: SearchSpace, name: str, value: Any) -> bool:
    """Whether a trial of the space could have the value; of a hyperparameter that is gone, any will do."""
    own = hyperparameter(name)
    if own in space.fixed:
        return bool(space.fixed[own] == value)
    return name not in space.of_study or holds(space.of_study[name], value)


def seconds_each(plan: Plan) -> tuple[float, str] | None:
    """Return the seconds that an epoch (or step) took in the last sweep that trained the same on the same kind of
    device, and that sweep's name; None if the storage has none."""
    same = _like(
        {
            "experiment": plan.experiment.name,
            "recipe": plan.recipe,
            "device": plan.devices.type.kind,
            "workers_per_trial": plan.options.workers_per_trial,
            "settings": plan.settings,
        }
    )
    files = [folder / SUMMARY_FILE for folder in sweeps_in(plan.options.storage)]
    for file in sorted(filter(Path.is_file, files), key=lambda file: -file.stat().st_mtime):
        summary = read_summary(file.parent)
        each = summary.get("seconds_each", {}).get(plan.budget.unit)
        if each and _like(summary) == same:
            return each, file.parent.name
    return None


def _like(summary: dict[str, Any]) -> str:
    """Return what a sweep trained, as JSON has it."""
    kept = {key: summary[key] for key in ("experiment", "recipe", "device", "workers_per_trial")}
    settings = {name: value for name, value in summary["settings"].items() if name not in BUDGET_OPTIONS}
    return json.dumps({**kept, "settings": settings}, sort_keys=True, default=str)


def earlier_config(options: SweepOptions, experiment: Experiment) -> dict[str, Any]:
    """Return the hyperparameters that won the earlier sweep of ``--baseline``, in its confirmation if it had one, else
    in its search; or those of one of its trials. A sweep that goes on has what it began with, whatever has become of
    the earlier one.
    """
    assert options.baseline is not None, "no earlier sweep is named"
    if options.resume is not None:
        folder = options.storage.expanduser().resolve() / options.resume
        if kept := read_sweep_file(folder, "--resume ").earlier_config:
            return kept
    name, number = trial_of_sweep(options.baseline)
    folder, _ = _sweep_of("--baseline", name, options.storage, experiment)
    config = _winner_of(folder) if number is None else _config_of(folder, number)
    return {name: value for name, value in config.items() if name in experiment.search_space.names}


def _sweep_of(option: str, sweep: str, storage: Path, experiment: Experiment) -> tuple[Path, SweepFile]:
    """Return the folder of an earlier sweep of this experiment, and what it began with."""
    try:
        folder = find_sweep(sweep, storage)
        began_with = read_sweep_file(folder)
    except SweepError as error:
        raise SweepError(f"{option} {error}") from error
    if began_with.experiment != experiment.name:
        raise SweepError(
            f"{option} {sweep}: that is a sweep of {began_with.experiment}, not of {experiment.name}; leave it out, or "
            f"give the Experiment name={began_with.experiment!r} if it is the same"
        )
    return folder, began_with


def _winner_of(folder: Path) -> Mapping[str, Any]:
    file = folder / SUMMARY_FILE
    try:
        summary = read_summary(folder)
        confirmed = (summary.get("confirmation") or {}).get("rivals") or [summary["best"]]
        return dict(confirmed[0]["config"])
    except (LookupError, TypeError, AttributeError) as error:
        raise SweepError(
            f"--baseline {folder.name}: {file} has no winner ({error!r}); give the name or the folder of a sweep that "
            f"has one, or NAME:NUMBER for one of its trials"
        ) from error


def _config_of(folder: Path, number: int) -> Mapping[str, Any]:
    from experiments.sweep.decide.search.study_record import stored_trials

    trials = stored_trials(folder)
    if not 1 <= number <= len(trials):
        raise SweepError(
            f"--baseline {folder.name}:{number}: its search has no such trial; it has "
            f"{f'1 to {len(trials)}' if trials else 'none'}"
        )
    return {hyperparameter(name): value for name, value in trials[number - 1].params.items()}
