# /// script
# requires-python = "==3.11.*"
# dependencies = ["syne-tune[gpsearchers]==0.13.0", "numpy<2"]
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""What Syne Tune had until 0.13: MOBSTER, HyperTune, DyHPO and PASHA, which pause trials; grace 1.

MOBSTER and HyperTune promote, with reduction 3, HyperTune in four brackets. DyHPO has its own rungs (1, 3, 5, ...),
PASHA reduction 3.
"""

from __future__ import annotations

import logging
import random
from datetime import datetime
from typing import Any

import numpy as np
from serve import Loss, Point, serve
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import uniform
from syne_tune.optimizer import baselines

logging.disable(logging.WARNING)
SETTINGS: dict[str, dict[str, Any]] = {
    "MOBSTER": {"type": "promotion", "reduction_factor": 3},
    "HyperTune": {"type": "promotion", "reduction_factor": 3, "brackets": 4},
    "DyHPO": {},
    "PASHA": {"reduction_factor": 3},
}


class SyneTune:
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        np.random.seed(seed % 2**32)
        random.seed(seed)
        options = dict(SETTINGS[kind])
        if kind != "PASHA":
            options["search_options"] = {"debug_log": False}
        self.scheduler = getattr(baselines, kind)(
            {f"u{index}": uniform(0.0, 1.0) for index in range(dimensions)} | {"epochs": epochs}, metric="loss",
            mode="min", resource_attr="epoch", max_resource_attr="epochs", grace_period=1, random_seed=seed % 2**31,
            **options,
        )  # fmt: skip
        self.trials: dict[int, Any] = {}
        self.config: dict[str, Any] = {}

    def ask(self) -> dict[str, Any]:
        found = self.scheduler.suggest(len(self.trials))
        if found is None or not found.spawn_new_trial_id:
            return {} if found is None else {"trial": found.checkpoint_trial_id}
        self.config = found.config
        point = [value for name, value in found.config.items() if name.startswith("u")]
        return {"trial": len(self.trials), "point": point}

    def began(self, trial: int, point: Point | None) -> None:
        if point:
            self.config.update((f"u{index}", value) for index, value in enumerate(point))
            if models := getattr(self.scheduler.searcher, "state_transformer", None):
                models.state.config_for_trial[str(trial)] = self.config
            self.trials[trial] = Trial(trial, self.config, datetime.now())
            self.scheduler.on_trial_add(self.trials[trial])

    def tell(self, trial: int, epoch: int, loss: Loss, ended: bool) -> dict[str, Any]:
        theirs, result = self.trials[trial], {"loss": loss, "epoch": epoch}
        if loss is None:
            self.scheduler.on_trial_error(theirs)
            return {"decision": "STOP"}
        decision = self.scheduler.on_trial_result(theirs, result)
        if decision != "CONTINUE":
            self.scheduler.on_trial_remove(theirs)
        elif ended:
            self.scheduler.on_trial_complete(theirs, result)
        return {"decision": decision}


if __name__ == "__main__":
    serve(SyneTune)
