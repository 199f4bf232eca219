"""Which reports of which trials are worth a checkpoint."""

from __future__ import annotations

import math
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.result import DONE, SHOULD_CHECKPOINT

from experiments.sweep.experiment import Experiment


class KeepBest(Callback):
    """Asks for a checkpoint when a trial reports the best value of the sweep so far, or ends best of those that ended.

    So the best trial has a checkpoint, whether its best or its last value counts, and most trials never write one.
    """

    def __init__(self, experiment: Experiment) -> None:
        self._better = experiment.better
        self._metric = experiment.metric
        worst = -math.inf if experiment.mode == "max" else math.inf
        self._best, self._best_at_end = worst, worst

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: Any
    ) -> None:
        """Mark ``result`` for a checkpoint, in place, as Tune's own schedulers do."""
        value = result.get(self._metric, math.nan)
        if not math.isfinite(value):
            return
        # A tie counts: whoever names the best by another rule, such as the lower number, finds a checkpoint too.
        if not self._better(self._best, value):
            self._best = value
            result[SHOULD_CHECKPOINT] = True
        if result.get(DONE) and not self._better(self._best_at_end, value):
            self._best_at_end = value
            result[SHOULD_CHECKPOINT] = True

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know."""
        return {"best": self._best, "best_at_end": self._best_at_end}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        self._best, self._best_at_end = state["best"], state["best_at_end"]
