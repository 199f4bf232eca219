"""A sweep in MLflow: a parent run for the sweep, a child run for each trial."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any

from gaudi_tune.base import names
from gaudi_tune.base.words import format_params
from gaudi_tune.define.options import IN_CHECKOUT
from gaudi_tune.define.sweep_plan import Plan
from gaudi_tune.show.confirmation import verdict
from gaudi_tune.show.trackers import records
from gaudi_tune.show.trackers.best_model import load_line
from gaudi_tune.show.trackers.delivery import GIVE_UP_AFTER_S, Sender
from gaudi_tune.show.trackers.mlflow_runs import (
    EXPERIMENT,
    FAILURE,
    MAX_NAME,
    MAX_TAG,
    ON_FRONT,
    STATUS,
    STOPPED_BECAUSE,
)
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.provenance import provenance
from gaudi_tune.show.trackers.records import SWEEP, RunStatus, Update, run_of
from gaudi_tune.show.trackers.store import STORE_URI, artifacts_of
from gaudi_tune.sweep.record import events
from gaudi_tune.sweep.record.sweep_state import SweepState
from gaudi_tune.sweep.record.trial_state import trial_name
from gaudi_tune.training.profiling import TRACE_FILE

logger = logging.getLogger(__name__)

NOT_METRICS = {names.FIRST_STEP_AT, names.STEP_SECONDS, names.EPOCH, names.STEP, names.SECOND}
"""Entries of a report that say nothing about the model, or are the time axis itself."""
CHANGED = "hyperparameters/"
"""Before the name of a hyperparameter that changes while a trial trains, and so is a metric of it."""


class MlflowTracker:
    """Writes what happens in a sweep to its outbox, from which a thread delivers it: nothing here waits for MLflow."""

    name = "mlflow"

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._outbox: Outbox | None = None  # None before the sweep begins
        self._sender: Sender | None = None
        # What is in the outbox, which after a crash may be more than the state knows.
        self._begun: set[str] = set()  # runs
        self._steps: dict[str, int] = {}  # of the last report, by run
        self._counts: dict[str, int] = {}  # likewise, which report that was; only of this process
        self._configs: dict[str, dict[str, Any]] = {}  # likewise
        self._best: tuple[float, int] | None = None  # value and number of the trial
        self._front: set[str] = set()  # runs of the trials on it, with several objectives
        self._checkpoint: str | None = None  # that the model is made of

    @property
    def address(self) -> str:
        """Where a person looks at the sweep."""
        uri = self._plan.tracking_uri
        base = uri.rstrip("/") if uri.startswith("http") else "http://127.0.0.1:5000"
        ids = self._outbox.ids if self._outbox is not None else {}
        return f"{base}/#/experiments/{ids.get(EXPERIMENT, '')}/runs/{ids.get(SWEEP, '')}"

    @property
    def hint(self) -> str:
        """How to start the page, where no server runs."""
        uri = self._plan.tracking_uri
        if uri.startswith("http"):
            return ""
        ours = uri == STORE_URI and IN_CHECKOUT
        return f"start the page with: {'make ui' if ours else f'mlflow ui --backend-store-uri {uri}'}"

    def load_line(self) -> str | None:
        """Return the Python that loads the best trial's model from MLflow; None if MLflow does not have it."""
        if self._outbox is None or self._checkpoint is None:
            return None
        return load_line(self._outbox.ids, self._checkpoint, self._plan.tracking_uri, self._plan.options.register)

    def show(self, event: events.Event, state: SweepState) -> None:
        """Write down what MLflow needs of an event."""
        if isinstance(event, events.SweepBegan):
            self._open(event)
        if self._outbox is None:  # it could not be opened, which was logged
            return
        at = int(1000 * event.time)
        match event:
            case events.TrialBegan():
                self._begin_trial(event, at)
            case events.Reported():
                self._report(event, state, at)
            case events.TrialEnded():
                self._end_trial(event, state, at)
            case events.PicturesDrawn():
                files = [self._inside(file) for file in event.files]
                self._put(records.LogFiles(run=SWEEP, time_ms=at, files=files, may_be_skipped=not event.last))
            case events.SweepEnded():
                self._end_sweep(event, state, at)

    def tick(self, state: SweepState) -> None:
        """Do nothing: a thread delivers."""

    def close(self) -> None:
        """Wait until everything is delivered, or MLflow has taken nothing for a minute."""
        if self._outbox is None or self._sender is None:
            return
        self._sender.close()
        if self._outbox.waiting:
            uri = self._plan.tracking_uri
            where = "" if uri == STORE_URI and IN_CHECKOUT else f" --tracking-uri {uri}"
            logger.error(
                "MLflow at %s accepted nothing for %d s; the rest waits on disk. Deliver it with: "
                "gaudi-tune deliver %s%s",
                uri, GIVE_UP_AFTER_S, self._plan.folder, where,
            )  # fmt: skip
        if not self._sender.is_alive():
            self._outbox.close()

    def _put(self, record: records.Record) -> None:
        assert self._outbox is not None, "show() opens it when the sweep begins"
        self._outbox.put(record)

    def _open(self, event: events.SweepBegan) -> None:
        """Open the outbox, begin the sweep's run or go on with it, and start the thread."""
        plan, at = self._plan, int(1000 * event.time)
        self._outbox = Outbox(plan.folder)
        self._read_back(self._outbox)
        if SWEEP not in self._begun:
            experiment, options = plan.experiment, plan.options
            facts = {
                "device": plan.devices.type.kind, "groups": plan.groups,
                **({"recipe": plan.recipe} if plan.experiment.has_recipes else {}),
                "workers_per_trial": options.workers_per_trial, "num_samples": plan.num_samples,
                "search": options.search, "scheduler": options.scheduler, "sweep_seed": options.seed,
                **({"objectives": ", ".join(map(str, plan.objectives))} if plan.has_front else {}),
                **({"learn_from": ", ".join(options.learn_from)} if options.learn_from else {}),
            }  # fmt: skip
            self._put(
                records.BeginSweep(
                    run=SWEEP,
                    time_ms=at,
                    name=plan.name,
                    # The last one because another sweep may have had this name.
                    tags={"metric": experiment.metric, "mode": experiment.mode, "kind": "sweep", "outbox": str(at)},
                    params={_named(name): str(value) for name, value in {**plan.settings, **facts}.items()},
                    tracking_uri=plan.tracking_uri,
                    experiment=experiment.name,
                    artifacts=artifacts_of(plan.tracking_uri, experiment.name),
                    data=str(plan.settings.get("data", "")),
                    facts=plan.facts,
                )
            )
            space = experiment.search_space.in_words()
            self._put(records.LogDocument(run=SWEEP, time_ms=at, name="space.json", content=space))
        about = {"devices": plan.devices.reason, "data": "; ".join(plan.facts), **provenance()}
        self._put(Update(run=SWEEP, time_ms=at, tags=about, status="RUNNING"))
        self._sender = Sender(plan.tracking_uri, self._outbox)
        self._sender.start()

    def _read_back(self, outbox: Outbox) -> None:
        self._begun = set(outbox.ids)
        for record in outbox:
            if isinstance(record, records.BeginRun):
                self._begun.add(record.run)
            elif isinstance(record, Update) and "best_trial" in record.tags:
                (value,) = record.metrics.values()
                self._best = value, int(record.tags["best_trial"])
            elif isinstance(record, Update) and ON_FRONT in record.tags:
                self._front ^= {record.run}  # it joins or leaves
            elif isinstance(record, Update) and record.run != SWEEP and record.metrics and record.status is None:
                self._steps[record.run] = max(record.step, self._steps.get(record.run, -1))

    def _begin_trial(self, event: events.TrialBegan, at: int) -> None:
        run, trial_id = run_of(event.trial), {"trial_id": event.trial_id}
        if run in self._begun:
            self._put(Update(run=run, time_ms=at, tags=trial_id, status="RUNNING"))
            return
        self._begun.add(run)
        params = {_named(name): str(value) for name, value in event.config.items()}
        again = f"confirms {run_of(confirms)} " if (confirms := event.config.get(names.CONFIRMS)) else ""
        name = f"trial {run} {again}{format_params(event.config, self._plan.experiment.display_params, digits=3)}"
        about = {"kind": "trial", "trial": run}
        self._put(records.BeginRun(run=run, time_ms=at, name=name[:MAX_NAME], tags=about, params=params))
        self._put(Update(run=run, time_ms=at, tags=trial_id))

    def _report(self, event: events.Reported, state: SweepState, at: int) -> None:
        run = run_of(event.trial)
        # A trial that lost its workers makes its last reports again. One that took over another's weights may go back,
        # too, but with another configuration.
        took_over = self._configs.get(run, event.config) != event.config
        self._configs[run] = dict(event.config)
        known, step = self._counts.get(run, math.inf), self._steps.get(run, -1)
        if took_over or event.step > step or (event.step == step and event.count > known):
            self._steps[run], self._counts[run] = event.step, event.count
            values = {name: value for name, value in event.metrics.items() if name not in NOT_METRICS}
            # Parameters of a run cannot change; pbt changes hyperparameters.
            began_with = state.trials[event.trial].began_with
            changed = {CHANGED + name: value for name, value in event.config.items() if began_with.get(name) != value}
            metrics = numbers_in({**values, **changed})
            words = {name: value for name, value in changed.items() if isinstance(value, str)}
            self._put(Update(run=run, time_ms=at, step=event.step, metrics=metrics, tags=words))
        front = {run_of(trial.number) for trial in state.front} if state.others else set()
        for other in sorted(front ^ self._front):
            self._put(Update(run=other, time_ms=at, tags={ON_FRONT: str(other in front).lower()}))
        self._front = front
        if (best := state.leader) is not None and best != self._best:
            self._best = best
            metrics, tags = {_named(f"best_{state.objective.name}"): best[0]}, {"best_trial": str(best[1])}
            self._put(Update(run=SWEEP, time_ms=at, step=state.counts().total(), metrics=metrics, tags=tags))

    def _end_trial(self, event: events.TrialEnded, state: SweepState, at: int) -> None:
        run, tags = run_of(event.trial), {STATUS: str(event.outcome)}
        if event.outcome == "failed":
            tags[FAILURE] = event.reason[-MAX_TAG:]
        elif event.outcome == "stopped early":
            tags[STOPPED_BECAUSE] = event.reason
        seconds = {f"seconds/{kind}": s for kind, s in state.device_time.by_trial.get(event.trial, {}).items()}
        status: RunStatus = "FAILED" if event.outcome == "failed" else "FINISHED"
        step = self._steps.get(run, 0)
        self._put(Update(run=run, time_ms=at, step=step, metrics=seconds, tags=tags, status=status))
        if (wanted := self._plan.options.profiled) is not None and wanted[0] == event.trial:
            trace = self._plan.folder / trial_name(event.trial) / TRACE_FILE  # left out where there is none
            self._put(records.LogFiles(run=run, time_ms=at, files=[self._inside(trace)]))
        counts = {f"trials_{outcome.replace(' ', '_')}": float(count) for outcome, count in state.counts().items()}
        self._put(Update(run=SWEEP, time_ms=at, step=state.counts().total(), metrics=counts))

    def _end_sweep(self, event: events.SweepEnded, state: SweepState, at: int) -> None:
        for trial in state.trials.values():
            if not trial.has_ended:
                self._put(Update(run=run_of(trial.number), time_ms=at, tags={STATUS: trial.status}, status="KILLED"))
        self._put(records.LogDocument(run=SWEEP, time_ms=at, name="summary.json", content=dict(event.summary)))
        metrics = {f"seconds/{kind}": value for kind, value in event.summary["device_seconds"].items()}
        best = event.summary["best"]
        if best is not None:
            metrics[_named(f"best_{state.objective.name}")] = best["value"]
            for place, other in enumerate(state.others, start=1):
                on_front = [trial.point[place] for trial in state.front]
                metrics |= {
                    _named(f"best_{other.name}"): max(on_front, key=other.score),
                    "trials_on_front": len(on_front),
                }
        tags = {"ended_early": state.ending.why} if state.ending is not None else {}
        if (confirmation := event.summary.get("confirmation")) is not None:
            shown = {"baseline": confirmation["baseline"], "winner": next(iter(confirmation["rivals"]), None)}
            for who, row in shown.items():
                means = {confirmation["metric"]: row, **row.get("others", {})} if row else {}
                metrics |= {_named(f"confirmed/{name} of {who}"): of["mean"] for name, of in means.items()}
            if (gain := confirmation["gain"]) is not None:
                metrics["confirmed/gain"] = gain["mean"]
                tags["confirmed"] = verdict(confirmation)
        as_asked = state.complete or (state.ending is not None and state.ending.status == 0)
        status: RunStatus = "FAILED" if state.failure else "FINISHED" if as_asked else "KILLED"
        step = state.counts().total()
        self._put(Update(run=SWEEP, time_ms=at, step=step, metrics=metrics, tags=tags, status=status))
        if best is not None and best["checkpoint"] is not None:
            self._log_model(best, at)

    def _inside(self, path: str | os.PathLike[str]) -> str:
        """Return a path as records have it, in the sweep's folder, which may be moved before they are delivered."""
        return os.path.relpath(path, self._plan.folder)

    def _log_model(self, best: Mapping[str, Any], at: int) -> None:
        """Log the best trial's checkpoint, and the model that is made of it."""
        plan, run, self._checkpoint = self._plan, run_of(best["trial"]), best["checkpoint"]
        checkpoint = self._inside(self._checkpoint)
        self._put(records.LogFiles(run=run, time_ms=at, files=[checkpoint], folder="checkpoint"))
        load = plan.experiment.predictor
        if load is None:  # the experiment does not say how one predicts
            return
        self._put(
            records.LogModel(
                run=run,
                time_ms=at,
                sweep=plan.name,
                checkpoint=checkpoint,
                loaded_by=f"{load.__module__}:{load.__qualname__}",
                params={name: str(value) for name, value in best["config"].items()},
                metric=_named(plan.experiment.metric),
                value=best["value"],
                step=best[plan.budget.unit],
                register=plan.options.register,
            )
        )


def numbers_in(entries: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries that are numbers, under names that MLflow takes."""
    flags = {name for name, value in entries.items() if isinstance(value, bool)}
    return {_named(k): float(v) for k, v in entries.items() if isinstance(v, Real) and k not in flags}


def _named(name: str) -> str:
    """Return a name that MLflow takes; for another, such as ``acc@1`` or ``val/``, it refuses a whole batch."""
    parts = re.sub(r"[^\w\-. :/]", "_", name).split("/")
    return "/".join(part for part in parts if part not in ("", ".", ".."))[:MAX_NAME] or "_"
