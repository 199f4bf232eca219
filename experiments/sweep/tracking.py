"""MLflow: a parent run per sweep, a child run per trial. The event loop writes to an outbox; a thread delivers."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID
from ray.tune.experiment import Trial
from ray.tune.result import AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT

from experiments.sweep.endings import TellsEndings
from experiments.sweep.errors import SweepError
from experiments.sweep.experiment import Experiment
from experiments.sweep.outbox import Outbox
from experiments.sweep.outcome import Outcome, number_of
from experiments.sweep.provenance import provenance
from experiments.sweep.searcher import distributions_of
from experiments.sweep.tracking_store import NOT_ALLOWED, STORE, STORE_URI, UNKNOWN_USER, store_of
from trainables.runtime import names

if TYPE_CHECKING:
    from experiments.sweep.ledger import Ledger
    from experiments.sweep.plan import Plan

logger = logging.getLogger(__name__)

SEND_EVERY_S = 1.0
"""What was reported in this time travels together."""
GIVE_UP_AFTER_S = 60
"""How long the end of a sweep waits for a tracking server that does not answer; what is left waits on disk."""
EXPERIMENT = "experiment"
"""Where an outbox keeps the id of the experiment, among the ids of the runs."""
MAX_TAG = 5000
"""MLflow's limit for the length of a tag."""
MAX_METRICS = 1000
"""MLflow's limit for one batch."""
MAX_PARAM = 6000
"""MLflow's limit for the length of a parameter's value; it cuts off without a mark what is longer."""
LONG_PARAMS = "long_parameters.json"
"""The artifact with the whole values of parameters that are longer."""
NOT_METRICS = {
    *AUTO_RESULT_KEYS, DONE, SHOULD_CHECKPOINT, names.FIRST_STEP_AT, names.ORDERED_AT, names.REPORTED_AT, names.EPOCH,
    names.STEP, "trial_id",
}  # fmt: skip
"""Entries of a Tune result that say nothing about the model, or are the time axis itself."""


