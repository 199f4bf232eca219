"""MLflow: a parent run per sweep, a child run per trial, sent in batches from a thread of its own."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from ray.tune.experiment import Trial
from ray.tune.result import AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT

from experiments.sweep.endings import TellsEndings
from experiments.sweep.outcome import Outcome, number_of
from experiments.sweep.tracking_store import STORE, STORE_URI
from trainables.runtime import names

if TYPE_CHECKING:
    from experiments.sweep.plan import Plan

logger = logging.getLogger(__name__)

SEND_EVERY_S = 1.0
"""What was reported in this time travels together."""
GIVE_UP_AFTER_S = 60
"""How long the end of a sweep waits for a tracking server that does not answer."""
MAX_METRICS = 1000
"""MLflow's limit for one batch."""
NOT_METRICS = {*AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT, names.FIRST_STEP_AT, names.EPOCH, names.STEP, "trial_id"}
"""Entries of a Tune result that say nothing about the model, or are the time axis itself."""


class MlflowTracking(TellsEndings):
    """Hands what happens in a sweep to a thread that sends it. Nothing here waits, and nothing here raises."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.experiment.metric, plan.budget)
        self._plan = plan
        self._run_ids: dict[str, str] = {}  # by trial id; the sweep's own run under ""
        self._sender: _Sender | None = None

    @property
    def run_id(self) -> str | None:
        """Id of the sweep's run, None before it exists."""
        return self._run_ids.get("")

    @property
    def address(self) -> str:
        """Where a person looks at the sweep."""
        uri, local = self._plan.tracking_uri, "http://127.0.0.1:5000"
        base = uri if uri.startswith("http") else local
        start = "make ui" if uri == STORE_URI else f"mlflow ui --backend-store-uri {uri}"
        note = f"  (start the page with: {start})" if base == local else ""
        where = self._sender.experiment_id if self._sender else ""
        return f"{base.rstrip('/')}/#/experiments/{where}/runs/{self.run_id or ''}{note}"

    def setup(self, **info: Any) -> None:
        """Start the thread, which begins with the sweep's run."""
        self._sender = _Sender(self._plan, self._run_ids)
        self._sender.start()

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Begin the trial's run."""
        self._send("begin", trial, name=run_name(trial, self._plan.experiment.telling), params=dict(trial.config))

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        """Queue the metrics of one epoch."""
        values = {
            name: float(value)
            for name, value in result.items()
            if name not in NOT_METRICS and not isinstance(value, bool) and isinstance(value, Real)
        }
        self._send("metrics", trial, values=values, step=self._budget.progress(result))

    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Close the trial's run."""
        self._send("end", trial, outcome=outcome, reason=reason)

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Log the best checkpoint and the summary, close the sweep's run and wait for the thread."""
        assert self._sender is not None
        summary = json.loads(self._plan.summary_file.read_text())
        self._sender.put({"what": "end of sweep", "summary": summary, "time_ms": _now_ms()})
        self._sender.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sender": None}  # a thread cannot be copied; setup() starts it

    def _send(self, what: str, trial: Trial, **more: Any) -> None:
        assert self._sender is not None, "Tune calls setup() first"
        self._sender.put({"what": what, "trial": trial.trial_id, "time_ms": _now_ms(), **more})


def run_name(trial: Trial, telling: tuple[str, ...]) -> str:
    """Return the name of a trial's run: its number and its most telling hyperparameters."""
    return " ".join([f"trial {number_of(trial):03d}", *told(trial.config, telling)])


def told(config: Mapping[str, Any], telling: tuple[str, ...]) -> list[str]:
    """Return ``name=value`` of the given hyperparameters, numbers in three digits."""
    return [
        f"{k}={config[k]:.3g}" if isinstance(config[k], float) else f"{k}={config[k]}" for k in telling if k in config
    ]


