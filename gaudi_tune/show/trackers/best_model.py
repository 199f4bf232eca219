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
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Metric, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from packaging.version import Version

from gaudi_tune.private.mlflow import MLFLOW_MODEL_VERSIONS, PYFUNC_LOGGER
from gaudi_tune.show.trackers.records import SWEEP, LogModel
from gaudi_tune.training import prediction
from gaudi_tune.training.checkpoint import copy_to_predict

if TYPE_CHECKING:
    from mlflow.models import Model

logger = logging.getLogger(__name__)

ALIAS = "best"
"""What the registry calls the version that was registered last."""
SWEEP_RUN, CHECKPOINT, BEST = "sweep_run", "checkpoint", "best"
"""Tags of a model: the run of its sweep, the checkpoint that it was made of, and "true" or "false"."""
FOLDER = "mlflow-model"
"""Where a model is made, in the folder of its sweep; removed when MLflow has it."""


def log_best_model(client: MlflowClient, ids: dict[str, str], record: LogModel) -> None:
    """Bring the model to MLflow, once however often this is called, and note its id in ``ids``.

    It belongs to the trial's run, and is an output of the sweep's run, too. Earlier best models of the sweep stay, with
    a tag that says that they are not the best. Raises what MLflow's client does.
    """
    sweep_run, trial_run = ids[SWEEP], ids[record.run]
    experiment = client.get_run(sweep_run).info.experiment_id
    of_sweep = client.search_logged_models([experiment], f"tags.{SWEEP_RUN} = '{sweep_run}'")
    made_of = _place(record.checkpoint)
    model = next((known for known in of_sweep if known.tags[CHECKPOINT] == made_of), None)
    if model is None or model.status != LoggedModelStatus.READY:
        folder = Path(record.checkpoint).parents[1] / FOLDER
        try:
            described = save_model(record, folder)
        except Exception as error:  # what the experiment's own code raises, or torch when a file is torn
            logger.error("MLflow has no model of the best trial: cannot make one from %s (%s)", made_of, error)
            return
        model = model or client.create_logged_model(
            experiment,
            name=re.sub(r"[^\w-]", "_", record.sweep),
            source_run_id=trial_run,
            tags={SWEEP_RUN: sweep_run, CHECKPOINT: made_of, "sweep": record.sweep, "trial": record.run},
            params=record.params,
        )
        described.model_id, described.model_uuid = model.model_id, model.model_id
        described.run_id, described.artifact_path = model.source_run_id, model.artifact_location
        described.save(folder / "model" / "MLmodel")
        client.log_model_artifacts(model.model_id, str(folder / "model"))
        client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
        shutil.rmtree(folder)
    for other in of_sweep:
        if other.model_id != model.model_id:
            client.set_logged_model_tags(other.model_id, {BEST: "false"})
    client.set_logged_model_tags(model.model_id, {BEST: "true"})
    _link(client, model, sweep_run, record)
    if record.register is not None:
        ids[f"version of {made_of} in {record.register}"] = _register(client, model, record.register, record)
    ids[f"model of {made_of}"] = model.model_id


def save_model(record: LogModel, folder: Path) -> Model:
    """Write a model to ``folder``, let it predict once on the CPU, and return its description.

    It holds no pickle: the code that comes with it loads it, and reads its weights as those of a checkpoint.
    """
    import mlflow.pyfunc  # here: it takes a second, and most of a sweep does without it
    from mlflow.models import Model, ModelSignature, infer_signature
    from mlflow.types import ColSpec, Schema
    from pandas import DataFrame

    logging.getLogger(PYFUNC_LOGGER).setLevel(logging.WARNING)  # else it logs each of its steps
    shutil.rmtree(folder, ignore_errors=True)  # what a killed process left
    data = folder / "files"
    copy_to_predict(Path(record.checkpoint), data)
    load = pkgutil.resolve_name(record.loaded_by)
    predictor: prediction.Predictor = load(data)
    example: object = predictor.example
    if not isinstance(example, DataFrame):
        kind = type(example).__name__
        raise TypeError(f"the predictor's example must be a pandas.DataFrame with a row of input, but is a {kind}")
    warnings.filterwarnings("ignore", "Hint: Inferred schema contains integer", UserWarning)  # of what predicts numbers
    inferred = infer_signature(example, predictor.predict(example))
    columns = inferred.inputs.inputs
    # A column without a name is filled from a list, too.
    inputs = Schema([ColSpec(columns[0].type)]) if len(columns) == 1 else inferred.inputs
    # Of our package and of that of the experiment's own module, which may be a single file.
    packages = sorted({module.partition(".")[0] for module in (prediction.__name__, load.__module__)})
    code = [Path(str(sys.modules[name].__file__)) for name in packages]
    described = Model()
    mlflow.pyfunc.save_model(
        folder / "model",
        mlflow_model=described,
        loader_module=prediction.__name__,
        data_path=str(data),
        code_paths=[str(file.parent if file.name == "__init__.py" else file) for file in code],
        model_config={prediction.LOADED_BY: record.loaded_by},
        signature=ModelSignature(inputs, inferred.outputs),
        input_example=example,
        pip_requirements=[requirement(name) for name in predictor.packages],
    )
    return described


