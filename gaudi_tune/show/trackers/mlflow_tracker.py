"""A sweep in MLflow: a parent run for the sweep, a child run for each trial."""

from __future__ import annotations

import logging
import math
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from typing import Any, TypeAlias

from gaudi_tune.base import names
from gaudi_tune.base.words import format_params
from gaudi_tune.define.options import IN_CHECKOUT
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.private.fork_server import ForkServer
from gaudi_tune.show.confirmation import verdict
from gaudi_tune.show.trackers import records
from gaudi_tune.show.trackers.delivery import Sender
from gaudi_tune.show.trackers.delivery_process import DeliveryProcess
from gaudi_tune.show.trackers.model_line import load_line
from gaudi_tune.show.trackers.outbox import GIVE_UP_AFTER_S, Outbox
from gaudi_tune.show.trackers.provenance import provenance
from gaudi_tune.show.trackers.records import (
    EXPERIMENT,
    FAILURE,
    FAILURE_KIND,
    MAX_NAME,
    MAX_TAG,
    ON_FRONT,
    ORIGIN,
    OUTBOX,
    STATUS,
    STOPPED_BECAUSE,
    SWEEP,
    RunStatus,
    Update,
    run_of,
)
from gaudi_tune.show.trackers.store import STORE_URI, artifact_folder, how_to_open
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import TrialState, trial_name
from gaudi_tune.training.profiling import TRACE_FILE
from gaudi_tune.training.report_values import as_float

logger = logging.getLogger(__name__)

NOT_METRICS = {names.FIRST_STEP_AT, names.STEP_SECONDS, names.EPOCH, names.STEP, names.SECOND}
"""Entries of a report that say nothing about the model, or are the time axis itself."""
PARAM_METRIC_PREFIX = "hyperparameters/"
"""The prefix of the metric of a hyperparameter that changes while a trial trains."""
REPORTED_PREFIX = "reported/"
"""The prefix of a metric that a train loop reports by a name under which the sweep keeps the best report of a trial."""


