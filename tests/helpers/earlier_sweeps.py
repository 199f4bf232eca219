"""A sweep's folder as one leaves it, without a worker: what later sweeps learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaudi_tune import Experiment, SweepOptions
from gaudi_tune.define.options import resumed
from gaudi_tune.plan.planner import make_plan, make_proposer
from gaudi_tune.sweep.record.events import TrialBegan
from gaudi_tune.sweep.record.state_log import StateLog, pack
from gaudi_tune.sweep.record.sweep_file import sweep_to_resume, write_sweep_file
from tests.helpers.searchers import Sweep


def earlier_sweep(
    experiment: Experiment,
    storage: Path,
    score: Callable[[Mapping[str, Any]], float],
    trials: int = 6,
    settings: tuple[str, ...] = (),
) -> None:
    """Leave a sweep named "earlier" whose trials trained for an epoch and reported ``score`` of their configuration."""
    options = SweepOptions(name="earlier", storage=storage, device="cpu", epochs=1, num_samples=trials, search="random")
    plan = make_plan(experiment, replace(options, settings=settings))
    plan.folder.mkdir(parents=True)
    write_sweep_file(plan)
    proposer = make_proposer(plan)
    sweep = Sweep(proposer, plan.budget)
    for number in range(trials):
        config = proposer.propose(str(number))
        assert isinstance(config, dict)
        sweep.state.apply(TrialBegan(trial=number + 1, trial_id=str(number), config=config))
        sweep.ended(str(number), {plan.experiment.metric: score(config), "epoch": 1})
    StateLog(plan.folder).append(pack({**sweep.state.snapshot(), "study": proposer.record.snapshot(everything=True)}))


def options_of_sweep(experiment: str, given: SweepOptions, tracking_uri: str) -> SweepOptions:
    """Return the options with which the sweep of this experiment goes on that ``given`` wants to resume."""
    _, sweep_file = sweep_to_resume(experiment, given, tracking_uri)
    return resumed(given, sweep_file.options)
