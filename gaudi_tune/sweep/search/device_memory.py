"""Predicts which proposals will not fit into a device's memory, learning from the trials that did not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import optuna
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as StudyState

from gaudi_tune.define.objective import Objective
from gaudi_tune.sweep.search.sampler_view import ran_out_of_memory

N_TREES = 20
MAX_PROBABILITY = 0.1
"""A proposal is expected not to fit if a larger share of the trees says so."""
MAX_PROPOSALS = 50
"""How many proposals are asked for until one is likely to fit into the device's memory; then the last is taken."""
MAX_FROM_SAMPLER = 3
"""How many of these come from the sampler, which may take a while for each; the others are random."""
LARGEST = float(np.finfo(np.float32).max)
Predictor: TypeAlias = Callable[[FrozenTrial], bool]


def first_that_fits(
    ask: Callable[[], tuple[dict[str, Any], FrozenTrial]],
    study: optuna.Study,
    trials: Sequence[FrozenTrial],
    objectives: Sequence[Objective],
    seed: int,
) -> tuple[dict[str, Any], FrozenTrial]:
    """Return the first proposal that is not likely to run out of the device's memory.

    Args:
        ask: Returns the next proposal of the study's sampler.
        study: The study in which they are made. After a few, its sampler is a random one.
        trials: What the sweep has learned from.
        objectives: What trials are ranked by.
        seed: The seed of the random sampler.
    """
    is_too_large = out_of_memory_predictor(trials)
    for attempt in range(MAX_PROPOSALS):
        if attempt == MAX_FROM_SAMPLER:
            study.sampler = RandomSampler(seed=seed)
        config, proposal = ask()
        if is_too_large is None or not is_too_large(proposal):
            break
        _reject(study, proposal, objectives)
    return config, proposal


def _reject(study: optuna.Study, proposal: FrozenTrial, objectives: Sequence[Objective]) -> None:
    """Tell the sampler that a proposal is as bad as the worst trial, so that it looks elsewhere."""
    points = [trial.values for trial in study.get_trials(deepcopy=False) if trial.values]
    if not points:
        study.tell(proposal.number, state=StudyState.FAIL)
        return
    columns = zip(*points, strict=True)
    worst = [min(values, key=objective.score) for objective, values in zip(objectives, columns, strict=True)]
    study.tell(proposal.number, worst)


def out_of_memory_predictor(trials: Sequence[FrozenTrial]) -> Predictor | None:
    """Return a function that says of a proposal whether it is likely to run out of memory.

    It is a forest of random trees: the cause is mostly one hyperparameter from some value on, or two together, and
    trees find such a border among other hyperparameters that do not matter. A sampler that only counts those trials as
    bad comes back to them: in spaces of which half fits, 30 % of the proposals after the 20th did not.

    Returns:
        None while no trial has run out of memory, or every trial has.
    """
    informative = [trial for trial in trials if ran_out_of_memory(trial) or trial.intermediate_values]
    labels = [ran_out_of_memory(trial) for trial in informative]
    if len(set(labels)) < 2:
        return None
    from sklearn.ensemble import ExtraTreesClassifier  # takes a second to import, and few sweeps need it

    names = sorted({name for trial in informative for name in trial.params})
    features = [_features(trial, names) for trial in informative]
    forest = ExtraTreesClassifier(N_TREES, random_state=0).fit(features, labels)
    return lambda proposal: bool(forest.predict_proba([_features(proposal, names)])[0, 1] > MAX_PROBABILITY)


def _features(trial: FrozenTrial, names: Sequence[str]) -> list[float]:
    """Return the hyperparameters as numbers, as Optuna's own models have them; NaN where the trial lacks one.

    A tree computes with 32 bits: a larger number is as good as the largest of these.
    """
    ranges = trial.distributions
    values = [ranges[name].to_internal_repr(trial.params[name]) if name in ranges else math.nan for name in names]
    return [min(max(value, -LARGEST), LARGEST) for value in values]
