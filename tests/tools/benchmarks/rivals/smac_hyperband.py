# /// script
# requires-python = "==3.11.*"
# dependencies = ["smac==2.4.1", "numpy==2.4.6", "scikit-learn==1.9.1", "ConfigSpace==1.2.2"]
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""SMAC's MultiFidelityFacade as in its own example of multi-fidelity: five first configurations, Hyperband, eta 3.

SMAC trains each budget anew; here a configuration continues. Budgets are rounded to whole epochs.
"""

from __future__ import annotations

import logging
import tempfile
from typing import Any

from ConfigSpace import ConfigurationSpace
from serve import Budgets, Loss, Point, serve
from smac import MultiFidelityFacade, Scenario
from smac.runhistory.dataclasses import TrialValue
from smac.runhistory.enumerations import StatusType


class Smac(Budgets):
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        scenario = Scenario(
            ConfigurationSpace({f"u{index}": (0.0, 1.0) for index in range(dimensions)}), deterministic=True,
            n_trials=10**6, min_budget=1, max_budget=epochs, output_directory=self.folder.name, seed=seed % 2**31,
        )  # fmt: skip
        self.smac = MultiFidelityFacade(
            scenario, lambda config, seed, budget: 0.0, overwrite=True, logging_level=logging.ERROR,
            initial_design=MultiFidelityFacade.get_initial_design(scenario, n_configs=5),
            intensifier=MultiFidelityFacade.get_intensifier(scenario, incumbent_selection="highest_budget"),
        )  # fmt: skip

    def job(self) -> tuple[Any, Any, Point, int]:
        asked = self.smac.ask()
        point = [float(asked.config[name]) for name in sorted(asked.config)]
        return asked, tuple(point), point, round(asked.budget)

    def done(self, job: Any, loss: Loss, epochs: int) -> None:
        failed = TrialValue(1e9, time=epochs, status=StatusType.CRASHED)
        self.smac.tell(job, failed if loss is None else TrialValue(loss, time=epochs), save=False)


if __name__ == "__main__":
    serve(Smac)
