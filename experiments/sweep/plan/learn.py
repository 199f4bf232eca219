"""What earlier sweeps of an experiment know of its search space (``--learn-from``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from experiments.sweep.define.errors import SweepError
from experiments.sweep.define.experiment import Experiment
from experiments.sweep.define.options import SweepOptions
from experiments.sweep.define.ranges import holds
from experiments.sweep.define.search_space import SearchSpace, hyperparameter
from experiments.sweep.state.sweep_file import find_sweep, read_sweep_file

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


def learn(experiment: Experiment, options: SweepOptions, name: str) -> list[Learned]:
    """Return what the sweeps that the options name know; of a sweep that goes on, what it knew when it began.

    Raises:
        SweepError: As :func:`learned_from`.
    """
    storage = options.storage.expanduser()
    if options.resume is not None and options.learn_from:
        configs = read_sweep_file(storage.resolve() / name, "--resume ").learned
        return [Learned(configs, f"learns from {', '.join(options.learn_from)}, as it began")]
    return [learned_from(sweep, storage, experiment) for sweep in dict.fromkeys(options.learn_from)]


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

    try:
        folder = find_sweep(sweep, storage)
        began_with = read_sweep_file(folder)
    except SweepError as error:
        raise SweepError(f"--learn-from {error}") from error
    if began_with.experiment != experiment.name:
        raise SweepError(
            f"--learn-from {sweep}: that is a sweep of {began_with.experiment}, not of {experiment.name}; leave it "
            f"out, or give the Experiment name={began_with.experiment!r} if it is the same"
        )
    before, now = f"{began_with.mode} {began_with.metric}", str(experiment.objective)
    if before != now:
        raise SweepError(
            f"--learn-from {sweep}: its objective is {before}, and the experiment's is {now}, so that its best trials "
            f"need not be good; leave it out"
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
