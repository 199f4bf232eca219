"""summary.json: what a sweep came to, for people and programs."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ray.tune.experiment import Trial

from experiments.sweep.endings import TellsEndings
from experiments.sweep.experiment import Experiment
from experiments.sweep.outcome import Outcome, number_of
from trainables.runtime.writing import once_there_is_room, written_whole

if TYPE_CHECKING:
    from experiments.sweep.ledger import Ledger
    from experiments.sweep.plan import Plan
    from experiments.sweep.stopping import StopSweep
    from experiments.sweep.tracking.mlflow_callback import MlflowTracking

Scope: TypeAlias = Literal["all", "last"]
"""Which values of a trial count."""


class WriteSummary(TellsEndings):
    """Writes the summary of a sweep when it ends."""

    def __init__(self, plan: Plan, ledger: Ledger, tracking: MlflowTracking, stopping: StopSweep) -> None:
        super().__init__(plan.experiment.metric, plan.budget)
        self._plan, self._ledger, self._tracking, self._stopping = plan, ledger, tracking, stopping
        # Not from Tune's status: when a sweep is interrupted, Tune calls its running trials terminated.
        self._ended: dict[str, Outcome] = {}

    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Note the outcome; a trial without one was interrupted."""
        self._ended[trial.trial_id] = outcome

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know."""
        return {"ended": dict(self._ended)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        self._ended = dict(state["ended"])

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Write the file, whole or not at all."""
        path = self._plan.summary_file
        text = json.dumps(self.so_far(trials, self._ledger), indent=2, default=str) + "\n"
        with written_whole(path) as partial:
            once_there_is_room(lambda: partial.write_text(text), str(path))

    def so_far(self, trials: list[Trial], ledger: Ledger) -> dict[str, Any]:
        """Return what the sweep has come to; while it runs, trials that run count as interrupted."""
        plan = self._plan
        outcomes = [self._ended.get(trial.trial_id, "interrupted") for trial in trials]
        interrupted = [number_of(trial) for trial in trials if trial.trial_id not in self._ended]
        return {
            "name": plan.name,
            "experiment": plan.experiment.name,
            "recipe": plan.recipe,
            "device": plan.devices.type.kind,
            "workers_per_trial": plan.options.workers_per_trial,
            "metric": plan.experiment.metric,
            "mode": plan.experiment.mode,
            "best": best_of(trials, plan),
            "baseline": value_of(baseline, plan.experiment) if (baseline := _baseline(trials)) else None,
            "complete": not interrupted and len(trials) == plan.num_samples,
            "ended_early": self._stopping.ending and self._stopping.ending._asdict(),
            "trials": dict(Counter(outcomes)),
            "interrupted": interrupted,
            "wall_s": round(ledger.ended - ledger.began, 2),
            "device_seconds": _rounded(ledger.in_all()),
            "ledger": {
                "devices": {device: _rounded(seconds) for device, seconds in ledger.by_device().items()},
                "trials": {number: _rounded(seconds) for number, seconds in sorted(ledger.by_trial.items())},
            },
            "settings": plan.settings,
            "mlflow": self._tracking.address,
        }


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(value, 2) for kind, value in seconds.items()}


def best_of(trials: list[Trial], plan: Plan) -> dict[str, Any] | None:
    """Return the trial with the best value in any epoch; None if no trial reported a finite one."""
    best = best_trial(trials, plan.experiment)
    if best is None:
        return None
    kept = best.run_metadata.checkpoint_manager.best_checkpoint_result
    return {
        "trial": number_of(best),
        "trial_id": best.trial_id,
        "config": dict(best.config),
        "value": kept.metrics[plan.experiment.metric] if kept else value_of(best, plan.experiment),
        plan.budget.unit: plan.budget.progress(kept.metrics if kept else best.last_result),
        "checkpoint": str(Path(kept.checkpoint.path)) if kept else None,
    }


def best_trial(trials: list[Trial], experiment: Experiment, scope: Scope = "all") -> Trial | None:
    """Return the first trial with the best value, None if no trial reported a finite one.

    Args:
        trials: In the order of their numbers.
        experiment: Says what is better.
        scope: Whether all values of a trial count, or its last one.
    """
    best: tuple[Trial, float] | None = None
    for trial in trials:
        value = value_of(trial, experiment, scope)
        if value is not None and (best is None or experiment.better(value, than=best[1])):
            best = trial, value
    return best[0] if best else None


def value_of(trial: Trial, experiment: Experiment, scope: Scope = "all") -> float | None:
    """Return the best value of a trial, or its last; None if it reported no finite one."""
    analysis = trial.metric_analysis.get(experiment.metric)
    value = float(analysis[experiment.mode if scope == "all" else scope]) if analysis else math.nan
    return value if math.isfinite(value) else None


def _baseline(trials: list[Trial]) -> Trial | None:
    return next((trial for trial in trials if number_of(trial) == 1), None)