class MlflowTracker:
    """Has a thread write the events of a sweep to its outbox, from which another process or thread delivers them.

    So nothing here waits for MLflow, or for a disk that is slow.
    """

    name = "mlflow"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._outbox: Outbox | None = None  # None before the sweep begins
        self._sender: Sender | DeliveryProcess | None = None
        self._writer = ThreadPoolExecutor(1, "outbox")
        # These describe the records in the outbox, of which there may be more after a crash than the state knows.
        self._runs: set[str] = set()
        self._steps: defaultdict[str, dict[_Clone, int]] = defaultdict(dict)  # the step of the last report, by run
        self._counts: dict[str, int] = {}  # the count of the last report by run, if this process wrote it
        self._best: tuple[float, int] | None = None  # value and number of the best trial
        self._names: dict[str, str] = {}  # the metric that each name in MLflow stands for
        self._front: set[str] = set()  # runs of the trials on the front, with several objectives
        self._checkpoint: str | None = None  # the checkpoint of the model

    @property
    def address(self) -> str:
        """The address of the sweep's run on MLflow's page."""
        uri = self._plan.tracking_uri
        base = uri.rstrip("/") if uri.startswith("http") else "http://127.0.0.1:5000"
        ids = self._sender.ids if self._sender is not None else {}
        return f"{base}/#/experiments/{ids.get(EXPERIMENT, '')}/runs/{ids.get(SWEEP, '')}"

    @property
    def hint(self) -> str:
        """How to start MLflow's page, if the store is no server."""
        command = "make ui" if self._uses_default_store else how_to_open(self._plan.tracking_uri)
        return f"start the page with: {command}" if command else ""

    @property
    def _uses_default_store(self) -> bool:
        """Whether commands need no address, because the store is that of this checkout."""
        return self._plan.tracking_uri == STORE_URI and IN_CHECKOUT

    def load_line(self) -> str | None:
        """Return a line of Python that loads the best trial's model from MLflow; None if MLflow does not have it."""
        if self._sender is None or self._checkpoint is None:
            return None
        return load_line(self._sender.ids, self._checkpoint, self._plan.tracking_uri, self._plan.options.register)

    def show(self, event: events.Event, state: SweepState) -> None:
        """Write the records of an event to the outbox."""
        if isinstance(event, events.SweepBegan):
            self._open(event)
            for trial in state.trials.values():  # of a resumed sweep: what they reported last keeps its names
                numbers_in(trial.metrics, self._names)
        if self._outbox is None:  # opening it failed, which was logged
            return
        time_ms = int(1000 * event.time)
        match event:
            case events.TrialBegan():
                self._begin_trial(event, time_ms)
            case events.Reported():
                self._report(event, state, time_ms)
            case events.Decided() if event.decision.verdict == "pause":
                self._put(Update(run=run_of(event.trial), time_ms=time_ms, tags={STATUS: "paused"}))
            case events.TrialEnded():
                self._end_trial(event, state, time_ms)
            case events.PicturesDrawn():
                files = [self._relative(file) for file in event.files]
                self._put(records.LogFiles(run=SWEEP, time_ms=time_ms, files=files, may_be_skipped=not event.is_final))
            case events.SweepEnded():
                self._end_sweep(event, state, time_ms)

    def tick(self, state: SweepState) -> None:
        """Do nothing: the records are delivered beside the sweep."""

    def close(self) -> str:
        """Wait until everything is delivered, or MLflow has accepted nothing for a minute.

        Returns:
            What MLflow never gets, in words; "" if nothing.
        """
        if self._outbox is None or self._sender is None:
            return ""
        self._writer.shutdown()
        self._sender.close()
        if self._outbox.waiting:
            uri = self._plan.tracking_uri
            option = "" if self._uses_default_store else f" --tracking-uri {uri}"
            logger.error(
                "MLflow at %s accepted nothing for %d s; the rest waits on disk. Deliver it with: "
                "gaudi-tune deliver %s%s",
                uri, GIVE_UP_AFTER_S, self._plan.folder, option,
            )  # fmt: skip
        if not self._sender.is_alive():
            self._outbox.close()
        return self._sender.problem

    def flush(self) -> None:
        """Return once the outbox has every record."""
        self._writer.submit(lambda: None).result()

    def _put(self, record: records.Record) -> None:
        assert self._outbox is not None, "show() opens it when the sweep begins"
        self._writer.submit(_write, self._outbox, record)

    def _open(self, event: events.SweepBegan) -> None:
        """Open the outbox, begin or continue the sweep's run, and begin to deliver."""
        plan, time_ms = self._plan, int(1000 * event.time)
        self._outbox = Outbox(plan.folder)
        self._load(self._outbox)
        if SWEEP not in self._runs:
            self._begin_sweep(time_ms)
        devices = f"{plan.devices.count} {plan.devices.type.kind}: {plan.devices.reason}"
        tags = {"devices": devices, "data": "; ".join(plan.facts), **provenance()}
        self._put(Update(run=SWEEP, time_ms=time_ms, tags=tags, status="RUNNING"))
        kind = DeliveryProcess if ForkServer.running is not None else Sender
        self._sender = kind(plan.tracking_uri, self._outbox)
        self._sender.start()

    def _begin_sweep(self, time_ms: int) -> None:
        """Put the records that begin the sweep's run, with its settings and options as parameters."""
        plan, experiment = self._plan, self._plan.experiment
        params = {**plan.settings, **_option_params(plan)}
        self._put(
            records.BeginSweep(
                run=SWEEP,
                time_ms=time_ms,
                name=plan.name,
                tags={
                    "metric": experiment.metric,
                    "mode": experiment.objective.mode,
                    "kind": "sweep",
                    OUTBOX: str(time_ms),
                    **({ORIGIN: plan.origin} if plan.origin else {}),
                },
                params={_mlflow_name(name): str(value) for name, value in params.items()},
                tracking_uri=plan.tracking_uri,
                experiment=experiment.name,
                artifacts=artifact_folder(plan.tracking_uri, experiment.name),
                data=str(plan.settings.get("data", "")),
                facts=plan.facts,
            )
        )
        space = experiment.search_space.in_words()
        self._put(records.LogDocument(run=SWEEP, time_ms=time_ms, name="space.json", content=space))

    def _load(self, outbox: Outbox) -> None:
        """Read which records an earlier process has put into the outbox."""
        self._runs = set(outbox.ids)
        for record in outbox:
            if isinstance(record, records.BeginRun):
                self._runs.add(record.run)
            elif isinstance(record, Update) and "best_trial" in record.tags:
                (value,) = record.metrics.values()
                self._best = value, int(record.tags["best_trial"])
            elif isinstance(record, Update) and ON_FRONT in record.tags:
                self._front ^= {record.run}  # it joins or leaves
            elif isinstance(record, Update) and record.run != SWEEP and record.metrics and record.status is None:
                self._steps[record.run][_clone_of(record.metrics)] = record.step

    def _begin_trial(self, event: events.TrialBegan, time_ms: int) -> None:
        run, trial_id = run_of(event.trial), {"trial_id": event.trial_id}
        if run in self._runs:
            self._put(Update(run=run, time_ms=time_ms, tags=trial_id, status="RUNNING"))
            return
        self._runs.add(run)
        params = {_mlflow_name(name): str(value) for name, value in event.config.items()}
        confirmed_trial = event.config.get(names.CONFIRMS)
        purpose = f"confirms {run_of(confirmed_trial)} " if confirmed_trial else ""
        name = f"trial {run} {purpose}{format_params(event.config, self._plan.experiment.display_params, digits=3)}"
        tags = {"kind": "confirmation" if confirmed_trial else "trial", "trial": run}
        self._put(records.BeginRun(run=run, time_ms=time_ms, name=name[:MAX_NAME], tags=tags, params=params))
        self._put(Update(run=run, time_ms=time_ms, tags=trial_id))

    def _report(self, event: events.Reported, state: SweepState, time_ms: int) -> None:
        run, trial = run_of(event.trial), state.trials[event.trial]
        best_report = _best_report(trial, state)
        # Many loops report a best value themselves, which is not what the sweep ranks the trial by.
        values = {
            REPORTED_PREFIX + name if name in best_report else name: value
            for name, value in event.metrics.items()
            if name not in NOT_METRICS
        }
        # MLflow's parameters of a run cannot change, but pbt changes hyperparameters: these are metrics and tags.
        first_config = trial.began_with
        changed_params = {
            PARAM_METRIC_PREFIX + name: value for name, value in event.config.items() if first_config.get(name) != value
        }
        new_best = best_report if trial.best_step == event.step else {}
        metrics = numbers_in({**new_best, **values, **changed_params}, self._names)
        # A trial that lost its workers repeats reports, which are left out. One that took over another's weights may
        # also go back to an earlier step, but with another configuration, and its reports are new.
        clone, steps = _clone_of(metrics), self._steps[run]
        count, step = self._counts.get(run, math.inf), steps.get(clone, -1)
        if event.step > step or (event.step == step and event.count > count):
            steps[clone], self._counts[run] = event.step, event.count
            tags = {name: value for name, value in changed_params.items() if isinstance(value, str)}
            self._put(Update(run=run, time_ms=time_ms, step=event.step, metrics=metrics, tags=tags))
        front = {run_of(trial.number) for trial in state.front} if state.has_front else set()
        for changed_run in sorted(front ^ self._front):
            self._put(Update(run=changed_run, time_ms=time_ms, tags={ON_FRONT: str(changed_run in front).lower()}))
        self._front = front
        best = state.leader
        if best is not None and best != self._best:
            self._best = best
            metrics, tags = {_mlflow_name(f"best_{state.objective.name}"): best[0]}, {"best_trial": str(best[1])}
            self._put(Update(run=SWEEP, time_ms=time_ms, step=state.counts().total(), metrics=metrics, tags=tags))

    def _end_trial(self, event: events.TrialEnded, state: SweepState, time_ms: int) -> None:
        run, tags = run_of(event.trial), {STATUS: str(event.outcome)}
        if event.failure is not None:
            tags |= {FAILURE: event.failure.text[-MAX_TAG:], FAILURE_KIND: event.failure.kind.value}
        elif event.outcome == "stopped early":
            tags[STOPPED_BECAUSE] = event.reason
        seconds = {f"seconds/{kind}": s for kind, s in state.device_time.by_trial.get(event.trial, {}).items()}
        status: RunStatus = "FAILED" if event.outcome == "failed" else "FINISHED"
        step, trial = max(self._steps[run].values(), default=0), state.trials[event.trial]
        # An error may have cost the best report, so that the sweep ranks the trial by another.
        best_report = numbers_in(_best_report(trial, state), self._names) if trial.raised and trial.curve else {}
        self._put(
            Update(run=run, time_ms=time_ms, step=step, metrics={**seconds, **best_report}, tags=tags, status=status)
        )
        if self._plan.settings.get("profile"):
            trace = self._plan.folder / trial_name(event.trial) / TRACE_FILE  # left out where there is none
            self._put(records.LogFiles(run=run, time_ms=time_ms, files=[self._relative(trace)]))
        counts = {f"trials_{outcome.replace(' ', '_')}": float(count) for outcome, count in state.counts().items()}
        self._put(Update(run=SWEEP, time_ms=time_ms, step=state.counts().total(), metrics=counts))

    def _end_sweep(self, event: events.SweepEnded, state: SweepState, time_ms: int) -> None:
        for trial in state.trials.values():
            if not trial.has_ended:
                self._put(
                    Update(run=run_of(trial.number), time_ms=time_ms, tags={STATUS: trial.status}, status="KILLED")
                )
        self._put(records.LogDocument(run=SWEEP, time_ms=time_ms, name="summary.json", content=dict(event.summary)))
        metrics = {f"seconds/{kind}": value for kind, value in event.summary["device_seconds"].items()}
        best = event.summary["best"]
        if best is not None:
            metrics[_mlflow_name(f"best_{state.objective.name}")] = best["value"]
            if state.has_front:
                metrics |= _front_metrics(state)
        tags = {}
        if state.ending is not None:
            tags["ended_early"] = state.ending.why
        confirmation = event.summary.get("confirmation")
        if confirmation is not None:
            metrics |= _confirmation_metrics(confirmation)
            if confirmation["gain"] is not None:
                tags["confirmed"] = verdict(confirmation)
        finished = state.complete or (state.ending is not None and state.ending.status == 0)
        status: RunStatus = "FAILED" if state.failure else "FINISHED" if finished else "KILLED"
        step = state.counts().total()
        self._put(Update(run=SWEEP, time_ms=time_ms, step=step, metrics=metrics, tags=tags, status=status))
        saved = event.summary.get("best_saved") or best
        if saved is not None and saved["checkpoint"] is not None:
            self._log_model(saved, time_ms)

    def _relative(self, path: str | os.PathLike[str]) -> str:
        """Return a path relative to the sweep's folder, which may be moved before the records are delivered."""
        return os.path.relpath(path, self._plan.folder)

    def _log_model(self, saved: Mapping[str, Any], time_ms: int) -> None:
        """Log the best checkpoint, and the model that is made from it."""
        plan, run, self._checkpoint = self._plan, run_of(saved["trial"]), saved["checkpoint"]
        checkpoint = self._relative(self._checkpoint)
        self._put(records.LogFiles(run=run, time_ms=time_ms, files=[checkpoint], folder="checkpoint"))
        load = plan.experiment.predictor
        if load is None:  # the experiment does not say how to predict
            return
        self._put(
            records.LogModel(
                run=run,
                time_ms=time_ms,
                sweep=plan.name,
                checkpoint=checkpoint,
                loaded_by=f"{load.__module__}:{load.__qualname__}",
                params={name: str(value) for name, value in saved["config"].items()},
                metric=_mlflow_name(plan.experiment.metric),
                value=saved["value"],
                step=saved[plan.budget.unit],
                register=plan.options.register,
            )
        )


