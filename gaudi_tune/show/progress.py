"""What a person sees while a sweep runs: a live view on a terminal, plain lines in a pipe."""

from __future__ import annotations

import math
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gaudi_tune.base import names
from gaudi_tune.base.words import counted, duration, format_params, format_score, format_value, last_line
from gaudi_tune.define.sweep_plan import WITH_RUNGS, Plan
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.forecast import Forecast
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

REFRESH_EVERY_S = 0.5
LINE_EVERY_S = 30.0
"""How often a line says where the sweep is, in a pipe, when nothing else was said."""


class ShowProgress:
    """Shows what became of each trial, the best so far, what each group does, and the time left.

    A trial that waits at a rung gets its line when it pauses, and another if it goes on. When the search is over, all
    that still wait end at once, without a line each.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._began = self._said = time.monotonic()
        self._console = Console(soft_wrap=True)
        self._live: Live | None = None
        self._failure = ""
        """Why the last trial to end has failed."""
        self._cut_short = set[int]()
        """Trials that ran when a sweep was interrupted that is resumed, until they report again."""

    def show(self, event: events.Event, state: SweepState) -> None:
        """Say what happened, where a person wants to know."""
        match event:
            case events.SweepBegan():
                self._cut_short = set(state.unended)
                self._begin(state)
            case events.Steered():
                self._say(f"by hand: {event.what}")
            case events.SearchCut():
                self._say("--time-budget: no more trials begin; those that run and the confirmation need the time left")
            case events.SweepEnding():
                waits = "" if event.ending.at_once else "; each running trial saves a checkpoint at its next report"
                hint = "" if event.ending.at_once else " (Ctrl-C ends it at once)"
                why = event.ending.why.removesuffix(f": {self._failure}")  # which the line above has
                self._say(f"the sweep ends early: {why}{waits}{hint}")
            case events.SweepEnded():
                if self._live is not None:
                    self._live.stop()
                self._say(self._status(state))
            case _:
                self._show_trial(event, state)

    def _show_trial(self, event: events.Event, state: SweepState) -> None:
        match event:
            case events.Reported():
                if (lost_s := event.metrics.get(names.LOST_SECONDS)) is not None:
                    repeats = event.trial in self._cut_short
                    how = "repeats what it had not saved" if repeats else "lost its workers, continues on new ones"
                    self._say(f"trial {event.trial:03d}  {how} ({duration(lost_s)} lost)")
                self._cut_short.discard(event.trial)
            case events.TrialRecovered():
                start = "its last checkpoint" if state.trials[event.trial].checkpoints else "its beginning"
                self._say(f"trial {event.trial:03d}  lost its trial actor, continues from {start}")
            case events.PlaceChanged():
                kind = self._plan.devices.type.kind
                self._say(f"trial {event.trial:03d}  moves to {event.workers} {kind}, from the checkpoint it saves now")
            case events.Decided() if self._waits(state.trials[event.trial]):
                self._say(self._line_of(state.trials[event.trial], "paused", state))
            case events.TrialEnded() if not self._waits(state.trials[event.trial]):
                failed = event.outcome == "failed" and event.reason
                self._failure = last_line(event.reason) if failed else ""
                how = f"failed: {self._failure}" if failed else event.outcome
                if event.outcome == "stopped early" and state.trials[event.trial].decision.verdict == "continue":
                    how += ": its train loop returned"
                self._say(self._line_of(state.trials[event.trial], how, state))

    def _begin(self, state: SweepState) -> None:
        self._began = time.monotonic()
        groups, width = counted(self._plan.groups, "worker group"), self._plan.options.workers_per_trial
        self._say(f"starting {groups} of {width} on {self._plan.devices.type.kind} ...")
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def tick(self, state: SweepState) -> None:
        """Draw the live view, or say where the sweep is."""
        waited = time.monotonic() - self._said
        if self._live is not None:
            if waited >= REFRESH_EVERY_S:
                self._said = time.monotonic()
                self._live.update(Group(Text(self._status(state)), self._lanes(state)), refresh=True)
        elif waited >= LINE_EVERY_S:
            self._say(self._status(state))

    def _waits(self, trial: TrialState) -> bool:
        """Whether a trial was paused at a rung after its last report; pbt pauses trials all the time."""
        return trial.decision.verdict == "pause" and self._plan.options.scheduler in WITH_RUNGS

    def _line_of(self, trial: TrialState, how: str, state: SweepState) -> str:
        experiment = self._plan.experiment
        value = trial.metrics.get(experiment.metric, math.nan)
        best = "" if trial not in state.front else "  on the front" if state.has_front else "  best so far"
        also = "".join(f"  {o.name} {format_value(trial.metrics.get(o.name))}" for o in state.objectives[1:])
        if trial.confirms:
            on_test = f": {format_score(trial.test_point[0])} on test data" if trial.tested else ""
            best = f"  confirms {trial.confirms:03d}{on_test}"
        earlier = ""
        if trial.best is not None and trial.best != value:
            earlier = f" (best {', '.join([format_score(trial.best), *map(format_value, trial.point[1:])])})"
        params = format_params(trial.config, experiment.display_params)
        values = f"{experiment.metric} {format_score(value)}{also}{earlier}"
        reached = f"{state.budget.unit} {trial.step}  {values}  " if trial.step else ""
        return f"trial {trial.number:03d}  {params}  {reached}{how}{best}"

    def _status(self, state: SweepState) -> str:
        counts, running, paused = state.counts(), len(state.running), len(state.paused)
        parts = [f"{counts.total()} of {state.expected} trials done"]
        parts += [f"{running} running"] if running else []
        parts += [f"{paused} paused"] if paused else []
        parts += [f"{count} {outcome}" for outcome, count in counts.items()]
        if state.best is not None:
            parts += [f"{len(state.front)} on the front"] if state.has_front else []
            parts.append(
                f"best {state.objective.name} {format_score(state.best.best or 0.0)} (trial {state.best.number:03d})"
            )
        left, each = Forecast(state).steps_left(), state.seconds_each()
        if running and left and each is not None:
            parts.append(f"about {duration(left * each / self._plan.groups)} left")
        return ", ".join(parts)

    def _lanes(self, state: SweepState) -> Table:
        metric, budget = state.objective.name, state.budget
        table = Table("group", "trial", "hyperparameters", budget.unit, "", metric, box=None, pad_edge=False)
        for lane, trial in enumerate(state.running, start=1):
            table.add_row(
                str(lane),
                f"{trial.number:03d}",
                format_params(trial.config, self._plan.experiment.display_params),
                f"{trial.step}/{budget.total}",
                ProgressBar(total=budget.total, completed=trial.step, width=20),
                "" if trial.value is None else format_score(trial.value),
            )
        return table

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        self._console.print(f"[{duration(self._said - self._began):>7}] {line}", markup=False, highlight=False)
