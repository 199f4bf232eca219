"""Optuna's Gaussian process, in spaces that branch and beside many trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import RandomSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import ThreadpoolController

from experiments.sweep.decide.search.surrogate import ATTR_SECONDS
from experiments.sweep.define.ranges import middle, on_step
from trainables.runtime.internals.optuna import set_study_attribute, study_attributes

if TYPE_CHECKING:
    import torch

Array: TypeAlias = npt.NDArray[np.float64]

STARTUP = 10
"""With fewer trials every proposal is random."""
KERNELS = "gp:kernels"
"""Attribute of a study: the kernels as they were fitted last, for which hyperparameters, and after how many trials."""
GROWN = 1.1
"""They are fitted again once there are so many times as many trials, beginning with these."""
NOT_REPORTED = 30
"""From how many of the trials that have not reported yet it keeps away: the last."""
COST_COUNTS = 0.5
"""A candidate that takes four times as long must promise twice as much (chosen in experiments/LOG.md, 2026-11-24)."""
DECISION_S = 0.1
"""Seconds that a report costs beside the training before it, about."""
SAME_COST = 0.1
"""Where the seconds from report to report vary by less (standard deviation of their logarithm), all candidates cost the
same, and a proposal does not depend on a clock."""


class GaussianProcessSampler(RandomSampler):
    """Proposes with Optuna's Gaussian process what promises most, for the time that it takes.

    A trial that lacks a hyperparameter, since its space branched, is taken to have it in the middle of its range.
    Losses have outliers, beside which all others look alike. So no trial is told to be further below the median than
    the best is above it. Trials with violated constraints are told to be. Several objectives are told so one by one,
    and what is looked for is what adds most to the hypervolume of the front.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)  # what it does not propose itself is random
        self._generator = np.random.default_rng(seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all hyperparameters that a trial had; what the space does not ask for is dropped."""
        found: dict[str, BaseDistribution] = {}
        for past in reversed(study.get_trials(deepcopy=False)):  # the range that was asked for last
            if not past.distributions.keys() <= found.keys():
                found = {**past.distributions, **found}
        return {name: found[name] for name in sorted(found) if not found[name].single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: Mapping[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return a proposal; nothing where it is to be random."""
        trials = study.get_trials(deepcopy=False)
        known = [past for past in trials if past.state == TrialState.COMPLETE]
        if len(known) < STARTUP or not search_space:
            return {}
        running = [past for past in trials if past.state == TrialState.RUNNING and past.params][-NOT_REPORTED:]
        found = self._proposal(study, search_space, known, running)
        return {name: on_step(search_space[name], value) for name, value in found.items()}

    def _proposal(
        self,
        study: Study,
        space: Mapping[str, BaseDistribution],
        known: Sequence[FrozenTrial],
        running: Sequence[FrozenTrial],
    ) -> dict[str, Any]:
        import torch  # which a sweep without this sampler need not import

        from trainables.runtime.internals.optuna_gp import Model

        scores = _scores(known, study.directions)
        usual = {name: middle(range_) for name, range_ in space.items()}
        whole = [{name: trial.params.get(name, usual[name]) for name in usual} for trial in [*known, *running]]
        kept = study_attributes(study).get(KERNELS, {"of": None})
        of = [list(space), scores.shape[1]]
        same = kept["of"] == of
        begun = 1 + known[-1].number  # of which it may know some alone
        fit = not same or begun >= GROWN * kept["trials"]
        # A notebook may have another device; asking for one at every call of torch takes a tenth of the time.
        device = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
        with _thread_pools().limit(limits=1), device:  # threads wait for each other in busy loops: four times the CPU
            model = Model(space, whole[: len(known)], scores, kept["kernels"] if same else None, fit=fit)
            random = np.random.RandomState(self._generator.integers(2**31))
            found = model.proposal(whole[len(known) :], random, _cost(known, model.inputs, space))
        if fit:
            set_study_attribute(study, KERNELS, {"of": of, "trials": begun, "kernels": model.kernels})
        return found


@cache
def _thread_pools() -> ThreadpoolController:
    """Return what limits threads; finding the libraries takes 2 ms."""
    return ThreadpoolController()


def _scores(trials: Sequence[FrozenTrial], directions: Sequence[StudyDirection]) -> Array:
    """Return what complete trials are told to be worth, more being better; (trials, objectives)."""
    signs = np.array([-1 if direction == StudyDirection.MINIMIZE else 1 for direction in directions])
    violated = np.array([any(v > 0 for v in trial.constraints.values()) for trial in trials], bool)
    scores = signs * np.array([trial.values for trial in trials])
    kept = scores[~violated]
    # As far below the median as the best is above it.
    worst = 2 * np.median(kept, axis=0) - kept.max(axis=0) if len(kept) else np.zeros(len(signs))
    return np.where(violated[:, None], worst, np.maximum(scores, worst))


def _cost(
    trials: Sequence[FrozenTrial], inputs: Array, space: Mapping[str, BaseDistribution]
) -> Callable[[torch.Tensor], torch.Tensor] | None:
    """Return what gives the cost of candidates; None where all cost the same, or too little is known.

    By ridge regression of the logarithms of seconds on the scaled hyperparameters.
    """
    import torch

    timed = [place for place, trial in enumerate(trials) if ATTR_SECONDS in trial.user_attrs]
    seconds = np.log([DECISION_S + trials[place].user_attrs[ATTR_SECONDS] for place in timed])
    if len(timed) < STARTUP or seconds.std() < SAME_COST:
        return None
    choices = [len(r.choices) if isinstance(r, CategoricalDistribution) else 0 for r in space.values()]

    def features(x: torch.Tensor) -> torch.Tensor:
        columns = ((x[..., [i]] == torch.arange(n)).double() if n else x[..., [i]] for i, n in enumerate(choices))
        return torch.cat(list(columns), dim=-1)

    known = features(torch.from_numpy(inputs[timed]))
    centred, target = known - known.mean(dim=0), torch.from_numpy(seconds - seconds.mean())
    weights = torch.linalg.solve(centred.T @ centred + 0.5 * torch.eye(known.shape[1]).double(), centred.T @ target)
    return lambda x: COST_COUNTS * (features(x) @ weights)
