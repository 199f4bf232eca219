"""Optuna behind a sweep: configurations are proposed by a sampler, and their results recorded in one persistent study.

Nothing here knows of Ray: :class:`~gaudi_tune.on_ray.tune_searcher.TuneSearcher`, which Tune asks, calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, NoReturn

import numpy as np
import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as StudyState

from gaudi_tune.base.errors import USER_CODE_ERRORS, place_of
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.ranges import holds
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.trial_state import TrialState
from gaudi_tune.sweep.search.device_memory import first_that_fits
from gaudi_tune.sweep.search.gaussian_process.sampler import GaussianProcessSampler
from gaudi_tune.sweep.search.guesses import GUESSED, guess, guesses_pay_off
from gaudi_tune.sweep.search.sampler_view import ATTR_NUMBER, SamplerView, TrialLimits
from gaudi_tune.sweep.search.samplers import make_sampler
from gaudi_tune.sweep.search.study_record import StudyRecord
from gaudi_tune.sweep.search.study_trial import as_interrupted, with_results

logger = logging.getLogger(__name__)

LIMITS: dict[type[BaseSampler], TrialLimits] = {
    # It counts the best tenth as good, at most 25. So of thousands it still sees every good trial, and some bad ones.
    TPESampler: TrialLimits(best=25, sampled=225),
    GaussianProcessSampler: TrialLimits(best=75, sampled=75),
}
"""How many trials these samplers see, by class; others see all."""
CONFIG = "config"
"""User attribute of a trial that the user's source proposed: its whole configuration."""
REQUESTED = "wanted"
"""User attribute of a trial whose configuration a person requested."""


def raised(error: BaseException) -> NoReturn:
    """Raise an error of the search, where nobody takes it."""
    raise error


