"""What faults have cost a sweep, counted when it is over."""

from __future__ import annotations

import fcntl
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from itertools import pairwise
from typing import Any

import optuna
from mlflow import MlflowClient
from mlflow.entities import Run
from optuna.trial import TrialState

from gaudi_tune.base.failure import FailureKind
from gaudi_tune.define.sweep_plan import STUDY_FILE
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.sweep.record.lock import is_running
from tests.faults.accumulating import ACCUMULATING, scores_of
from tests.faults.sweep import Sweep
from tests.helpers.stand_in_hpu import double_owners, ownerships

KINDS = {
    "exception": FailureKind.LOOP_ERROR,
    "memory": FailureKind.OUT_OF_MEMORY,
    "nan": FailureKind.DIVERGED,
}
"""The kind of failure that MLflow is to be told of a trial, by what was ordered."""


def check(sweep: Sweep) -> None:
    """Count what is lost, doubled and leaked."""
    check_summary(sweep)
    passed_over = check_mlflow(sweep)
    check_study(sweep, passed_over)
    check_devices(sweep)


def failed_by_order(sweep: Sweep) -> dict[float, FailureKind]:
    """Return how trials are to have failed, by their ``x``."""
    return {x: KINDS[order] for x, order in sweep.taken().items() if order in KINDS}


def check_summary(sweep: Sweep) -> None:
    """Every trial has ended as it should, and every second of every device is in the books once."""
    file = sweep.folder / "summary.json"
    if not file.is_file():
        sweep.count("lost", 1, "no summary.json")
        return
    summary: dict[str, Any] = json.loads(file.read_text())
    failed, counted = len(failed_by_order(sweep)), Counter(summary["trials"])
    if sweep.scheduler != "fifo":
        counted["finished"] += counted.pop("stopped early", 0)
    outcomes = Counter(finished=sweep.trials - failed, failed=failed)
    sweep.count("lost", counted != outcomes, f"trials {summary['trials']} instead of {outcomes}")
    sweep.count("lost", not summary["complete"], "the sweep says that it is not complete")
    trials = sorted(map(int, summary["device_time"]["trials"]))
    sweep.count("lost", trials != list(range(1, sweep.trials + 1)), f"the device time's trials are {trials}")
    for device, seconds in summary["device_time"]["devices"].items():
        difference = abs(sum(seconds.values()) - summary["wall_s"])
        wrong = difference > 0.01 * summary["wall_s"] or min(seconds.values()) < 0
        sweep.count("lost", wrong, f"the device time of {device}: {seconds}, {summary['wall_s']} s in all")


