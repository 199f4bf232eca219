"""A sweep in MLflow: a parent run for the sweep, a child run for each trial.

Here it is composed which numbers a run gets, from the record and the events of the sweep. On the way to MLflow,
``trial_run.py`` leaves out reports that a trial repeats, ``mlflow_names.py`` gives names that MLflow accepts,
``outbox.py`` keeps the records on disk, ``delivery.py`` takes them from there, and ``mlflow_runs.py`` calls MLflow.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.errors import errors_are_logged
from gaudi_tune.base.files import REPORT_FILE, SUMMARY_FILE
from gaudi_tune.base.words import format_params
from gaudi_tune.define.options import HOME, PROJECT_ROOT
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.confirmation import verdict
from gaudi_tune.show.trackers import records
from gaudi_tune.show.trackers.delivery_process import DeliveryProcess
from gaudi_tune.show.trackers.mlflow_names import numbers_in
from gaudi_tune.show.trackers.model_line import load_line
from gaudi_tune.show.trackers.outbox import GIVE_UP_AFTER_S, Outbox
from gaudi_tune.show.trackers.records import MAX_NAME, MAX_TAG, STATUS, SWEEP, RunStatus, Update, run_of, trial_in
from gaudi_tune.show.trackers.store import STORE_URI, artifact_folder, how_to_open
from gaudi_tune.show.trackers.sweep_entries import confirmation_metrics, front_metrics, option_params, provenance
from gaudi_tune.show.trackers.trial_run import PARAM_METRIC_PREFIX, TrialRun
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import ENDED, TrialState

logger = logging.getLogger(__name__)

REPORTED_PREFIX = "reported/"
"""The prefix of a metric that a train loop reports by a name under which the sweep keeps something else of a trial."""
OWN_PREFIXES = (PARAM_METRIC_PREFIX, REPORTED_PREFIX, "seconds/")
"""The prefixes of other metrics that the sweep writes."""


class MlflowTracker:
    """Has a thread write the events of a sweep to its outbox, from which another process or thread delivers them.

    So nothing here waits for MLflow, or for a disk that is slow.
    """

    name = "mlflow"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._outbox: Outbox | None = None  # None before the sweep begins
        self._delivery: DeliveryProcess | None = None
        self._writer = ThreadPoolExecutor(1, "outbox")
        self._runs: dict[str, TrialRun] = {}  # what the outbox has of each trial, by its number in three digits
        # What this process has told last.
        self._leader: tuple[float, int] | None = None
        self._front: set[int] = set()  # numbers of the trials on the front, with several objectives
        self._checkpoint: str | None = None  # the checkpoint of the model

    @property
    def address(self) -> str:
        """The address of the sweep's run on MLflow's page; of that page alone until MLflow has the run."""
        uri = self._plan.tracking_uri
        base = uri.rstrip("/") if uri.startswith("http") else "http://127.0.0.1:5000"
        ids = self._delivery.ids if self._delivery is not None else {}
        return f"{base}/#/experiments/{ids[records.EXPERIMENT]}/runs/{ids[SWEEP]}" if SWEEP in ids else base

    @property
    def hint(self) -> str:
        """How to start MLflow's page, if the store is no server."""
        is_of_checkout = self._plan.tracking_uri == STORE_URI and HOME == PROJECT_ROOT
        command = "make ui" if is_of_checkout else how_to_open(self._plan.tracking_uri)
        return f"start the page with: {command}" if command else ""

    def load_line(self) -> str | None:
        """Return a line of Python that loads the best trial's model from MLflow; None if MLflow does not have it."""
        if self._delivery is None or self._checkpoint is None:
            return None
        return load_line(self._delivery.ids, self._checkpoint, self._plan.tracking_uri, self._plan.options.register)

    def show(self, event: events.Event, state: SweepState) -> None:
        """Write the records of an event to the outbox."""
        if isinstance(event, events.SweepBegan):
            self._open(event, state)
        if self._outbox is None:  # opening it failed, which was logged
            return
        time_ms = int(1000 * event.time)
        match event:
            case events.TrialBegan():
                self._begin_trial(event, state, time_ms)
            case events.Reported():
                self._report(event, state, time_ms)
            case events.Decided() if event.decision.verdict == "pause":
                self._put(Update(run=self._run(event.trial).name, time_ms=time_ms, tags={STATUS: "paused"}))
            case events.TrialEnded():
                self._end_trial(event, state, time_ms)
            case events.SweepEnded():
                self._end_sweep(event, state, time_ms)

    def tick(self, state: SweepState) -> None:
        """Do nothing: the records are delivered beside the sweep."""

    def close(self) -> str:
        """Wait until everything is delivered, or MLflow has accepted nothing for a minute.

        Returns:
            What MLflow never gets, in words; "" if nothing.
        """
        if self._outbox is None or self._delivery is None:
            return ""
        self.flush()
        self._delivery.close()
        if self._outbox.waiting:
            message = "MLflow at %s accepted nothing for %d s; the rest waits on disk. Deliver it with: %s"
            logger.error(message, self._plan.tracking_uri, GIVE_UP_AFTER_S, self._plan.how_to_resume())
        if not self._delivery.is_alive():
            self._outbox.close()
        return self._delivery.problem

    def flush(self) -> None:
        """Return once the outbox has every record."""
        self._writer.submit(lambda: None).result()

    def _put(self, record: records.Record) -> None:
        assert self._outbox is not None, "show() opens it when the sweep begins"
        self._writer.submit(_write, self._outbox, record)

    def _open(self, event: events.SweepBegan, state: SweepState) -> None:
        """Open the outbox, begin or continue the sweep's run, and begin to deliver."""
        self._front = {trial.number for trial in state.front} if state.has_front else set()
        plan, time_ms = self._plan, int(1000 * event.time)
        self._outbox = Outbox(plan.folder)
        if not self._load(self._outbox):
            self._begin_sweep(time_ms)
        devices = f"{plan.devices.count} {plan.devices.type.kind}: {plan.devices.reason}"
        tags = {"devices": devices, "data": "; ".join(plan.facts), **provenance()}
        self._put(Update(run=SWEEP, time_ms=time_ms, tags=tags, status="RUNNING"))
        self._delivery = DeliveryProcess(plan.tracking_uri, self._outbox)
        self._delivery.start()

    def _begin_sweep(self, time_ms: int) -> None:
        """Put the records that begin the sweep's run, with its settings and options as parameters."""
        plan, experiment = self._plan, self._plan.experiment
        options = option_params(plan)  # whose names a setting may have, such as scheduler
        settings = {f"set/{name}" if name in options else name: value for name, value in plan.settings.items()}
        self._put(
            records.BeginSweep(
                run=SWEEP,
                time_ms=time_ms,
                name=plan.name,
                tags={
                    "metric": experiment.metric,
                    "mode": experiment.objective.mode,
                    "kind": "sweep",
                    records.OUTBOX: str(time_ms),
                    **({records.ORIGIN: plan.origin} if plan.origin else {}),
                },
                params=_texts_of({**options, **settings}),
                tracking_uri=plan.tracking_uri,
                experiment=experiment.name,
                artifacts=artifact_folder(plan.tracking_uri, experiment.name),
                data=str(plan.settings.get("data", "")),
                facts=plan.facts,
                space=experiment.search_space.in_words(),
            )
        )

    def _load(self, outbox: Outbox) -> bool:
        """Read what an earlier process has put into the outbox, and return whether that is anything.

        After a kill it may be more than the state knows: a record is in the outbox at once, and in the log later.
        """
        has_begun = False
        for record in outbox:
            has_begun = True
            if type(record) is records.BeginRun:
                self._runs[record.tags["trial"]] = TrialRun(record.run, record.params)
            elif isinstance(record, Update) and record.report:
                run = self._runs.get(trial_in(record.run))
                if run is not None and run.name == record.run:
                    run.add(record)
        return has_begun

    def _run(self, trial: int) -> TrialRun:
        name = run_of(trial)
        return self._runs.setdefault(name, TrialRun(name, {}))  # its beginning may have been a damaged line

    def _begin_trial(self, event: events.TrialBegan, state: SweepState, time_ms: int) -> None:
        trial, params, tags = run_of(event.trial), _texts_of(event.config), {}
        run = self._runs.get(trial)
        # Later pbt may have changed the hyperparameters.
        is_other = run is not None and run.params != params and not state.trials[event.trial].metrics
        trial_id = {"trial_id": event.trial_id}
        if run is not None and not is_other:
            self._put(Update(run=run.name, time_ms=time_ms, tags=trial_id, status="RUNNING"))
            return
        if run is not None:  # a killed sweep had begun it, and has proposed another one in its place
            self._give_up(run, state, time_ms)
            tags[records.ATTEMPT] = str(run.attempt + 1)
        run = self._runs[trial] = TrialRun(run_of(event.trial, run.attempt + 1 if run else 1), params)
        confirmed_trial = event.config.get(names.CONFIRMS)
        purpose = f"confirms {run_of(confirmed_trial)} " if confirmed_trial else ""
        name = f"trial {trial} {purpose}{format_params(event.config, self._plan.experiment.display_params, digits=3)}"
        tags |= {"kind": "confirmation" if confirmed_trial else "trial", "trial": trial}
        self._put(records.BeginRun(run=run.name, time_ms=time_ms, name=name[:MAX_NAME], tags=tags, params=params))
        configuration = f"{self._plan.name} {run_of(confirmed_trial or event.trial)}"
        self._put(Update(run=run.name, time_ms=time_ms, tags={**trial_id, records.CONFIGURATION: configuration}))

    def _report(self, event: events.Reported, state: SweepState, time_ms: int) -> None:
        run, trial = self._run(event.trial), state.trials[event.trial]
        best_report = _best_report(trial, state)
        # Many loops report a best value themselves, which is not what the sweep ranks the trial by.
        values = {
            REPORTED_PREFIX + name if name in best_report or name.startswith(OWN_PREFIXES) else name: value
            for name, value in event.metrics.items()
            if name not in names.NOT_TRACKED
        }
        # MLflow's parameters of a run cannot change, but pbt changes hyperparameters: these are metrics and tags.
        first_config = trial.began_with
        changed_params = {
            PARAM_METRIC_PREFIX + name: value for name, value in event.config.items() if first_config.get(name) != value
        }
        new_best = best_report if trial.best_step == event.step else {}
        metrics = numbers_in({**new_best, **values, **changed_params})
        tags = {name: value for name, value in changed_params.items() if isinstance(value, str)}
        record = Update(run=run.name, time_ms=time_ms, step=event.step, metrics=metrics, tags=tags, report=event.count)
        if run.add(record):
            self._put(record)
        self._report_standing(state, time_ms)

    def _report_standing(self, state: SweepState, time_ms: int) -> None:
        """Put which trials have come to the front or left it, and the best value of the sweep if it is a new one."""
        front = {trial.number for trial in state.front} if state.has_front else set()
        for number in sorted(front ^ self._front):
            tags = {records.ON_FRONT: str(number in front).lower()}
            self._put(Update(run=self._run(number).name, time_ms=time_ms, tags=tags))
        self._front = front
        if state.leader is not None and state.leader != self._leader:
            self._leader = state.leader
            value, number = state.leader
            metrics, tags = {f"best_{state.objective.name}": value}, {"best_trial": str(number)}
            self._put(Update(run=SWEEP, time_ms=time_ms, step=state.counts().total(), metrics=metrics, tags=tags))

    def _give_up(self, run: TrialRun, state: SweepState, time_ms: int) -> None:
        """Put that a run is none of the sweep's any more, and has no best value."""
        metrics = dict.fromkeys(_best_report(state.trials[int(trial_in(run.name))], state), math.nan)
        tags = {STATUS: "lost"}
        self._put(Update(run=run.name, time_ms=time_ms, step=run.step, metrics=metrics, tags=tags, status="KILLED"))

    def _settled(self, trial: TrialState, state: SweepState, time_ms: int) -> TrialRun:
        """Return the run of a trial that trains no more, with its reports alone.

        A sweep that was resumed may decide otherwise than before the kill, and end a trial earlier. MLflow forgets no
        report, so the others are put again, into another run.
        """
        run = self._run(trial.number)
        if trial.config != trial.began_with or run.reports <= trial.reports:
            return run
        self._give_up(run, state, time_ms)
        new_run = TrialRun(run_of(trial.number, run.attempt + 1), run.params, trial.step)
        assert self._outbox is not None, "show() opens it when the sweep begins"
        self._writer.submit(_copy_run, self._outbox, run.name, new_run, trial.reports)
        self._runs[run_of(trial.number)] = new_run
        return new_run

    def _end_trial(self, event: events.TrialEnded, state: SweepState, time_ms: int) -> None:
        trial, tags = state.trials[event.trial], {STATUS: str(event.outcome)}
        run = self._settled(trial, state, time_ms)
        if event.failure is not None:
            tags[records.FAILURE] = event.failure.text[-MAX_TAG:]
            tags[records.FAILURE_KIND] = event.failure.kind.value
        elif event.outcome == "stopped early":
            tags[records.STOPPED_BECAUSE] = event.reason
        if state.has_front:
            tags[records.ON_FRONT] = str(trial in state.front).lower()
        metrics = {f"seconds/{kind}": s for kind, s in state.device_time.by_trial.get(event.trial, {}).items()}
        status: RunStatus = "FAILED" if event.outcome == "failed" else "FINISHED"
        # The best report again, at the largest step: MLflow sorts by what was logged last. An error may have cost the
        # best report, a clone may go back to an earlier step, and after a kill training may come out differently.
        metrics |= _best_report(trial, state) if trial.curve else {}
        self._put(Update(run=run.name, time_ms=time_ms, step=run.step, metrics=metrics, tags=tags, status=status))
        counts = {f"trials_{outcome.replace(' ', '_')}": float(state.counts()[outcome]) for outcome in ENDED}
        self._put(Update(run=SWEEP, time_ms=time_ms, step=state.counts().total(), metrics=counts))

    def _end_sweep(self, event: events.SweepEnded, state: SweepState, time_ms: int) -> None:
        for trial in state.trials.values():
            if not trial.has_ended:
                run = self._settled(trial, state, time_ms).name
                self._put(Update(run=run, time_ms=time_ms, tags={STATUS: trial.status}, status="KILLED"))
        self._put(records.LogFiles(run=SWEEP, time_ms=time_ms, files=[REPORT_FILE, SUMMARY_FILE]))  # written before
        metrics = {f"seconds/{kind}": value for kind, value in event.summary["device_seconds"].items()}
        best = event.summary["best"]
        if best is not None:
            metrics[f"best_{state.objective.name}"] = best["value"]
            if state.has_front:
                metrics |= front_metrics(state)
        tags = {} if state.ending is None else {records.ENDED_EARLY: state.ending.why}
        confirmation = event.summary.get("confirmation")
        if confirmation is not None:
            metrics |= confirmation_metrics(confirmation)
            if confirmation["gain"] is not None:
                tags[records.CONFIRMED] = verdict(confirmation)
        finished = state.complete or (state.ending is not None and state.ending.status == 0)
        status: RunStatus = "FAILED" if state.failure else "FINISHED" if finished else "KILLED"
        step = state.counts().total()
        self._put(Update(run=SWEEP, time_ms=time_ms, step=step, metrics=metrics, tags=tags, status=status))
        saved = event.summary.get("best_saved") or best
        if saved is not None and saved["checkpoint"] is not None:
            self._log_model(saved, time_ms)

    def _log_model(self, saved: Mapping[str, Any], time_ms: int) -> None:
        """Log the best checkpoint, and the model that is made from it."""
        plan, run, self._checkpoint = self._plan, self._run(saved["trial"]).name, saved["checkpoint"]
        checkpoint = os.path.relpath(self._checkpoint, plan.folder)  # which may be moved before the delivery
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
                params=_texts_of(saved["config"]),
                metric=plan.experiment.metric,
                value=saved["value"],
                step=saved[plan.budget.unit],
                register=plan.options.register,
            )
        )


