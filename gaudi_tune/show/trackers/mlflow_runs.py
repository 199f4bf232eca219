"""Records as calls of MLflow: the runs of one sweep, and whether to try again what MLflow does not take."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import cast

from mlflow.entities import Dataset, DatasetInput, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from requests import HTTPError

from gaudi_tune.private.mlflow import MLFLOW_PARENT_RUN_ID, says_deleted
from gaudi_tune.show.trackers import records
from gaudi_tune.show.trackers.best_model import log_best_model
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.records import SWEEP

logger = logging.getLogger(__name__)

PICTURES_SHARE = 0.05
"""How much of the time pictures of a running sweep take from its metrics at most, on a slow line."""
EXPERIMENT = "experiment"
"""Where an outbox keeps the id of the experiment, among the ids of the runs."""
STATUS, FAILURE, STOPPED_BECAUSE = "status", "failure", "stopped_because"
"""Tags of a trial's run that say how it ended."""
ON_FRONT = "pareto_front"
"""Tag of a trial's run in a sweep of several objectives that is on the front ("true"), or was ("false")."""
MAX_NAME = 250
"""MLflow's limit for the length of a name, of a run or a metric. SQLite takes longer ones, PostgreSQL does not."""
MAX_TAG = 5000
"""MLflow's limit for the length of a tag."""
MAX_METRICS = 800
"""Metrics in one batch: MLflow takes 1000 entries, up to 100 of them tags and 100 parameters."""
MAX_PARAM = 6000
"""MLflow's limit for the length of a parameter's value; it cuts off without a mark what is longer."""
LONG_PARAMS = "long_parameters.json"
"""The artifact with the whole values of parameters that are longer."""

PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
"""Answers that blame the request and mean the moment."""
DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
MAX_TRIES = 5
"""How often to send what fails for an unknown reason."""


