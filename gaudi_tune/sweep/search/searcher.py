"""Optuna behind Tune's search interface, with one persistent study for each sweep.

:class:`StudySearcher` has two roles. For Tune it is a ``Searcher``, which Tune asks for configurations. And it keeps
the study: the sweep tells it of each report and of the end of each trial, once the state of the sweep has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as StudyState
from ray.tune.search import Searcher

from gaudi_tune.base import names
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.ranges import holds
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.state_log import TRIALS
from gaudi_tune.sweep.record.trial_state import TrialState
from gaudi_tune.sweep.search.gaussian_process.sampler import GaussianProcessSampler
from gaudi_tune.sweep.search.guesses import GUESSED, guess, guesses_pay_off
from gaudi_tune.sweep.search.memory import out_of_memory_predictor
from gaudi_tune.sweep.search.sampler_view import ATTR_NUMBER, SamplerView, TrialLimits
from gaudi_tune.sweep.search.samplers import RandomOnError, make_sampler
from gaudi_tune.sweep.search.source import Source
from gaudi_tune.sweep.search.study_record import KeptStudy, StudyRecord, study_in_memory
from gaudi_tune.sweep.search.study_trial import as_interrupted, number_in_sweep, with_results, without_results

MAX_PROPOSALS = 50
"""How many proposals are asked for until one is likely to fit into the device's memory; then the last is taken."""
MAX_FROM_SAMPLER = 3
"""How many of these come from the sampler, which may take a while for each; the others are random."""
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


