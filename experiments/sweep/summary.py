"""summary.json: what a sweep came to, for people and programs."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial

from experiments.sweep.endings import TellsEndings
from experiments.sweep.outcome import Outcome, number_of
from trainables.runtime import names
from trainables.runtime.warm_trainable import START_SECONDS

if TYPE_CHECKING:
    from experiments.sweep.plan import Plan
    from experiments.sweep.tracking import MlflowTracking

SECONDS_BY_KIND = {
    START_SECONDS: "starting",
    names.COMPILE_SECONDS: "compiling",
    names.TRAIN_SECONDS: "training",
    names.EVAL_SECONDS: "evaluating",
}
"""What a group does, by the metric that counts it."""


class WriteSummary(TellsEndings):
    """Adds up the seconds of a sweep and writes its summary when it ends."""

    def __init__(self, plan: Plan, tracking: MlflowTracking) -> None:
        super().__init__(plan.experiment.metric, plan.budget)
        self._plan, self._tracking = plan, tracking
        self._ended: dict[str, Outcome] = {}
        self._seconds = dict.fromkeys(SECONDS_BY_KIND.values(), 0.0)
        self._began = time.time()

    def setup(self, **info: Any) -> None:
        """Start the clock."""
        self._began = time.time()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Add the seconds of one report."""
        for metric, kind in SECONDS_BY_KIND.items():
            self._seconds[kind] += result.get(metric, 0.0)

    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Note the outcome; a trial without one was interrupted."""
        self._ended[trial.trial_id] = outcome

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Write the file, whole or not at all."""
        path = self._plan.summary_file
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(self._summary(trials), indent=2, default=str) + "\n")
        partial.replace(path)

    def _summary(self, trials: list[Trial]) -> dict[str, Any]:
        plan = self._plan
        wall = time.time() - self._began
        idle = max(0.0, wall * plan.groups - sum(self._seconds.values()))
        seconds = {"wall": wall, "groups": plan.groups, **self._seconds, "waiting or idle": idle}
        outcomes = Counter(self._ended.get(trial.trial_id, "interrupted") for trial in trials)
        return {
            "name": plan.name,
            "experiment": plan.experiment.name,
            "recipe": plan.recipe,
            "device": plan.devices.type.kind,
            "workers_per_trial": plan.options.workers_per_trial,
            "metric": plan.experiment.metric,
            "mode": plan.experiment.mode,
            "best": best_of(trials, plan),
            "baseline": _value_of(baseline, plan) if (baseline := _baseline(trials)) else None,
            "complete": len(self._ended) == plan.num_samples,
            "trials": dict(outcomes),
            "interrupted": [trial.trial_id for trial in trials if trial.trial_id not in self._ended],
            "seconds": {kind: round(value, 2) for kind, value in seconds.items()},
            "settings": plan.settings,
            "mlflow": self._tracking.address,
        }


def best_of(trials: list[Trial], plan: Plan) -> dict[str, Any] | None:
    """Return the trial with the best value in any epoch; None if no trial reported a finite one."""
    best: Trial | None = None
    for trial in trials:
        value = _value_of(trial, plan)
        if value is not None and (best is None or plan.experiment.better(value, than=_value_of(best, plan) or 0.0)):
            best = trial
    if best is None:
        return None
    kept = best.run_metadata.checkpoint_manager.best_checkpoint_result
    return {
        "trial": number_of(best),
        "trial_id": best.trial_id,
        "config": dict(best.config),
        "value": kept.metrics[plan.experiment.metric] if kept else _value_of(best, plan),
        plan.budget.unit: plan.budget.progress(kept.metrics if kept else best.last_result),
        "checkpoint": str(Path(kept.checkpoint.path)) if kept else None,
    }


def _value_of(trial: Trial, plan: Plan) -> float | None:
    analysis = trial.metric_analysis.get(plan.experiment.metric)
    value = float(analysis[plan.experiment.mode]) if analysis else math.nan
    return value if math.isfinite(value) else None


def _baseline(trials: list[Trial]) -> Trial | None:
    return next((trial for trial in trials if number_of(trial) == 1), None)
