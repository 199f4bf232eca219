# /// script
# requires-python = "==3.11.*"
# dependencies = ["ax-platform==1.3.1", "botorch==0.18.1", "numpy==2.4.6", "torch==2.15.0"]
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""Ax's Client with its defaults: who proposes, and (kind "own") its percentile rule that stops trials from epoch 10 on.

Kind "asha" has Ray's ASHA in place of that rule. A point that is not the proposed one is a trial that Ax is given.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

from ax.api.client import Client
from ax.api.configs import RangeParameterConfig
from ax.exceptions.core import DataRequiredError
from serve import Asha, Loss, Point, serve

logging.disable(logging.WARNING)
warnings.simplefilter("ignore")


class Ax(Asha):
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        super().__init__(epochs)
        self.kind, self.names = kind, [f"u{index}" for index in range(dimensions)]
        self.client = Client(random_seed=seed % 2**31)
        unit = [RangeParameterConfig(name=name, parameter_type="float", bounds=(0.0, 1.0)) for name in self.names]
        self.client.configure_experiment(parameters=unit)
        self.client.configure_optimization(objective="-loss")
        self.indices: dict[int, int] = {}

    def ask(self) -> dict[str, Any]:
        try:
            return super().ask()
        except DataRequiredError:  # its first points are given, and too few have reported: the worker waits
            return {}

    def propose(self) -> Point:
        ((index, found),) = self.client.get_next_trials(max_trials=1).items()
        self.indices[len(self.points)] = index
        return [float(found[name]) for name in self.names]

    def began(self, trial: int, point: Point | None) -> None:
        proposed = self.client._experiment.trials[self.indices[trial]].arm.parameters
        if point and point != [proposed[name] for name in self.names]:
            self.client.mark_trial_abandoned(self.indices[trial])
            self.indices[trial] = self.client.attach_trial(dict(zip(self.names, point, strict=True)))
        super().began(trial, point)

    def tell(self, trial: int, epoch: int, loss: Loss, ended: bool) -> dict[str, Any]:
        index = self.indices[trial]
        if loss is None:
            self.client.mark_trial_failed(index)
            return {"decision": "STOP"}
        self.client.attach_data(index, {"loss": loss}, progression=epoch)
        if ended:
            self.client.complete_trial(index)
        elif self.weak(trial, epoch, loss) if self.kind == "asha" else self.client.should_stop_trial_early(index):
            self.client.mark_trial_early_stopped(index)
        else:
            return {"decision": "CONTINUE"}
        return {"decision": "STOP"}


if __name__ == "__main__":
    serve(Ax)
