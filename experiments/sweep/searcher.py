"""Optuna behind Tune's search interface: one persistent study per sweep, the baseline first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch
from ray.tune.search.sample import Domain

from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import SearchSpace
from experiments.sweep.outcome import why_diverged

SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "gp": "GPSampler",
    "qmc": "QMCSampler",
    "nsgaii": "NSGAIISampler",
}
"""Short names of Optuna's samplers; any other is named by its class."""


class StudySearcher(Searcher):
    """Proposes configurations from an Optuna study, and tells it what became of them."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        metric: str,
        mode: str,
        baseline: Mapping[str, Any],
        sampler: str,
        seed: int,
        study_name: str,
        storage_url: str,
    ) -> None:
        """Keep what the study is made of; it is opened at the first use.

        Args:
            space: Where to search.
            metric: Name of the objective in a result.
            mode: "max" or "min".
            baseline: The first proposal.
            sampler: A short name in :data:`SAMPLERS` or the class name of an Optuna sampler.
            seed: Seeds the sampler and, with the trial's number, every trial.
            study_name: Name of the study in the storage.
            storage_url: The database of the study.
        """
        super().__init__(metric=metric, mode=mode)
        self._space, self._baseline, self._sampler, self._seed = space, dict(baseline), sampler, seed
        self._study_name, self._storage_url = study_name, storage_url
        self._study: optuna.Study | None = None
        self._numbers: dict[str, int] = {}

    @property
    def study(self) -> optuna.Study:
        """The study of this sweep."""
        if self._study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            self._study = optuna.create_study(
                storage=self._storage_url,
                study_name=self._study_name,
                sampler=make_sampler(self._sampler, self._seed),
                direction="maximize" if self._mode == "max" else "minimize",
                load_if_exists=True,
            )
            self._study.enqueue_trial(self._baseline, skip_if_exists=True)
        return self._study

    def suggest(self, trial_id: str) -> dict[str, Any]:
        """Return the next configuration: hyperparameters, and the seed of the trial."""
        config, number = propose(self.study, self._space)
        self._numbers[trial_id] = number
        return {**config, "seed": trial_seed(self._seed, number)}

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Do nothing: the study learns of a trial when it ends."""

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Tell the study: the last value, or that the trial failed or diverged."""
        number = self._numbers.pop(trial_id, None)
        if number is None:
            return
        if error or not result or self._metric not in result or why_diverged(result, self._metric):
            self.study.tell(number, state=TrialState.FAIL)
        else:
            self.study.tell(number, result[self._metric])

    def save(self, checkpoint_path: str) -> None:
        """Write which trial is which in the study; the study itself is in its database."""
        Path(checkpoint_path).write_text(json.dumps(self._numbers))

    def restore(self, checkpoint_path: str) -> None:
        """Read what :meth:`save` wrote."""
        self._numbers = json.loads(Path(checkpoint_path).read_text())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_study": None}  # Tune copies searchers; an open database cannot be copied


def propose(study: optuna.Study, space: SearchSpace) -> tuple[dict[str, Any], int]:
    """Return the study's next configuration and its number, from 0."""
    if callable(space):
        trial = study.ask()
        return {**(space(trial) or {}), **trial.params}, trial.number
    trial = study.ask(distributions_of(space))
    return {**constants_of(space), **trial.params}, trial.number


def distributions_of(space: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """Return the ranges of ``space`` as Optuna has them."""
    domains = {name: domain for name, domain in space.items() if isinstance(domain, Domain)}
    converted: dict[str, BaseDistribution] = OptunaSearch.convert_search_space(domains)
    return converted


def constants_of(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``space`` that are values, not ranges."""
    return {name: value for name, value in space.items() if not isinstance(value, Domain)}


def trial_seed(sweep_seed: int, number: int) -> int:
    """Return the seed of trial ``number`` (from 0): below 2**31, and unrelated to its neighbours'."""
    return int(np.random.SeedSequence((sweep_seed, number)).generate_state(1)[0] >> 1)


def make_sampler(name: str, seed: int) -> BaseSampler:
    """Return Optuna's sampler of that name.

    Raises:
        SweepError: There is none.
    """
    sampler_class = getattr(optuna.samplers, SAMPLERS.get(name.lower(), name), None)
    if not (isinstance(sampler_class, type) and issubclass(sampler_class, BaseSampler)):
        others = sorted(n for n in optuna.samplers.__all__ if n.endswith("Sampler") and n != "BaseSampler")
        raise SweepError(f"--search {name}: no such sampler; take {', '.join(SAMPLERS)} or one of {', '.join(others)}")
    try:
        sampler: BaseSampler = cast(Any, sampler_class)(seed=seed)
    except (TypeError, ValueError, ImportError) as error:
        raise SweepError(f"--search {name}: this sampler cannot be made from its name alone ({error})") from error
    return sampler
