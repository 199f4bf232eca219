"""After the search: the best configurations and the baseline, trained again with seeds that no trial had."""

from __future__ import annotations

from typing import Any

from gaudi_tune.base import names
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.search.searcher import seed_of


def confirmations(state: SweepState, sweep_seed: int, *, over: bool) -> list[dict[str, Any]]:
    """Return the configurations to train after the search, in their order, those that train already included.

    All have the same seeds, so that one is compared with another on the same terms.

    Args:
        state: Of the sweep.
        sweep_seed: Seeds them.
        over: Whether all trials of the search have ended. Until then only those of the baseline are known, once it has
            ended or waits.
    """
    first = state.baseline  # to_confirm ranks all trials, too many for each step of the loop
    early = [first] if first is not None and first.can_be_confirmed else []
    chosen = state.to_confirm if over else early
    seeds = [seed_of(sweep_seed, number, 1) for number in range(state.seeds)]
    return [
        {**trial.config, "seed": seed, names.CONFIRMS: trial.number}
        for trial in chosen
        if trial.has_ended or trial.status == "paused"
        for seed in seeds
    ]
