"""The best trial's model as an MLflow model, which loads and predicts on raw input, and its place in the registry."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import pkgutil
import re
import shutil
import sys
import warnings
from functools import partial
from pathlib import Path

from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Metric, RunTag
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.tracking import MlflowClient
from packaging.version import Version

from gaudi_tune.base.errors import SweepError
from gaudi_tune.private.mlflow import MLFLOW_MODEL_VERSIONS, PYFUNC_LOGGER
from gaudi_tune.show.trackers.child_process import ChildError, call_in_child
from gaudi_tune.show.trackers.model_line import ALIAS, checkpoint_name
from gaudi_tune.show.trackers.records import SWEEP, LogModel, trial_in
from gaudi_tune.training import prediction
from gaudi_tune.training.checkpoint import copy_to_predict

SWEEP_RUN, CHECKPOINT, BEST = "sweep_run", "checkpoint", "best"
"""Tags of a model: the run of its sweep, its checkpoint, and whether it is the best ("true" or "false")."""
MODEL_WITHIN_S = 1800.0
"""How long it may take to make a model: to copy the checkpoint twice, load it and predict once."""
FOLDER = "mlflow-model"
"""The folder, in that of the sweep, in which a model is made. It is removed when MLflow has the model."""


def log_best_model(client: MlflowClient, ids: dict[str, str], record: LogModel) -> None:
    """Log the model to MLflow, and note its id in ``ids``. A repeated call makes no second model.

    The model belongs to the trial's run, and is also an output of the sweep's run. Earlier best models of the sweep
    stay, with a tag that says that they are not the best. Raises the errors of MLflow's client, and a SweepError if the
    checkpoint, or the user's predictor, makes no model.
    """
    sweep_run, trial_run = ids[SWEEP], ids[record.run]
    experiment = client.get_run(sweep_run).info.experiment_id
    sweep_models = client.search_logged_models([experiment], f"tags.{SWEEP_RUN} = '{sweep_run}'")
    checkpoint = checkpoint_name(record.checkpoint)
    model = next((model for model in sweep_models if model.tags[CHECKPOINT] == checkpoint), None)
    if model is None or model.status != LoggedModelStatus.READY:
        folder = Path(record.checkpoint).parents[1] / FOLDER
        try:
            call_in_child(partial(save_model, record, folder), MODEL_WITHIN_S)
        except ChildError as error:  # from the user's own code, or from torch for a damaged file
            shutil.rmtree(folder, ignore_errors=True)
            raise SweepError(
                f"MLflow has no model of the best trial: cannot make one from {checkpoint} ({error})"
            ) from error
        description = Model.load(folder / "model")
        model = model or client.create_logged_model(
            experiment,
            name=re.sub(r"[^\w-]", "_", record.sweep),
            source_run_id=trial_run,
            tags={SWEEP_RUN: sweep_run, CHECKPOINT: checkpoint, "sweep": record.sweep, "trial": trial_in(record.run)},
            params=record.params,
        )
        description.model_id, description.model_uuid = model.model_id, model.model_id
        description.run_id, description.artifact_path = model.source_run_id, model.artifact_location
        description.save(folder / "model" / "MLmodel")
        client.log_model_artifacts(model.model_id, str(folder / "model"))
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        shutil.rmtree(folder)
    for earlier_model in sweep_models:
        if earlier_model.model_id != model.model_id:
            client.set_logged_model_tags(earlier_model.model_id, {BEST: "false"})
    client.set_logged_model_tags(model.model_id, {BEST: "true"})
    _link(client, model, sweep_run, record)
    if record.register is not None:
        ids[f"version of {checkpoint} in {record.register}"] = _register(client, model, record.register, record)
    ids[f"model of {checkpoint}"] = model.model_id


def save_model(record: LogModel, folder: Path) -> None:
    """Write a model to ``folder``, and let it predict once on the CPU.

    The model has no pickle: its own copy of the code loads it, and reads the weights like those of a checkpoint.
    """
    import mlflow.pyfunc  # this import takes a second, and is needed only at the end of a sweep
    from mlflow.models import ModelSignature, infer_signature
    from mlflow.types import ColSpec, Schema
    from pandas import DataFrame

    logging.getLogger(PYFUNC_LOGGER).setLevel(logging.WARNING)  # it would log each of its steps
    shutil.rmtree(folder, ignore_errors=True)  # a killed process may have left it
    data = folder / "files"
    copy_to_predict(Path(record.checkpoint), data)
    load = pkgutil.resolve_name(record.loaded_by)
    predictor: prediction.Predictor = load(data)
    example: object = predictor.example
    if not isinstance(example, DataFrame):
        kind = type(example).__name__
        raise TypeError(f"the predictor's example must be a pandas.DataFrame with a row of input, but is a {kind}")
    warnings.filterwarnings("ignore", "Hint: Inferred schema contains integer", UserWarning)
    inferred = infer_signature(example, predictor.predict(example))
    columns = inferred.inputs.inputs
    # A single column without a name can also be filled from a plain list.
    inputs = Schema([ColSpec(columns[0].type)]) if len(columns) == 1 else inferred.inputs
    # The code is this package and that of the experiment's own module, which may be a single file.
    packages = sorted({module.partition(".")[0] for module in (prediction.__name__, load.__module__)})
    package_files = [Path(str(sys.modules[name].__file__)) for name in packages]
    code_paths = [str(file.parent if file.name == "__init__.py" else file) for file in package_files]
    mlflow.pyfunc.save_model(
        folder / "model",
        loader_module=prediction.__name__,
        data_path=str(data),
        code_paths=code_paths,
        model_config={prediction.LOADED_BY: record.loaded_by},
        signature=ModelSignature(inputs, inferred.outputs),
        input_example=example,
        pip_requirements=[requirement(name) for name in predictor.packages],
    )


def _link(client: MlflowClient, model: LoggedModel, sweep_run: str, record: LogModel) -> None:
    """Make the model an output of both runs, and give it the value of its metric."""
    output, trial_run = LoggedModelOutput(model.model_id, record.step), str(model.source_run_id)
    for run in (trial_run, sweep_run):
        outputs = client.get_run(run).outputs
        if outputs is None or output not in outputs.model_outputs:
            client.log_outputs(run, [output])
    for reported in client.get_metric_history(trial_run, record.metric):
        if reported.step == record.step:
            metric = Metric(reported.key, reported.value, reported.timestamp, reported.step, model.model_id)
            client.log_batch(trial_run, metrics=[metric])
    client.log_batch(sweep_run, tags=[RunTag("best_model", f"models:/{model.model_id}")])


def _register(client: MlflowClient, model: LoggedModel, name: str, record: LogModel) -> str:
    """Give the model a version in the registry if it has none, move the alias to it, and return it."""
    # Not models:/<id>: MLflow's SQL store would look for the id in this process's current store.
    source = model.artifact_location
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    run_versions = client.search_model_versions(f"run_id = '{model.source_run_id}'")
    model_versions = [version for version in run_versions if version.source == source]
    version = next((version for version in model_versions if version.name == name), None)
    if version is None:
        tags = {"sweep": record.sweep, "trial": trial_in(record.run), record.metric: str(record.value)}
        version = client.create_model_version(
            name, source, run_id=model.source_run_id, tags=tags, model_id=model.model_id
        )
        model_versions.append(version)
    client.set_registered_model_alias(name, ALIAS, version.version)
    # MLflow's page of a model looks for its versions in this tag.
    versions = [{"name": version.name, "version": version.version} for version in model_versions]
    client.set_logged_model_tags(model.model_id, {MLFLOW_MODEL_VERSIONS: json.dumps(versions)})
    return str(version.version)


def requirement(package: str) -> str:
    """Return pip's requirement of a package: the installed version, or for a private build the published one.

    Intel's torch is a 2.6.0+hpu.git1234567 or a 2.5.1a0+git1234567, which only Intel's container has. A package that is
    installed under another name, such as a faster Pillow, has no version here, and pip chooses one.
    """
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return package
    return f"{package}=={Version(version).base_version if '+' in version else version}"