class MlflowTracking(TellsEndings):
    """Writes what happens in a sweep to its outbox. Nothing here waits for MLflow, and nothing here raises."""

    def __init__(self, plan: Plan, ledger: Ledger) -> None:
        super().__init__(plan.experiment.metric, plan.budget)
        self._plan, self._ledger = plan, ledger
        self._told: dict[str, int] = {}  # how far each trial's metrics are written down
        self._sender: Sender | None = None
        self._ids: dict[str, str] = {}
        self._ended: dict[str, Outcome] = {}
        self._best: float | None = None

    @property
    def address(self) -> str:
        """Where a person looks at the sweep."""
        uri, local = self._plan.tracking_uri, "http://127.0.0.1:5000"
        base = uri if uri.startswith("http") else local
        start = "make ui" if uri == STORE_URI else f"mlflow ui --backend-store-uri {uri}"
        note = f"  (start the page with: {start})" if base == local else ""
        return f"{base.rstrip('/')}/#/experiments/{self._ids.get(EXPERIMENT, '')}/runs/{self._ids.get('', '')}{note}"

    def setup(self, **info: Any) -> None:
        """Start the thread, which begins with what earlier sweeps left, and goes on with this one's run."""
        plan = self._plan
        outbox = Outbox(plan.folder)
        if not outbox.take():
            raise SweepError(f"{plan.folder}: another process runs this sweep; wait for it, or end it first")
        self._ids = outbox.ids
        self._remember(outbox)
        facts = {
            "recipe": plan.recipe, "device": plan.devices.type.kind, "groups": plan.groups,
            "workers_per_trial": plan.options.workers_per_trial, "num_samples": plan.num_samples,
            "search": plan.options.search, "scheduler": plan.options.scheduler, "sweep_seed": plan.options.seed,
        }  # fmt: skip
        artifacts = str(STORE / "artifacts" / plan.experiment.name) if plan.tracking_uri == STORE_URI else None
        outbox.put(
            {
                "what": "begin sweep",
                "store": store_of(plan.tracking_uri),
                "experiment": plan.experiment.name,
                "artifacts": artifacts,
                "name": plan.name,
                "tags": {"metric": plan.experiment.metric, "mode": plan.experiment.mode, "kind": "sweep"},
                "about": {"devices": plan.devices.reason, "data": "; ".join(plan.facts), **provenance()},
                "space": space_in_words(plan.experiment),
                "params": {name: str(value) for name, value in {**plan.settings, **facts}.items()},
                "outbox": outbox.mark,
                "time_ms": _now_ms(),
            }
        )
        left = [folder for folder in Outbox.left_in(plan.folder.parent) if folder != plan.folder]
        self._sender = Sender(plan.tracking_uri, outbox, left)
        self._sender.start()

    def _remember(self, outbox: Outbox) -> None:
        """Take from the outbox of a resumed sweep what was written down before, which may be more than Tune knows."""
        for record in outbox.all():
            if record["what"] == "metrics":
                self._told[record["trial"]] = record["step"]
            elif record["what"] == "end":
                self._ended[record["trial"]] = record["outcome"]
            elif record["what"] == "progress":
                self._best = record["values"].get(f"best_{self._metric}", self._best)

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Begin the trial's run."""
        params = {name: str(value) for name, value in trial.config.items()}
        self._send(
            "begin", trial, name=run_name(trial, self._plan.experiment.telling), params=params, trial_id=trial.trial_id
        )

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: Mapping[str, Any], **info: Any
    ) -> None:
        """Write down the metrics of one report, unless a trial that was lost comes by here again."""
        step = self._budget.progress(result)
        if step <= self._told.get(key_of(trial), 0):
            return
        self._told[key_of(trial)] = step
        values = {
            name: float(value)
            for name, value in result.items()
            if name not in NOT_METRICS and not isinstance(value, bool) and isinstance(value, Real)
        }
        self._send("metrics", trial, values=values, step=step)
        value = values.get(self._metric, math.nan)
        if math.isfinite(value) and (self._best is None or self._plan.experiment.better(value, than=self._best)):
            self._best = value
            self._send("progress", trial, values={f"best_{self._metric}": value}, tags={"best_trial": number_of(trial)})

    def trial_ended(self, trial: Trial, outcome: Outcome, reason: str | None) -> None:
        """Close the trial's run."""
        seconds = {f"seconds/{kind}": value for kind, value in self._ledger.by_trial[number_of(trial)].items()}
        step = self._told.get(key_of(trial), 0)
        self._send("end", trial, outcome=outcome, reason=reason, values=seconds, step=step)
        self._ended[key_of(trial)] = outcome
        kinds = Counter(self._ended.values())
        counts = {f"trials_{kind.replace(' ', '_')}": float(count) for kind, count in kinds.items()}
        self._send("progress", trial, values=counts, tags={})

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Log the best checkpoint and the summary, close the sweep's run and wait for the thread."""
        assert self._sender is not None
        summary = json.loads(self._plan.summary_file.read_text())
        timeline = str(self._plan.timeline_file)
        self._sender.outbox.put(
            {"what": "end of sweep", "summary": summary, "timeline": timeline, "time_ms": _now_ms()}
        )
        self._sender.close()
        if self._sender.outbox.waiting:
            logger.error(
                "MLflow at %s did not answer in %d s: not everything was delivered. It waits in %s, and goes out with "
                "the next sweep that has the same --storage and --tracking-uri.",
                self._plan.tracking_uri, GIVE_UP_AFTER_S, self._plan.folder,
            )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sender": None}  # a thread cannot be copied; setup() starts it

    def _send(self, what: str, trial: Trial, **more: Any) -> None:
        assert self._sender is not None, "Tune calls setup() first"
        at = {"time_ms": _now_ms(), "ended": len(self._ended)}
        self._sender.outbox.put({"what": what, "trial": key_of(trial), **at, **more})


def key_of(trial: Trial) -> str:
    """Return what tells a trial from the others of its sweep, in its outbox and in MLflow.

    Its number, and not Tune's id: a trial that began after the last snapshot of an interrupted sweep is proposed again
    with the same number and configuration and another id, and goes on with its run.
    """
    return f"{number_of(trial):03d}"


def space_in_words(experiment: Experiment) -> dict[str, str]:
    """Return the range of each hyperparameter, for people."""
    if callable(experiment.space):
        return {"function": str(experiment.space)}
    return {name: str(distribution) for name, distribution in distributions_of(experiment.space).items()}


def run_name(trial: Trial, telling: tuple[str, ...]) -> str:
    """Return the name of a trial's run: its number and its most telling hyperparameters."""
    return " ".join([f"trial {number_of(trial):03d}", *told(trial.config, telling)])


def told(config: Mapping[str, Any], telling: tuple[str, ...]) -> list[str]:
    """Return ``name=value`` of the given hyperparameters, numbers in three digits."""
    return [
        f"{k}={config[k]:.3g}" if isinstance(config[k], float) else f"{k}={config[k]}" for k in telling if k in config
    ]