class MlflowRuns:
    """The runs of a sweep in MLflow. Every call may be repeated: nothing is made or logged twice."""

    def __init__(self, client: MlflowClient, outbox: Outbox) -> None:
        self._client, self._folder, self._ids = client, outbox.folder, outbox.ids
        # Records of an earlier process may have reached MLflow without having been noted here.
        self._look_first = outbox.reopened
        self._pictures_from = 0.0  # of the monotonic clock

    def deliver(self, group: Sequence[records.Record]) -> None:
        """Send a record, or several of one run: its begin, updates and end, of which only the last has a status.

        Each call of MLflow takes 10 to 30 ms with SQLite, nearly whatever it brings. See :meth:`why_try_again` for
        errors.
        """
        try:
            match group[0]:
                case records.BeginSweep() as record:
                    self._begin_sweep(record)
                case records.BeginRun() as record:
                    parent = {MLFLOW_PARENT_RUN_ID: self._ids[SWEEP]}
                    self._begin_run(record, {**parent, **record.tags}, cast("Sequence[records.Update]", group[1:]))
                case records.Update():
                    updates = cast("Sequence[records.Update]", group)
                    self._log(self._ids[group[0].run], updates, _tags_in(updates))
                case records.LogFiles() as record:
                    self._log_files(record)
                case records.LogDocument() as record:
                    self._client.log_dict(self._ids[record.run], record.content, record.name)
                case records.LogModel() as record:
                    if self._is_inside(record.checkpoint):
                        checkpoint = str(self._folder / record.checkpoint)
                        log_best_model(self._client, self._ids, replace(record, checkpoint=checkpoint))
        except Exception:
            self._look_first = True  # it may have arrived, and only its answer been lost
            raise

    def why_try_again(self, error: Exception, attempt: int) -> str | None:
        """Return until when an error of MLflow's client lasts, in words, "" if only time will tell; None if the record
        would be refused again."""
        if isinstance(error, MlflowException) and says_deleted(error):
            return self._until_restored(attempt)
        if isinstance(error, MlflowException):
            status = error.get_http_status_code()
        elif isinstance(error, HTTPError) and error.response is not None:  # artifacts travel past MLflow's own errors
            status = error.response.status_code
        elif isinstance(error, FileNotFoundError | KeyError):  # a checkpoint that someone removed, a refused run
            return None
        else:
            is_away = isinstance(error, OSError)  # broken connections, full disks
            return "" if is_away or attempt < MAX_TRIES else None
        if status in DENIED:  # a password that was changed is no reason to lose a sweep
            return ", until this user's password and rights are right again"
        return "" if status in PASSING or status >= HTTPStatus.INTERNAL_SERVER_ERROR else None

    def _until_restored(self, attempt: int) -> str | None:
        """Return until when a deleted experiment is missed; None if the run alone was deleted, or all for good."""
        experiment = self._ids[EXPERIMENT]
        try:
            is_deleted = self._client.get_experiment(experiment).lifecycle_stage == "deleted"
        except MlflowException as error:  # deleted for good is refused; an answer that did not come will come
            is_deleted = self.why_try_again(error, attempt) is not None
        until = f", until the experiment is back: mlflow experiments restore --experiment-id {experiment}"
        return until if is_deleted else None

    def _begin_sweep(self, record: records.BeginSweep) -> None:
        self._ids[EXPERIMENT] = self._experiment(record)
        self._begin_run(record, record.tags)
        if record.data:
            self._client.log_inputs(self._ids[SWEEP], [DatasetInput(_data_set(record.data, record.facts))])

    def _experiment(self, record: records.BeginSweep) -> str:
        if (known := self._client.get_experiment_by_name(record.experiment)) is not None:
            return known.experiment_id
        try:
            return self._client.create_experiment(record.experiment, record.artifacts)
        except MlflowException as error:
            made_meanwhile = self._client.get_experiment_by_name(record.experiment)  # by another sweep
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or made_meanwhile is None:
                raise
            return made_meanwhile.experiment_id

    def _begin_run(
        self, record: records.BeginRun, tags: dict[str, str], updates: Sequence[records.Update] = ()
    ) -> None:
        experiment = self._ids[EXPERIMENT]
        if record.run not in self._ids and self._look_first:
            wanted = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
            for there in self._client.search_runs([experiment], wanted, max_results=1):
                self._ids[record.run] = there.info.run_id
        params = [Param(name, _shortened(value)) for name, value in record.params.items()]
        of_updates = _tags_in(updates)
        if (known := self._ids.get(record.run)) is not None:
            self._log(known, updates, of_updates, params)
        else:
            new = self._client.create_run(experiment, record.time_ms, {**tags, **of_updates}, record.name)
            self._ids[record.run] = new.info.run_id
            self._log(new.info.run_id, updates, {}, params)
        if long := {name: value for name, value in record.params.items() if len(value) > MAX_PARAM}:
            self._client.log_dict(self._ids[record.run], long, LONG_PARAMS)

    def _log(
        self, run: str, updates: Sequence[records.Update], tags: dict[str, str], params: Sequence[Param] = ()
    ) -> None:
        """Log the metrics of updates with these tags and parameters to a run, and give it the status of the last."""
        # MLflow keeps a value once that has the same name, time and step, so that it may be sent again.
        metrics = [
            Metric(name, value, record.time_ms, record.step)
            for record in updates
            for name, value in record.metrics.items()
        ]
        run_tags = [RunTag(name, value) for name, value in tags.items()]
        for start in range(0, max(len(metrics), bool(run_tags or params)), MAX_METRICS):
            self._client.log_batch(run, metrics[start : start + MAX_METRICS], params, run_tags)
        status = updates[-1].status if updates else None
        if status == "RUNNING":
            self._client.update_run(run, status="RUNNING")
            known = self._client.get_run(run).data.tags
            for name in {STATUS, FAILURE, STOPPED_BECAUSE} & set(known):
                self._client.delete_tag(run, name)
        elif status is not None:
            self._client.set_terminated(run, status, updates[-1].time_ms)

    def _log_files(self, record: records.LogFiles) -> None:
        began = time.monotonic()
        if record.may_be_skipped and began < self._pictures_from:
            return
        try:
            for file in (self._folder / name for name in filter(self._is_inside, record.files)):
                if file.is_dir():
                    self._client.log_artifacts(self._ids[record.run], str(file), record.folder or None)
                elif file.is_file():
                    self._client.log_artifact(self._ids[record.run], str(file), record.folder or None)
        except Exception as error:
            if not record.may_be_skipped:
                raise
            logger.warning("MLflow does not take the pictures (%s); others follow", str(error).split("\n")[0])
        if record.may_be_skipped:
            self._pictures_from = began + (time.monotonic() - began) / PICTURES_SHARE

    def _is_inside(self, path: str) -> bool:
        """Whether a path in a record is in the sweep's own folder, wherever links lead; logged if it is not."""
        inside = (self._folder / path).resolve().is_relative_to(self._folder.resolve())
        if not inside:
            logger.error(
                "MLflow does not get %s: a record in %s names it, and it is not in that folder", path, self._folder
            )
        return inside


def _tags_in(updates: Sequence[records.Update]) -> dict[str, str]:
    return {name: value[:MAX_TAG] for record in updates for name, value in record.tags.items()}


def _data_set(source: str, facts: list[str]) -> Dataset:
    """Return what MLflow shows of the data of a sweep: where it is, and what the check found there, sizes included."""
    digest = hashlib.sha256(json.dumps([source, facts]).encode()).hexdigest()[:8]
    kind, found = ("local", {"uri": source}) if Path(source).exists() else ("hf", {"path": source})
    profile = json.dumps({"found": facts})
    return Dataset(Path(source).name, digest, kind, json.dumps(found), profile=profile)


def _shortened(value: str) -> str:
    """Return the value of a parameter, cut to MLflow's limit with a mark that says where the whole of it is."""
    mark = f" ... ({len(value)} characters; whole in {LONG_PARAMS})"
    return value if len(value) <= MAX_PARAM else value[: MAX_PARAM - len(mark)] + mark
