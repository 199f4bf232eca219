"""A sweep without Ray: events go to the state and to trackers, as the sweep's callback hands them on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaudi_tune import SweepOptions
from gaudi_tune.base import names
from gaudi_tune.base.failure import Failure, FailureKind
from gaudi_tune.define.experiment import Experiment
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.tracker import Tracker
from gaudi_tune.sweep.record.device_time import DeviceTime
from gaudi_tune.sweep.record.events import Event, Outcome, Reported, SweepEnded, TrialBegan, TrialEnded
from gaudi_tune.sweep.record.sweep_state import SweepState
from tests.helpers.quadratic import QUADRATIC


def plan_of(storage: Path, name: str, experiment: Experiment = QUADRATIC, **options: Any) -> Plan:
    plan = make_plan(experiment, SweepOptions(storage=storage, name=name, device="cpu", num_samples=4, **options))
    plan.folder.mkdir(parents=True)
    return plan


def state_of(plan: Plan) -> SweepState:
    return SweepState(plan.objectives, plan.budget, plan.num_samples, DeviceTime(plan.devices))


def happen(tracker: Tracker, state: SweepState, *events: Event) -> None:
    for event in events:
        state.apply(event)
        tracker.show(event, state)


def began(trial: int, **more: Any) -> TrialBegan:
    return TrialBegan(trial=trial, trial_id=f"id-{trial}", config={"x": trial / 10, "seed": trial, **more})


def reported(trial: int, step: int, score: float, also: Any = (), **more: Any) -> Reported:
    metrics = {"epoch": step, "score": score, "acc@1": score / 2, "note": "warm", names.STEP_SECONDS: 1.5, **dict(also)}
    config = {"x": trial / 10, "seed": trial, **more}
    return Reported(trial=trial, step=step, point=(score,), metrics=metrics, config=config, count=step + 1)


def ended(trial: int, outcome: Outcome, reason: str = "") -> TrialEnded:
    failure = Failure(FailureKind.LOOP_ERROR, reason) if outcome == "failed" else None
    return TrialEnded(trial=trial, outcome=outcome, reason=reason, failure=failure)


def over(tracker: Tracker, state: SweepState, checkpoint: Path | None = None) -> None:
    """End the sweep, whose best trial has this checkpoint, and let the tracker deliver."""
    state.close()
    best = state.best and {
        "trial": state.best.number,
        "value": state.best.best,
        "config": state.best.best_config,
        "epoch": state.best.best_step,
        "checkpoint": checkpoint and str(checkpoint),
    }
    happen(tracker, state, SweepEnded(summary={"device_seconds": {"training": 4.5}, "name": "s", "best": best}))
    tracker.close()
