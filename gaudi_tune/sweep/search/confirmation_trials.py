"""The trials after the search: the best configurations and the baseline, trained again with new seeds."""

from __future__ import annotations

from typing import Any

from gaudi_tune.base import names
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.proposer import seed_of


def confirmation_configs(state: SweepState, sweep_seed: int, *, search_is_over: bool) -> list[dict[str, Any]]:
    """Return the configurations to train after the search, in their order, including those that already train.

    Each is trained with the same seeds, so that they are compared on the same terms.

    Args:
        state: The state of the sweep.
        sweep_seed: The seed of the sweep, from which these seeds follow.
        search_is_over: Whether all trials of the search have ended. Until then only the baseline is known to be
            trained again, once it has ended or waits.
    """
    if search_is_over:
        trials = state.to_confirm
    else:  # to_confirm would rank all trials, too many for each step of Tune's loop
        baseline = state.baseline
        trials = [baseline] if baseline is not None and baseline.can_be_confirmed else []
    seeds = [seed_of(sweep_seed, number, 1) for number in range(state.seeds)]
    return [
        {**trial.config, "seed": seed, names.CONFIRMS: trial.number}
        for trial in trials
        if trial.has_ended or trial.status == "paused"
        for seed in seeds
    ]
