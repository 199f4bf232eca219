"""What earlier sweeps know: how this one began, a baseline, configurations that were good (``--learn-from``), and how
long an epoch takes. :func:`read_earlier` reads it all, once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gaudi_tune.base.errors import SweepError
from gaudi_tune.define.budget import BUDGET_OPTIONS
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.options import SweepOptions
from gaudi_tune.define.ranges import holds
from gaudi_tune.define.search_space import SearchSpace, hyperparameter
from gaudi_tune.define.sweep_plan import HOLD_OUT, Plan
from gaudi_tune.sweep.record.sweep_file import (
    SweepFile,
    earlier_sweep,
    last_summaries,
    sweep_of_checkpoint,
    sweep_to_resume,
    winner_of,
)

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

BEST = 5
"""How many trials of each sweep are learned from: the best that fit."""


class Earlier(NamedTuple):
    """What was read of earlier sweeps."""

    own: SweepFile | None = None
    """What the sweep began with that goes on. It knows what it knew then, and nothing else is read."""
    begins_with: Sequence[SweepFile] = ()
    """What the sweeps of ``--learn-from`` and ``--baseline`` began with."""
    trials: Sequence[Sequence[FrozenTrial]] = ()
    """Of each sweep of ``--learn-from``, which are the first of those."""
    winner: Mapping[str, Any] | None = None
    """The configuration that ``--baseline`` takes from one of them."""
    summaries: Iterable[tuple[str, Mapping[str, Any]]] = ()
    """Of the sweeps in the storage, with their names, the last first; each is read when it is asked for."""
    held_out: bool = False
    """Whether the sweep whose checkpoint is to be evaluated held test data out."""


class Learned(NamedTuple):
    """What is known of a space."""

    configs: list[dict[str, Any]]
    """Values that were good, under the names of the study, the best first; those of new hyperparameters are missing."""
    said: str
    """What could be used, in words."""


def read_earlier(experiment: Experiment, options: SweepOptions, tracking_uri: str) -> Earlier:
    """Return what the sweeps that the options name, and those in the storage, have on disk.

    The baseline is that which won its sweep, in its confirmation if it had one, else in its search; or one of its
    trials.

    Raises:
        SweepError: There is no such sweep, it is of another experiment, or what is wanted of it is not there.
    """
    if options.resume is not None:
        own = sweep_to_resume(experiment.name, options, tracking_uri)
        return Earlier(own, winner=own.earlier_config or None)
    of = None if options.evaluate is None else sweep_of_checkpoint(options.evaluate, experiment.name)
    held_out = of is not None and bool(of.options.get("seeds"))
    storage, winner = options.storage, None
    of_sweep = options.baseline is not None and options.baseline not in experiment.baselines
    if not (options.learn_from or of_sweep):
        return Earlier(summaries=last_summaries(storage), held_out=held_out)
    from gaudi_tune.sweep.search.study_record import config_of, stored_trials  # half a second

    learns = dict(earlier_sweep("--learn-from", sweep, storage, experiment.name) for sweep in options.learn_from)
    named = list(learns.items())  # once also where a sweep goes by its name and by its folder
    trials = [stored_trials(folder) for folder, _ in named]
    if of_sweep:
        sweep, number = options.baseline_trial
        named.append(earlier_sweep("--baseline", sweep, storage, experiment.name))
        winner = winner_of(named[-1][0]) if number is None else config_of(named[-1][0], number)
    return Earlier(None, [began_with for _, began_with in named], trials, winner, last_summaries(storage), held_out)


def look_back(plan: Plan, earlier: Earlier) -> Plan:
    """Return the plan with what earlier sweeps know.

    Raises:
        SweepError: As :func:`learned_from`.
    """
    learn_from, own = plan.options.learn_from, earlier.own
    if own is not None:
        learns = [f"learns from {', '.join(learn_from)}, as it began"] if learn_from else []
        return replace(plan, began=own.began, learned=own.learned, learns=learns, seen_by=own.seen_by)
    seen, each = seen_by(plan, earlier.begins_with), seconds_each(plan, earlier.summaries)
    pairs = zip(earlier.begins_with, earlier.trials, strict=False)  # without the baseline's sweep, which is the last
    learned = [learned_from(began_with, trials, plan.experiment) for began_with, trials in pairs]
    return replace(
        plan,
        learned=[config for found in learned for config in found.configs],
        learns=[found.said for found in learned],
        seen_by=seen,
        seconds_each=each,
    )


def seen_by(plan: Plan, begins_with: Sequence[SweepFile]) -> list[str]:
    """Return the earlier sweeps whose results the plan begins with and that had no confirmation, or began with such a
    sweep: where the data has no test part, what is held out now was among what chose their winners."""
    if not plan.settings.get(HOLD_OUT):
        return []
    found: list[str] = []
    data = None if plan.options.data is None else plan.settings["data"]
    for options, seen in ((began_with.options, began_with.seen_by) for began_with in begins_with):
        if (options.get("recipe"), options.get("data")) == (plan.recipe, data):
            found += seen if options.get("seeds") else [options["name"]]
    return list(dict.fromkeys(found))


def seconds_each(plan: Plan, summaries: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[float, str] | None:
    """Return the seconds that an epoch (or step) took in the last sweep that trained the same on the same kind of
    device, and that sweep's name; None if there is none."""
    same = _like(
        {
            "experiment": plan.experiment.name,
            "recipe": plan.recipe,
            "device": plan.devices.type.kind,
            "workers_per_trial": plan.options.workers_per_trial,
            "settings": plan.settings,
        }
    )
    for name, summary in summaries:
        each = (summary.get("seconds_each") or {}).get(plan.budget.unit)
        if each and _like(summary) == same:
            return each, name
    return None


