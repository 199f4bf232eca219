"""What brings a sweep's outbox to MLflow: a thread of its own."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, Metric, Param, RunTag
from mlflow.environment_variables import MLFLOW_HTTP_REQUEST_MAX_RETRIES, MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

from experiments.sweep.tracking.best_model import log_best_model
from experiments.sweep.tracking.outbox import Outbox, is_own, trial_key
from experiments.sweep.tracking.refusals import Meaning, meaning_of
from experiments.sweep.tracking.store import store_of

logger = logging.getLogger(__name__)

SEND_EVERY_S = 1.0
"""What was reported in this time travels together."""
LOOK_EVERY_S = 0.5
"""How often the end of a sweep looks whether everything is delivered."""
GIVE_UP_AFTER_S = 60
"""How long the end of a sweep waits for a tracking server that takes nothing; what is left waits on disk."""
WARN_EVERY = 60
"""After how many tries in vain to say so again."""
MAX_TRIES = 5
"""How often to send what fails in a way that nobody knows."""
PICTURES_SHARE = 0.05
"""How much of the time pictures of a running sweep take from its metrics at most, on a slow line."""
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
        self._delivery = _Delivery(self._client, outbox)

    def close(self) -> None:
        """Deliver what is left, until the server has taken nothing for :data:`GIVE_UP_AFTER_S`.

        A model that takes longer is waited for.
        """
        self._closed.set()
        while self.is_alive() and self._delivery.fails_for_s() < GIVE_UP_AFTER_S:
            self.join(LOOK_EVERY_S)

    def run(self) -> None:
        """Deliver what earlier sweeps left, then this one's records until told to close."""
        os.environ.setdefault(MLFLOW_HTTP_REQUEST_MAX_RETRIES.name, "1")  # trying again is done here
        os.environ.setdefault(MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT.name, "true")  # two lines for each trial
        own = self._delivery
        for folder in self._left:
            failure = _failure_of(partial(self._deliver_left, folder))
            if failure is not None:  # whatever is wrong with it, this sweep's records do not wait for it
                logger.error("what %s left for MLflow cannot be delivered; it stays there", folder, exc_info=failure)
        self._delivery, more = own, True
        while more:
            more = not self._closed.wait(SEND_EVERY_S)
            self._delivery.deliver_all()

    def _deliver_left(self, folder: Path) -> None:
        """Deliver what a sweep of this user left, unless it is for another store, or it runs and delivers itself."""
        if not is_own(folder):
            return
        with closing(Outbox(folder)) as outbox:  # closed, so that the sweep can be resumed
            if not (outbox.belongs_to(self._store) and outbox.take()):
                return
            logger.warning("delivering to MLflow what %s left", folder)
            self._delivery = _Delivery(self._client, outbox, waits_for_people=False)
            try:
                self._delivery.deliver_all()
            except _DeniedError as error:  # it may be another user's there; this sweep's records do not wait for it
                logger.error("MLflow does not take what %s left (%s); it stays there", folder, error)


class _DeniedError(Exception):
    """MLflow takes it when a person has mended something: a password, a right, a deleted experiment."""


