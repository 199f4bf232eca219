"""What faults have cost a sweep, counted when it is over."""

from __future__ import annotations

import fcntl
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from mlflow import MlflowClient
from mlflow.entities import Run
from optuna.trial import TrialState

from gaudi_tune.base.failure import FailureKind
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.trial_run import PARAM_METRIC_PREFIX
from gaudi_tune.sweep.record.lock import is_running
from tests.helpers.stand_in_hpu import double_owners, ownerships
from tests.helpers.stored_study import stored_trials
from tests.tools.faults.accumulating import ACCUMULATING, added
from tests.tools.faults.sweep import Sweep

KINDS = {"exception": FailureKind.LOOP_ERROR, "memory": FailureKind.OUT_OF_MEMORY, "nan": FailureKind.DIVERGED}
"""The kind of failure that MLflow is to be told of a trial, by what was ordered."""


class Told(NamedTuple):
    """A report that MLflow has."""

    epoch: int
    score: float
    x: float
    seed: int
    """With pbt each clone has another, and another ``x``."""


def check(sweep: Sweep) -> None:
    """Count what is lost, doubled and leaked."""
    check_books(sweep)
    check_devices(sweep)


def check_books(sweep: Sweep) -> None:
    """Every place has each trial as it was, all of it has been delivered, and nobody holds the sweep."""
    check_summary(sweep)
    check_study(sweep, check_mlflow(sweep))
    sweep.count("leaked", is_running(sweep.folder), "somebody holds the sweep")
    with closing(Outbox(sweep.folder)) as outbox:
        sweep.count("lost", outbox.waiting, "bytes not delivered to MLflow")


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
    failed, counted = len(failed_by_order(sweep)), Counter(summary["counts"])
    if not sweep.trains_in_full:
        counted["finished"] += counted.pop("stopped early", 0)
    outcomes = Counter(finished=sweep.trials - failed, failed=failed)
    sweep.count("lost", counted != outcomes, f"trials {summary['trials']} instead of {outcomes}")
    sweep.count("lost", not summary["complete"], "the sweep says that it is not complete")
    trials = sorted(map(int, summary["device_time"]["trials"]))
    sweep.count("lost", trials != list(range(1, sweep.trials + 1)), f"the device time's trials are {trials}")
    sweep.count("lost", "missing" in summary, f"the files of the sweep lack something: {summary.get('missing')}")
    for device, seconds in summary["device_time"]["devices"].items():
        difference = abs(sum(seconds.values()) - summary["wall_s"])
        wrong = difference > 0.01 * summary["wall_s"] or min(seconds.values()) < 0
        sweep.count("lost", wrong, f"the device time of {device}: {seconds}, {summary['wall_s']} s in all")


