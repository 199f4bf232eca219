# /// script
# requires-python = "==3.11.*"
# dependencies = ["HEBO==0.3.6", "gpy==1.13.2", "numpy==1.24.4", "torch==2.15.0"]
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""HEBO with its defaults and Ray's ASHA, one proposal at a time, as Ray's HEBOSearch has it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from hebo.design_space.design_space import DesignSpace
from hebo.optimizers.hebo import HEBO
from serve import Asha, Loss, Point, serve


class Hebo(Asha):
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        super().__init__(epochs)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        self.names = [f"u{index}" for index in range(dimensions)]
        space = DesignSpace().parse([{"name": name, "type": "num", "lb": 0.0, "ub": 1.0} for name in self.names])
        self.optimizer = HEBO(space, scramble_seed=seed % 2**31)

    def propose(self) -> Point:
        return [float(value) for value in self.optimizer.suggest()[self.names].iloc[0]]

    def learn(self, trial: int, loss: Loss) -> None:
        if loss is not None:
            self.optimizer.observe(pd.DataFrame([self.points[trial]], columns=self.names), np.array([[loss]]))


if __name__ == "__main__":
    serve(Hebo)