def load_line(ids: Mapping[str, str], checkpoint: str, tracking_uri: str, register: str | None) -> str | None:
    """Return the Python that loads a model from MLflow; None if MLflow does not have it."""
    made_of = _place(checkpoint)
    model, version = ids.get(f"model of {made_of}"), ids.get(f"version of {made_of} in {register}")
    if model is None:
        return None
    address, note = (f"{register}/{version}", f"  # also models:/{register}@{ALIAS}") if version else (model, "")
    store, source = json.dumps(tracking_uri), json.dumps(f"models:/{address}")  # as Python has them, too
    return f"import mlflow; mlflow.set_tracking_uri({store}); model = mlflow.pyfunc.load_model({source}){note}"


def _link(client: MlflowClient, model: LoggedModel, sweep_run: str, record: LogModel) -> None:
    """Show the model in both runs, and its metric in the model."""
    output, trial_run = LoggedModelOutput(model.model_id, record.step), str(model.source_run_id)
    for run in (trial_run, sweep_run):
        outputs = client.get_run(run).outputs
        if outputs is None or output not in outputs.model_outputs:
            client.log_outputs(run, [output])
    for reported in client.get_metric_history(trial_run, record.metric):
        if reported.step == record.step:
            again = Metric(reported.key, reported.value, reported.timestamp, reported.step, model.model_id)
            client.log_batch(trial_run, metrics=[again])
    client.log_batch(sweep_run, tags=[RunTag("best_model", f"models:/{model.model_id}")])


def _register(client: MlflowClient, model: LoggedModel, name: str, record: LogModel) -> str:
    """Return the model's version in the registry, made if it has none; the alias goes to it."""
    # Not models:/<id>, which MLflow's SQL store looks for in the store that is the current one of this process.
    source = model.artifact_location
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    of_run = client.search_model_versions(f"run_id = '{model.source_run_id}'")
    of_model = [known for known in of_run if known.source == source]
    version = next((known for known in of_model if known.name == name), None)
    if version is None:
        tags = {"sweep": record.sweep, "trial": record.run, record.metric: str(record.value)}
        version = client.create_model_version(
            name, source, run_id=model.source_run_id, tags=tags, model_id=model.model_id
        )
        of_model.append(version)
    client.set_registered_model_alias(name, ALIAS, version.version)
    # Where MLflow's page of a model looks for its versions.
    versions = [{"name": v.name, "version": v.version} for v in of_model]
    client.set_logged_model_tags(model.model_id, {MLFLOW_MODEL_VERSIONS: json.dumps(versions)})
    return str(version.version)


def requirement(package: str) -> str:
    """Return what pip is to install: the version that is here, for a private build the published version.

    Intel's torch is a 2.6.0+hpu.git1234567 or a 2.5.1a0+git1234567, which only its container has. For a package that is
    installed under another name, such as a faster Pillow, pip chooses.
    """
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return package
    return f"{package}=={Version(version).base_version if '+' in version else version}"


def _place(checkpoint: str) -> str:
    """Return a checkpoint's folders of trial and checkpoint: within a sweep no other has the same."""
    return "/".join(Path(checkpoint).parts[-2:])
