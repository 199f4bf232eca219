# /// script
# requires-python = "==3.11.*"
# dependencies = ["neural-pipeline-search==0.17.0", "numpy==2.4.6", "torch==2.15.0"]
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""NePS's optimizers with their defaults: priorband without priors, ifbo (freeze-thaw, an epoch at a time).

Its asha is of no use here: with several workers it promotes trials that have not reported.
"""

from __future__ import annotations

import logging
from typing import Any

import neps
import numpy as np
import torch
from serve import Budgets, Loss, Point, serve

logging.disable(logging.WARNING)


class Neps(Budgets):
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        super().__init__()
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        fields: dict[str, Any] = {f"u{index}": neps.Float(0.0, 1.0) for index in range(dimensions)}
        fields["epoch"] = neps.IntegerFidelity(1, epochs)
        space = type("Space", (neps.PipelineSpace,), fields)()
        self.optimizer = neps.AskAndTell(getattr(neps.algorithms, kind)(space))

    def job(self) -> tuple[Any, Any, Point, int]:
        asked = self.optimizer.ask()
        point = [value for name, value in sorted(asked.config.items()) if name.startswith("u")]
        return asked, tuple(point), point, int(asked.config["epoch"])

    def done(self, job: Any, loss: Loss, epochs: int) -> None:
        self.optimizer.tell(job, ValueError("not finite") if loss is None else loss)


if __name__ == "__main__":
    serve(Neps)
