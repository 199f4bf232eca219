"""A prediction of which proposals will not fit into a device's memory, learned from the trials that did not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from optuna.trial import FrozenTrial

from gaudi_tune.sweep.search.sampler_view import ran_out_of_memory

N_TREES = 20
MAX_PROBABILITY = 0.1
"""A proposal is expected not to fit if a larger share of the trees says so."""
LARGEST = float(np.finfo(np.float32).max)
Predictor: TypeAlias = Callable[[FrozenTrial], bool]


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
