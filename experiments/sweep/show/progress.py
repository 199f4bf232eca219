"""What a person sees while a sweep runs: a live view on a terminal, plain lines in a pipe."""

from __future__ import annotations

import math
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from experiments.sweep.define.plan import Plan
from experiments.sweep.define.words import counted, duration, format_params
from experiments.sweep.state.events import (
    Event,
    Reported,
    SweepBegan,
    SweepEnded,
    SweepEnding,
    TrialEnded,
    TrialRecovered,
)
from experiments.sweep.state.sweep_state import SweepState
from trainables.runtime import names

REFRESH_EVERY_S = 0.5
"""How often the live view is drawn."""
LINE_EVERY_S = 30.0
"""How often a line says where the sweep is, in a pipe, when nothing else was said."""


class ShowProgress:
    """Shows running, stopped and finished trials, the best so far, what each group does, and the time left."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._began = self._said = time.monotonic()
        self._console = Console(soft_wrap=True)
        self._live: Live | None = None

    def show(self, event: Event, state: SweepState) -> None:
        """Say what happened, where a person wants to know."""
        match event:
            case SweepBegan():
                self._began = time.monotonic()
                groups, width = counted(self._plan.groups, "worker group"), self._plan.options.workers_per_trial
                self._say(f"starting {groups} of {width} on {self._plan.devices.type.kind} ...")
                if self._console.is_terminal:
                    self._live = Live(console=self._console, auto_refresh=False, transient=True)
                    self._live.start()
            case Reported() if names.LOST_SECONDS in event.metrics:
                lost = duration(event.metrics[names.LOST_SECONDS])
                self._say(f"trial {event.trial:03d}  lost its workers, goes on in new ones ({lost} lost)")
            case TrialRecovered():
                start = "its last checkpoint" if state.trials[event.trial].checkpoints else "its beginning"
                self._say(f"trial {event.trial:03d}  lost its trial actor, goes on from {start}")
            case TrialEnded():
                self._say(self._end_of_trial(event, state))
            case SweepEnding():
                waits = "" if event.ending.at_once else "; running trials write a checkpoint at their next report"
                hint = "" if event.ending.at_once else " (Ctrl-C: at once)"
                self._say(f"the sweep ends early: {event.ending.why}{waits}{hint}")
            case SweepEnded():
                if self._live is not None:
                    self._live.stop()
                self._say(self._status(state))

    def tick(self, state: SweepState) -> None:
        """Draw the live view, or say where the sweep is."""
        waited = time.monotonic() - self._said
        if self._live is not None:
            if waited >= REFRESH_EVERY_S:
                self._said = time.monotonic()
                self._live.update(Group(Text(self._status(state)), self._lanes(state)), refresh=True)
        elif waited >= LINE_EVERY_S:
            self._say(self._status(state))

    def _end_of_trial(self, event: TrialEnded, state: SweepState) -> str:
        trial, experiment = state.trials[event.trial], self._plan.experiment
        value = trial.metrics.get(experiment.metric, math.nan)
        how = (
            f"failed: {event.reason.splitlines()[-1]}" if event.outcome == "failed" and event.reason else event.outcome
        )
        best = "  best so far" if state.best is trial else ""
        if trial.confirms:
            tested = names.of_test(experiment.metric) in trial.metrics and trial.score is not None
            best = f"  confirms {trial.confirms:03d}" + (f": {trial.score:.4f} on test data" if tested else "")
        earlier = "" if trial.best is None or trial.best == value else f" (at best {trial.best:.4f})"
        params = format_params(trial.config, experiment.display_params)
        return (
            f"trial {trial.number:03d}  {params}  {state.budget.unit} {trial.step}  "
            f"{experiment.metric} {value:.4f}{earlier}  {how}{best}"
        )

    def _status(self, state: SweepState) -> str:
        counts, running = state.counts(), len(state.running)
        ended, here = counts.total(), len(state.ended_here)
        parts = [f"{ended} of {state.expected} trials done"]
        parts += [f"{running} running"] if running else []
        parts += [f"{count} {outcome}" for outcome, count in counts.items()]
        if state.best is not None:
            parts.append(f"best {state.objective.name} {state.best.best:.4f} (trial {state.best.number:03d})")
        if running and here and ended < state.expected:
            left = (time.monotonic() - self._began) / here * (state.expected - ended)
            parts.append(f"about {duration(left)} left")
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
                "" if trial.value is None else f"{trial.value:.4f}",
            )
        return table

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        self._console.print(f"[{duration(self._said - self._began):>7}] {line}", markup=False, highlight=False)