class StudySearcher(KeptInProcess, Searcher):
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

    After the search, it proposes the trials of the confirmation, which the study does not have.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        objectives: Sequence[Objective],
        baseline: Mapping[str, Any],
        sampler: str | BaseSampler,
        seed: int,
        study_name: str,
        storage: str | BaseStorage,
        num_trials: int | None = None,
        trial_seed: int | None = None,
        learned: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Keep the arguments; the study is opened at its first use.

        Args:
            space: The space to search.
            objectives: What to improve, the most important first.
            baseline: The first proposal; if empty, the sampler makes it.
            sampler: A name for :func:`~gaudi_tune.sweep.search.samplers.make_sampler`, which is called for each
                proposal; or an object, which makes all proposals and hears of the end of each trial.
            seed: The seed of the sampler and, with the trial's number, of every trial.
            trial_seed: The seed of every trial; None: each has another.
            study_name: The name of the study in the storage.
            storage: The database's address, or Optuna's own object.
            num_trials: How many configurations to propose; None if Tune counts them.
            learned: Configurations that were good in earlier sweeps, under the names of the study.
        """
        super().__init__(metric=objectives[0].name, mode=objectives[0].mode)
        self._objectives = tuple(objectives)
        self._space, self._baseline, self._sampler, self._seed = space, dict(baseline), sampler, seed
        self._study_name, self._storage = study_name, storage
        self._trial_seed = trial_seed
        self._guess_sources = [*([space.priors] if space.priors else []), *learned]
        self.num_trials = num_trials
        """How many configurations to propose, which may change; None if Tune counts them."""
        self.source: Source | None = None
        """Proposes the trials in place of the sampler, if the user brought something that does."""
        self.source_is_exhausted: Callable[[], object] = lambda: None
        """Is called when the source has nothing more to propose."""
        self.heed_error: Callable[[Exception], object] = _raise
        """Takes an error of the search, and returns if the sweep ends for it in good order."""
        self.configs_after_search: Callable[[bool], Sequence[Mapping[str, Any]]] = lambda search_is_over: ()
        """Takes whether all trials of the search have ended, and returns the configurations to train after it."""
        self.count_waiting: Callable[[], int] = lambda: 0
        """Returns how many trials of the search have not ended and need no group, because they are paused."""

        # What was proposed, and what to propose next.
        self._n_proposed = 0
        self._max_concurrent: int | None = None
        self.requested_configs: list[dict[str, Any]] = []
        """Configurations that people have requested, to be proposed next."""
        self._proposed_before: list[int] = []
        """Trials that an interrupted sweep had proposed after its last snapshot, to be proposed again."""
        self._confirmations: dict[str, list[int]] = {}
        """The trial that each trial of the confirmation repeats, and its seed, by Tune's id."""
        self.is_exhausted = False
        """Whether Tune knows that there is nothing more to propose, and has stopped asking."""

        # Which trials train.
        self._numbers: dict[str, int] = {}
        """The number in the study of each trial of the search that has not ended, by Tune's id."""
        self._running_confirmations: set[str] = set()
        """Tune's ids of the trials of the confirmation that have not ended."""

        # The record of the study.
        self._open_record: StudyRecord | None = None
        self._sampler_view: SamplerView  # made when the record is opened
        self._logged_study: KeptStudy | None = None
        """The study in the log from which the sweep is resumed."""

    # Tune calls these (ray.tune.search.Searcher).

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Take over from Tune's own limiter, which would count a paused trial as one that trains."""
        self._max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration: hyperparameters, and the seed of the trial.

        Returns None while as many trials train as allowed, and ``Searcher.FINISHED`` when all have ended.
        """
        training = len(self._numbers) - self.count_waiting() + len(self._running_confirmations)
        no_group_is_free = self._max_concurrent is not None and training >= self._max_concurrent
        if self.num_trials is not None and self._n_proposed >= self.num_trials:
            return self._suggest_confirmation(trial_id, no_group_is_free=no_group_is_free)
        if no_group_is_free:
            return None
        self._open()  # which may find trials to be proposed again
        num_proposed = self._n_proposed
        try:
            return self._suggest_in_search(trial_id, training)
        except Exception as error:
            self._n_proposed = num_proposed  # so that a resumed sweep makes this proposal
            self.heed_error(error)
            self.is_exhausted = True
            return Searcher.FINISHED

    def _suggest_in_search(self, trial_id: str, training: int) -> dict[str, Any] | str | None:
        suggestion = self._ask_source(trial_id, training)
        if suggestion is None or suggestion == Searcher.FINISHED:
            return self._suggest_confirmation(trial_id, no_group_is_free=False) if suggestion else None
        # The number of the proposal, not of the trial: other programs may have put trials into the study.
        proposal_seed = seed_of(self._seed, self._n_proposed)
        self._n_proposed += 1
        number = self._n_proposed + len(self._confirmations)  # in the sweep; Tune counts the confirmation, too
        if self._proposed_before:
            config = self._propose_again(trial_id, number, suggestion)
        elif isinstance(suggestion, dict):
            config = self._take(trial_id, number, suggestion)
        else:
            config = self._propose(trial_id, number, proposal_seed)
        return {**config, "seed": proposal_seed if self._trial_seed is None else self._trial_seed}

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Tell the user's source, if there is one. The study is told by :meth:`reported`."""
        if self.source is not None:
            self.source.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Tell the user's source, if there is one. The study is told by :meth:`ended`."""
        if self.source is not None:
            self.source.on_trial_complete(trial_id, result, error=error)

    def save(self, checkpoint_path: str) -> None:
        """Write which trial is which in the study, and what is to be proposed."""
        self._open()  # the log has the study from the first record on
        state = {
            "proposed": self._n_proposed,
            "numbers": self._numbers,
            "again": self._proposed_before,
            "wanted": self.requested_configs,
            "confirming": self._confirmations,
            "confirming_now": sorted(self._running_confirmations),
            **({} if self.source is None else {"source": self.source.save()}),
        }
        Path(checkpoint_path).write_text(json.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        """Read what :meth:`save` wrote."""
        state = json.loads(Path(checkpoint_path).read_text())
        self._open_record = None
        self._n_proposed, self._numbers = state["proposed"], state["numbers"]
        self._proposed_before, self.requested_configs = state["again"], state["wanted"]
        self._confirmations, self._running_confirmations = state["confirming"], set(state["confirming_now"])
        if self.source is not None:
            self.source.restore(state["source"])

    # The log of the sweep.

    def restore_study(self, part: Mapping[str, Any]) -> None:
        """Take the study from the log of a sweep that is resumed, before :meth:`restore`."""
        self._logged_study = KeptStudy([part[TRIALS][number] for number in sorted(part[TRIALS])], part["attributes"])

    def check_restored_study(self) -> None:
        """Make the study that was taken from a log, as the resumed sweep will: an error of any kind if it cannot be."""
        assert self._logged_study is not None, "restore_study() was called"
        study_in_memory(self._logged_study, [objective.direction for objective in self._objectives])

    # The sweep calls these.

    def reported(self, trial: TrialState) -> None:
        """Record a report that the state of the sweep has."""
        number = self._numbers.get(trial.trial_id)
        if number is not None:
            self.record.replace(with_results(self.record.trials()[number], trial, self._objectives))

    def ended(self, trial: TrialState) -> None:
        """Record the end of a trial, which the state of the sweep has."""
        self._running_confirmations.discard(trial.trial_id)
        number = self._numbers.pop(trial.trial_id, None)
        if number is None:
            return
        study_trial = with_results(self.record.trials()[number], trial, self._objectives)
        study_trial.system_attrs.update(self._tell_users_sampler(number, failed=study_trial.state == StudyState.FAIL))
        self.record.replace(study_trial)

    @property
    def proposed(self) -> int:
        """How many configurations were proposed, including those to be proposed again."""
        return self._n_proposed + len(self._proposed_before)

    def request(self, config: Mapping[str, Any]) -> int:
        """Propose a configuration of the space next, after those that people have requested before.

        Returns:
            How many trials the search must have for this one. Where a source proposes, it is one more than before: a
            grid would lose a point to it.
        """
        self.requested_configs.append(dict(config))
        number = self.proposed + len(self.requested_configs)
        return number if self.source is None or self.num_trials is None else max(number, self.num_trials + 1)

    def trials(self) -> list[FrozenTrial]:
        """Return all trials of the study by number, including those before a resume; not to be changed."""
        return self.record.trials()

    @property
    def study(self) -> optuna.Study:
        """The study in its database, once everything that is known has been written there."""
        self.record.flush()
        return self.record.stored

    def close(self) -> int:
        """Close the study; nothing is recorded after this.

        Returns:
            How many trials its database does not have in full.
        """
        return 0 if self._open_record is None else self._open_record.close()

    # Proposals.

    def _propose(self, trial_id: str, number: int, seed: int) -> dict[str, Any]:
        """Return a new proposal, and add its trial to the study.

        The baseline comes first, then what people requested; with other proposals, priors and earlier sweeps may help.
        ``number`` is that of the trial in the sweep.
        """
        if isinstance(self._sampler, str):
            named_sampler = make_sampler(self._sampler, seed)
            sampler: BaseSampler = RandomOnError(named_sampler, seed)
            limits = LIMITS.get(type(named_sampler))
        else:
            sampler, limits = self._sampler, None
        study = self._sampler_view.study_for(sampler, limits=limits)
        fixed_values: Mapping[str, Any] = {}
        if self._n_proposed == 1 and self._baseline:
            fixed_values = self._baseline
            self._space.enqueue(study, fixed_values)
        elif self.requested_configs:
            fixed_values = self.requested_configs[0]
            self._space.enqueue(study, fixed_values, **{REQUESTED: True})
        else:
            values = self._guess(seed)
            if values:
                study.enqueue_trial(values, user_attrs={GUESSED: True})
        config, proposal = self._ask(study) if fixed_values else self._ask_for_one_that_fits(study)
        if REQUESTED in proposal.user_attrs:
            del self.requested_configs[0]
        self._add_trial(trial_id, number, proposal)
        self.record.keep_attributes_of(study)
        return config

    def _ask_source(self, trial_id: str, training: int) -> dict[str, Any] | str | None:
        """Return the next configuration of the source; "" if it is not its turn.

        None means that it has none yet, and ``Searcher.FINISHED`` that the search has all its trials. That is also so
        if the source waits for results while every trial waits for more trials.
        """
        begins_with_baseline = not self._n_proposed and self._baseline
        if self._proposed_before:  # the source, restored to its state before them, makes its own ones again
            is_due = CONFIG in self.record.trials()[self._proposed_before[0]].user_attrs
        else:
            is_due = not self.requested_configs and not begins_with_baseline
        if self.source is None or not is_due:
            return ""
        suggestion = self.source.suggest(trial_id)
        if suggestion is None and not training and self.count_waiting():
            suggestion = Searcher.FINISHED
        if suggestion == Searcher.FINISHED:
            self.source_is_exhausted()
        return suggestion

    def _take(self, trial_id: str, number: int, suggestion: Mapping[str, Any]) -> dict[str, Any]:
        """Add the trial of a source's configuration to the study."""
        config, proposal = self._as_proposal(suggestion)
        self._add_trial(trial_id, number, proposal)
        return config

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
        numbered = {} if number == len(self.record.trials()) + 1 else {ATTR_NUMBER: number}
        self._numbers[trial_id] = self.record.add(
            create_trial(
                state=StudyState.RUNNING,
                params=proposal.params,
                distributions=proposal.distributions,
                user_attrs={**proposal.user_attrs, **numbered},
                system_attrs=proposal.system_attrs,
            )
        )

    def _propose_again(self, trial_id: str, number: int, suggestion: Mapping[str, Any] | str | None) -> dict[str, Any]:
        """Return a configuration that was proposed before the sweep was interrupted, and is in the study.

        If a source had proposed it, the source has just been asked again. Its ``suggestion`` counts, which is another
        if it has learned from other results meanwhile: it is told later how that one did.
        """
        trial = without_results(self.record.trials()[self._proposed_before.pop(0)])
        if isinstance(suggestion, dict):
            config, proposal = self._as_proposal(suggestion)
            trial.params, trial.distributions = proposal.params, proposal.distributions
            trial.user_attrs = {**trial.user_attrs, **proposal.user_attrs}
        # The confirmation may have had another number of trials before the sweep was interrupted.
        if number != number_in_sweep(trial):
            trial.user_attrs[ATTR_NUMBER] = number
        self.record.replace(trial)
        self._numbers[trial_id] = trial.number
        config = trial.user_attrs.get(CONFIG) or self._space.draw_with(trial.params, trial.number).config
        return dict(config)

    def _suggest_confirmation(self, trial_id: str, *, no_group_is_free: bool) -> dict[str, Any] | str | None:
        """Return the next configuration to train after the search, as :meth:`suggest` does."""
        search_is_over, keys = not self._numbers, list(self._confirmations.values())
        for config in self.configs_after_search(search_is_over):
            key = [config[names.CONFIRMS], config["seed"]]
            if key in keys:
                continue
            if no_group_is_free:
                return None
            self._confirmations[trial_id] = key
            self._running_confirmations.add(trial_id)
            return dict(config)
        self.is_exhausted = search_is_over
        return Searcher.FINISHED if search_is_over else None

    def _guess(self, seed: int) -> dict[str, Any]:
        """Return the values of the next proposal that priors and earlier sweeps give, by the names of the study."""
        if not self._guess_sources:
            return {}
        number = self._n_proposed - 1 - bool(self._baseline)
        values = guess(number, seed, self._guess_sources, self._space.study_ranges)
        n_sources = len(self._guess_sources)
        if not values or not guesses_pay_off(self.record.trials(), self._objectives[0], n_sources):
            return {}
        return values

    def _ask(self, study: optuna.Study) -> tuple[dict[str, Any], FrozenTrial]:
        """Return the next proposal of the study's sampler, and its trial in this study."""
        config, number = self._space.propose(study)
        return config, study.get_trials(deepcopy=False)[number]

    def _ask_for_one_that_fits(self, study: optuna.Study) -> tuple[dict[str, Any], FrozenTrial]:
        """Return the next proposal that is not likely to run out of the device's memory."""
        has_learned = bool(self._sampler_view.out_of_memory)  # in few sweeps
        is_too_large = out_of_memory_predictor(self.record.trials()) if has_learned else None
        for attempt in range(MAX_PROPOSALS):
            if attempt == MAX_FROM_SAMPLER:
                study.sampler = RandomSampler(seed=self._n_proposed)
            config, proposal = self._ask(study)
            if is_too_large is None or not is_too_large(proposal):
                break
            self._reject(study, proposal)
        return config, proposal

    def _reject(self, study: optuna.Study, proposal: FrozenTrial) -> None:
        """Tell the sampler that a proposal is as bad as the worst trial, so that it looks elsewhere."""
        points = [trial.values for trial in study.get_trials(deepcopy=False) if trial.values]
        if not points:
            study.tell(proposal.number, state=StudyState.FAIL)
            return
        columns = zip(*points, strict=True)
        worst = [objective.worst(values) for objective, values in zip(self._objectives, columns, strict=True)]
        study.tell(proposal.number, worst)

    # The books of the study.

    @property
    def record(self) -> StudyRecord:
        """The study of this sweep, opened at the first use."""
        return self._open()

    def _open(self) -> StudyRecord:
        if self._open_record is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            directions = [objective.direction for objective in self._objectives]
            self._open_record = StudyRecord(self._storage, self._study_name, directions, self._logged_study)
            self._settle_orphans(self._open_record)
            self._sampler_view = SamplerView(self._open_record.memory, self._objectives)
        return self._open_record

    def _settle_orphans(self, record: StudyRecord) -> None:
        """Deal with trials in the study that no trial of Tune stands for.

        Those that were proposed after Tune's last snapshot will be proposed again, in their order, ended or not. They
        keep their place in the study, so that trial and configuration belong together as before. Others that run in the
        study, and that nobody trains any more, have failed.
        """
        numbers_of_tune = {*self._numbers.values(), *self._proposed_before}

        for trial in record.trials():
            if trial.number in numbers_of_tune or trial.state == StudyState.WAITING:
                continue
            if self._logged_study is not None and trial.number >= len(self._logged_study.trials):
                self._proposed_before.append(trial.number)
                if REQUESTED in trial.user_attrs:  # the snapshot may still have it among those that wait
                    self.requested_configs = self.requested_configs[1:]
            elif trial.state == StudyState.RUNNING:
                record.replace(as_interrupted(trial))

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
        except Exception as error:
            self.heed_error(error)
        self.record.keep_attributes_of(study)
        return study.get_trials(deepcopy=False)[number].system_attrs


def _raise(error: Exception) -> NoReturn:
    raise error


def seed_of(*numbers: int) -> int:
    """Return a seed that follows from these numbers: below 2**31, and unrelated to the seeds of other numbers.

    Trials of the search have two numbers, the sweep's seed and their own number, from 0; those of the confirmation have
    three.
    """
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)