class Sender(threading.Thread):
    """Delivers the records of an outbox in order, each run's metrics together, for as long as that takes."""

    def __init__(self, tracking_uri: str, outbox: Outbox, left: list[Path]) -> None:
        """Prepare to deliver.

        Args:
            tracking_uri: Where to.
            outbox: Of the sweep that runs.
            left: Folders of sweeps whose records were not all delivered.
        """
        super().__init__(name="mlflow", daemon=True)
        self.outbox, self._left = outbox, left
        self._client, self._store = MlflowClient(tracking_uri), store_of(tracking_uri)
        self._closed = threading.Event()

    def close(self) -> None:
        """Deliver what is left, for as long as :data:`GIVE_UP_AFTER_S` allows."""
        self._closed.set()
        self.join(GIVE_UP_AFTER_S)

    def run(self) -> None:
        """Deliver what earlier sweeps left, then this one's records until told to close."""
        os.environ.setdefault(MLFLOW_HTTP_REQUEST_MAX_RETRIES.name, "1")  # trying again is done here
        for folder in self._left:
            with closing(Outbox(folder)) as outbox:  # closed, so that the sweep can be resumed
                self._deliver_left(outbox, folder)
        delivery, more = _Delivery(self._client, self.outbox), True
        while more:
            more = not self._closed.wait(SEND_EVERY_S)
            delivery.deliver_all()

    def _deliver_left(self, outbox: Outbox, folder: Path) -> None:
        """Deliver what a sweep left, unless it is for another store, or the sweep runs and delivers itself."""
        if not (outbox.belongs_to(self._store) and outbox.take()):
            return
        logger.warning("delivering to MLflow what %s left", folder)
        try:
            _Delivery(self._client, outbox, waits_for_rights=False).deliver_all()
        except _DeniedError as error:  # it may be another user's; this sweep's records do not wait for it
            logger.error("MLflow does not take what %s left (%s); it stays there", folder, error)


class _DeniedError(Exception):
    """MLflow does not take this user's password, or does not let the user log there."""


