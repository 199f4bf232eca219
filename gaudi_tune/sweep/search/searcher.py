"""Optuna behind Tune's search interface: one persistent study per sweep, the baseline first."""

from __future__ import annotations

import json
import math
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial
from ray.tune.search import Searcher

from gaudi_tune.base import names
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.base.words import last_line
from gaudi_tune.define.budget import REPORTS, Budget
from gaudi_tune.define.objective import Objective, point_in, scores_of
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.private import optuna as internals
from gaudi_tune.sweep.record.outcome import constraints_of, why_diverged
from gaudi_tune.sweep.search.gaussian_process.sampler import GaussianProcessSampler
from gaudi_tune.sweep.search.guesses import GUESSED, guess, worth_it
from gaudi_tune.sweep.search.memory import too_large
from gaudi_tune.sweep.search.samplers import make_sampler
from gaudi_tune.sweep.search.study_record import StudyRecord, Unwritten, number_of
from gaudi_tune.sweep.search.surrogate import (
    ATTR_CONSTRAINTS,
    ATTR_FAILURE,
    ATTR_NUMBER,
    ATTR_POINT,
    ATTR_SECONDS,
    Surrogate,
    Told,
    point_so_far,
)

ATTEMPTS = 50
"""How often to ask for a proposal that is likely to fit into the device's memory, before any is taken."""
ASKED = 3
"""How many of these come from the sampler, which may take a while for each; the others are random."""
TOLD: dict[type[BaseSampler], Told] = {TPESampler: Told(25, 225), GaussianProcessSampler: Told(75, 75)}
"""TPE counts the best tenth as good, 25 at most, and the others as bad; so of thousands it still sees every good one,
and a sample of the bad."""
WANTED = "wanted"
"""Attribute of a trial that a person wanted."""
INTERRUPTED = "the sweep was interrupted before it had saved this trial"