_Clone: TypeAlias = frozenset[tuple[str, float]]
"""The hyperparameters that differ from those that a trial began with: the seed of a clone always does."""


def _clone_of(metrics: Mapping[str, float]) -> _Clone:
    """Return which clone a trial was when it reported these metrics."""
    return frozenset(entry for entry in metrics.items() if entry[0].startswith(PARAM_METRIC_PREFIX))


def _write(outbox: Outbox, record: records.Record) -> None:
    try:
        outbox.put(record)
    except Exception:  # nobody else would report an error in a thread
        logger.exception("a record for MLflow could not be written, and is lost")


def numbers_in(entries: Mapping[str, Any], known_names: dict[str, str]) -> dict[str, float]:
    """Return the entries that are numbers, each under a name of its own that MLflow accepts; True is 1, False is 0.

    Args:
        entries: What a trial reported, by name.
        known_names: The entry that each name in MLflow stands for; those of these entries are added.
    """
    numbers: dict[str, float] = {}
    # Names that MLflow takes as they are come first and stay: "acc_1" before "acc@1".
    for name in sorted(entries, key=lambda name: _mlflow_name(name) != name):
        if isinstance(entries[name], Real):
            mlflow_name = _mlflow_name(name)
            if known_names.setdefault(mlflow_name, name) != name:
                mlflow_name = f"{mlflow_name[: MAX_NAME - 9]}_{zlib.crc32(name.encode()):08x}"
            numbers[mlflow_name] = as_float(entries[name])
    return numbers