class _Delivery:
    """Turns the records of one outbox into calls of MLflow."""

    def __init__(self, client: MlflowClient, outbox: Outbox, *, waits_for_people: bool = True) -> None:
        self._client, self._outbox, self._ids = client, outbox, outbox.ids
        self._waits_for_people = waits_for_people
        # Records of an earlier process may have reached MLflow without having been noted here.
        self._look_first = outbox.interrupted
        self._beginning: dict[str, Any] | None = None  # the record of the run that was made last
        self._pictures_from = 0.0  # of the monotonic clock
        self._fails_since: float | None = None  # as well

    def fails_for_s(self) -> float:
        """Return for how long MLflow has not taken what it was sent."""
        return 0.0 if self._fails_since is None else time.monotonic() - self._fails_since

    def deliver_all(self) -> None:
        """Deliver what is there, trying again while the server is away."""
        while (records := self._outbox.read()) is not None:
            self._until_done(self._outbox.keep)
            for group in _batched(records):
                self._until_done(lambda group=group: self._deliver(group))  # type: ignore[misc]
            self._until_done(self._outbox.delivered)

    def _until_done(self, send: Callable[[], None]) -> None:
        """Send, again and again if the server is away; a record that it refuses is reported and left."""
        attempt = 0
        while (failure := _failure_of(send)) is not None and not self._gives_up(failure, attempt := attempt + 1):
            self._fails_since = self._fails_since or time.monotonic()
            self._look_first = True  # it may have arrived, and only its answer been lost
            time.sleep(SEND_EVERY_S)
        self._fails_since = None

    def _gives_up(self, failure: Exception, attempt: int) -> bool:
        """Say what MLflow makes of a record, and return whether to leave it."""
        meaning, first_line = meaning_of(failure), str(failure).split("\n", maxsplit=1)[0]
        mend = self._mend(meaning)
        if mend is not None and not self._waits_for_people:
            raise _DeniedError(first_line) from failure
        if mend is None and (meaning in ("deleted", "refused") or (meaning, attempt) == ("unknown", MAX_TRIES)):
            logger.error("MLflow refused what stays in %s", self._outbox.path, exc_info=failure)
            return True
        if attempt % WARN_EVERY == 1:
            logger.warning("MLflow does not take it (%s); trying again%s", first_line, mend or "")
        return False

    def _mend(self, meaning: Meaning) -> str | None:
        """Return what a person can do so that MLflow takes it; None if that would not help."""
        if meaning == "denied":  # a password that was changed is no reason to lose a sweep
            return ", until this user's password and rights are mended"
        if meaning == "deleted" and self._experiment_is_deleted():  # and not the run alone
            return f", until the experiment is back: mlflow experiments restore --experiment-id {self._ids[EXPERIMENT]}"
        return None

    def _experiment_is_deleted(self) -> bool:
        try:
            return bool(self._client.get_experiment(self._ids[EXPERIMENT]).lifecycle_stage == "deleted")
        except MlflowException as error:  # deleted for good is refused; an answer that did not come will come
            return meaning_of(error) != "refused"

    def _deliver(self, group: list[dict[str, Any]]) -> None:
        first = group[0]
        deliver = {
            "begin sweep": self._begin_sweep,
            "begin": self._begin_trial,
            "metrics": lambda _: self._log_metrics(group),
            "progress": self._log_progress,
            "end": self._end_trial,
            "pictures": self._show_pictures,
            "end of sweep": self._end_sweep,
            "model": self._log_model,
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
        if record["data"]["source"]:
            self._client.log_inputs(self._ids[""], [DatasetInput(data_set(**record["data"]))])

    def _begin_trial(self, record: dict[str, Any]) -> None:
        tags = {MLFLOW_PARENT_RUN_ID: self._ids[""], "kind": "trial", "trial": record["trial"]}
        self._begin_run(record["trial"], tags, record)
        self._client.log_batch(self._ids[record["trial"]], tags=[RunTag("trial_id", record["trial_id"])])

    def _begin_run(self, key: str, tags: dict[str, str], record: dict[str, Any]) -> None:
        if key in self._ids and record is not self._beginning:  # it goes on, after a pause or in a resumed sweep
            self._client.update_run(self._ids[key], status="RUNNING")
            if "failure" in self._client.get_run(self._ids[key]).data.tags:  # a resumed sweep knew nothing of it
                self._client.delete_tag(self._ids[key], "failure")
            return
        self._beginning = record  # sent again if MLflow fails after it has made the run, which has no parameters then
        if key not in self._ids:
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

    def _show_pictures(self, record: dict[str, Any]) -> None:
        """Log the pictures of the sweep; while it runs, nothing waits for them: others take their place soon."""
        began = time.monotonic()
        if record["last"]:
            self._log_files(record["files"])
        elif began >= self._pictures_from:
            failure = _failure_of(lambda: self._log_files(record["files"]))
            if failure is not None:
                logger.warning("MLflow does not take the pictures (%s); others follow", str(failure).split("\n")[0])
            self._pictures_from = began + (time.monotonic() - began) / PICTURES_SHARE

    def _log_files(self, files: list[str]) -> None:
        for file in files:
            if self._is_inside(file) and Path(file).is_file():
                self._client.log_artifact(self._ids[""], file)

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
        for number in summary["interrupted"]:
            if run := self._ids.get(trial_key(number)):
                self._client.set_terminated(run, "KILLED", record["time_ms"])
        if ended := summary["ended_early"]:
            self._client.log_batch(run_id, tags=[RunTag("ended_early", ended["why"][:MAX_TAG])])
        as_asked = summary["complete"] or (ended and ended["status"] == 0)
        self._client.set_terminated(run_id, "FINISHED" if as_asked else "KILLED", record["time_ms"])
        # Last: the largest, and the likeliest to be refused.
        if best is not None and best["checkpoint"] and self._is_inside(best["checkpoint"]):
            self._client.log_artifacts(self._ids[trial_key(best["trial"])], best["checkpoint"], "checkpoint")

    def _log_model(self, record: dict[str, Any]) -> None:
        if self._is_inside(record["checkpoint"]):
            log_best_model(self._client, self._ids, record)

    def _is_inside(self, path: str) -> bool:
        """Whether a path in a record is in the sweep's own folder, wherever links lead; it is said if it is not."""
        folder = self._outbox.path.parent
        inside = Path(path).resolve().is_relative_to(folder.resolve())
        if not inside:
            logger.error("MLflow does not get %s: a record in %s names it, and it is not in that folder", path, folder)
        return inside


def _failure_of(send: Callable[[], None]) -> Exception | None:
    try:
        send()
    except Exception as error:
        return error
    return None


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


def data_set(source: str, facts: list[str]) -> Dataset:
    """Return what MLflow shows of the data of a sweep: where it is, and what the check found there, sizes included."""
    digest = hashlib.sha256(json.dumps([source, facts]).encode()).hexdigest()[:8]
    kind, found = ("local", {"uri": source}) if Path(source).exists() else ("hf", {"path": source})
    profile = json.dumps({"found": facts})
    return Dataset(Path(source).name, digest, kind, json.dumps(found), profile=profile)


def shortened(value: str) -> str:
    """Return the value of a parameter, cut to MLflow's limit with a mark that says where the whole of it is."""
    mark = f" ... ({len(value)} characters; whole in {LONG_PARAMS})"
    return value if len(value) <= MAX_PARAM else value[: MAX_PARAM - len(mark)] + mark