class StudySearcher(KeptInProcess, Searcher):
    """Proposes configurations with an Optuna sampler, and records the results in a study.

    The study in the database is the record: every report, and COMPLETE for a trial with its full budget (with its best
    value), PRUNED for one that was stopped early (with its last value), FAIL for one that raised or diverged. With
    several objectives, reports have the first one; COMPLETE has the point (all objectives in the report that is best in
    the first), PRUNED has no value, and every trial has its point as an attribute.

    The sampler sees another study, made for each proposal (:mod:`gaudi_tune.sweep.search.surrogate`), with a
    seed that depends only on the sweep's seed and the number of the proposal. So a proposal follows from the record,
    and a resumed sweep continues as if it had never stopped.
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
        budget: Budget,
        num_trials: int | None = None,
        trial_seed: int | None = None,
        learned: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Keep the arguments; the study is opened at its first use.

        Args:
            space: Where to search.
            objectives: What to improve, the first before the others.
            baseline: The first proposal; if empty, the sampler makes it.
            sampler: A name for :func:`~gaudi_tune.sweep.search.samplers.make_sampler`, which is called for each
                proposal; or an object, which makes all proposals and is called at the end of each trial.
            seed: Seed of the sampler and, with the trial's number, of every trial.
            trial_seed: The seed of every trial; None: each has its own.
            study_name: Name of the study in the storage.
            storage: The database's address, or Optuna's own object.
            budget: The budget of a full trial.
            num_trials: How many to propose; None if Tune counts them.
            learned: Configurations that were good in earlier sweeps, under the names of the study.
        """
        super().__init__(metric=objectives[0].name, mode=objectives[0].mode)
        self._objectives = tuple(objectives)
        self._space, self._baseline, self._sampler, self._seed = space, dict(baseline), sampler, seed
        self._study_name, self._storage, self._budget = study_name, storage, budget
        self.num_trials = num_trials
        """How many to propose, which may change; None if Tune counts them."""
        self._trial_seed = trial_seed
        self._known = [*([space.priors] if space.priors else []), *learned]
        self._open_record: StudyRecord | None = None
        self._surrogate: Surrogate  # of the record, as soon as that is open
        self._at_a_time: int | None = None
        self._proposed = 0
        self.wanted: list[dict[str, Any]] = []
        """Configurations that people want to try, to be proposed next."""
        self.over = False
        """Whether Tune knows that there is nothing more to propose, and has stopped asking."""
        self._numbers: dict[str, int] = {}
        """Number in the study of each trial that has not ended, by Tune's id."""
        self._errors: dict[str, str] = {}
        """The last error of each trial, which may have ended it."""
        self._paused: set[str] = set()
        self.being_saved: set[str] = set()
        """Trials that are pausing and keep their groups until they are saved."""
        self._again: list[int] = []
        """Trials that an interrupted sweep had proposed after its last snapshot, to be proposed again."""
        self._unwritten: Unwritten | None = None
        """What the database did not have at the snapshot from which this was restored."""
        self._length: int | None = None
        """Trials in the study at the snapshot from which this was restored."""
        self.after_search: Callable[[bool], Sequence[Mapping[str, Any]]] = lambda over: ()
        """Takes whether all trials of the search have ended, and returns the configurations to train after it."""
        self._confirming: dict[str, list[int]] = {}
        """By Tune's id, the trial that each confirmation confirms and its seed; the study does not have these."""
        self._confirming_now: set[str] = set()
        """Those that have not ended."""

    @property
    def study(self) -> optuna.Study:
        """The study in its database, with everything in it that is known."""
        self._record.flush()
        return self._record.stored

    def trials(self) -> list[FrozenTrial]:
        """Return all trials of the study by number, those before a resume included; not to be changed."""
        return self._record.trials()

    @property
    def _record(self) -> StudyRecord:
        """The study of this sweep, opened at the first use."""
        if self._open_record is None:
            optuna.logging.set_verbosity(optuna.logging.WARNING)
            study = optuna.create_study(
                storage=self._storage,
                study_name=self._study_name,
                sampler=RandomSampler(seed=0),  # never asked
                directions=[objective.direction for objective in self._objectives],
                load_if_exists=True,
            )
            self._open_record = StudyRecord(study, self._unwritten)
            self._settle_orphans(self._open_record)
            self._surrogate = Surrogate(self._open_record.memory, self._objectives)
        return self._open_record

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration: hyperparameters, and the seed of the trial.

        Returns None while as many trials train as allowed, and ``Searcher.FINISHED`` when all have ended.
        """
        training = len(self._numbers) - len(self._paused - self.being_saved) + len(self._confirming_now)
        full = self._at_a_time is not None and training >= self._at_a_time
        if self.num_trials is not None and self._proposed >= self.num_trials:
            return self._confirm(trial_id, full=full)
        if full:
            return None
        trials = self._record.trials()
        # Not the trial's number: others may have put trials into the study.
        own_seed = seed_of(self._seed, self._proposed)
        seed = own_seed if self._trial_seed is None else self._trial_seed
        self._proposed += 1
        number = self._proposed + len(self._confirming)  # Tune counts those that confirm, too
        if self._again:
            self._numbers[trial_id] = self._again.pop(0)
            trial = trials[self._numbers[trial_id]]
            # Another number of trials may have confirmed before the sweep was interrupted.
            if number != number_of(trial) and not trial.state.is_finished():
                self._record.change(
                    trial.number, lambda study, at: internals.set_user_attribute(study, at, ATTR_NUMBER, number)
                )
            return {**self._space.draw_with(trial.params, trial.number).config, "seed": seed}
        sampler = make_sampler(self._sampler, own_seed) if isinstance(self._sampler, str) else self._sampler
        of = TOLD.get(type(sampler)) if isinstance(self._sampler, str) else None
        model = self._surrogate.study(sampler, of=of)
        given = self._baseline if self._proposed == 1 else {}
        if given:
            self._space.enqueue(model, given)
        elif self.wanted:
            given = self.wanted.pop(0)
            self._space.enqueue(model, given, **{WANTED: True})
        elif near := self._guess(own_seed):
            model.enqueue_trial(near, user_attrs={GUESSED: True})
        config, asked = self._proposal(model, any_will_do=bool(given))
        numbered = {} if number == len(trials) + 1 else {ATTR_NUMBER: number}
        self._numbers[trial_id] = self._record.add(
            create_trial(
                state=TrialState.RUNNING,
                params=asked.params,
                distributions=asked.distributions,
                user_attrs={**asked.user_attrs, **numbered},
                system_attrs=asked.system_attrs,
            )
        )
        self._record.keep_attributes_of(model)
        return {**config, "seed": seed}

    def _confirm(self, trial_id: str, *, full: bool) -> dict[str, Any] | str | None:
        """Return the next configuration to train after the search, as :meth:`suggest` does."""
        over, begun = not self._numbers, list(self._confirming.values())
        for config in self.after_search(over):
            key = [config[names.CONFIRMS], config["seed"]]
            if key in begun:
                continue
            if full:
                return None
            self._confirming[trial_id] = key
            self._confirming_now.add(trial_id)
            return dict(config)
        self.over = over
        return Searcher.FINISHED if over else None

    @property
    def proposed(self) -> int:
        """How many configurations were proposed, including those to be proposed again."""
        return self._proposed + len(self._again)

    def want(self, config: Mapping[str, Any]) -> int:
        """Propose a configuration of the space next, after those that wait already.

        Returns:
            How many trials the search has once this one is proposed.
        """
        self.wanted.append(dict(config))
        return self.proposed + len(self.wanted)

    def _guess(self, seed: int) -> dict[str, Any]:
        """Return the values of the next proposal that priors and earlier sweeps give, by the names of the study."""
        if not self._known:
            return {}
        near = guess(self._proposed - 1 - bool(self._baseline), seed, self._known, self._space.study_ranges)
        objective = self._objectives[0]
        return near if near and worth_it(self._record.trials(), objective, len(self._known)) else {}

    def _proposal(self, model: optuna.Study, *, any_will_do: bool) -> tuple[dict[str, Any], FrozenTrial]:
        """Return the next proposal, skipping those likely to run out of memory unless ``any_will_do``."""
        learns = self._surrogate.ran_out and not any_will_do  # in few sweeps
        does_not_fit = too_large(self._record.trials()) if learns else None
        for attempt in range(ATTEMPTS):
            if attempt == ASKED:
                model.sampler = RandomSampler(seed=self._proposed)
            config, number = self._space.propose(model)
            asked = model.get_trials(deepcopy=False)[number]
            if does_not_fit is None or not does_not_fit(asked):
                break
            known = [trial.values for trial in model.get_trials(deepcopy=False) if trial.values]
            if known:  # so that it looks elsewhere
                columns = zip(self._objectives, zip(*known, strict=True), strict=True)
                model.tell(number, [objective.worst(values) for objective, values in columns])
            else:
                model.tell(number, state=TrialState.FAIL)
        return config, asked

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Record a report. A trial that has already ended in the study does not change."""
        trial = self._unfinished(trial_id)
        point = list(point_in(self._objectives, result))
        if trial is None or not all(map(math.isfinite, point)):
            return
        earlier = trial.intermediate_values.values()
        step, constraints = self._budget.progress(result), constraints_of(result)
        known = trial.user_attrs.get(ATTR_POINT)
        # What a kill has lost is reported again, perhaps with other seconds.
        again = known is not None and known[0] == point[0] == trial.intermediate_values.get(step)
        best = known is None or again or scores_of(self._objectives, point) > scores_of(self._objectives, known)
        # Of several reports in the same epoch or second the best.
        value = self._objectives[0].better_of(point[0], trial.intermediate_values.get(step))
        # Once, since each is a write. Where the budget counts seconds, none costs more than another.
        seconds = result.get(names.SECOND) if not (earlier or self._budget.seconds) else None

        def add(study: optuna.Study, at: int) -> None:
            internals.set_intermediate_value(study, at, step, value)
            if len(point) > 1 and best:
                internals.set_user_attribute(study, at, ATTR_POINT, point)
            if constraints:
                internals.set_user_attribute(study, at, ATTR_CONSTRAINTS, constraints)
            if seconds:
                internals.set_user_attribute(study, at, ATTR_SECONDS, seconds / result[REPORTS])

        self._record.change(trial.number, add)

    def on_error(self, trial_id: str, text: str) -> None:
        """Note an error before Tune says whether it ended the trial."""
        self._errors[trial_id] = last_line(text)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Record the end of a trial; without a result, one that was paused has ended."""
        if result:
            self.on_trial_result(trial_id, result)
        trial = self._unfinished(trial_id)
        self._numbers.pop(trial_id, None)
        self._paused.discard(trial_id)
        self._confirming_now.discard(trial_id)
        if trial is None:
            return
        error_text = self._errors.pop(trial_id, "") or "an error ended it"
        curve = trial.intermediate_values
        objectives = [objective.name for objective in self._objectives]
        failure = why_diverged(result or {}, *objectives) or (error_text if error else "")
        if not failure and not curve:
            failure = f"no report of a finite {' and '.join(objectives)}"
        complete = not failure and (max(curve) >= self._budget.total or self._budget.spent(result or {}))
        state = TrialState.FAIL if failure else TrialState.COMPLETE if complete else TrialState.PRUNED
        values = point_so_far(trial, self._objectives) if complete else None
        constraints = trial.user_attrs.get(ATTR_CONSTRAINTS, {})
        kept = self._told_to_sampler(trial, failed=bool(failure))

        def end(study: optuna.Study, at: int) -> None:
            for name, what in kept.items():
                internals.set_system_attribute(study, at, name, what)
            handle = internals.handle(study, at)
            for name, violation in constraints.items():
                handle.set_constraint(name, violation)
            if failure:
                handle.set_user_attr(ATTR_FAILURE, failure)
            study.tell(handle, values, state=state)

        self._record.change(trial.number, end)

    def _told_to_sampler(self, trial: FrozenTrial, *, failed: bool) -> Mapping[str, Any]:
        """Pass the end of a trial to a sampler that the user brought, and return what it keeps with that trial."""
        if isinstance(self._sampler, str):  # these do nothing at the end of a trial
            return {}
        seen = self._surrogate.study(self._sampler).get_trials(deepcopy=False)[trial.number]
        model = self._surrogate.study(self._sampler, running=trial.number)
        internals.tell_end(model, trial.number, None if failed or not seen.state.is_finished() else seen.values)
        self._record.keep_attributes_of(model)
        return model.get_trials(deepcopy=False)[trial.number].system_attrs

    def _unfinished(self, trial_id: str) -> FrozenTrial | None:
        """Return the trial, unless it has ended in the study: the database may be newer than Tune's snapshot."""
        number = self._numbers.get(trial_id)
        trial = None if number is None else self._record.trial(number)
        return None if trial is None or trial.state.is_finished() else trial

    def _settle_orphans(self, record: StudyRecord) -> None:
        """Let trials that were proposed after Tune's last snapshot be proposed again, in their order, ended or not.

        They keep their place in the study, so that trial and configuration belong together as before. Others that run
        in the study, and that nobody trains any more, have failed.
        """
        known = {*self._numbers.values(), *self._again}

        def fail(study: optuna.Study, at: int) -> None:
            handle = internals.handle(study, at)
            handle.set_user_attr(ATTR_FAILURE, INTERRUPTED)
            study.tell(handle, state=TrialState.FAIL)

        for trial in record.trials():
            if trial.number in known or trial.state == TrialState.WAITING:
                continue
            if self._length is not None and trial.number >= self._length:
                self._again.append(trial.number)
                if WANTED in trial.user_attrs:  # the snapshot may still have it among those that wait
                    self.wanted = self.wanted[1:]
            elif trial.state == TrialState.RUNNING:
                record.change(trial.number, fail)

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
        """Write which trial is which in the study, and what of it is not in its database yet."""
        in_database = self._record.in_database  # before the rest, which may be written meanwhile
        state = {
            "length": len(self._record.trials()),
            "in_database": in_database,
            "unwritten": b64encode(pickle.dumps(self._record.unwritten())).decode(),
            "proposed": self._proposed,
            "numbers": self._numbers,
            "paused": sorted(self._paused),
            "again": self._again,
            "wanted": self.wanted,
            "confirming": self._confirming,
            "confirming_now": sorted(self._confirming_now),
        }
        Path(checkpoint_path).write_text(json.dumps(state))

    def close(self) -> int:
        """Let go of the study; nothing is recorded after this.

        Returns:
            How many trials its database does not have in full.
        """
        return 0 if self._open_record is None else self._open_record.close()

    def restore(self, checkpoint_path: str) -> None:
        """Read what :meth:`save` wrote."""
        state = json.loads(Path(checkpoint_path).read_text())
        self._proposed, self._numbers, self._paused = state["proposed"], state["numbers"], set(state["paused"])
        self._open_record, self._again, self._length = None, state["again"], state["length"]
        self.wanted = state["wanted"]
        self._unwritten = pickle.loads(b64decode(state["unwritten"]))  # noqa: S301  (of this user's own sweep)
        self._confirming, self._confirming_now = state["confirming"], set(state["confirming_now"])


def seed_of(*numbers: int) -> int:
    """Return the seed that the sweep's seed and others give: below 2**31, and unrelated to those of other numbers. The
    trials of the search have their number besides, from 0; those that confirm have three numbers."""
    return int(np.random.SeedSequence(numbers).generate_state(1)[0] >> 1)