class Proposer:
    """Proposes configurations with an Optuna sampler, and records the results in a study.

    The study follows from the state of the sweep. It has every report, and for a trial that has ended

    - COMPLETE, with its best value, if it has trained its full budget, or says that it is done,
    - PRUNED, with its last value, if it was stopped early,
    - FAIL, if it raised an error or diverged.

    With several objectives, the reports in the study are of the first. Each trial has its point (all objectives in the
    report that is best in the first) as an attribute, COMPLETE has it as its values, and PRUNED has no value.

    The sampler sees another study, made for each proposal (:mod:`gaudi_tune.sweep.search.sampler_view`), and gets a
    seed that depends only on the sweep's seed and the number of the proposal. So a proposal follows from the study,
    and a resumed sweep, whose log has the study, continues as if it had never stopped.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        objectives: Sequence[Objective],
        baseline: Mapping[str, Any],
        sampler: str | BaseSampler,
        seed: int,
        trial_seed: int | None = None,
        learned: Sequence[Mapping[str, Any]] = (),
        on_error: Callable[[BaseException], object] = raised,
    ) -> None:
        """Begin with an empty study.

        Args:
            space: The space to search.
            objectives: What to improve, the most important first.
            baseline: The first proposal; if empty, the sampler makes it.
            sampler: A name for :func:`~gaudi_tune.sweep.search.samplers.make_sampler`, which is called for each
                proposal; or an object, which makes all proposals, and which the end of each trial is passed on to.
            seed: The seed of the sampler and, with the trial's number, of every trial.
            trial_seed: The seed of every trial; None: each has another.
            learned: Configurations that were good in earlier sweeps, under the names of the study.
            on_error: Takes an error of the user's sampler, and returns if the sweep ends for it in good order.
        """
        self._objectives = tuple(objectives)
        self._space, self._baseline, self._sampler, self._seed = space, dict(baseline), sampler, seed
        self._trial_seed = trial_seed
        self._guess_sources = [*([space.priors] if space.priors else []), *learned]
        self._on_error = on_error

        self.n_proposed = 0
        """How many configurations were proposed."""
        self.requested_configs: list[dict[str, Any]] = []
        """Configurations that people have requested, to be proposed next."""
        self.is_finished = False
        """Whether Tune knows that there is nothing more to propose, and has stopped asking."""
        self._numbers: dict[str, int] = {}
        """The number in the study of each trial that has not ended, by Tune's id."""
        self._has_warned = False
        self.restore_study(None)

    # What is proposed.

    @property
    def n_open(self) -> int:
        """How many trials have a configuration and have not ended."""
        return len(self._numbers)

    @property
    def source_is_due(self) -> bool:
        """Whether the next configuration comes from the user's source, if there is one.

        The baseline, and what people requested, do not.
        """
        begins_with_baseline = not self.n_proposed and self._baseline
        return not self.requested_configs and not begins_with_baseline

    def propose(self, trial_id: str, *, before: int = 0, suggestion: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the next configuration: hyperparameters, and the seed of the trial.

        Args:
            trial_id: Tune's id of the trial that is to have it.
            before: How many trials the sweep has that are not of the search.
            suggestion: The whole configuration, where a source of the user's has made it.

        Raises:
            Exception: The user's sampler or space has failed.
        """
        # The number of the proposal, not of the trial: the sweep has others, which confirm.
        proposal_seed = seed_of(self._seed, self.n_proposed)
        number = self.n_proposed + 1 + before  # in the sweep
        if suggestion is not None:
            config, proposal = self._as_proposal(suggestion)
            self._add_trial(trial_id, number, proposal)
        else:
            config = self._propose_new(trial_id, number, proposal_seed)
        self.n_proposed += 1  # only now: a resumed sweep makes a proposal that failed
        return {**config, "seed": proposal_seed if self._trial_seed is None else self._trial_seed}

    def request(self, config: Mapping[str, Any]) -> int:
        """Propose a configuration of the space next, after those that people have requested before.

        Returns:
            How many trials the search must have for this one.
        """
        self.requested_configs.append(dict(config))
        return self.n_proposed + len(self.requested_configs)

    def finish(self) -> None:
        """Note that Tune knows that there is nothing more to propose."""
        self.is_finished = True

    def save(self) -> dict[str, Any]:
        """Return which trial is which in the study, and what is to be proposed, as JSON can hold it."""
        return {"proposed": self.n_proposed, "numbers": self._numbers, "wanted": self.requested_configs}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take what :meth:`save` returned, after the study. What was proposed after that is lost."""
        self.n_proposed, self._numbers, self.requested_configs = saved["proposed"], saved["numbers"], saved["wanted"]
        for trial in self.trials():  # nobody trains it any more, if Tune does not know it
            if trial.state == StudyState.RUNNING and trial.number not in self._numbers.values():
                self.record.replace(as_interrupted(trial))

    def restore_study(self, part: Mapping[str, Any] | None) -> None:
        """Take the study from the log of a sweep that is resumed, or begin an empty one; an error of any kind if it
        cannot be made of it."""
        self.record = StudyRecord([objective.direction for objective in self._objectives], part)
        self._sampler_view = SamplerView(self.record.memory, self._objectives)

    # The sweep calls these.

    def reported(self, trial: TrialState) -> None:
        """Record a report that the state of the sweep has."""
        number = self._numbers.get(trial.trial_id)
        if number is not None:
            self.record.replace(with_results(self.record.trials()[number], trial, self._objectives))

    def ended(self, trial: TrialState) -> None:
        """Record the end of a trial, which the state of the sweep has."""
        number = self._numbers.pop(trial.trial_id, None)
        if number is None:
            return
        study_trial = with_results(self.record.trials()[number], trial, self._objectives)
        study_trial.system_attrs.update(self._tell_users_sampler(number, failed=study_trial.state == StudyState.FAIL))
        self.record.replace(study_trial)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials of the study by number, including those before a resume; not to be changed."""
        return self.record.trials()

    @property
    def study(self) -> optuna.Study:
        """The study, not to be changed."""
        return self.record.memory

    # Proposals.

    def _propose_new(self, trial_id: str, number: int, seed: int) -> dict[str, Any]:
        """Return a new proposal, and add its trial to the study.

        The baseline comes first, then what people requested; with other proposals, priors and earlier sweeps may help.
        ``number`` is that of the trial in the sweep.
        """
        if isinstance(self._sampler, str):
            study, config, proposal = self._ask_by_name(self._sampler, seed)
        else:
            study, config, proposal = self._ask(self._sampler, seed)
        if REQUESTED in proposal.user_attrs:
            del self.requested_configs[0]
        self._add_trial(trial_id, number, proposal)
        self.record.keep_attributes_of(study)
        return config

    def _ask_by_name(self, name: str, seed: int) -> tuple[optuna.Study, dict[str, Any], FrozenTrial]:
        """Ask the sampler of a name, or draw at random if it fails: a fault of a library costs a proposal, not the
        sweep. The first one is logged."""
        sampler = make_sampler(name, seed)
        try:
            return self._ask(sampler, seed, LIMITS.get(type(sampler)))
        except Exception as error:  # each library raises its own
            if place_of(error):  # the function of the search space has failed, and would again
                raise
            if not self._has_warned:
                self._has_warned = True
                logger.exception("%s failed: it is drawn at random; further errors of samplers are not shown", name)
            return self._ask(RandomSampler(seed=seed), seed)

    def _ask(
        self, sampler: BaseSampler, seed: int, limits: TrialLimits | None = None
    ) -> tuple[optuna.Study, dict[str, Any], FrozenTrial]:
        """Return the study that a sampler sees, the next configuration, and its trial in this study."""
        study = self._sampler_view.study_for(sampler, limits=limits)
        fixed_values: Mapping[str, Any] = {}
        if not self.n_proposed and self._baseline:
            fixed_values = self._baseline
            self._space.enqueue(study, fixed_values)
        elif self.requested_configs:
            fixed_values = self.requested_configs[0]
            self._space.enqueue(study, fixed_values, **{REQUESTED: True})
        elif values := self._guess(seed):
            study.enqueue_trial(values, user_attrs={GUESSED: True})

        def ask() -> tuple[dict[str, Any], FrozenTrial]:
            config, number = self._space.propose(study)
            return config, study.get_trials(deepcopy=False)[number]

        if self._sampler_view.out_of_memory and not fixed_values:  # in few sweeps
            trials, objectives = self.record.trials(), self._objectives
            return study, *first_that_fits(ask, study, trials, objectives, self.n_proposed + 1)
        return study, *ask()

    def _as_proposal(self, suggestion: Mapping[str, Any]) -> tuple[dict[str, Any], FrozenTrial]:
        """Return a source's whole configuration, and its trial for the study, with the values that the space has."""
        draw = self._space.draw_with(suggestion)
        config = {**draw.config, **suggestion}
        inside = {name for name, range_ in draw.ranges.items() if holds(range_, config[name])}
        proposal = create_trial(
            state=StudyState.RUNNING,
            params={draw.study_names[name]: config[name] for name in inside},
            distributions={draw.study_names[name]: draw.ranges[name] for name in inside},
            user_attrs={CONFIG: config},
        )
        return config, proposal

    def _add_trial(self, trial_id: str, number: int, proposal: FrozenTrial) -> None:
        study_trial = copy(proposal)
        if number != len(self.record.trials()) + 1:
            study_trial.user_attrs = {**proposal.user_attrs, ATTR_NUMBER: number}
        self._numbers[trial_id] = self.record.add(study_trial)

    def _guess(self, seed: int) -> dict[str, Any]:
        """Return the values of the next proposal that priors and earlier sweeps give, by the names of the study."""
        if not self._guess_sources:
            return {}
        trials, number = self.record.trials(), self.n_proposed - bool(self._baseline)
        n_guessed = sum(GUESSED in trial.user_attrs for trial in trials)
        values = guess(n_guessed, number, seed, self._guess_sources, self._space.study_ranges)
        if not values or not guesses_pay_off(trials, self._objectives[0]):
            return {}
        return values

    def _tell_users_sampler(self, number: int, *, failed: bool) -> Mapping[str, Any]:
        """Tell a sampler that the user brought of the end of a trial; return what it keeps with that trial.

        Samplers with a name do nothing at the end of a trial, so they are not told.
        """
        if isinstance(self._sampler, str):
            return {}
        shown = self._sampler_view.study_for(self._sampler).get_trials(deepcopy=False)[number]
        study = self._sampler_view.study_for(self._sampler, running=number)
        try:
            internals.tell_end(study, number, None if failed or not shown.state.is_finished() else shown.values)
        except USER_CODE_ERRORS as error:
            self._on_error(error)
        self.record.keep_attributes_of(study)
        return study.get_trials(deepcopy=False)[number].system_attrs


def seed_of(*numbers: int) -> int:
    """Return a seed that follows from these numbers: below 2**31, and unrelated to the seeds of other numbers.

    Trials of the search have two numbers, the sweep's seed and their own number, from 0; those of the confirmation have
    three.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)