class _Sender(threading.Thread):
    """Takes records from a queue and sends them, in order, each run's metrics together."""

    def __init__(self, plan: Plan, run_ids: dict[str, str]) -> None:
        super().__init__(name="mlflow", daemon=True)
        self._plan, self._run_ids = plan, run_ids
        self._client = MlflowClient(plan.tracking_uri)
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._running: set[str] = set()  # trials whose runs are open
        self.experiment_id = ""

    def put(self, record: dict[str, Any]) -> None:
        """Take a record; returns at once."""
        self._queue.put(record)

    def close(self) -> None:
        """Send what is left, for as long as :data:`GIVE_UP_AFTER_S` allows."""
        self._queue.put(None)
        self._closed.set()
        self.join(GIVE_UP_AFTER_S)
        if self.is_alive():
            logger.error(
                "MLflow at %s did not answer in %d s: not everything was delivered. All results are in %s.",
                self._plan.tracking_uri, GIVE_UP_AFTER_S, self._plan.folder,
            )  # fmt: skip

    def run(self) -> None:
        """Begin the sweep's run, then send until told to close."""
        self._until_done(self._begin_sweep)
        more = True
        while more:
            time.sleep(0 if self._closed.is_set() else SEND_EVERY_S)
            records, more = self._waiting_records()
            for group in _batched(records):
                self._until_done(lambda group=group: self._deliver(group))  # type: ignore[misc]

    def _waiting_records(self) -> tuple[list[dict[str, Any]], bool]:
        records = [self._queue.get()]
        while not self._queue.empty():
            records.append(self._queue.get())
        return [record for record in records if record is not None], None not in records

    def _until_done(self, send: Callable[[], None]) -> None:
        """Send, again and again if the server is away; a record that it refuses is reported and left."""
        while True:
            try:
                return send()
            except MlflowException as error:
                if error.get_http_status_code() < 500:
                    return logger.error("MLflow refused: %s", error)
                logger.warning("MLflow does not answer (%s); trying again", str(error).split("\n", maxsplit=1)[0])
            except Exception:
                return logger.exception("not delivered to MLflow")
            time.sleep(SEND_EVERY_S)

    def _begin_sweep(self) -> None:
        plan = self._plan
        known = self._client.get_experiment_by_name(plan.experiment.name)
        if known is not None:
            self.experiment_id = known.experiment_id
        else:
            artifacts = str(STORE / "artifacts" / plan.experiment.name) if plan.tracking_uri == STORE_URI else None
            self.experiment_id = self._client.create_experiment(plan.experiment.name, artifacts)
        tags = {"metric": plan.experiment.metric, "mode": plan.experiment.mode, "kind": "sweep"}
        if "" not in self._run_ids:  # else what follows failed, and is tried again
            self._run_ids[""] = self._client.create_run(self.experiment_id, None, tags, plan.name).info.run_id
        facts = {
            "recipe": plan.recipe, "device": plan.devices.type.kind, "groups": plan.groups,
            "workers_per_trial": plan.options.workers_per_trial, "num_samples": plan.num_samples,
            "search": plan.options.search, "scheduler": plan.options.scheduler, "sweep_seed": plan.options.seed,
        }  # fmt: skip
        self._client.log_batch(self._run_ids[""], params=_params({**plan.settings, **facts}))

    def _deliver(self, group: list[dict[str, Any]]) -> None:
        first = group[0]
        deliver = {
            "begin": self._begin_trial,
            "metrics": lambda _: self._log_metrics(group),
            "end": self._end_trial,
            "end of sweep": self._end_sweep,
        }[first["what"]]
        deliver(first)

    def _begin_trial(self, record: dict[str, Any]) -> None:
        trial = record["trial"]
        if trial not in self._run_ids:  # else it goes on after a pause, or what follows failed and is tried again
            tags = {MLFLOW_PARENT_RUN_ID: self._run_ids[""], "kind": "trial", "trial_id": trial}
            run = self._client.create_run(self.experiment_id, record["time_ms"], tags, record["name"])
            self._run_ids[trial] = run.info.run_id
        self._running.add(trial)
        self._client.log_batch(self._run_ids[trial], params=_params(record["params"]))

    def _log_metrics(self, group: list[dict[str, Any]]) -> None:
        values = [
            Metric(name, value, record["time_ms"], record["step"])
            for record in group
            for name, value in record["values"].items()
        ]
        for start in range(0, len(values), MAX_METRICS):
            self._client.log_batch(self._run_ids[group[0]["trial"]], metrics=values[start : start + MAX_METRICS])

    def _end_trial(self, record: dict[str, Any]) -> None:
        run_id = self._run_ids[record["trial"]]
        self._client.log_batch(run_id, tags=[RunTag("status", record["outcome"])])
        if record["reason"]:
            self._client.log_batch(run_id, tags=[RunTag("failure", record["reason"][-5000:])])
        status = "FAILED" if record["outcome"] == "failed" else "FINISHED"
        self._client.set_terminated(run_id, status, record["time_ms"])
        self._running.discard(record["trial"])

    def _end_sweep(self, record: dict[str, Any]) -> None:
        summary, run_id = record["summary"], self._run_ids[""]
        best = summary["best"]
        if best is not None:
            self._client.log_metric(run_id, f"best_{summary['metric']}", best["value"])
            self._client.log_batch(run_id, tags=[RunTag("best_trial", str(best["trial"]))])
        self._client.log_dict(run_id, summary, "summary.json")
        for trial in self._running:  # of a sweep that was interrupted
            self._client.set_terminated(self._run_ids[trial], "KILLED", record["time_ms"])
        self._client.set_terminated(run_id, "FINISHED" if summary["complete"] else "KILLED", record["time_ms"])
        if best is not None and best["checkpoint"]:  # last: the largest, and the likeliest to be refused
            self._client.log_artifacts(self._run_ids[best["trial_id"]], best["checkpoint"], "checkpoint")


def _batched(records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group the metrics of each run, keeping the order in which each run's records came."""
    groups: list[list[dict[str, Any]]] = []
    open_groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        trial = record.get("trial", "")
        if record["what"] == "metrics" and trial in open_groups:
            open_groups[trial].append(record)
            continue
        open_groups.pop(trial, None)
        groups.append([record])
        if record["what"] == "metrics":
            open_groups[trial] = groups[-1]
    return groups


def _params(values: Mapping[str, Any]) -> list[Param]:
    return [Param(name, str(value)) for name, value in values.items()]


def _now_ms() -> int:
    return int(time.time() * 1000)