def _like(summary: Mapping[str, Any]) -> str:
    """Return what a sweep trained, as JSON has it."""
    kept = {key: summary.get(key) for key in ("experiment", "recipe", "device", "workers_per_trial")}
    settings = {name: value for name, value in summary.get("settings", {}).items() if name not in BUDGET_OPTIONS}
    return json.dumps({**kept, "settings": settings}, sort_keys=True, default=str)


def learned_from(began_with: SweepFile, trials: Sequence[FrozenTrial], experiment: Experiment) -> Learned:
    """Return what an earlier sweep, with these trials, knows of the search space of an experiment.

    Raises:
        SweepError: It has another objective, or none of its trials fits.
    """
    sweep = began_with.options["name"]
    before, now = began_with.objectives[0], str(experiment.objective)
    if before != now:
        raise SweepError(
            f"--learn-from {sweep}: its objective is {before}, and the experiment's is {now}, so its best trials may "
            f"not be good here; leave it out"
        )
    if not trials:
        raise SweepError(f"--learn-from {sweep}: its study is gone, or has no trials; leave it out")
    found = best_that_fit(trials, experiment.search_space, experiment.objective)
    if not found.configs:
        raise SweepError(f"--learn-from {sweep}: {found.said}; leave it out, or widen the ranges")
    return found._replace(said=f"learns from {sweep}: {found.said}")


def best_that_fit(trials: Sequence[FrozenTrial], space: SearchSpace, objective: Objective) -> Learned:
    """Return what trials know of a space, which may be another than theirs.

    Args:
        trials: Of one study.
        space: Where to search.
        objective: What their reports are values of.
    """
    reported = [trial for trial in trials if trial.intermediate_values]
    scored = [(objective.score(objective.best(trial.intermediate_values.values())), trial) for trial in reported]
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
    ranked = [config for _, config in sorted(good, key=lambda scored_config: -scored_config[0])]
    return Learned([config for i, config in enumerate(ranked) if config not in ranked[:i]][:BEST], ", ".join(facts))


def _possible(space: SearchSpace, name: str, value: Any) -> bool:
    """Whether a trial of the space could have the value; of a hyperparameter that is gone, any will do."""
    own = hyperparameter(name)
    if own in space.fixed:
        return bool(space.fixed[own] == value)
    return name not in space.of_study or holds(space.of_study[name], value)
