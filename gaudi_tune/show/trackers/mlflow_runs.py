"""The runs of one sweep in MLflow: records become calls of MLflow, and errors say whether to retry."""

from __future__ import annotations

import hashlib
import json
import logging
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
from gaudi_tune.show.trackers.mlflow_names import own_names
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.show.trackers.records import ENDS, EXPERIMENT, MAX_TAG, SWEEP

logger = logging.getLogger(__name__)

MAX_METRICS = 800
"""The most metrics in one batch: MLflow takes 1000 entries, up to 100 of them tags and 100 parameters."""
MAX_PARAM = 6000
"""MLflow's limit for the length of a parameter's value. It cuts longer ones without a mark."""
LONG_PARAMS, SPACE = "long_parameters.json", "space.json"
"""The artifacts with the full values of longer parameters, and with the ranges of the search."""

TEMPORARY = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
"""Client errors of HTTP after which a retry helps."""
DENIED = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
MAX_TRIES = 5
"""How often to send a record that fails for an unknown reason."""


class MlflowRuns:
    """Sends records to the runs of a sweep in MLflow. Every call may be repeated: nothing is made or logged twice."""

    def __init__(self, client: MlflowClient, outbox: Outbox) -> None:
        self._client, self._folder, self._ids, self._names = client, outbox.folder, outbox.ids, outbox.names
        # An earlier process may have made runs in MLflow without noting their ids here.
        self._runs_may_exist = outbox.reopened

    def deliver(self, group: Sequence[records.Record]) -> None:
        """Send one record, or several of one run: its beginning, updates and end. Only the last may have a status.

        With SQLite each call of MLflow takes 10 to 30 ms, almost regardless of its size. See :meth:`retry_until` for
        errors.
        """
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
            case records.LogModel() as record:
                checkpoint = str(self._folder / record.checkpoint)
                metric = own_names([record.metric], self._names)[record.metric]
                log_best_model(self._client, self._ids, replace(record, checkpoint=checkpoint, metric=metric))

    def retry_until(self, error: Exception, attempt: int) -> str | None:
        """Return in words until when to retry after an error of MLflow's client.

        Returns "" if that is unknown, and None if MLflow would refuse the record again.
        """
        self._runs_may_exist = True  # the request may have arrived, and only the answer been lost
        if isinstance(error, MlflowException) and says_deleted(error):
            return self._until_restored(attempt)
        if isinstance(error, MlflowException):
            status = error.get_http_status_code()
        elif isinstance(error, HTTPError) and error.response is not None:  # artifacts do not raise MLflow's own errors
            status = error.response.status_code
        elif isinstance(error, FileNotFoundError | KeyError):  # someone removed a checkpoint, or the run was refused
            return None
        else:
            is_temporary = isinstance(error, OSError)  # broken connections, full disks
            return "" if is_temporary or attempt < MAX_TRIES else None
        if status in DENIED:  # somebody may have changed the password while the sweep runs
            return ", until this user's password and rights are right again"
        return "" if status in TEMPORARY or status >= HTTPStatus.INTERNAL_SERVER_ERROR else None

    def _until_restored(self, attempt: int) -> str | None:
        """Return until when to wait for a deleted experiment; None if only the run was deleted, or both for good."""
        experiment = self._ids[EXPERIMENT]
        try:
            is_deleted = self._client.get_experiment(experiment).lifecycle_stage == "deleted"
        except MlflowException as error:
            # MLflow refuses the question if the experiment is gone for good. Without an answer it may come back.
            is_deleted = self.retry_until(error, attempt) is not None
        if not is_deleted:
            return None
        return f", until the experiment is back: mlflow experiments restore --experiment-id {experiment}"

    def _begin_sweep(self, record: records.BeginSweep) -> None:
        self._ids[EXPERIMENT] = self._get_or_create_experiment(record)
        self._begin_run(record, record.tags)
        if record.data:
            self._client.log_inputs(self._ids[SWEEP], [DatasetInput(_make_dataset(record.data, record.facts))])
        if record.space:
            self._client.log_dict(self._ids[SWEEP], record.space, SPACE)

    def _get_or_create_experiment(self, record: records.BeginSweep) -> str:
        experiment = self._client.get_experiment_by_name(record.experiment)
        if experiment is not None:
            return experiment.experiment_id
        try:
            return self._client.create_experiment(record.experiment, record.artifacts)
        except MlflowException as error:
            experiment = self._client.get_experiment_by_name(record.experiment)  # another sweep may have made it
            if error.error_code != "RESOURCE_ALREADY_EXISTS" or experiment is None:
                raise
            return experiment.experiment_id

    def _begin_run(
        self, record: records.BeginRun, tags: dict[str, str], updates: Sequence[records.Update] = ()
    ) -> None:
        experiment = self._ids[EXPERIMENT]
        if record.run not in self._ids and self._runs_may_exist:
            condition = " and ".join(f"tags.`{name}` = '{value}'" for name, value in tags.items())
            # A later attempt has all tags of the first one.
            for run in self._client.search_runs([experiment], condition, max_results=1, order_by=["start_time ASC"]):
                self._ids[record.run] = run.info.run_id
        params = [Param(name, _shortened(record.params[ours])) for ours, name in own_names(record.params, {}).items()]
        update_tags = _tags_in(updates)
        run_id = self._ids.get(record.run)
        if run_id is not None:
            self._log(run_id, updates, update_tags, params)
        else:
            new_run = self._client.create_run(experiment, record.time_ms, {**tags, **update_tags}, record.name)
            run_id = self._ids[record.run] = new_run.info.run_id
            self._log(run_id, updates, {}, params)
        long_params = {name: value for name, value in record.params.items() if len(value) > MAX_PARAM}
        if long_params:
            self._client.log_dict(run_id, long_params, LONG_PARAMS)

    def _log(
        self, run: str, updates: Sequence[records.Update], tags: dict[str, str], params: Sequence[Param] = ()
    ) -> None:
        """Log the metrics of updates, tags and parameters to a run, and give it the status of the last update."""
        # A metric may be sent again: of values with the same name, time and step MLflow keeps one.
        metrics = [
            Metric(mlflow_name, record.metrics[name], record.time_ms, record.step)
            for record in updates
            for name, mlflow_name in own_names(record.metrics, self._names).items()
        ]
        run_tags = [RunTag(name, value) for name, value in tags.items()]
        num_entries = max(len(metrics), 1) if run_tags or params else len(metrics)  # a batch may have no metrics
        for start in range(0, num_entries, MAX_METRICS):
            self._client.log_batch(run, metrics[start : start + MAX_METRICS], params, run_tags)
        status = updates[-1].status if updates else None
        if status == "RUNNING":
            self._client.update_run(run, status="RUNNING")
            existing_tags = self._client.get_run(run).data.tags
            for name in ENDS & set(existing_tags):
                self._client.delete_tag(run, name)
        elif status is not None:
            self._client.set_terminated(run, status, updates[-1].time_ms)

    def _log_files(self, record: records.LogFiles) -> None:
        for name in record.files:
            file = self._folder / name
            if file.is_dir():
                self._client.log_artifacts(self._ids[record.run], str(file), record.folder or None)
            elif file.is_file():
                self._client.log_artifact(self._ids[record.run], str(file), record.folder or None)


def _tags_in(updates: Sequence[records.Update]) -> dict[str, str]:
    return {name: value[:MAX_TAG] for record in updates for name, value in record.tags.items()}


def _make_dataset(source: str, facts: list[str]) -> Dataset:
    """Return MLflow's description of the data of a sweep: its place, and the facts and sizes that the check found."""
    digest = hashlib.sha256(json.dumps([source, facts]).encode()).hexdigest()[:8]
    kind, location = ("local", {"uri": source}) if Path(source).exists() else ("hf", {"path": source})
    profile = json.dumps({"found": facts})
    return Dataset(Path(source).name, digest, kind, json.dumps(location), profile=profile)


def _shortened(value: str) -> str:
    """Return the value of a parameter, cut to MLflow's limit with a mark that says where its full text is."""
    digest = hashlib.sha256(value.encode(errors="replace")).hexdigest()[:8]  # others may begin alike
    mark = f" ... ({len(value)} characters, sha256 {digest}; whole in {LONG_PARAMS})"
    return value if len(value) <= MAX_PARAM else value[: MAX_PARAM - len(mark)] + mark
