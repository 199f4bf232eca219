"""What people ask of a running sweep: any thread may ask, and Tune's event loop does it."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.words import counted, format_params
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.sweep.policies.schedulers.chosen import ChosenScheduler
from gaudi_tune.sweep.record.events import Event, SearchCut, Steered, StopAsked, TrialsAsked
from gaudi_tune.sweep.record.sweep_file import keep_num_samples
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import trial_name
from gaudi_tune.sweep.search.searcher import StudySearcher

logger = logging.getLogger(__name__)

KNOWN = '{"do": "stop", "trial": 7}, {"do": "add", "trials": 10}, {"do": "try", "config": {...}} or {"do": "end"}'
"""The requests, for people."""
MOST_ADDED = 10_000
"""Trials to add at once: more are a slip of the hand."""


class Steering:
    """Takes wishes from any thread, and grants them where Tune's event loop says so."""

    def __init__(
        self,
        plan: Plan,
        state: SweepState,
        searcher: StudySearcher,
        scheduler: ChosenScheduler,
        tell: Callable[[Event], None],
    ) -> None:
        self._plan, self._state, self._searcher, self._scheduler = plan, state, searcher, scheduler
        self._tell = tell
        self._wishes: queue.SimpleQueue[tuple[Mapping[str, Any], Future[str]]] = queue.SimpleQueue()

    def ask(self, wish: Mapping[str, Any]) -> Future[str]:
        """Take a wish, and return what will say in words what was done, or raise a :class:`SweepError`.

        The wishes are :data:`KNOWN`.
        """
        answer: Future[str] = Future()
        self._wishes.put((wish, answer))
        if self._state.over:  # Tune's event loop has ended
            self.heed()
        return answer

    def heed(self) -> None:
        """Grant what was asked for since the last time."""
        while True:
            try:
                wish, answer = self._wishes.get_nowait()
            except queue.Empty:
                return
            try:
                answer.set_result(self._grant(wish))
            except Exception as error:  # the sweep goes on, and who asked is told
                if not isinstance(error, SweepError):
                    logger.exception("%s could not be done", wish)
                answer.set_exception(error)

    def _grant(self, wish: Mapping[str, Any]) -> str:
        self._check()
        match {} if any(isinstance(value, bool) for value in wish.values()) else wish:  # True is an int, too
            case {"do": "stop", "trial": int(number)}:
                return self._stop(number)
            case {"do": "end"}:
                return self._end()
            case {"do": "add", "trials": int(number)}:
                return self._add(number)
            case {"do": "try", "config": dict(config)}:
                return self._try(config)
        raise SweepError(f"{dict(wish)}: not a request that a sweep knows; send {KNOWN}")

    def _check(self) -> None:
        """Raise a SweepError if there is nothing to steer."""
        state = self._state
        if state.over or state.ending is not None:
            why = "has ended" if state.ending is None else f"is ending: {state.ending.why}"
            raise SweepError(f"the sweep {why}; resume it with: {self._plan.how_to_resume()}")

    def _stop(self, number: int) -> str:
        trial = self._state.trials.get(number)
        if trial is None or trial.has_ended:
            why = "there is no such trial" if trial is None else f"it has ended ({trial.status})"
            others = ", ".join(map(str, sorted(self._state.unended))) or "none is"
            raise SweepError(f"trial {number}: {why}; give one that is running or paused ({others})")
        if not trial.to_stop:
            self._tell(StopAsked(what=f"stop {trial_name(number)}", trial=number))
        return f"trial {number} ends" + (" at its next report" if trial.status == "running" else "")

    def cut_search(self) -> None:
        """Let no more trials begin, but those of the confirmation; a resumed sweep begins the others.

        A trial that waits ends unless it is promoted, as at the end of any search.
        """
        self._propose(self._searcher.proposed)
        self._tell(SearchCut(num_trials=self._searcher.proposed))

    def _end(self) -> str:
        waiting = len(self._searcher.wanted)
        self._searcher.wanted.clear()
        self._want_trials(self._searcher.proposed, "end after the running trials")
        rest = ", then the confirmation" if self._state.seeds else ""
        dropped = f"; {counted(waiting, 'configuration')} that waited will not be tried" if waiting else ""
        return f"no more trials begin: those that run end as the scheduler decides{rest}{dropped}"

    def _add(self, number: int) -> str:
        self._check_search()
        if not 1 <= number <= MOST_ADDED:
            raise SweepError(f"{number} trials: give a number from 1 to {MOST_ADDED}")
        self._want_trials(self._state.num_trials + number, f"add {counted(number, 'trial')}")
        return f"the search has {counted(self._state.num_trials, 'trial')} now"

    def _try(self, given: Mapping[str, Any]) -> str:
        self._check_search()
        config = self._plan.experiment.read_config(self._plan.settings, given)
        needed = self._searcher.want(config)
        self._tell(Steered(what=f"try {format_params(config)}"))
        if (missing := needed - self._state.num_trials) > 0:
            self._want_trials(needed, f"add {counted(missing, 'trial')} for that")
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
        if self._searcher.over:
            raise SweepError(
                f"the search is over; once the sweep has ended, add trials with: "
                f"{self._plan.how_to_resume(with_more_trials=True)}"
            )

    def _want_trials(self, number: int, what: str) -> None:
        """Have the search propose so many trials in all, also after a resume."""
        keep_num_samples(self._plan.folder, number)
        self._propose(number)
        self._tell(TrialsAsked(what=what, num_trials=number))

    def _propose(self, number: int) -> None:
        self._scheduler.expect(number)
        self._searcher.num_trials = number
