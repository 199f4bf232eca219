"""Optuna's Gaussian process, below GPSampler: the same steps, each to be called by itself (Optuna 5.0; imports torch).

GPSampler fits its kernels from the same start for every proposal, looks at 2,048 candidates and ten ascents, and at the
choices of each one by one, again and again. That takes it a tenth of a second of CPU beside 150 trials. Publicly
nothing of that can be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from optuna._gp import acqf
from optuna._gp.gp import GPRegressor, fit_kernel_params
from optuna._gp.optim_mixed import optimize_acqf_mixed
from optuna._gp.prior import DEFAULT_MINIMUM_NOISE_VAR, default_log_prior
from optuna._gp.search_space import SearchSpace
from optuna.distributions import BaseDistribution
from optuna.study._multi_objective import _is_pareto_front

Array: TypeAlias = npt.NDArray[np.float64]
Kernel: TypeAlias = list[float]
"""Inverse squared length scale of each hyperparameter, then the scale, then the variance of the noise."""

CANDIDATES = 512
"""Points of a quasi-random sequence at which a proposal is looked for (GPSampler: 2,048)."""
ASCENTS = 4
"""From how many of them, and of the best trials, it goes uphill (GPSampler: 10)."""
TOLERANCE = 1e-2
"""Where an ascent ends: the square root of it, in the gradient (GPSampler: 1e-4)."""
FEW = 16
"""A number with more values than this is searched as if it were continuous, and rounded."""
CHANGES = 5
"""How often, at most, one choice of what the ascents have found is changed: the one that gains most."""
SAMPLES = 128
"""Of what running trials, and points of a front, may turn out to be; GPSampler's number."""


