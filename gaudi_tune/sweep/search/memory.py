"""Which proposals are likely not to fit into a device's memory, learned from the trials that did not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from optuna.trial import FrozenTrial

from gaudi_tune.sweep.search.surrogate import ran_out_of_memory

TREES = 20
TOO_LIKELY = 0.1
"""Share of the trees from which on a proposal is thought not to fit."""
Guess = Callable[[FrozenTrial], bool]


def too_large(trials: Sequence[FrozenTrial]) -> Guess | None:
    """Return what says of a proposal whether it is likely to run out of memory; None while no trial has, or each has.

    A forest of random trees says so: the cause is mostly one hyperparameter from some value on, or two together, and
    trees find such a border among others that do not matter. A sampler that takes those trials for bad ones, and is
    told nothing else, comes back to them: in spaces of which half fits, 30 % of the proposals after the 20th did not.
    """
    known = [trial for trial in trials if ran_out_of_memory(trial) or trial.intermediate_values]
    ran_out = [ran_out_of_memory(trial) for trial in known]
    if len(set(ran_out)) < 2:
        return None
    from sklearn.ensemble import ExtraTreesClassifier  # takes a second to import, and few sweeps need it

    names = sorted({name for trial in known for name in trial.params})
    forest = ExtraTreesClassifier(TREES, random_state=0).fit([_numbers(trial, names) for trial in known], ran_out)
    return lambda proposed: bool(forest.predict_proba([_numbers(proposed, names)])[0, 1] > TOO_LIKELY)


def _numbers(trial: FrozenTrial, names: Sequence[str]) -> list[float]:
    """Return the hyperparameters as Optuna's own models have them; NaN where the trial has none."""
    there = trial.distributions
    return [there[name].to_internal_repr(trial.params[name]) if name in there else math.nan for name in names]
