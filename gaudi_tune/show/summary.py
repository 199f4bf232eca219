"""summary.json: what a sweep came to, for people and programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import counted, last_line
from gaudi_tune.base.writing import atomic_write, retry_while_disk_is_full
from gaudi_tune.define.experiment import CHECKPOINT
from gaudi_tune.define.sweep_plan import SUMMARY_FILE, Plan
from gaudi_tune.show.confirmation import confirmed
from gaudi_tune.sweep.record.sweep_file import read_summary
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState

ADD_UP = (names.GRAPH_COMPILATIONS, names.GRAPH_CACHE_HITS, names.CPU_FALLBACKS)
"""Of what is counted on devices: those whose sum over all trials says something."""


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write the summary of a sweep, whole or not at all; a full disk is waited for."""
    text = json.dumps(summary, indent=2, default=str) + "\n"
    with atomic_write(path) as partial:
        retry_while_disk_is_full(lambda: partial.write_text(text), str(path))


def reopen_summary(folder: Path) -> None:
    """Take out of the summary of a sweep that goes on how it had ended: it may be killed before it writes the next."""
    if summary := read_summary(folder):
        write_summary(folder / SUMMARY_FILE, {**summary, "complete": False, "failed": None, "ended_early": None})


def summarise(plan: Plan, state: SweepState, trackers: Mapping[str, str]) -> dict[str, Any]:
    """Return what the sweep has come to so far.

    Trials that run count as interrupted. ``trackers`` says where a person looks at the sweep, by the tracker's name.
    """
    device_time, trials = state.device_time, state.trials.values()
    unended = sorted(trial.number for trial in trials if not trial.has_ended and trial.status != "paused")
    left = Counter[str]("paused" if t.status == "paused" else "interrupted" for t in state.unended.values())
    front = [_reached(plan, state, trial) for trial in state.front]
    counts_of, sums = {}, Counter[str]()  # what was counted on the devices of each trial, if anything, and of all
    for number, trial in sorted(state.trials.items()):
        if found := {name: trial.metrics[name] for name in names.DEVICE_COUNTS if name in trial.metrics}:
            counts_of[number] = found
            sums.update({name: count for name, count in found.items() if name in ADD_UP})
    several = {
        "objectives": [str(objective) for objective in state.objectives],
        "front": front,
        "baseline_values": _values(state, state.baseline.point if state.baseline is not None else ()),
    }
    return {
        "name": plan.name,
        "experiment": plan.experiment.name,
        "recipe": plan.recipe,
        "device": plan.devices.type.kind,
        "workers_per_trial": plan.options.workers_per_trial,
        "metric": state.objective.name,
        "mode": state.objective.mode,
        "best": front[0] if front else None,  # in any report; None if no trial reported a finite value
        **(several if state.has_front else {}),
        "baseline": None if state.baseline is None else state.baseline.best,
        "baseline_note": _baseline_note(state),
        "confirmation": confirmed(state, plan.test_data_seen_by),
        "complete": state.complete,
        "failed": state.failure,
        "ended_early": None if state.ending is None else state.ending._asdict(),
        "steered": [{"time": round(at, 1), "what": what} for at, what in state.steered],
        "trials": {**state.counts(), **left},
        "expected": state.expected,
        "interrupted": unended,
        "seconds_each": {plan.budget.unit: state.seconds_each()},
        "wall_s": round(device_time.ended - device_time.began, 2),
        "device_seconds": _rounded(device_time.in_all()),
        **sums,
        "device_counts": counts_of,
        "device_time": {
            "devices": {device: _rounded(seconds) for device, seconds in device_time.by_device().items()},
            "trials": {number: _rounded(seconds) for number, seconds in sorted(device_time.by_trial.items())},
        },
        "settings": plan.settings,
        **trackers,
    }


def _baseline_note(state: SweepState) -> str:
    """Return what is to be known of the baseline's value: it failed, or has not trained as long as a full trial."""
    if state.baseline is None or state.baseline.status == "failed":
        return "" if state.baseline is None else "failed"
    step, total = state.baseline.step, state.budget.total
    notes = [f"after {step:g} of {counted(total, state.budget.unit)}"] if 0 < step < total else []
    changed = state.baseline.best_config != state.baseline.began_with  # as pbt does
    return ", ".join([*notes, *(["with hyperparameters changed on the way"] if changed else [])])


def _reached(plan: Plan, state: SweepState, trial: TrialState) -> dict[str, Any]:
    """Return the best that a trial has reached, and its checkpoint."""
    saved, load = state.best_checkpoint(plan.folder, [trial]), plan.experiment.load_line
    if state.has_front:  # another point, even with the same first value, need not be on the front
        of_point = [one for one in trial.checkpoints if one.point == trial.point]
        saved = next((one for one in reversed(of_point) if (plan.folder / one.place).is_dir()), None)
    return {
        "trial": trial.number,
        "trial_id": trial.trial_id,
        "config": saved.config if saved else trial.best_config,
        "value": saved.value if saved else trial.best,
        **({"values": _values(state, saved.point if saved else trial.point)} if state.has_front else {}),
        plan.budget.unit: saved.step if saved else trial.best_step,
        "checkpoint": str(plan.folder / saved.place) if saved else None,
        "load": load.replace(CHECKPOINT, str(plan.folder / saved.place)) if saved and load else None,
        **({"failed": last_line(trial.reason)} if trial.status == "failed" else {}),  # after that
    }


def _values(state: SweepState, point: Sequence[float]) -> dict[str, float]:
    """Return a point by the names of the objectives; nothing of a trial that has none."""
    return {objective.name: value for objective, value in zip(state.objectives, point, strict=False)}


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(value, 2) for kind, value in seconds.items()}