@errors_are_logged("a record for MLflow could not be written, and is lost")
def _write(outbox: Outbox, record: records.Record) -> None:
    outbox.put(record)


def _texts_of(params: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in params.items()}


@errors_are_logged("a run for MLflow could not be written again")
def _copy_run(outbox: Outbox, run: str, new_run: TrialRun, reports: int) -> None:
    """Put the beginning of a run and its first reports into the outbox again, for another run."""
    copies = [replace(record, run=new_run.name) for record in outbox if record.run == run]
    tag = {records.ATTEMPT: str(new_run.attempt)}
    updates = [record for record in copies if isinstance(record, Update)]
    begin = [replace(r, tags={**r.tags, **tag}) for r in copies if isinstance(r, records.BeginRun)]
    outbox.put(*begin, *(r for r in updates if 0 < r.report <= reports or records.CONFIGURATION in r.tags))


def _best_report(trial: TrialState, state: SweepState) -> dict[str, float]:
    """Return the value that the sweep ranks a trial by and where it was reported, NaN if it has none: the last logged
    value of these metrics sorts MLflow's table as the sweep ranks its trials."""
    value, step = (trial.best, trial.best_step) if trial.best is not None else (math.nan, math.nan)
    return {f"best_{state.objective.name}": value, f"best_{state.budget.unit}": step}
