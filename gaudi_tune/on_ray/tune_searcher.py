"""The searcher that Tune asks: who proposes next, whether a group is free for it, and when nothing is left to train."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray.tune.search import Searcher

from gaudi_tune.base import names
from gaudi_tune.base.errors import USER_CODE_ERRORS
from gaudi_tune.base.kept_in_process import KeptInProcess
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState
from gaudi_tune.sweep.search.confirmation_trials import confirmation_configs
from gaudi_tune.sweep.search.proposer import Proposer


class Source:
    """What proposes configurations in place of a sampler: the user's own search algorithm; this class itself, nothing.

    It knows trials by Tune's ids, and only those that it has proposed: neither the baseline, nor what people request.
    """

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration; None while there is none; ``Searcher.FINISHED`` if there is no more; "" if a
        sampler proposes it."""
        return ""

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Note a result after which the trial does not end."""

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None, *, error: bool) -> None:
        """Note the end of a trial, with its last result if it has one."""

    def save(self) -> dict[str, Any]:
        """Return what a resumed sweep must know, as JSON can hold it."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what :meth:`save` returned."""


class TuneSearcher(KeptInProcess, Searcher):
    """Gives Tune configurations: those of the search, and after it those of the confirmation.

    The proposer makes those of the search and keeps the study, which does not have the confirmation.
    """

    def __init__(
        self,
        proposer: Proposer,
        state: SweepState,
        seed: int,
        *,
        source: Source | None = None,
        count_waiting: Callable[[], int] = lambda: 0,
        end_search: Callable[[], object] = lambda: None,
        on_error: Callable[[BaseException], object],
    ) -> None:
        """Begin without a trial.

        Args:
            proposer: Makes the proposals of the search.
            state: The record of the sweep.
            seed: The sweep's seed, from which those of the confirmation follow.
            source: Proposes in place of the sampler, if the user gave something that does.
            count_waiting: Returns how many trials of the search are paused and need no group.
            end_search: Is called when the source has nothing more to propose.
            on_error: Takes an error of the search, and returns if the sweep ends for it in good order.
        """
        super().__init__(metric=state.objective.name, mode=state.objective.mode)
        self.proposer, self._state, self._seed, self.source = proposer, state, seed, source or Source()
        self._count_waiting, self._end_search, self._on_error = count_waiting, end_search, on_error
        self._max_concurrent: int | None = None
        self._confirmations: dict[str, list[int]] = {}
        """The trial that each trial of the confirmation repeats, and its seed, by Tune's id."""
        self._open_confirmations: set[str] = set()
        """Tune's ids of the trials of the confirmation that have not ended."""

    # Tune calls these (ray.tune.search.Searcher).

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Take over from Tune's own limiter, which would count a paused trial as one that trains."""
        self._max_concurrent = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the next configuration: hyperparameters, and the seed of the trial.

        Returns None while as many trials train as allowed, and ``Searcher.FINISHED`` when all have ended.
        """
        proposer = self.proposer
        training = proposer.n_open - self._count_waiting() + len(self._open_confirmations)
        # In a sweep that ends, a new trial would fail in the same way, or be cut short.
        has_no_group = self._state.ending is not None or (
            self._max_concurrent is not None and training >= self._max_concurrent
        )
        if proposer.n_proposed >= self._state.num_trials:
            return self._suggest_confirmation(trial_id, has_no_group=has_no_group)
        if has_no_group:
            return None
        try:
            suggestion = self._ask_source(trial_id, training)
            if suggestion == Searcher.FINISHED:
                return self._suggest_confirmation(trial_id, has_no_group=False)
            if suggestion is None:
                return None
            source_config = suggestion if isinstance(suggestion, dict) else None
            return proposer.propose(trial_id, before=len(self._confirmations), suggestion=source_config)
        except USER_CODE_ERRORS as error:  # what the user gave for the search has failed, which ends the sweep
            self._on_error(error)
            proposer.finish()
            return Searcher.FINISHED

    def _ask_source(self, trial_id: str, training: int) -> dict[str, Any] | str | None:
        """Return the next configuration of the source; "" if it is not its turn.

        None means that it has none yet, and ``Searcher.FINISHED`` that the search has all its trials. That is also so
        if the source waits for results while every trial waits for more trials.
        """
        if not self.proposer.source_is_due:
            return ""
        suggestion = self.source.suggest(trial_id)
        if suggestion is None and not training and self._count_waiting():
            suggestion = Searcher.FINISHED
        if suggestion == Searcher.FINISHED:
            self._end_search()
        return suggestion

    def _suggest_confirmation(self, trial_id: str, *, has_no_group: bool) -> dict[str, Any] | str | None:
        """Return the next configuration to train after the search, as :meth:`suggest` does."""
        search_is_over, keys = not self.proposer.n_open, list(self._confirmations.values())
        for config in confirmation_configs(self._state, self._seed, search_is_over=search_is_over):
            key = [config[names.CONFIRMS], config["seed"]]
            if key in keys:
                continue
            if has_no_group:
                return None
            self._confirmations[trial_id] = key
            self._open_confirmations.add(trial_id)
            return dict(config)
        may_need_more_seeds = self._open_confirmations and self._state.seeds < self._state.most_seeds
        if not search_is_over or may_need_more_seeds:
            return None
        self.proposer.finish()
        return Searcher.FINISHED

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Pass a result on to the user's source. The study has it from the record (:meth:`Proposer.reported`)."""
        self.source.on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        """Pass the end of a trial on to the user's source. The study has it from the record (:meth:`ended`)."""
        self.source.on_trial_complete(trial_id, result, error=error)

    def save(self, checkpoint_path: str) -> None:
        """Write which trial is which in the study, and what is to be proposed."""
        state = {
            **self.proposer.save(),
            "confirming": self._confirmations,
            "confirming_now": sorted(self._open_confirmations),
            "source": self.source.save(),
        }
        Path(checkpoint_path).write_text(json.dumps(state))

    def restore(self, checkpoint_path: str) -> None:
        """Read what :meth:`save` wrote."""
        state = json.loads(Path(checkpoint_path).read_text())
        self.proposer.restore(state)
        self._confirmations, self._open_confirmations = state["confirming"], set(state["confirming_now"])
        self.source.restore(state.get("source", {}))

    # The sweep calls this.

    def ended(self, trial: TrialState) -> None:
        """Note the end of a trial, which the record has."""
        self._open_confirmations.discard(trial.trial_id)
        self.proposer.ended(trial)
