# /// script
# requires-python = "==3.11.*"
# dependencies = ["botorch==0.18.1", "gpytorch==1.15.2", "numpy==2.4.6", "torch==2.15.0"]
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""BoTorch's SingleTaskGP and qLogNoisyExpectedImprovement with Ray's ASHA, as its tutorials have them.

Twice as many Sobol points as hyperparameters come first; running trials are pending points.
"""

from __future__ import annotations

import warnings

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood
from serve import Asha, Loss, Point, serve
from torch.quasirandom import SobolEngine

warnings.simplefilter("ignore")


class BoTorch(Asha):
    def __init__(self, kind: str, seed: int, dimensions: int, epochs: int, workers: int) -> None:
        super().__init__(epochs)
        torch.manual_seed(seed)
        self.dimensions, self.sobol = dimensions, SobolEngine(dimensions, scramble=True, seed=seed % 2**31)
        self.losses: dict[int, Loss] = {}

    def learn(self, trial: int, loss: Loss) -> None:
        self.losses[trial] = loss

    def propose(self) -> Point:
        known = {trial: loss for trial, loss in self.losses.items() if loss is not None}
        if len(known) < 2 * self.dimensions:
            return [float(value) for value in self.sobol.draw(1)[0]]
        points = torch.tensor([self.points[trial] for trial in known], dtype=torch.double)
        model = SingleTaskGP(points, -torch.tensor(list(known.values()), dtype=torch.double)[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        running = [point for trial, point in self.points.items() if trial not in self.losses]
        pending = torch.tensor(running, dtype=torch.double) if running else None
        acquisition = qLogNoisyExpectedImprovement(model, points, X_pending=pending, prune_baseline=True)
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.double).expand(2, self.dimensions)
        found, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=10, raw_samples=512)
        return [float(value) for value in found[0]]


if __name__ == "__main__":
    serve(BoTorch)