class _Delivery:
    """Turns the records of one outbox into calls of MLflow."""

    def __init__(self, client: MlflowClient, outbox: Outbox, *, waits_for_rights: bool = True) -> None:
        self._client, self._outbox, self._ids = client, outbox, outbox.ids
        self._waits_for_rights = waits_for_rights
        # Records of an earlier process may have reached MLflow without having been noted here.
        self._look_first = outbox.interrupted

    def deliver_all(self) -> None:
        """Deliver what is there, trying again while the server is away."""
        while records := self._outbox.read():
            for group in _batched(records):
                self._until_done(lambda group=group: self._deliver(group))  # type: ignore[misc]
            self._outbox.delivered()

    def _until_done(self, send: Callable[[], None]) -> None:
        """Send, again and again if the server is away; a record that it refuses is reported and left."""
        while True:
            try:
                return send()
            except MlflowException as error:
                status, first_line = error.get_http_status_code(), str(error).split("\n", maxsplit=1)[0]
                if status in (UNKNOWN_USER, NOT_ALLOWED):  # a password that was changed is no reason to lose a sweep
                    if not self._waits_for_rights:
                        raise _DeniedError(first_line) from error
                elif status < 500:
                    return logger.error("MLflow refused: %s", error)
                logger.warning("MLflow does not answer (%s); trying again", first_line)
            except FileNotFoundError as error:
                return logger.error("not delivered to MLflow: %s", error)  # a checkpoint that someone removed
            except OSError as error:  # artifacts travel past MLflow's own errors: connections, full disks
                logger.warning("MLflow does not take files (%s); trying again", error)
            except Exception:
                return logger.exception("not delivered to MLflow")
            self._look_first = True  # it may have arrived, and only its answer been lost
            time.sleep(SEND_EVERY_S)

    def _deliver(self, group: list[dict[str, Any]]) -> None:
        first = group[0]
        deliver = {
            "begin sweep": self._begin_sweep,
            "begin": self._begin_trial,
            "metrics": lambda _: self._log_metrics(group),
            "progress": self._log_progress,
            "end": self._end_trial,
            "end of sweep": self._end_sweep,
        }[first["what"]]
        deliver(first)

    def _begin_sweep(self, record: dict[str, Any]) -> None:
        known = self._client.get_experiment_by_name(record["experiment"])
        if known is None:
            self._ids[EXPERIMENT] = self._client.create_experiment(record["experiment"], record["artifacts"])
        else:
            self._ids[EXPERIMENT] = known.experiment_id
        # By its name: another sweep of that name would have another folder, and no outbox in this one.
        self._begin_run("", {**record["tags"], "outbox": record["outbox"]}, record)
        about = [RunTag(name, value[:MAX_TAG]) for name, value in record["about"].items()]
        self._client.log_batch(self._ids[""], tags=about)
        self._client.log_dict(self._ids[""], record["space"], "space.json")

    def _begin_trial(self, record: dict[str, Any]) -> None:
        tags = {MLFLOW_PARENT_RUN_ID: self._ids[""], "kind": "trial", "trial": record["trial"]}
        self._begin_run(record["trial"], tags, record)
        self._client.log_batch(self._ids[record["trial"]], tags=[RunTag("trial_id", record["trial_id"])])

    def _begin_run(self, key: str, tags: dict[str, str], record: dict[str, Any]) -> None:
        if key in self._ids:  # it goes on, after a pause or in a resumed sweep
            self._client.update_run(self._ids[key], status="RUNNING")
            return
        self._ids[key] = self._existing(tags) or self._create(tags, record)
        params = record["params"]
        self._client.log_batch(self._ids[key], params=[Param(name, shortened(value)) for name, value in params.items()])
        if long := {name: value for name, value in params.items() if len(value) > MAX_PARAM}:
            self._client.log_dict(self._ids[key], long, LONG_PARAMS)

    def _existing(self, tags: dict[str, str]) -> str | None:
        if not self._look_first:
            return None
        wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
        found = self._client.search_runs([self._ids[EXPERIMENT]], wanted, max_results=1)
        return str(found[0].info.run_id) if found else None

    def _create(self, tags: dict[str, str], record: dict[str, Any]) -> str:
        run = self._client.create_run(self._ids[EXPERIMENT], record["time_ms"], tags, record["name"])
        return str(run.info.run_id)

    def _log_metrics(self, group: list[dict[str, Any]]) -> None:
        # MLflow keeps a value once that has the same name, time and step, so that it may be sent again.
        values = [
            Metric(name, value, record["time_ms"], record["step"])
            for record in group
            for name, value in record["values"].items()
        ]
        for start in range(0, len(values), MAX_METRICS):
            self._client.log_batch(self._ids[group[0]["trial"]], metrics=values[start : start + MAX_METRICS])

    def _log_progress(self, record: dict[str, Any]) -> None:
        """Tell the sweep's run how far it is; its step counts the trials that have ended."""
        values = [Metric(name, value, record["time_ms"], record["ended"]) for name, value in record["values"].items()]
        tags = [RunTag(name, str(value)) for name, value in record["tags"].items()]
        self._client.log_batch(self._ids[""], metrics=values, tags=tags)

    def _end_trial(self, record: dict[str, Any]) -> None:
        run_id = self._ids[record["trial"]]
        seconds = [Metric(name, value, record["time_ms"], record["step"]) for name, value in record["values"].items()]
        self._client.log_batch(run_id, metrics=seconds, tags=[RunTag("status", record["outcome"])])
        if record["reason"]:
            self._client.log_batch(run_id, tags=[RunTag("failure", record["reason"][-MAX_TAG:])])
        status = "FAILED" if record["outcome"] == "failed" else "FINISHED"
        self._client.set_terminated(run_id, status, record["time_ms"])

    def _end_sweep(self, record: dict[str, Any]) -> None:
        summary, run_id = record["summary"], self._ids[""]
        best = summary["best"]
        if best is not None:
            ended = sum(summary["trials"].values())
            self._client.log_metric(run_id, f"best_{summary['metric']}", best["value"], record["time_ms"], ended)
            self._client.log_batch(run_id, tags=[RunTag("best_trial", str(best["trial"]))])
        seconds = summary["device_seconds"].items()
        values = [Metric(f"seconds/{kind}", value, record["time_ms"], 0) for kind, value in seconds]
        self._client.log_batch(run_id, metrics=values)
        self._client.log_dict(run_id, summary, "summary.json")
        if Path(record["timeline"]).is_file():
            self._client.log_artifact(run_id, record["timeline"])
        for number in summary["interrupted"]:
            if run := self._ids.get(f"{number:03d}"):
                self._client.set_terminated(run, "KILLED", record["time_ms"])
        self._client.set_terminated(run_id, "FINISHED" if summary["complete"] else "KILLED", record["time_ms"])
        if best is not None and best["checkpoint"]:  # last: the largest, and the likeliest to be refused
            self._client.log_artifacts(self._ids[f"{best['trial']:03d}"], best["checkpoint"], "checkpoint")


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


def shortened(value: str) -> str:
    """Return the value of a parameter, cut to MLflow's limit with a mark that says where the whole of it is."""
    mark = f" ... ({len(value)} characters; whole in {LONG_PARAMS})"
    return value if len(value) <= MAX_PARAM else value[: MAX_PARAM - len(mark)] + mark


def _now_ms() -> int:
    return int(time.time() * 1000)