def _best_report(trial: TrialState, state: SweepState) -> dict[str, float]:
    """Return the value that the sweep ranks a trial by and where it was reported, NaN if it has none: the last logged
    value of these metrics sorts MLflow's table as the sweep ranks its trials."""
    value, step = (trial.best, trial.best_step) if trial.best is not None else (math.nan, math.nan)
    return {f"best_{state.objective.name}": value, f"best_{state.budget.unit}": step}


def _option_params(plan: Plan) -> dict[str, Any]:
    """Return what the plan adds to the settings as parameters of the sweep's run."""
    options = plan.options
    params: dict[str, Any] = {"device": plan.devices.type.kind, "groups": plan.groups}
    if plan.experiment.has_recipes:
        params["recipe"] = plan.recipe
    params |= {
        "workers_per_trial": options.workers_per_trial,
        "trials_per_device": plan.trials_per_device,
        "num_samples": plan.num_samples,
        "search": options.search,
        "scheduler": options.scheduler,
        "sweep_seed": options.seed,
    }
    if plan.has_front:
        params["objectives"] = ", ".join(map(str, plan.objectives))
    if options.learn_from:
        params["learn_from"] = ", ".join(options.learn_from)
    return params


def _confirmation_metrics(confirmation: Mapping[str, Any]) -> dict[str, float]:
    """Return the means of the baseline and of the winner in the confirmation, and the winner's gain."""
    metrics = {}
    rows = {"baseline": confirmation["baseline"], "winner": next(iter(confirmation["rivals"]), None)}
    for role, row in rows.items():
        if row is None:
            continue
        scores = {confirmation["metric"]: row, **row.get("others", {})}
        for name, score in scores.items():
            metrics[_mlflow_name(f"confirmed/{name} of {role}")] = score["mean"]
    if confirmation["gain"] is not None:
        metrics["confirmed/gain"] = confirmation["gain"]["mean"]
    return metrics


def _front_metrics(state: SweepState) -> dict[str, float]:
    """Return how many trials are on the front, and the best value there of each objective but the first."""
    metrics: dict[str, float] = {"trials_on_front": len(state.front)}
    for place, objective in enumerate(state.objectives[1:], start=1):
        best = objective.best(trial.point[place] for trial in state.front)
        metrics[_mlflow_name(f"best_{objective.name}")] = best
    return metrics


def _mlflow_name(name: str) -> str:
    """Return a name that MLflow accepts. For one name like ``acc@1`` or ``val/`` it refuses a whole batch."""
    parts = re.sub(r"[^\w\-. :/]", "_", name).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))[:MAX_NAME] or "_"
