"""What the pictures and the page show of a sweep: plain data of one moment, for a separate thread."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import create_trial

from gaudi_tune.base.words import duration, format_value
from gaudi_tune.define.objective import Objective
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.private.optuna import constraint_attributes
from gaudi_tune.show.confirmation import in_lines
from gaudi_tune.show.summary import summarise
from gaudi_tune.sweep.record.device_time import DeviceTime, shares_of
from gaudi_tune.sweep.record.events import Status
from gaudi_tune.sweep.record.outcome import constraints_of
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

COLOURS: dict[Status, str] = {
    "finished": "#1f6fb4",
    "stopped early": "#e8a33d",
    "failed": "#c9352b",
    "running": "#2a9d6f",
    "paused": "#7f8c99",
    "interrupted": "#8b6fb5",
}
"""Of a trial in every picture and in the table, in this order; distinct with impaired colour vision, too."""
INK, GRID = "#2b3440", "#e6eaf0"
"""Of text and thin lines, and of the lines behind."""


@dataclass(kw_only=True)
class ShownTrial(TrialState):
    """A trial of the sweep as it was at that moment."""

    ranges: Mapping[str, BaseDistribution]
    """The range of each hyperparameter that was searched."""
    seconds: float
    """How long it had its devices."""

    @cached_property
    def params(self) -> dict[str, Any]:
        """The hyperparameters that were searched, as they were in its best report; pbt changes them."""
        return {name: self.best_config[name] for name in self.ranges}

    def row(self) -> dict[str, Any]:
        """Return what the page says of it."""
        step, last = next(reversed(self.curve.items()), (0, None))
        return {
            "number": self.number,
            "status": self.status,
            "confirms": self.confirms,
            "to_stop": self.to_stop,
            "best": self.best,
            "others": self.point[1:],
            "last": last,
            "step": step,
            "seconds": round(self.seconds, 1),
            "reason": self.reason,
            "params": {name: _shown(value) for name, value in self.params.items()},
        }


@dataclass(frozen=True, kw_only=True)
class SweepView:
    """A sweep at one moment."""

    plan: Plan
    trials: Sequence[ShownTrial]
    """By number."""
    device_time: DeviceTime
    summary: Mapping[str, Any]
    """As in summary.json."""
    address: str
    """Where a person looks at the sweep in the tracker."""
    running: bool
    front: Sequence[int] = ()
    """The numbers of the trials on the front; of one objective that of the best."""
    at: float = field(default_factory=time.time)
    """Clock time."""

    @classmethod
    def of(cls, plan: Plan, state: SweepState, address: str, earlier: SweepView | None = None) -> SweepView:
        """Return the view of a sweep as it is, which stays as it is while the sweep goes on.

        What the space says of a configuration takes most of the time, and is taken over from an ``earlier`` view.
        """
        device_time = state.device_time if state.over else state.device_time.up_to_now()
        known = {shown.number: shown for shown in earlier.trials} if earlier is not None else {}
        trials = []
        for number, trial in sorted(state.trials.items()):
            before = known.get(number)
            if before is not None and all(trial.best_config.get(name) == it for name, it in before.params.items()):
                ranges = before.ranges
            else:
                ranges = plan.experiment.search_space.at(trial.best_config, (trial.confirms or number) - 1).ranges
            seconds, curve = sum(device_time.by_trial[number].values()), dict(sorted(trial.curve.items()))
            trials.append(ShownTrial(**{**vars(trial), "curve": curve}, ranges=ranges, seconds=seconds))
        return cls(
            plan=plan,
            trials=trials,
            device_time=device_time,
            summary=summarise(plan, state, {}),
            address=address,
            running=not state.over,
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

    @cached_property
    def compared(self) -> list[ShownTrial]:
        """The trials that pictures of hyperparameters compare: finished and stopped ones that reported a value."""
        ended = [trial for trial in self.searched if trial.status in ("finished", "stopped early")]
        return [trial for trial in ended if trial.best is not None]

    @cached_property
    def study(self) -> optuna.Study:
        """A study in memory in which each compared trial is complete with the best value it reached.

        Optuna's pictures leave out every other trial, and most trials of a sweep are stopped early.
        """
        study = optuna.create_study(direction=self.objective.direction)
        for trial in self.compared:
            study.add_trial(
                create_trial(
                    value=trial.best,
                    params=dict(trial.params),
                    distributions=dict(trial.ranges),
                    system_attrs=constraint_attributes(constraints_of(trial.metrics)),
                )
            )
        return study

    def head(self) -> dict[str, Any]:
        """Return all that the page says of a sweep but its trials and pictures."""
        summary, plan, device_time = self.summary, self.plan, self.device_time
        until = time.monotonic() if self.running else device_time.ended
        best, unit = summary["best"], plan.budget.unit
        counts = Counter(trial.status for trial in self.trials)
        address, _, note = self.address.partition("  ")
        early = summary["ended_early"]
        how = f"{'ends' if self.running else 'ended'} early ({early['why']})" if early else "interrupted"
        reached = f"trial {best['trial']}, {unit} {best[unit]}" if best else ""
        baseline = [
            ("Baseline", format_value(summary["baseline"]) or "none yet", summary["baseline_note"] or "trial 1")
        ]
        recipe = f"{summary['recipe']} recipe, " if plan.experiment.has_recipes else ""
        return {
            "intro": f"A sweep of {summary['experiment']}, {recipe}on {summary['device']}",
            "state": "running" if self.running and not early else "complete" if summary["complete"] else how,
            "running": self.running,
            "at": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.at)),
            "metric": summary["metric"],
            "others": [other.name for other in plan.objectives[1:]],
            "front": list(self.front),
            "unit": unit,
            "facts": [
                (f"Best {summary['metric']}", format_value(best["value"]) if best else "none yet", reached),
                *([("On the front", str(len(self.front)), "trials")] if plan.has_front else []),
                *(baseline if plan.experiment.baseline else []),
                ("Trials", f"{len(self.trials)} of {summary['expected']}", ""),
                ("Time", duration(until - device_time.began), shares_of(device_time.in_all())),
            ],
            "counts": {status: counts[status] for status in COLOURS if counts[status]},
            "best": {**best, "config": {k: _shown(v) for k, v in best["config"].items()}} if best else None,
            "confirmed": in_lines(summary["confirmation"]) if summary["confirmation"] else [],
            "steered": [
                f"{time.strftime('%H:%M:%S', time.localtime(asked['time']))}  {asked['what']}"
                for asked in summary["steered"]
            ],
            "address": address,
            "note": note,
            "report": str(plan.report_file),
            "names": list(dict.fromkeys(name for trial in self.trials for name in trial.params)),
            "space": plan.experiment.search_space.in_words(),
        }


def _shown(value: Any) -> Any:
    """Return a value that JSON has, too, and that is there: the choice None is a text."""
    return str(value) if value is None or (isinstance(value, float) and not math.isfinite(value)) else value
