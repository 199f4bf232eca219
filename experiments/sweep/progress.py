"""What a person sees while a sweep runs: a live view on a terminal, plain lines in a pipe."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from experiments.sweep.endings import TellsEndings
from experiments.sweep.outcome import Outcome, number_of
from experiments.sweep.summary import value_of
from experiments.sweep.tracking.mlflow_callback import told
from trainables.runtime import names

if TYPE_CHECKING:
    from experiments.sweep.plan import Plan
    from experiments.sweep.stopping import Ending, StopSweep

REFRESH_EVERY_S = 0.5
"""How often the live view is drawn."""
LINE_EVERY_S = 30.0
"""How often a line says where the sweep is, in a pipe, when nothing else was said."""


class ShowProgress(TellsEndings):
    """Shows running, stopped and finished trials, the best so far, what each group does, and the time left."""

    def __init__(self, plan: Plan, stopping: StopSweep) -> None:
        super().__init__(plan.experiment.metric, plan.budget)
        self._plan, self._stopping = plan, stopping
        self._told_ending: Ending | None = None
        self._best: tuple[float, int] | None = None  # value and number of the trial
        self._ended: Counter[Outcome] = Counter()
        self._ended_before = 0  # when this process took the sweep over
        self._began = self._said = time.monotonic()
        self._console: Console | None = None
        self._live: Live | None = None

    def setup(self, **info: Any) -> None:
        """Start the clock, and the live view on a terminal."""
        self._began = self._said = time.monotonic()
        self._console = Console(soft_wrap=True)
        width = self._plan.options.workers_per_trial
        self._say(f"starting {self._plan.groups} worker group(s) of {width} on {self._plan.devices.type.kind} ...")
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        """Remember the best, and tell of a loss."""
        if names.LOST_SECONDS in result:
            lost = duration(result[names.LOST_SECONDS])
            self._say(f"trial {number_of(trial):03d}  lost its workers, goes on in new ones ({lost} lost)")
        value, number = result.get(self._metric, math.nan), number_of(trial)
        if self._plan.experiment.leads(value, number, self._best):
            self._best = (value, number)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Tell of a loss."""
        saved = trial.checkpoint
        start = "its last checkpoint" if saved else "its beginning"
        self._say(f"trial {number_of(trial):03d}  lost its place, goes on from {start}")

    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Say how the trial ended."""
        self._ended[outcome] += 1
        value = trial.last_result.get(self._metric, math.nan)
        what = " ".join(told(trial.config, self._plan.experiment.telling))
        how = f"failed: {reason.splitlines()[-1]}" if reason else outcome
        best = "  best so far" if self._best and self._best[1] == number_of(trial) else ""
        done = f"{self._budget.unit} {self._budget.progress(trial.last_result)}"
        at_best = value_of(trial, self._plan.experiment)
        earlier = "" if at_best is None or at_best == value else f" (at best {at_best:.4f})"
        self._say(f"trial {number_of(trial):03d}  {what}  {done}  {self._metric} {value:.4f}{earlier}  {how}{best}")

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Draw the live view, or say where the sweep is."""
        self._tell_ending()
        waited = time.monotonic() - self._said
        if self._live is not None:
            if waited >= REFRESH_EVERY_S:
                self._said = time.monotonic()
                self._live.update(Group(Text(self._status(trials)), self._lanes(trials)), refresh=True)
        elif waited >= LINE_EVERY_S:
            self._say(self._status(trials))

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Take the live view away."""
        if self._live is not None:
            self._live.stop()
        self._say(self._status(trials))

    def _tell_ending(self) -> None:
        """Say once that the sweep ends early, and what it waits for."""
        ending = self._stopping.ending
        if ending is None or ending == self._told_ending:
            return
        self._told_ending = ending
        waits = "" if ending.at_once else "; running trials write a checkpoint at their next report (Ctrl-C: at once)"
        self._say(f"the sweep ends early: {ending.why}{waits}")

    def get_state(self) -> dict[str, Any]:
        """Return what a resumed sweep must know."""
        return {"best": self._best, "ended": dict(self._ended)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take what :meth:`get_state` returned."""
        self._best, self._ended = state["best"], Counter(state["ended"])
        self._ended_before = self._ended.total()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": None, "_console": None}  # of this terminal; setup() makes them

    def _status(self, trials: list[Trial]) -> str:
        ended, running = self._ended.total(), sum(trial.status == Trial.RUNNING for trial in trials)
        parts = [f"{ended} of {self._plan.num_samples} trials done"]
        parts += [f"{running} running"] if running else []
        parts += [f"{count} {outcome}" for outcome, count in self._ended.items()]
        if self._best:
            parts.append(f"best {self._metric} {self._best[0]:.4f} (trial {self._best[1]:03d})")
        here = ended - self._ended_before
        if running and here and ended < self._plan.num_samples:
            left = (time.monotonic() - self._began) / here * (self._plan.num_samples - ended)
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def _lanes(self, trials: list[Trial]) -> Table:
        table = Table(
            "group", "trial", "hyperparameters", self._budget.unit, "", self._metric, box=None, pad_edge=False
        )
        running = [trial for trial in trials if trial.status == Trial.RUNNING]
        for lane, trial in enumerate(running, start=1):
            done, value = self._budget.progress(trial.last_result), trial.last_result.get(self._metric)
            table.add_row(
                str(lane),
                f"{number_of(trial):03d}",
                " ".join(told(trial.config, self._plan.experiment.telling)),
                f"{done}/{self._budget.total}",
                ProgressBar(total=self._budget.total, completed=done, width=20),
                "" if value is None else f"{value:.4f}",
            )
        return table

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        assert self._console is not None, "Tune calls setup() first"
        self._console.print(f"[{duration(self._said - self._began):>7}] {line}", markup=False, highlight=False)


def duration(seconds: float) -> str:
    """Return a length of time in words, to the second below an hour and to the minute above."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} m" if hours else f"{minutes} m {rest:02d} s" if minutes else f"{rest} s"
