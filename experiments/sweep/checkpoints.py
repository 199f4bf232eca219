"""Which reports of which trials are worth a checkpoint."""

from __future__ import annotations

import math
import time
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.result import DONE, SHOULD_CHECKPOINT

from experiments.sweep.experiment import Experiment


class ChooseCheckpoints(Callback):
    """Asks for a checkpoint when a trial reports the best value of the sweep so far, ends best of those that ended, or
    has trained for a while without one.

    So the best trial has a checkpoint, whether its best or its last value counts, no trial loses more than a while's
    work, and most trials, which are stopped early, never write one.
    """

    def __init__(self, experiment: Experiment, every_s: float) -> None:
        """Begin a sweep.

        Args:
            experiment: Whose metric says which trial is best.
            every_s: Seconds that a trial may train without a checkpoint. 0: each report gets one.
        """
        self._better, self._metric, self._every_s = experiment.better, experiment.metric, every_s
        worst = -math.inf if experiment.mode == "max" else math.inf
        self._best, self._best_at_end = worst, worst
        self._saved_at: dict[str, float] = {}  # by trial id, of running trials

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Start the trial's clock."""
        self._saved_at[trial.trial_id] = time.monotonic()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: Any
    ) -> None:
        """Mark ``result`` for a checkpoint, in place, as Tune's own schedulers do."""
        if self._is_best(result) or (not result.get(DONE) and self._is_due(trial)):
            result[SHOULD_CHECKPOINT] = True
            self._saved_at[trial.trial_id] = time.monotonic()

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Forget the trial's clock."""
        self._saved_at.pop(trial.trial_id, None)

    def _is_due(self, trial: Trial) -> bool:
        return time.monotonic() - self._saved_at.get(trial.trial_id, -math.inf) >= self._every_s

    def _is_best(self, result: dict[str, Any]) -> bool:
        value = result.get(self._metric, math.nan)
        if not math.isfinite(value):
            return False
        # A tie counts: whoever names the best by another rule, such as the lower number, finds a checkpoint too.
        best = not self._better(self._best, value)
        best_at_end = bool(result.get(DONE)) and not self._better(self._best_at_end, value)
        self._best = value if best else self._best
        self._best_at_end = value if best_at_end else self._best_at_end
        return best or best_at_end

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know."""
        return {"best": self._best, "best_at_end": self._best_at_end}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        self._best, self._best_at_end = state["best"], state["best_at_end"]