def check_mlflow(sweep: Sweep) -> dict[float, set[int]]:
    """Every trial has one run, and each of its values once.

    Returns:
        The epochs that each trial passed over as :func:`epochs_passed_over` says, by its ``x``.
    """
    client = MlflowClient(sweep.tracking_uri)
    known = client.get_experiment_by_name(ACCUMULATING.name)
    assert known is not None, "sweeps were tracked"
    of_sweep = f"tags.`mlflow.runName` = '{sweep.name}'"
    parents = client.search_runs([known.experiment_id], of_sweep)
    sweep.count("doubled", len(parents) - 1, f"{len(parents)} runs of the sweep")
    children = [
        run
        for parent in parents
        for run in client.search_runs([known.experiment_id], f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'")
    ]
    numbers = [run.data.tags["trial"] for run in children]
    sweep.count("lost", sweep.trials - len(set(numbers)), "trials without a run")
    sweep.count("doubled", len(numbers) - len(set(numbers)), "trials with a second run")
    failed = failed_by_order(sweep)
    passed_over = {float(run.data.params["x"]): epochs_passed_over(client, run) for run in children}
    for run in children:
        x = float(run.data.params["x"])
        check_run(sweep, client, run, failed.get(x), passed_over[x])
    return passed_over


def check_run(sweep: Sweep, client: MlflowClient, run: Run, kind: FailureKind | None, passed_over: set[int]) -> None:
    """A trial's values are those of an undisturbed one, to its end; or to where it failed, and the kind is told.

    With pbt, which changes what they depend on, they are there.
    """
    name, tags = f"trial {run.data.tags['trial']}", run.data.tags
    history = client.get_metric_history(run.info.run_id, "score")
    told = {value.step: value.value for value in history}
    right = dict(enumerate(scores_of(float(run.data.params["x"]), sweep.epochs), start=1))
    if kind is not None:
        told_end = (run.info.status, tags.get("status"), tags.get("failure_kind"))
        wrong = told_end != ("FAILED", "failed", kind.value)
        sweep.count("lost", wrong, f"{name} should have failed ({kind.value}), but: {run.info.status}, {tags}")
        right = {epoch: score for epoch, score in right.items() if epoch <= max(told, default=0)}
    else:
        ended, stopped = (run.info.status, tags.get("status")), ("FINISHED", "stopped early")
        sweep.count("lost", ended not in {("FINISHED", "finished"), stopped}, f"{name} ended as {ended}")
        if ended == stopped and sweep.scheduler != "fifo":
            right = {epoch: score for epoch, score in right.items() if epoch <= max(told)}
    if sweep.scheduler == "pbt":
        right = {epoch: told.get(epoch, score) for epoch, score in right.items() if epoch not in passed_over}
    lost = [epoch for epoch, score in right.items() if abs(told.get(epoch, -99.0) - score) > 1e-9]
    sweep.count("lost", len(lost), f"{name}: no or wrong values of epochs {lost}")
    sweep.count("doubled", len(history) - len(told), f"{name} has {len(history)} values of {len(told)} epochs")


def epochs_passed_over(client: MlflowClient, run: Run) -> set[int]:
    """Return what a trial has not trained because it went on from the total of another, further one; pbt does that."""
    history = {value.step: int(value.value) for value in client.get_metric_history(run.info.run_id, "taken_over")}
    passed: set[int] = set()
    for before, step in pairwise([0, *sorted(history)]):
        passed |= {epoch for epoch in range(before + 1, step) if epoch <= history[step]}
    return passed


def check_study(sweep: Sweep, passed_over: Mapping[float, set[int]]) -> None:
    """Every trial is in the study once, with all its reports."""
    study = optuna.load_study(study_name=sweep.name, storage=f"sqlite:///{sweep.folder / STUDY_FILE}")
    ended = {TrialState.COMPLETE} if sweep.scheduler == "fifo" else {TrialState.COMPLETE, TrialState.PRUNED}
    complete = [trial for trial in study.trials if trial.state in ended]
    xs = [trial.params["x"] for trial in study.trials]
    sweep.count("doubled", len(xs) - len(set(xs)), "configurations proposed twice")
    missing = sweep.trials - len(failed_by_order(sweep)) - len(complete)
    sweep.count("lost", abs(missing), f"the study has {len(complete)} complete trials")
    running = sum(trial.state == TrialState.RUNNING for trial in study.trials)
    sweep.count("lost", running, "trials still run in the study")
    for trial in complete:
        trained = sweep.epochs if trial.state == TrialState.COMPLETE else max(trial.intermediate_values)
        gaps = trained - len(passed_over.get(trial.params["x"], set())) - len(trial.intermediate_values)
        sweep.count("lost", gaps, f"trial {trial.number} of the study lacks reports")


def check_devices(sweep: Sweep) -> None:
    """No device had two owners, none has one now, and nobody holds the sweep."""
    sweep.count("doubled", double_owners(ownerships(sweep.locks)), "devices with two owners")
    for module in range(sweep.modules):
        with (sweep.locks / f"module-{module}").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sweep.count("leaked", 1, f"module {module} has an owner")
    sweep.count("leaked", is_running(sweep.folder), "somebody holds the sweep")
    with closing(Outbox(sweep.folder)) as outbox:
        sweep.count("lost", outbox.waiting, "bytes not delivered to MLflow")
