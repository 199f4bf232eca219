"""What a sweep takes from earlier ones: its beginning if it is resumed, a baseline, and good configurations
(``--learn-from``). :func:`read_earlier` reads it all, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import SWEEP_FILE
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import RESUME_AUTO, SEEDS, SweepOptions
from gaudi_tune.define.ranges import holds
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.define.space_checks import Draw
from gaudi_tune.define.sweep_plan import HOLD_OUT, Plan
from gaudi_tune.plan.apply import choose_objectives
from gaudi_tune.plan.outside_results import Result, is_outside, params_of, read_outside
from gaudi_tune.show.result import in_list
from gaudi_tune.sweep.record.state_log import logged_trials
from gaudi_tune.sweep.record.sweep_file import (
    SweepFile,
    earlier_sweep,
    read_sweep_file,
    sweep_to_resume,
    winner_of,
)

MAX_LEARNED = 5
"""How many trials of each sweep are learned from: the best of those that fit the search space."""


class EarlierSweeps(NamedTuple):
    """What was read from earlier sweeps."""

    resumed: SweepFile | None = None
    """The file of the sweep that is resumed. It has what that sweep took from earlier ones, so nothing else is read."""
    resumed_folder: Path | None = None
    """The folder of that sweep."""
    sources: Sequence[SweepFile] = ()
    """The files of our sweeps of ``--learn-from``, and then of the one of ``--baseline``."""
    results: Sequence[tuple[str, Sequence[Result]]] = ()
    """The trials of each source of ``--learn-from``, by its name."""
    winner: Mapping[str, Any] | None = None
    """The configuration that becomes the baseline (``--baseline``)."""


def resumed_if_begun(options: SweepOptions) -> SweepOptions:
    """Return the options that ``--resume auto`` stands for: those of a new sweep, or of one that continues.

    So the same command line may be run again and again.

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
    stored = read_sweep_file(folder, "--resume ").options
    usual: dict[str, Any] = {"num_samples": None}  # a person may have added trials meanwhile
    if stored.get("learn_from") or stored.get("baseline"):
        usual["seed"] = 0  # another may have been taken, see unused_seed()
    return replace(options, **usual, name=None, resume=options.name)


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
    storage = Path(address) if address else options.storage
    if not (options.learn_from or options.baseline):
        return EarlierSweeps()
    objective = choose_objectives(experiment, options)[0]
    sources: dict[Path, SweepFile] = {}  # by folder: a sweep may be named twice, by its name and by its folder
    results: list[tuple[str, Sequence[Result]]] = []
    for source in dict.fromkeys(options.learn_from):
        if is_outside(source):
            results.append((source, read_outside(source, objective, tracking_uri)))
            continue
        folder, sweep_file = earlier_sweep("--learn-from", source, storage, experiment.name)
        if folder not in sources:
            results.append((str(sweep_file.options["name"]), results_of(folder, sweep_file, objective)))
        sources[folder] = sweep_file
    winner = None
    if options.baseline:
        sweep, number = options.baseline_trial
        folder, sweep_file = earlier_sweep("--baseline", sweep, storage, experiment.name)
        sources[folder] = sweep_file
        winner = winner_of(folder) if number is None else config_of_trial(folder, sweep_file, number)
    return EarlierSweeps(None, None, [*sources.values()], results, winner)


def results_of(folder: Path, sweep: SweepFile, objective: Objective) -> list[Result]:
    """Return the trials of the search of an earlier sweep, each with the configuration of its best report.

    Raises:
        SweepError: The sweep has another objective, or no trials.
    """
    name, old_objective = sweep.options["name"], sweep.objectives[0]
    if old_objective != str(objective):
        raise SweepError(
            f"--learn-from {name}: its objective is {old_objective}, and the experiment's is {objective}, so its best "
            f"trials may not be good here; leave it out"
        )
    rows = [in_list(t, sweep.space, sweep.all_objectives) for t in logged_trials(folder) if not t.confirms]
    if not rows:
        raise SweepError(f"--learn-from {name}: its log is gone, or has no trials; leave it out")
    return [Result(row["config"], None if row["status"] == "failed" else row["value"]) for row in rows]


def config_of_trial(folder: Path, sweep: SweepFile, number: int) -> dict[str, Any]:
    """Return the hyperparameters of the best report of a trial of the search of a sweep, for ``--baseline``.

    Raises:
        SweepError: The search has no such trial.
    """
    trials = {trial.number: trial for trial in logged_trials(folder) if not trial.confirms}
    if number not in trials:
        numbers = f"1 to {max(trials)}, without those that confirm" if trials else "none"
        raise SweepError(f"--baseline {folder.name}:{number}: its search has no such trial; it has {numbers}")
    return {name: value for name, value in trials[number].best_config.items() if name in sweep.space}


