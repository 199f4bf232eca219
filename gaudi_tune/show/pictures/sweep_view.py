"""A snapshot of a sweep for the pictures and the page: plain data, which another thread can read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from optuna.distributions import CategoricalDistribution

from gaudi_tune.base.words import counted, duration, format_value
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.search_space import SearchSpace
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.confirmation import PLUS_MINUS, confirming, in_interval, in_lines
from gaudi_tune.show.pictures.shown_trial import ShownTrial, json_value
from gaudi_tune.show.pictures.surrogate import Surrogate, has_diverged
from gaudi_tune.show.plan_text import search_in_words
from gaudi_tune.show.summary import summarise
from gaudi_tune.show.waiting_text import awaited_in_words
from gaudi_tune.sweep.record.comparison import winning_row
from gaudi_tune.sweep.record.device_time import DeviceTime, shares_of
from gaudi_tune.sweep.record.events import Status
from gaudi_tune.sweep.record.forecast import Forecast
from gaudi_tune.sweep.record.sweep_state import SweepState

COLOURS: dict[Status, str] = {
    "finished": "#1f6fb4",
    "stopped early": "#e8a33d",
    "failed": "#c9352b",
    "running": "#2a9d6f",
    "paused": "#7f8c99",
    "interrupted": "#8b6fb5",
}
"""The colour of a trial by its status, in every picture and in the table, in this order. People with impaired colour
vision can tell them apart."""
INK, GRID = "#2b3440", "#e6eaf0"
"""The colours of text and thin lines, and of the grid."""


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """A sweep at one moment. It stays as it is while the sweep goes on."""

    plan: Plan
    trials: Sequence[ShownTrial]
    """The trials in the order of their numbers."""
    device_time: DeviceTime
    summary: Mapping[str, Any]
    """The content of summary.json."""
    address: str
    """The address of the sweep in the tracker."""
    running: bool
    awaited: Sequence[str] = ()
    """What running trials wait for before their first report, in words."""
    seconds_left: float | None = None
    """About how long the sweep still takes; None if that is unknown."""
    front: Sequence[int] = ()
    """The numbers of the trials on the front; with one objective that of the best trial."""
    clock_time: float = field(default_factory=time.time)
    """Clock time of the snapshot."""

    @classmethod
    def take(cls, plan: Plan, state: SweepState, address: str) -> SweepView:
        """Return the view of a sweep as it is now."""
        device_time = state.device_time if state.has_ended else state.device_time.frozen_copy()
        trials = []
        for number, trial in sorted(state.trials.items()):
            draw = plan.experiment.search_space.draw_with(trial.best_config, (trial.confirms or number) - 1)
            seconds, curve = sum(device_time.by_trial[number].values()), dict(sorted(trial.curve.items()))
            trials.append(ShownTrial(**{**vars(trial), "curve": curve}, ranges=draw.ranges, seconds=seconds))
        return cls(
            plan=plan,
            trials=trials,
            device_time=device_time,
            summary=summarise(plan, state, {}),
            address=address,
            running=not state.has_ended,
            awaited=awaited_in_words(plan, state),
            seconds_left=Forecast(state).seconds_left(plan.groups),
            front=[trial.number for trial in state.front],
        )

    @property
    def objective(self) -> Objective:
        """The first objective."""
        return self.plan.experiment.objective

    @cached_property
    def searched(self) -> list[ShownTrial]:
        """The trials of the search."""
        return [trial for trial in self.trials if not trial.confirms]

    @property
    def winner(self) -> ShownTrial | None:
        """The best trial of the confirmation, else of the search; None if no trial has a value."""
        best = winning_row(self.summary["confirmation"], self.objective) or self.summary["best"]
        return next((trial for trial in self.trials if best and trial.number == best["trial"]), None)

    @cached_property
    def surrogate(self) -> Surrogate:
        """A forest fitted to the trials of the search that have reported and do not run, or have diverged.

        Raises:
            NothingToDrawError: They are too few, or it explains too little.
        """
        trials = [t for t in self.searched if (t.curve and t.status not in ("running", "failed")) or has_diverged(t)]
        return Surrogate.fitted(trials, self.objective)

    def head(self) -> dict[str, Any]:
        """Return everything on the page but the trials and the pictures."""
        summary, plan = self.summary, self.plan
        counts = Counter(trial.status for trial in self.trials)
        address, _, note = self.address.partition("  ")
        recipe = f"{summary['recipe']} recipe, " if plan.experiment.has_recipes else ""
        return {
            "intro": f"A sweep of {summary['experiment']}, {recipe}on {plan.devices.count} {summary['device']}",
            "state": self._status(),
            "running": self.running,
            "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.clock_time)),
            "metric": summary["metric"],
            "others": [objective.name for objective in plan.objectives[1:]],
            "front": list(self.front),
            "unit": plan.budget.unit,
            "facts": self._facts(),
            "counts": {status: counts[status] for status in COLOURS if counts[status]},
            "best": self._best(),
            "about": [*filter(None, (search_in_words(plan), plan.weak_trials)), *plan.facts],
            "confirmed": in_lines(summary["confirmation"]) if summary["confirmation"] else [],
            "without_effect": summary["without_effect"],
            "next": [] if self.running else [*filter(None, [summary["all_equal"]]), *summary["next"]],
            "steered": [
                f"{time.strftime('%H:%M:%S', time.localtime(request['time']))}  {request['what']}"
                for request in summary["steered"]
            ],
            "address": address,
            "note": note,
            "report": str(plan.report_file),
            "names": list(dict.fromkeys(name for trial in self.trials for name in trial.params)),
            "space": fields_of(plan.experiment.search_space),
            "baseline": {name: json_value(value) for name, value in plan.experiment.baseline.items()},
        }

    def _status(self) -> str:
        """Return in words whether the sweep runs, and how it ended."""
        early_end = self.summary["ended_early"]
        if self.running and not early_end:
            return ", ".join(["running", *self.awaited])
        if self.summary["complete"]:
            return "complete"
        if not early_end:
            return "interrupted"
        return f"{'ends' if self.running else 'ended'} early ({early_end['why']})"

    def _facts(self) -> list[tuple[str, str, str]]:
        """Return the figures at the top of the page: the name, the value and a note of each."""
        summary, device_time, unit = self.summary, self.device_time, self.plan.budget.unit
        best, name, confirmation = summary["best"], f"Best {summary['metric']}", summary["confirmation"] or {}
        if winner := winning_row(confirmation, self.objective):
            facts = [(f"Best {confirmation['metric']}", in_interval(winner), _confirmed_note(winner))]
        elif best:
            facts = [(name, format_value(best["value"]), f"trial {best['trial']}, {unit} {best[unit]}")]
        else:
            facts = [(name, "none yet", "")]
        if self.plan.has_front:
            facts.append(("On the front", str(len(self.front)), "trials"))
        if confirmation.get("baseline"):
            facts.append(("Baseline", in_interval(confirmation["baseline"]), _confirmed_note(confirmation["baseline"])))
        elif self.plan.experiment.baseline:
            baseline = format_value(summary["baseline"]) or "none yet"
            facts.append(("Baseline", baseline, summary["baseline_note"] or "trial 1"))
        end = time.monotonic() if self.running else device_time.ended
        note = confirming(summary["confirmations"]).strip(" ()")
        facts.append(("Trials", f"{len(self.trials)} of {summary['expected']}", note))
        facts.append(("Time", duration(end - device_time.began), shares_of(device_time.total())))
        if self.running and (self.seconds_left or 0.0) >= 1:
            facts.append(("Left", f"about {duration(self.seconds_left or 0.0)}", ""))
        if grown := summary["grown"]:
            facts.append(("Grown", str(len(grown)), f"trials, to at most {max(grown.values())} devices"))
        return facts

    def _best(self) -> dict[str, Any] | None:
        best, unit, metric = self.summary["best"], self.plan.budget.unit, self.summary["metric"]
        if not best:
            return None
        saved = self.summary["best_saved"] or best
        what = f"trial {saved['trial']} at {unit} {saved[unit]}, {metric} {format_value(saved['value'])}"
        config = {name: json_value(value) for name, value in best["config"].items()}
        return {**best, "config": config, "saved": {**saved, "what": what}}


def _confirmed_note(row: Mapping[str, Any]) -> str:
    meaning = f": {PLUS_MINUS}" if row["interval"] else ""
    return f"trial {row['trial']}, {counted(len(row['scores']), 'seed')}{meaning}"


def fields_of(space: SearchSpace) -> dict[str, dict[str, Any]]:
    """Return the fields of the page for a configuration to try: the range of each in words, and its choices, of which
    "" is for trials that have none; None if it has no choices alone."""
    words, fields = space.in_words(), {}
    for name, ranges in space.ranges.items():
        choices = [json_value(choice) for range_ in ranges for choice in getattr(range_, "choices", ())]
        has_choices = all(isinstance(range_, CategoricalDistribution) for range_ in ranges)
        none = [] if name in space.always else [""]
        fields[name] = {"words": words[name], "choices": [*none, *dict.fromkeys(choices)] if has_choices else None}
    return fields