def check_mlflow(sweep: Sweep) -> dict[float, set[int]]:
    """Every trial has one run, and each of its values once.

    Returns:
        The epochs that each trial of the search has reported, by its ``x``.
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
        if run.data.tags.get("status") != "lost"  # a trial that only MLflow knew when the sweep was killed
    ]
    numbers = [run.data.tags["trial"] for run in children]
    sweep.count("lost", sweep.trials - len(set(numbers)), "trials without a run")
    sweep.count("doubled", len(numbers) - len(set(numbers)), "trials with a second run")
    check_confirmations(sweep, children)
    failed, epochs = failed_by_order(sweep), dict[float, set[int]]()
    for run in children:
        x, history = float(run.data.params["x"]), history_of(client, run)
        check_end(sweep, run, history, failed.get(x))
        check_values(sweep, run, history)
        if run.data.tags["kind"] == "trial":
            epochs[x] = {told.epoch for told in history}
    return epochs


def check_confirmations(sweep: Sweep, runs: Sequence[Run]) -> None:
    """The baseline and the winner are trained again with the same seeds, each once, and the summary has them."""
    confirming = [run.data.params for run in runs if run.data.tags["kind"] == "confirmation"]
    trained = Counter((params["confirms"], params["seed"]) for params in confirming)
    sweep.count("doubled", trained.total() - len(trained), "confirmations with the same seed")
    configs, seeds = {confirms for confirms, _ in trained}, {seed for _, seed in trained}
    is_complete = (len(configs), len(seeds), len(trained)) == (2 * bool(sweep.seeds), sweep.seeds, 2 * sweep.seeds)
    sweep.count("lost", not is_complete, f"{sweep.seeds} seeds, and these were confirmed: {sorted(trained)}")
    result = json.loads((sweep.folder / "summary.json").read_text()).get("confirmation")
    rows = [result["baseline"], *result["rivals"]] if result else []
    told = sorted((str(row["trial"]), str(seed)) for row in rows for seed in row["seeds"])
    sweep.count("lost", told != sorted(trained), f"the summary has the confirmations {told}, not {sorted(trained)}")


def history_of(client: MlflowClient, run: Run) -> list[Told]:
    """Return the reports of a trial, in their order."""
    names = ("score", f"{PARAM_METRIC_PREFIX}x", f"{PARAM_METRIC_PREFIX}seed")
    scores, xs, seeds = ([*client.get_metric_history(run.info.run_id, name)] for name in names)
    # MLflow has the hyperparameters of a report if they are not those that the trial began with.
    x_of, seed_of = ({(value.timestamp, value.step): value.value for value in values} for values in (xs, seeds))
    history = []
    for score in sorted(scores, key=lambda value: (value.timestamp, value.step)):
        moment = score.timestamp, score.step
        x, seed = x_of.get(moment, run.data.params["x"]), seed_of.get(moment, run.data.params["seed"])
        history.append(Told(score.step, score.value, float(x), int(seed)))
    return history


def check_end(sweep: Sweep, run: Run, history: Sequence[Told], kind: FailureKind | None) -> None:
    """A trial has trained to its end, or failed if that was ordered, and MLflow is told why."""
    name, tags = f"trial {run.data.tags['trial']}", run.data.tags
    if kind is not None:
        told_end = (run.info.status, tags.get("status"), tags.get("failure_kind"))
        wrong = told_end != ("FAILED", "failed", kind.value)
        sweep.count("lost", wrong, f"{name} should have failed ({kind.value}), but: {run.info.status}, {tags}")
        return
    ended = (run.info.status, tags.get("status"))
    if ended == ("FINISHED", "stopped early") and not sweep.trains_in_full:
        return
    sweep.count("lost", ended != ("FINISHED", "finished"), f"{name} ended as {ended}")
    last_epoch = max((told.epoch for told in history), default=0)  # not the newest: the clock may have jumped back
    sweep.count("lost", sweep.epochs - last_epoch, f"{name} has finished with epoch {last_epoch}")


def check_values(sweep: Sweep, run: Run, history: Sequence[Told]) -> None:
    """A trial's values are those of an undisturbed one, each once.

    With pbt a trial becomes a clone of another, again and again, and goes on from that one's epoch, which may be an
    earlier one. So its values are checked clone by clone: each follows from the one before.
    """
    name, clones = f"trial {run.data.tags['trial']}", defaultdict[int, list[Told]](list)
    for told in history:
        clones[told.seed].append(told)
    for seed, values in clones.items():
        epochs = [told.epoch for told in values]
        repeated = len(epochs) - len(set(epochs))
        sweep.count("doubled", repeated, f"{name} with seed {seed} has values of the epochs {epochs}")
        start = epochs[0] if sweep.scheduler == "pbt" else 1
        lost = set(range(start, max(epochs) + 1)) - set(epochs)
        sweep.count("lost", len(lost), f"{name} with seed {seed} has no values of the epochs {sorted(lost)}")
        totals = {0: 0.0} | {told.epoch: told.score * told.epoch for told in values}
        wrong = [
            told.epoch
            for told in values
            if told.epoch - 1 in totals
            and abs(added(totals[told.epoch - 1], told.x, told.epoch) - totals[told.epoch]) > 1e-6
        ]
        sweep.count("lost", len(wrong), f"{name} with seed {seed} has wrong values of the epochs {wrong}")


def check_study(sweep: Sweep, epochs: Mapping[float, set[int]]) -> None:
    """Every trial of the search is in the study once, with all its reports."""
    trials = stored_trials(sweep.folder)
    ended = {TrialState.COMPLETE} if sweep.trains_in_full else {TrialState.COMPLETE, TrialState.PRUNED}
    complete = [trial for trial in trials if trial.state in ended]
    xs = [trial.params["x"] for trial in trials]
    sweep.count("doubled", len(xs) - len(set(xs)), "configurations proposed twice")
    missing = sweep.searched - len(failed_by_order(sweep)) - len(complete)
    sweep.count("lost", abs(missing), f"the study has {len(complete)} complete trials")
    running = sum(trial.state == TrialState.RUNNING for trial in trials)
    sweep.count("lost", running, "trials still run in the study")
    for trial in complete:
        differing = epochs.get(trial.params["x"], set()) ^ set(trial.intermediate_values)
        sweep.count("lost", len(differing), f"trial {trial.number} of the study has other reports than MLflow")


def check_devices(sweep: Sweep) -> None:
    """No device had two owners, and none has one now."""
    sweep.count("doubled", double_owners(ownerships(sweep.locks)), "devices with two owners")
    for module in range(sweep.modules):
        with (sweep.locks / f"module-{module}").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                sweep.count("leaked", 1, f"module {module} has an owner")