def add_earlier(plan: Plan, earlier: EarlierSweeps) -> Plan:
    """Return the plan with what it takes from earlier sweeps.

    Raises:
        SweepError: See :func:`learned_from`.
    """
    learn_from, resumed = plan.options.learn_from, earlier.resumed
    if resumed is not None:
        original = str(resumed.options["name"])
        return replace(
            plan,
            continued_folder=earlier.resumed_folder,
            origin=resumed.origin if plan.name == original else original,
            start_time=resumed.began,
            learned=resumed.learned,
            learning_notes=[f"learns from {', '.join(learn_from)}, as it began"] if learn_from else [],
            test_data_seen_by=resumed.seen_by,
        )
    ranked: list[tuple[int, dict[str, Any]]] = []
    notes: list[str] = []
    space = plan.experiment.search_space
    for name, results in earlier.results:
        if is_outside(name):
            results = [Result(params_of(space, result.params), result.value) for result in results]
        best, description = best_that_fit(results, space, plan.experiment.objective)
        if not best:
            raise SweepError(f"--learn-from {name}: {description}; leave it out, or widen the ranges")
        ranked += enumerate(best)
        notes.append(f"learns from {name}: {description}")
    # A sweep that proposes nothing repeats nothing.
    seed = plan.options.seed if plan.options.baseline_only else unused_seed(plan.options.seed, earlier.sources)
    if seed != plan.options.seed:
        notes.append(f"--seed {seed}, since {plan.options.seed} may propose again what they tried")
    return replace(
        plan,
        options=replace(plan.options, seed=seed),
        # The best of each source comes first: the others are tried only if the first ones are good.
        learned=without_repeats(plan.experiment, (config for _, config in sorted(ranked, key=lambda pair: pair[0]))),
        learning_notes=notes,
        test_data_seen_by=sweeps_that_saw_test_data(plan, earlier.sources),
    )


def unused_seed(seed: int, sources: Sequence[SweepFile]) -> int:
    """Return this seed, or the next one after those of earlier sweeps: with the same seed, the same trials would be
    proposed and trained again. A sweep that learned from others has a higher seed than they have."""
    highest = max((int(source.options.get("seed", 0)) for source in sources), default=-1)
    return seed if seed > highest else (highest + 1) % SEEDS


def without_repeats(experiment: Experiment, configs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the different ones of learned configurations, without the baseline, which is tried anyway."""
    baseline: dict[str, Any] = {}
    if experiment.baseline:
        draw = experiment.search_space.draw_with(experiment.baseline)
        baseline = {study_name: draw.config[name] for name, study_name in draw.study_names.items()}
    distinct: list[dict[str, Any]] = []
    for config in configs:
        if config not in (baseline, *distinct):
            distinct.append(config)
    return distinct


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


def best_that_fit(
    results: Sequence[Result], space: SearchSpace, objective: Objective
) -> tuple[list[dict[str, Any]], str]:
    """Return the best configurations that fit a search space, which may differ from the one that they were drawn from,
    by the study's names, the best first; and in words how many fit. What the space lacks is left out.
    """
    outside: Counter[str] = Counter()
    fitting: list[tuple[float, dict[str, Any]]] = []
    valued = [(params, value) for params, value in results if value is not None]
    old_names = {name for params, _ in valued for name in params}
    for params, value in valued:
        draw = space.draw_near(params)  # the branch that these values take
        misfits = [name for name, value in params.items() if not _fits(space, draw, name, value)]
        outside.update(misfits)
        config = {draw.study_names[name]: value for name, value in params.items() if name in draw.ranges}
        if config and not misfits:
            fitting.append((objective.score(value), config))
    facts = [
        f"{len(fitting)} of {len(results)} trials fit",
        *([f"{len(results) - len(valued)} have no {objective.name}"] if len(valued) < len(results) else []),
        *(f"{name} is new" for name in sorted(space.ranges.keys() - old_names)),
        *(f"{name} is gone" for name in sorted(old_names - space.ranges.keys() - space.fixed.keys())),
        *(f"{number} lie outside {name}'s range" for name, number in outside.items()),
    ]
    best: list[dict[str, Any]] = []
    for _, config in sorted(fitting, key=lambda pair: -pair[0]):
        if config not in best:
            best.append(config)
    return best[:MAX_LEARNED], ", ".join(facts)


def _fits(space: SearchSpace, draw: Draw, name: str, value: Any) -> bool:
    """Whether a trial of the space could have this value. What the space lacks may have any value."""
    if name in space.fixed:
        return bool(space.fixed[name] == value)
    return name not in draw.ranges or holds(draw.ranges[name], value)
