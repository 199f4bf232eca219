"""The summary of a sweep for people and programs, summary.json."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.files import SUMMARY_FILE, atomic_write, retry_while_disk_is_full
from gaudi_tune.base.words import counted, format_value, last_line
from gaudi_tune.define.experiment import CHECKPOINT
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.advice import next_steps, without_effect
from gaudi_tune.show.confirmation import confirmed
from gaudi_tune.show.result import in_list
from gaudi_tune.sweep.record.sweep_file import SUMMARY_VERSION
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import SavedCheckpoint, TrialState

SUMMED_COUNTS = (names.GRAPH_COMPILATIONS, names.GRAPH_CACHE_HITS, names.CPU_FALLBACKS)
"""The counts on devices whose sum over all trials is meaningful."""


def write_summary(path: Path, summary: Mapping[str, Any]) -> None:
    """Write the summary of a sweep, whole or not at all. If the disk is full, wait for space."""
    text = json.dumps(summary, indent=2, default=str) + "\n"
    with atomic_write(path) as partial:
        retry_while_disk_is_full(lambda: partial.write_text(text), str(path))


def reopen_summary(folder: Path) -> None:
    """Empty the summary of a sweep that is resumed: it may be killed before it writes another one, and until then its
    log has what is so."""
    write_summary(folder / SUMMARY_FILE, {"complete": False})


def summarise(plan: Plan, state: SweepState, addresses: Mapping[str, str]) -> dict[str, Any]:
    """Return the results of the sweep so far.

    Running trials count as interrupted. ``addresses`` are those of the sweep in its trackers, by the tracker's name.
    """
    return {
        "version": SUMMARY_VERSION,
        "name": plan.name,
        "experiment": plan.experiment.name,
        "recipe": plan.recipe,
        "device": plan.devices.type.kind,
        "workers_per_trial": plan.options.workers_per_trial,
        "trials_per_device": plan.trials_per_device,
        "metric": state.objective.name,
        "mode": state.objective.mode,
        "unit": plan.budget.unit,
        **_results(plan, state),
        **_progress(state),
        "seconds_each": {plan.budget.unit: state.seconds_each()},
        **_device_entries(state, plan.options.workers_per_trial),
        "settings": plan.settings,
        **addresses,
    }


def search_of(plan: Plan, state: SweepState) -> list[dict[str, Any]]:
    """Return what lists show of the trials of the search: how each ended, and its best report with the configuration
    that reached it."""
    trials = sorted(state.searched, key=lambda trial: trial.number)
    return [in_list(trial, plan.experiment.search_space.ranges, state.objectives) for trial in trials]


def _results(plan: Plan, state: SweepState) -> dict[str, Any]:
    """Return the best trial, the front of several objectives, the baseline and the confirmation."""
    front = [_best_of_trial(plan, state, trial) for trial in state.front]
    confirmation = confirmed(state, plan.test_data_seen_by)
    results: dict[str, Any] = {"best": front[0] if front else None}  # None if no trial reported a finite value
    results["best_saved"] = _best_saved(plan, state) if front and front[0]["checkpoint"] is None else None
    if state.has_front:
        results["objectives"] = [str(objective) for objective in state.objectives]
        results["front"] = front
        results["baseline_values"] = _values(state, state.baseline.point if state.baseline is not None else ())
    results["baseline"] = None if state.baseline is None else state.baseline.best
    results["baseline_note"] = _baseline_note(state)
    results["all_equal"] = _all_equal(state)
    results["confirmation"] = confirmation
    results["without_effect"] = without_effect(plan.experiment.search_space, state.searched)
    results["next"] = next_steps(plan, state, confirmation)
    return results


def _all_equal(state: SweepState) -> str:
    """Return what all trials of the search are equal to, in words; "" if they differ, or there are fewer than two."""
    trials = [trial for trial in state.searched if trial.best is not None]
    if len(trials) < 2 or len({tuple(trial.point) for trial in trials}) > 1:
        return ""
    values = zip(state.objectives, trials[0].point, strict=True)
    words = " and ".join(f"{objective.name} {format_value(value)}" for objective, value in values)
    one_class = ", and each predicts a single class" if all(map(_predicts_one_class, trials)) else ""
    return f"all {len(trials)} trials have {words}{one_class}: nothing tells them apart"


def _predicts_one_class(trial: TrialState) -> bool:
    """Whether the last report of a trial is that of a model which predicts the same class for every sample.

    Of k classes such a model recalls one in full and the others not at all, and its F1 follows from how many samples
    are of that class.
    """
    accuracy, recall, f1 = map(trial.metrics.get, (names.VAL_ACCURACY, names.VAL_BALANCED_ACCURACY, names.VAL_MACRO_F1))
    if not (accuracy and recall and f1):
        return False
    is_one_of_k = math.isclose(1 / recall, round(1 / recall), rel_tol=1e-6)
    return is_one_of_k and math.isclose(f1, recall * 2 * accuracy / (1 + accuracy), rel_tol=1e-6)


def _progress(state: SweepState) -> dict[str, Any]:
    """Return whether and how the sweep has ended, and how many trials it has by status."""
    remaining = state.open_trials.values()
    interrupted = [trial.number for trial in remaining if trial.status != "paused"]
    waiting = {"paused": len(remaining) - len(interrupted), "interrupted": len(interrupted)}
    return {
        "complete": state.complete,
        "failed": state.failure,
        "ended_early": None if state.ending is None else state.ending._asdict(),
        "steered": [{"time": round(time, 1), "what": description} for time, description in state.steered],
        "counts": {**state.counts(), **{status: number for status, number in waiting.items() if number}},
        "expected": state.expected,
        "confirmations": state.confirmations,
        "interrupted": sorted(interrupted),
    }


def _device_entries(state: SweepState, usual_width: int) -> dict[str, Any]:
    """Return the time of the devices, the trials that grew beyond ``usual_width`` with their most devices, and what
    was counted on devices for each trial and in all."""
    device_time = state.device_time
    trial_counts: dict[int, dict[str, Any]] = {}
    sums = Counter[str]()
    for number, trial in sorted(state.trials.items()):
        counts = {name: trial.metrics[name] for name in names.DEVICE_COUNTS if name in trial.metrics}
        if counts:
            trial_counts[number] = counts
            sums.update({name: count for name, count in counts.items() if name in SUMMED_COUNTS})
    return {
        "wall_s": round(device_time.ended - device_time.began, 2),
        "device_seconds": _rounded(device_time.total()),
        **sums,
        "device_counts": trial_counts,
        "grown": {trial: count for trial, count in sorted(device_time.most_devices().items()) if count > usual_width},
        "device_time": {
            "devices": {device: _rounded(seconds) for device, seconds in device_time.by_device().items()},
            "trials": {number: _rounded(seconds) for number, seconds in sorted(device_time.by_trial.items())},
        },
    }


def _baseline_note(state: SweepState) -> str:
    """Return what qualifies the baseline's value: it failed, trained less than in full, or with changed settings."""
    baseline = state.baseline
    if baseline is None:
        return ""
    if baseline.status == "failed":
        return "failed"
    total, notes = state.budget.total, []
    if 0 < baseline.step < total:
        notes.append(f"after {baseline.step:g} of {counted(total, state.budget.unit)}")
    if baseline.best_config != baseline.began_with:  # pbt changes it
        notes.append("with hyperparameters changed on the way")
    return ", ".join(notes)