class Model:
    """A Gaussian process for each objective."""

    def __init__(
        self,
        space: Mapping[str, BaseDistribution],
        trials: Sequence[Mapping[str, Any]],
        scores: Array,
        kernels: Sequence[Kernel] | None,
        *,
        fit: bool,
    ) -> None:
        """Fit kernels, beginning with the given ones, or take these as they are.

        Args:
            space: Ranges of the hyperparameters by name.
            trials: Hyperparameters of trials by name.
            scores: What they are worth, more being better; (trials, objectives).
            kernels: One for each objective; None where there is none to begin with.
            fit: False: the kernels are not fitted.
        """
        self._space = SearchSpace(dict(space))
        steps = zip(self._space.discrete_indices, self._space.get_choices_of_discrete_params(), strict=True)
        self._choices = {i: found for i, found in steps if self._space.is_categorical[i] or len(found) <= FEW}
        continuous = [i for i in range(len(space)) if i not in self._choices]
        self._space.continuous_indices, self._space.discrete_indices = np.array(continuous, int), np.array([], int)
        self.inputs: Array = self._scaled(trials)
        """Numbers scaled to 0 to 1, and choices by their place; (trials, hyperparameters)."""
        self._scores = (scores - scores.mean(axis=0)) / np.maximum(scores.std(axis=0), 1e-10)
        given: Sequence[Kernel | None] = kernels or [None] * scores.shape[1]
        self._processes = [
            self._process(column, kernel, fit=fit) for column, kernel in zip(self._scores.T, given, strict=True)
        ]

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of this model."""
        return [
            [*each.inverse_squared_lengthscales.tolist(), each.kernel_scale.item(), each.noise_var.item()]
            for each in self._processes
        ]

    def proposal(
        self,
        running: Sequence[Mapping[str, Any]],
        random: np.random.RandomState,
        cost: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> dict[str, Any]:
        """Return the hyperparameters that promise most to be better than all there is.

        Args:
            running: Hyperparameters of trials whose score is not known yet.
            random: For the candidates.
            cost: Gives what candidates cost, to be taken off the logarithm of what is expected of them; (..., scaled
                hyperparameters) to (...).
        """
        function, best = self._expectation(running, random), self._scores.argmax(axis=0)
        if len(self._processes) > 1:
            front = np.flatnonzero(_is_pareto_front(-self._scores, assume_unique_lexsorted=False))
            best = random.choice(front, min(ASCENTS // 2, len(front)), replace=False)
        if cost is not None:
            expected = function.eval_acqf
            function.eval_acqf = lambda x: expected(x) - cost(x)  # type: ignore[method-assign]
        found, promise = optimize_acqf_mixed(
            function,
            warmstart_normalized_params_array=self.inputs[best],
            n_preliminary_samples=CANDIDATES,
            n_local_search=ASCENTS,
            tol=TOLERANCE,
            rng=random,
        )
        return self._space.get_unnormalized_param(self._with_other_choices(found, promise, function))

    def _with_other_choices(self, found: Array, promise: float, function: acqf.BaseAcquisitionFunc) -> Array:
        """Return the point with its choices changed, one at a time, while that promises more."""
        for _ in range(CHANGES if self._choices else 0):
            changed = np.repeat(found[None], sum(map(len, self._choices.values())), axis=0)
            places = [(i, value) for i, values in self._choices.items() for value in values]
            for row, (i, value) in zip(changed, places, strict=True):
                row[i] = value
            promises = function.eval_acqf_no_grad(changed)
            if promises.max() <= promise:
                break
            found, promise = changed[promises.argmax()], promises.max()
        return found

    def _scaled(self, trials: Sequence[Mapping[str, Any]]) -> Array:
        values: Array = self._space.get_normalized_params([None] * len(trials), list(trials))  # type: ignore
        return values

    def _process(self, scores: Array, kernel: Kernel | None, *, fit: bool) -> GPRegressor:
        categorical = self._space.is_categorical
        if kernel is None:
            start = None
        else:
            values = torch.tensor(kernel, dtype=torch.float64)
            start = GPRegressor(
                torch.from_numpy(categorical), torch.from_numpy(self.inputs), torch.from_numpy(scores),
                values[:-2], values[-2], values[-1],
            )  # fmt: skip
            if not fit:
                # One that does not suit today's trials is fitted to them.
                with suppress(torch.linalg.LinAlgError):  # type: ignore[attr-defined]
                    start._cache_matrix()
                    return start
        return fit_kernel_params(
            self.inputs,
            scores,
            categorical,
            log_prior=default_log_prior,
            minimum_noise=DEFAULT_MINIMUM_NOISE_VAR,
            deterministic_objective=False,
            gpr_cache=start,
        )

    def _expectation(
        self, running: Sequence[Mapping[str, Any]], random: np.random.RandomState
    ) -> acqf.BaseAcquisitionFunc:
        """Return the logarithm of the improvement that is expected: of the best score, or the front's hypervolume."""
        space, best = self._space, self._scores[:, 0].max()
        if len(self._processes) == 1 and not running:
            return acqf.LogEI(self._processes[0], space, best)
        beside = {"normalized_params_of_running_trials": self._scaled(running)} if running else {}
        sampling: dict[str, Any] = {"n_qmc_samples": SAMPLES, "qmc_seed": random.randint(2**30), **beside}
        if len(self._processes) == 1:
            return Improvement(self._processes[0], space, best, **sampling)
        kind = acqf.qLogEHVI if running else acqf.LogEHVI
        return kind(self._processes, space, torch.from_numpy(self._scores), **sampling)


class Improvement(acqf.qLogEI):
    """What a candidate adds to what running trials may give, over the best score, in a third of qLogEI's time.

    Optuna takes logarithms for each running trial, again for each candidate, before it looks for the best of each
    sample. Here the best running trial of each sample is found first.
    """

    def eval_acqf(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logarithm of the improvement; (..., scaled hyperparameters) to (...)."""
        running = self._cond_gpr.get_fantasy_samples().amax(dim=-1, keepdim=True)
        candidate = self._cond_gpr.sample_joint_posterior(x, return_fantasy=False).unsqueeze(-1)
        values = torch.cat([running.expand_as(candidate), candidate], dim=-1)  # not maximum(): the same to the digit
        return acqf._compute_mean_max_utility((values - self._threshold).clamp_min_(acqf._EPS).log())
