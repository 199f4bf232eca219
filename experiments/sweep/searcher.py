"""Optuna behind Tune's search interface: one persistent study per sweep, the baseline first."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch
from ray.tune.search.sample import Domain

from experiments.sweep.budget import Budget
from experiments.sweep.experiment import SearchSpace
from experiments.sweep.model_study import ATTR_CONSTRAINTS, ATTR_FAILURE, carry_attributes, model_study
from experiments.sweep.outcome import constraints_of, why_diverged
from experiments.sweep.samplers import make_sampler

INTERRUPTED = "the sweep was interrupted before it had saved this trial"


class StudySearcher(Searcher):
    """Proposes configurations by an Optuna sampler, and keeps a study of what became of them.

    The study in the database is the record: every report, COMPLETE for a trial with its full budget (with its best
    value), PRUNED for one that was stopped early (with its last), FAIL for one that raised or diverged. The sampler
    sees another study, made anew for each proposal (:mod:`experiments.sweep.model_study`), with a seed that depends on
    the sweep's seed and the proposal's number alone. So a proposal follows from the record, and a restored sweep goes
    on as if it had never ended.
    """

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
        storage: str | BaseStorage,
        budget: Budget,
        num_trials: int | None = None,
    ) -> None:
        """Keep what the study is made of; it is opened at the first use.

        Args:
            space: Where to search.
            metric: Name of the objective in a result.
            mode: "max" or "min".
            baseline: The first proposal.
            sampler: A name for :func:`~experiments.sweep.samplers.make_sampler`.
            seed: Seeds the sampler and, with the trial's number, every trial.
            study_name: Name of the study in the storage.
            storage: The database of the study: its address, or Optuna's own object.
            budget: Of a full trial.
            num_trials: How many to propose; None if Tune counts them.
        """
        super().__init__(metric=metric, mode=mode)
        self._space, self._baseline, self._sampler, self._seed = space, dict(baseline), sampler, seed
        self._study_name, self._storage, self._budget, self._num_trials = study_name, storage, budget, num_trials
        self._study: optuna.Study | None = None
        self._at_a_time: int | None = None
        self._proposed = 0
        self._numbers: dict[str, int] = {}
        """Number in the study of each trial that has not ended, by Tune's id."""
        self._paused: set[str] = set()
        self._again: list[dict[str, Any]] = []
        """Proposals that an interrupted sweep had made after its last snapshot, to be made again."""

    @property
    def study(self) -> optuna.Study:
        """The study of this sweep; trials in it that nobody trains any more are told that they failed."""
        if self._study is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=self._study_name,
                sampler=RandomSampler(seed=0),  # never asked
                direction="maximize" if self._mode == "max" else "minimize",
                load_if_exists=True,
            )
            self._fail_orphans(self._study)
        return self._study

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration: hyperparameters, and the seed of the trial.

        Returns None while as many trials train as may, and ``Searcher.FINISHED`` when all have ended.
        """
        if self._num_trials is not None and self._proposed >= self._num_trials:
            return None if self._numbers else Searcher.FINISHED
        if self._at_a_time is not None and len(self._numbers) - len(self._paused) >= self._at_a_time:
            return None
        trials = self.study.get_trials(deepcopy=False)
        # Not the trial's number: that one goes on counting where an interrupted sweep had got to.
        seed = trial_seed(self._seed, self._proposed)
        model = model_study(self.study, make_sampler(self._sampler, seed), self._budget)
        if self._proposed == 0 or self._again:
            model.enqueue_trial(self._again.pop(0) if self._again else self._baseline)
        config, number = propose(model, self._space)
        assert number == len(trials), "nobody else writes to the study of a running sweep"
        asked = model.get_trials(deepcopy=False)[number]
        self.study.add_trial(_running(asked))
        carry_attributes(model, self.study)
        self._numbers[trial_id] = number
        self._proposed += 1
        return {**config, "seed": seed}

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Record a report; one of a trial that has ended in the study already changes nothing."""
        trial = self._unfinished(trial_id)
        value = result.get(self._metric, math.nan)
        if trial is None or not math.isfinite(value):
            return
        # Not through optuna.Trial, which reads the trial three times over; this is Tune's event loop.
        storage, step = self.study._storage, self._budget.progress(result)
        storage.set_trial_intermediate_value(trial._trial_id, step, float(value))
        if constraints := constraints_of(result):
            storage.set_trial_user_attr(trial._trial_id, ATTR_CONSTRAINTS, constraints)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Record the end of a trial; without a result, one that was paused has ended."""
        if result:
            self.on_trial_result(trial_id, result)
        trial = self._unfinished(trial_id)
        self._numbers.pop(trial_id, None)
        self._paused.discard(trial_id)
        if trial is not None:
            why = why_diverged(result or {}, self._metric) or ("an error ended it" if error else None)
            self._tell(trial, why)

    def _tell(self, trial: FrozenTrial, why_failed: str | None) -> None:
        handle = optuna.Trial(self.study, trial._trial_id)
        for name, value in trial.user_attrs.get(ATTR_CONSTRAINTS, {}).items():
            handle.set_constraint(name, value)
        curve = trial.intermediate_values
        if why_failed or not curve:
            handle.set_user_attr(ATTR_FAILURE, why_failed or f"no report of a finite {self._metric}")
            self.study.tell(trial.number, state=TrialState.FAIL)
        elif max(curve) >= self._budget.total:
            best = max if self._mode == "max" else min
            self.study.tell(trial.number, best(curve.values()))
        else:
            self.study.tell(trial.number, state=TrialState.PRUNED)

    def _unfinished(self, trial_id: str) -> FrozenTrial | None:
        """Return the trial, unless it has ended in the study: the database may be newer than Tune's snapshot."""
        number = self._numbers.get(trial_id)
        trials = self.study.get_trials(deepcopy=False) if number is not None else []
        if number is None or number >= len(trials) or trials[number].state.is_finished():
            return None
        return trials[number]

    def _fail_orphans(self, study: optuna.Study) -> None:
        """End trials that were proposed after Tune's last snapshot; their proposals are made again."""
        known, orphans = set(self._numbers.values()), []
        for trial in study.get_trials(states=(TrialState.RUNNING,)):
            if trial.number not in known:
                optuna.Trial(study, trial._trial_id).set_user_attr(ATTR_FAILURE, INTERRUPTED)
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
                orphans.append(trial.params)
        self._again = [*orphans, *(params for params in self._again if params not in orphans)]

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Take over from Tune's limiter, to which a paused trial is one that trains."""
        self._at_a_time = max_concurrent
        return True

    def on_pause(self, trial_id: str) -> None:
        """Hear from a scheduler that a trial trains no more; another may take its place."""
        self._paused.add(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        """Hear from a scheduler that a trial will train again."""
        self._paused.discard(trial_id)

    def save(self, checkpoint_path: str) -> None:
        """Write which trial is which in the study; the study itself is in its database."""
        state = {"proposed": self._proposed, "numbers": self._numbers, "paused": sorted(self._paused)}
        Path(checkpoint_path).write_text(json.dumps({**state, "again": self._again}))

    def restore(self, checkpoint_path: str) -> None:
        """Read what :meth:`save` wrote."""
        state = json.loads(Path(checkpoint_path).read_text())
        self._proposed, self._numbers, self._paused = state["proposed"], state["numbers"], set(state["paused"])
        self._study, self._again = None, state["again"]

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


def _running(asked: FrozenTrial) -> FrozenTrial:
    return create_trial(
        state=TrialState.RUNNING,
        params=asked.params,
        distributions=asked.distributions,
        user_attrs=asked.user_attrs,
        system_attrs=asked.system_attrs,
    )