def _best_of_trial(plan: Plan, state: SweepState, trial: TrialState) -> dict[str, Any]:
    """Return the best report of a trial, with the checkpoint of that report if there is one."""
    saved = _checkpoint_of_point(plan.folder, trial)
    best: dict[str, Any] = {
        "trial": trial.number,
        "trial_id": trial.trial_id,
        "config": saved.config if saved else trial.best_config,
        "value": trial.best,
    }
    if state.has_front:
        best["values"] = _values(state, trial.point)
    best[plan.budget.unit] = saved.step if saved else trial.best_step
    best |= _where(plan, saved)
    if trial.status == "failed":  # after its best report
        best["failed"] = last_line(trial.reason)
    return best


def _best_saved(plan: Plan, state: SweepState) -> dict[str, Any] | None:
    """Return the best checkpoint of the search and its report; None if there is none.

    It is not that of the best report where a train loop saves with some of its reports only.
    """
    candidates = [
        (trial, saved) for trial in state.searched if (saved := state.best_checkpoint(plan.folder, [trial])) is not None
    ]
    if not candidates:
        return None
    trial, saved = max(candidates, key=lambda candidate: state.objective.score(candidate[1].value))
    best: dict[str, Any] = {"trial": trial.number, "config": saved.config, "value": saved.value}
    if state.has_front:
        best["values"] = _values(state, saved.point)
    return {**best, plan.budget.unit: saved.step, **_where(plan, saved)}


def _where(plan: Plan, saved: SavedCheckpoint | None) -> dict[str, str | None]:
    """Return where a checkpoint is, and the line of Python that loads it."""
    if saved is None:
        return {"checkpoint": None, "load": None}
    checkpoint, load_line = str(plan.folder / saved.place), plan.experiment.load_line
    return {"checkpoint": checkpoint, "load": load_line.replace(CHECKPOINT, checkpoint) if load_line else None}


def _checkpoint_of_point(folder: Path, trial: TrialState) -> SavedCheckpoint | None:
    """Return the latest checkpoint of a trial's point that still exists."""
    for saved in reversed(trial.checkpoints):
        if saved.point == trial.point and (folder / saved.place).is_dir():
            return saved
    return None


def _values(state: SweepState, point: Sequence[float]) -> dict[str, float]:
    """Return a point by the names of the objectives; {} for a trial without a point."""
    return {objective.name: value for objective, value in zip(state.objectives, point, strict=False)}


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {kind: round(value, 2) for kind, value in seconds.items()}
