# /// script
# requires-python = "==3.11.*"
# dependencies = ["syne-tune==0.16.0", "numpy==2.4.6", "scikit-learn==1.9.1", "xgboost==3.2.0", "huggingface_hub"]
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""Syne Tune's BOHB, ASHACQR and ASHABORE with its own ASHA (stopping), and MOASHA for two objectives; reduction 3 and
grace 1."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

import numpy as np
from serve import Loss, Point, serve
from syne_tune.backend.trial_status import Trial
from syne_tune.config_space import uniform
from syne_tune.optimizer import baselines
from syne_tune.optimizer.schedulers.multiobjective.moasha import MOASHA

logging.disable(logging.WARNING)


class SyneTune:
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        np.random.seed(seed % 2**32)  # some of its parts draw from there
        several = kind == "MOASHA"
        of: dict[str, Any] = {"metrics": ["loss", "seconds"]} if several else {"metric": "loss"}
        self.scheduler = (MOASHA if several else getattr(baselines, kind))(
            {f"u{index}": uniform(0.0, 1.0) for index in range(dimensions)}, time_attr="epoch", max_t=epochs,
            grace_period=1, reduction_factor=3, do_minimize=True, random_seed=seed % 2**31, **of,
        )  # fmt: skip
        self.trials: dict[int, Any] = {}

    def ask(self) -> dict[str, Any]:
        return {"trial": len(self.trials), "point": list(self.scheduler.suggest().config.values())}

    def began(self, trial: int, point: Point | None) -> None:
        if point:
            row = {f"u{index}": value for index, value in enumerate(point)}
            self.trials[trial] = Trial(trial, row, datetime.now())
            self.scheduler.on_trial_add(self.trials[trial])

    def tell(self, trial: int, epoch: int, loss: Loss, ended: bool, seconds: Loss = None) -> dict[str, Any]:
        theirs, result = self.trials[trial], {"loss": loss, "epoch": epoch, "seconds": seconds}
        if loss is None:
            self.scheduler.on_trial_error(theirs)
            return {"decision": "STOP"}
        if ended:
            self.scheduler.on_trial_complete(theirs, result)
            return {"decision": "STOP"}
        decision = str(self.scheduler.on_trial_result(theirs, result))
        if decision == "STOP":
            self.scheduler.on_trial_remove(theirs)
        return {"decision": decision}


if __name__ == "__main__":
    serve(SyneTune)
