"""Requests of people to a running sweep: any thread may make them, and Tune's event loop grants them."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import counted, format_params
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.sweep.record.events import Event, SearchCut, SearchExhausted, Steered, StopAsked, TrialsAsked
from gaudi_tune.sweep.record.sweep_file import keep_num_samples
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import trial_name
from gaudi_tune.sweep.search.proposer import Proposer

logger = logging.getLogger(__name__)

EXAMPLES = '{"do": "stop", "trial": 7}, {"do": "add", "trials": 10}, {"do": "try", "config": {...}} or {"do": "end"}'
"""One request of each kind, for error messages."""
MAX_ADDED = 10_000
"""The most trials that one request may add: a larger number is taken for a typing error."""


class Steering:
    """Takes requests from any thread, and grants them when Tune's event loop calls :meth:`grant_all`."""

    def __init__(self, plan: Plan, state: SweepState, proposer: Proposer, tell: Callable[[Event], None]) -> None:
        self._plan, self._state, self._proposer, self._tell = plan, state, proposer, tell
        self._requests: queue.SimpleQueue[tuple[Mapping[str, Any], Future[str]]] = queue.SimpleQueue()

    def ask(self, request: Mapping[str, Any]) -> Future[str]:
        """Take a request such as one of :data:`EXAMPLES`.

        The future returns in words what was done, or raises a :class:`SweepError`.
        """
        answer: Future[str] = Future()
        self._requests.put((request, answer))
        if self._state.has_ended:  # Tune's event loop has ended
            self.grant_all()
        return answer

    def grant_all(self) -> None:
        """Grant the requests that have come since the last call."""
        while True:
            try:
                request, answer = self._requests.get_nowait()
            except queue.Empty:
                return
            try:
                answer.set_result(self._grant(request))
            except Exception as error:  # the sweep goes on, and the person who asked sees the error
                if not isinstance(error, SweepError):
                    logger.exception("%s could not be done", request)
                answer.set_exception(error)

    def _grant(self, request: Mapping[str, Any]) -> str:
        self._check_running()
        match request:
            case {"do": "stop", "trial": int(number)} if not isinstance(number, bool):
                return self._stop(number)
            case {"do": "add", "trials": int(number)} if not isinstance(number, bool):
                return self._add(number)
            case {"do": "try", "config": dict(config)}:
                return self._try(config)
            case {"do": "end"}:
                return self._end()
        raise SweepError(f"{dict(request)}: not a request that a sweep knows; send {EXAMPLES}")

    def _check_running(self) -> None:
        state = self._state
        if state.has_ended or state.ending is not None:
            status = "has ended" if state.ending is None else f"is ending: {state.ending.why}"
            raise SweepError(f"the sweep {status}; resume it with: {self._plan.how_to_resume()}")

    def _stop(self, number: int) -> str:
        trial = self._state.trials.get(number)
        if trial is None or trial.has_ended:
            reason = "there is no such trial" if trial is None else f"it has ended ({trial.status})"
            open_trials = ", ".join(map(str, sorted(self._state.open_trials))) or "none is"
            raise SweepError(f"trial {number}: {reason}; give one that is running or paused ({open_trials})")
        if not trial.to_stop:
            self._tell(StopAsked(request=f"stop {trial_name(number)}", trial=number))
        return f"trial {number} ends" + (" at its next report" if trial.status == "running" else "")

    def cut_search(self) -> None:
        """Let no more trials of the search begin. The confirmation still trains, and a resumed sweep begins the rest.

        A paused trial ends unless it is promoted, as at the end of any search.
        """
        self._tell(SearchCut(num_trials=self._proposer.n_proposed))

    def end_search(self) -> None:
        """Let no more trials of the search begin, since what proposes them has no more."""
        number = self._proposer.n_proposed
        keep_num_samples(self._plan.folder, number)
        self._tell(SearchExhausted(num_trials=number, source=self._plan.options.search))

    def _end(self) -> str:
        waiting = len(self._proposer.requested_configs)
        self._proposer.requested_configs.clear()
        self._want_trials(self._proposer.n_proposed, "end after the running trials")
        rest = ", then the confirmation" if self._state.seeds else ""
        dropped = f"; {counted(waiting, 'configuration')} that waited will not be tried" if waiting else ""
        return f"no more trials begin: those that run end as the scheduler decides{rest}{dropped}"

    def _add(self, number: int) -> str:
        self._check_search()
        if not 1 <= number <= MAX_ADDED:
            raise SweepError(f"{number} trials: give a number from 1 to {MAX_ADDED}")
        self._want_trials(self._state.num_trials + number, f"add {counted(number, 'trial')}")
        return f"the search has {counted(self._state.num_trials, 'trial')} now"

    def _try(self, params: Mapping[str, Any]) -> str:
        self._check_search()
        config = self._plan.experiment.read_config(self._plan.settings, params)
        num_trials = self._proposer.request(config)
        if self._plan.objects.search_alg is not None:  # one trial more than before: a grid would lose a point to it
            num_trials = max(num_trials, self._state.num_trials + 1)
        self._tell(Steered(request=f"try {format_params(config)}"))
        missing = num_trials - self._state.num_trials
        if missing > 0:
            self._want_trials(num_trials, f"add {counted(missing, 'trial')} for that")
        return f"next: {format_params(config)}"

    def _check_search(self) -> None:
        """Raise a SweepError if the search can have no more trials."""
        if self._plan.options.baseline_only:
            raise SweepError("--baseline-only trains the baseline alone; start a sweep without it to search")
        if self._state.cut:
            raise SweepError(
                f"the time left is for the trials that run and the confirmation (--time-budget); once the sweep has "
                f"ended, begin more with: {self._plan.how_to_resume(with_more_trials=True)}"
            )
        if self._proposer.is_finished:
            raise SweepError(
                f"the search is over; once the sweep has ended, add trials with: "
                f"{self._plan.how_to_resume(with_more_trials=True)}"
            )

    def _want_trials(self, number: int, description: str) -> None:
        """Have the search propose this many trials in all, also after a resume."""
        keep_num_samples(self._plan.folder, number)
        self._tell(TrialsAsked(request=description, num_trials=number))
