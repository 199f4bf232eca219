"""The progress of a sweep for a person: a live view on a terminal, plain lines in a pipe."""

from __future__ import annotations

import math
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gaudi_tune.base import names
from gaudi_tune.base.process import in_notebook
from gaudi_tune.base.words import counted, duration, format_params, format_score, format_value, last_line
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.advice import without_effect
from gaudi_tune.show.confirmation import confirming
from gaudi_tune.show.waiting_text import awaited_in_words
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.forecast import Forecast
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

REFRESH_EVERY_S = 0.5
LINE_EVERY_S = 30.0
"""Seconds without other lines after which, in a pipe, a line gives the status of the sweep."""

MAX_WATCHED = 20
"""The most trials of a search in which values without effect are looked for after each; the summary looks at all."""


class ShowProgress:
    """Shows how each trial ended, the best so far, the trial of each group, and the time left.

    A trial that waits at a rung gets a line when it pauses, and another if it goes on. When the search is over, all
    waiting trials end at once, and get no more lines.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._started_at = self._printed_at = time.monotonic()
        # The kernel of a notebook takes lines, but sets FORCE_COLOR, which rich takes for a terminal.
        self._console = Console(soft_wrap=True, force_jupyter=False, force_terminal=False if in_notebook() else None)
        self._live: Live | None = None
        self._failure = ""
        """The error of the trial that ended last; "" if it did not fail."""
        self._has_warned = False
        """Whether values without effect were named."""
        self._has_added_seeds = False
        """Whether it was said that the confirmation has more seeds."""
        self._cut_short = set[int]()
        """Trials that were running when the sweep was interrupted, or have paused, until they report again."""

    def show(self, event: events.Event, state: SweepState) -> None:
        """Print what happened, if a person wants to know it."""
        match event:
            case events.SweepBegan():
                self._cut_short = set(state.open_trials)
                self._begin(state)
            case events.Steered():
                self._print(f"by hand: {event.request}")
            case events.SearchExhausted():
                self._print(f"no more trials begin: {event.source} has no more configurations")
            case events.SearchCut():
                self._print(
                    "--time-budget: no more trials begin; those that run and the confirmation need the time left"
                )
            case events.SweepEnding():
                reason = event.ending.why.removesuffix(f": {self._failure}")  # the line above has the failure
                line = f"the sweep ends early: {reason}"
                if not event.ending.at_once:
                    line += "; each running trial saves a checkpoint at its next report (Ctrl-C ends it at once)"
                self._print(line)
            case events.SweepEnded():
                if self._live is not None:
                    self._live.stop()
                self._print(self._status(state))
            case _:
                self._show_trial(event, state)

    def _show_trial(self, event: events.Event, state: SweepState) -> None:
        if isinstance(event, events.Decided) and event.decision.verdict == "pause":
            self._cut_short.add(event.trial)
        match event:
            case events.Reported():
                lost_s = event.metrics.get(names.LOST_SECONDS)
                if lost_s is not None:
                    if event.trial in self._cut_short:
                        action = "repeats what it had not saved"
                    else:
                        action = "lost its workers, continues on new ones"
                    self._print(f"trial {event.trial:03d}  {action} ({duration(lost_s)} lost)")
                self._cut_short.discard(event.trial)
            case events.TrialRecovered():
                start = "its last checkpoint" if state.trials[event.trial].checkpoints else "its beginning"
                self._print(f"trial {event.trial:03d}  lost its trial actor, continues from {start}")
            case events.PlaceChanged():
                kind = self._plan.devices.type.kind
                self._print(
                    f"trial {event.trial:03d}  moves to {event.workers} {kind}, from the checkpoint it saves now"
                )
            case events.Decided() if self._waits(state.trials[event.trial]):
                self._print(self._trial_line(state.trials[event.trial], "paused", state))
            case events.TrialEnded() if not self._waits(state.trials[event.trial]):
                self._show_end_of_trial(event, state)
        if isinstance(event, events.TrialEnded | events.Decided) and state.trials[event.trial].status != "running":
            self._warn(state)

    def _warn(self, state: SweepState) -> None:
        """Name values without effect, once, as long as the sweep has few trials."""
        if self._has_warned or len(state.searched) > MAX_WATCHED:
            return
        sentences = without_effect(self._plan.experiment.search_space, state.searched)
        for sentence in sentences:
            self._print(sentence)
        self._has_warned = bool(sentences)

    def _show_end_of_trial(self, event: events.TrialEnded, state: SweepState) -> None:
        trial = state.trials[event.trial]
        self._failure, outcome = "", str(event.outcome)
        if event.outcome == "failed" and event.reason:
            self._failure = last_line(event.reason)
            outcome = f"failed: {self._failure}"
        elif event.outcome == "stopped early" and trial.decision.verdict == "continue":
            outcome = "stopped early: its train loop returned"
        self._print(self._trial_line(trial, outcome, state))
        if trial.confirms and not self._has_added_seeds and state.seeds > self._plan.seeds:
            extra = counted(state.seeds - self._plan.seeds, "more seed")
            self._print(f"whether the best trial beats the baseline is open: {extra} for each (--most-seeds)")
            self._has_added_seeds = True

    def _begin(self, state: SweepState) -> None:
        self._started_at = time.monotonic()
        groups, width = counted(self._plan.groups, "worker group"), self._plan.options.workers_per_trial
        sharers = self._plan.trials_per_device
        sharing = f", {sharers} on each device" if sharers > 1 else ""
        self._print(f"starting {groups} of {width} on {self._plan.devices.type.kind}{sharing} ...")
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def tick(self, state: SweepState) -> None:
        """Draw the live view, or print the status of the sweep, if it is time."""
        silent_s = time.monotonic() - self._printed_at
        if self._live is not None:
            if silent_s >= REFRESH_EVERY_S:
                self._printed_at = time.monotonic()
                self._live.update(Group(Text(self._status(state)), self._lanes(state)), refresh=True)
        elif silent_s >= LINE_EVERY_S:
            self._print(self._status(state))

    def _waits(self, trial: TrialState) -> bool:
        """Whether a trial was paused at a rung after its last report. The many pauses of pbt do not count."""
        return trial.decision.verdict == "pause" and bool(self._plan.rungs)

    def _trial_line(self, trial: TrialState, status: str, state: SweepState) -> str:
        experiment = self._plan.experiment
        parts = [f"trial {trial.number:03d}", format_params(trial.config, experiment.display_params)]
        if trial.step:
            value = trial.metrics.get(experiment.metric, math.nan)
            values = [f"{experiment.metric} {format_score(value)}"]
            values += [f"{o.name} {format_value(trial.metrics.get(o.name))}" for o in state.objectives[1:]]
            if trial.best is not None and trial.best != value:
                best_point = [format_score(trial.best), *map(format_value, trial.point[1:])]
                values[-1] += f" (best {', '.join(best_point)})"
            parts += [f"{state.budget.unit} {trial.step}", *values]
        parts.append(status)
        if trial.confirms:
            test_score = f": {format_score(trial.test_point[0])} on test data" if trial.tested else ""
            parts.append(f"confirms {trial.confirms:03d}{test_score}")
        elif trial in state.front:
            failed = ", before it failed" if trial.status == "failed" else ""
            parts.append(("on the front" if state.has_front else "best so far") + failed)
        return "  ".join(parts)

    def _status(self, state: SweepState) -> str:
        counts, running, paused = state.counts(), len(state.running), len(state.paused)
        parts = [f"{counts.total()} of {state.expected} trials done{confirming(state.confirmations)}"]
        parts += [f"{running} running"] if running else []
        parts += awaited_in_words(self._plan, state)
        if paused:
            parts.append(f"{paused} paused")
        parts += [f"{count} {outcome}" for outcome, count in counts.items()]
        if state.best is not None:
            if state.has_front:
                parts.append(f"{len(state.front)} on the front")
            parts.append(
                f"best {state.objective.name} {format_score(state.best.best or 0.0)} (trial {state.best.number:03d})"
            )
        seconds_left = Forecast(state).seconds_left(self._plan.groups) or 0.0
        if running and seconds_left >= 1:
            parts.append(f"about {duration(seconds_left)} left")
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

    def _print(self, line: str) -> None:
        self._printed_at = time.monotonic()
        self._console.print(
            f"[{duration(self._printed_at - self._started_at):>7}] {line}", markup=False, highlight=False
        )
