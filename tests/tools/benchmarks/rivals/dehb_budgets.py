# /// script
# requires-python = "==3.11.*"
# dependencies = ["dehb==0.1.2", "numpy==1.26.4", "ConfigSpace==1.2.2", "pandas<3"]
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""DEHB with its defaults (eta 3); what it promotes continues, and budgets are rounded to epochs."""

from __future__ import annotations

import tempfile
from typing import Any

from dehb import DEHB
from serve import Budgets, Loss, Point, serve


class Dehb(Budgets):
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.optimizer = DEHB(
            f=lambda config, fidelity: {}, dimensions=dimensions, configspace=False, n_workers=1, min_fidelity=1,
            max_fidelity=epochs, seed=seed % 2**32, output_path=self.folder.name, log_level="ERROR", save_freq="end",
        )  # fmt: skip

    def job(self) -> tuple[Any, Any, Point, int]:
        asked = self.optimizer.ask()
        return asked, int(asked["config_id"]), asked["config"].tolist(), max(1, round(asked["fidelity"]))

    def done(self, job: Any, loss: Loss, epochs: int) -> None:
        self.optimizer.tell(job, {"fitness": float("inf") if loss is None else loss, "cost": float(epochs)})


if __name__ == "__main__":
    serve(Dehb)
