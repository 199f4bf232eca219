"""The best trial's model in a real MLflow store: it is there once, says what it is of, loads elsewhere and predicts."""

from __future__ import annotations

import ctypes
import io
import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.entities import LoggedModelStatus

from experiments.tune_bert import EXPERIMENT as BERT
from experiments.tune_resnet18 import EXPERIMENT as RESNET
from gaudi_tune import SweepOptions
from gaudi_tune.base.errors import SweepError
from gaudi_tune.base.files import DELIVERED_FILE
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.show.trackers.best_model import FOLDER, requirement
from gaudi_tune.show.trackers.outbox import Outbox
from gaudi_tune.sweep.record.sweep_file import write_sweep_file
from tests.helpers.deliveries import EPOCHS, check_delivered, values_of
from tests.helpers.earlier_sweeps import options_of_sweep
from tests.helpers.mlflow_store import empty_store
from tests.helpers.model_sweeps import Sweep, make_checkpoint
from tests.helpers.quadratic import QUADRATIC

pytestmark = pytest.mark.processes  # a model is made in one
BEFORE = """
import sys

for name in {absent}:
    sys.modules[name] = None  # is not installed
"""
LOAD = """
{line}
import trainables

print(trainables.__file__, model.predict({inputs}).to_json(), sep="\\n")
"""
"""Parts of a program that has models from MLflow, and neither this checkout nor what training needs."""
ABSENT = ["ray", "habana_frameworks", "optuna", "datasets", "evaluate", "tyro", "experiments", "search_spaces"]


@pytest.fixture(scope="module")
def checkpoints(small_trial: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of a text and of an image model, by experiment."""
    folder = tmp_path_factory.mktemp("checkpoints")
    images = {**RESNET.recipes["sample"].settings(), **RESNET.baseline}
    trials = ((BERT, small_trial), (RESNET, images))
    return {experiment.name: make_checkpoint(experiment, trial, folder) for experiment, trial in trials}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Another store than MLflow's current one."""
    return empty_store(tmp_path_factory.mktemp("store") / "mlflow.db")


@pytest.fixture
def sweep(store: str, storage: Path, request: pytest.FixtureRequest, checkpoints: dict[str, Path]) -> Sweep:
    return Sweep(store, storage, request.node.name, BERT, checkpoints["bert"])


def test_it_is_found_from_both_runs_and_in_the_registry(sweep: Sweep) -> None:
    with mlflow.start_run(experiment_id="0") as of_user:
        sweep.end(1)
        assert mlflow.active_run() == of_user
        assert not mlflow.search_logged_models(["0"], output_format="list")
    (model,) = sweep.models()
    assert model.status == LoggedModelStatus.READY
    assert model.source_run_id == sweep.run("001").info.run_id
    assert sweep.outputs() == sweep.outputs("001") == [model.model_id]
    assert sweep.run().data.tags["best_model"] == f"models:/{model.model_id}"
    assert (model.tags["trial"], model.tags["best"], model.params) == ("001", "true", {"lr": "0.1"})
    assert model.metrics is not None
    assert [(metric.key, metric.value, metric.step) for metric in model.metrics] == [
        ("score", values_of(1, EPOCHS)["score"], EPOCHS)
    ]
    version = sweep.client.get_model_version_by_alias(f"model of {sweep.plan.name}", "best")
    assert version.source == model.artifact_location
    assert (version.tags["sweep"], version.tags["score"]) == (sweep.plan.name, str(values_of(1, EPOCHS)["score"]))
    assert not (sweep.plan.folder / FOLDER).exists()


def test_it_is_there_once_however_often_it_is_delivered(sweep: Sweep) -> None:
    sweep.end(1)
    sweep.end(1)  # a sweep that was resumed, and whose best trial is the same
    (sweep.plan.folder / DELIVERED_FILE).unlink()
    sweep.outbox = Outbox(sweep.plan.folder)  # its process ended before it noted what was delivered
    sweep.deliver()
    (sweep.plan.folder / DELIVERED_FILE).write_bytes(b"")
    sweep.outbox.close()
    sweep.outbox = Outbox(sweep.plan.folder)  # its machine crashed
    sweep.deliver()
    check_delivered(sweep.plan.tracking_uri, sweep.plan.name)
    (model,) = sweep.models()
    assert sweep.outputs() == sweep.outputs("001") == [model.model_id]
    assert len(sweep.client.search_model_versions(f"name = 'model of {sweep.plan.name}'")) == 1
    assert len(sweep.client.get_metric_history(sweep.run("001").info.run_id, "score")) == EPOCHS


def test_a_new_best_takes_the_place_of_the_old_one(sweep: Sweep) -> None:
    sweep.end(1)
    sweep.end(2)
    old, new = sweep.models()
    assert (old.tags["trial"], old.tags["best"]) == ("001", "false")
    assert (new.tags["trial"], new.tags["best"]) == ("002", "true")
    assert sweep.run().data.tags["best_model"] == f"models:/{new.model_id}"
    version = sweep.client.get_model_version_by_alias(f"model of {sweep.plan.name}", "best")
    assert (str(version.version), version.source) == ("2", new.artifact_location)
    line = sweep.load_line(2)
    assert line is not None
    assert f'"models:/model of {sweep.plan.name}/2")' in line


def test_a_checkpoint_that_no_model_can_be_made_of_blocks_nothing(
    sweep: Sweep, caplog: pytest.LogCaptureFixture
) -> None:
    (sweep.checkpoint(1) / "state.pt").write_bytes(b"torn")
    with caplog.at_level(logging.ERROR):
        sweep.end(1)
    assert "MLflow has no model of the best trial: cannot make one from trial-001/checkpoint_000000" in caplog.text
    assert sweep.models() == []
    assert sweep.load_line(1) is None


class OfArrays:
    """A predictor whose example is no table."""

    packages = ("numpy",)
    example = np.zeros((1, 64))

    def __init__(self, folder: Path) -> None: ...

    def predict(self, rows: Any) -> Any:
        return rows


def test_a_predictor_that_takes_no_table_is_an_error_that_names_the_rule(
    store: str, storage: Path, checkpoints: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    sweep = Sweep(store, storage, "arrays", replace(BERT, predictor=cast(Any, OfArrays)), checkpoints["bert"])
    with caplog.at_level(logging.ERROR):
        problem = sweep.end(1)
    assert "example must be a pandas.DataFrame with a row of input, but is a ndarray" in caplog.text
    assert problem in caplog.text


def crash(folder: Path) -> Any:
    ctypes.string_at(0)


def test_a_predictor_that_ends_its_process_costs_the_model_alone(
    store: str, storage: Path, checkpoints: dict[str, Path]
) -> None:
    """Other ends of its process: test_child_process.py."""
    sweep = Sweep(store, storage, "crash", replace(BERT, predictor=crash), checkpoints["bert"])
    reason = r"its process was killed by signal 11"
    assert re.fullmatch(rf"MLflow has no model of the best trial: .*checkpoint_000000 \({reason}\)", sweep.end(1))


def test_the_printed_line_loads_it_where_neither_ray_nor_this_project_is(
    store: str, storage: Path, checkpoints: dict[str, Path]
) -> None:
    program, expected = BEFORE.format(absent=ABSENT), []
    for experiment in (BERT, RESNET):
        sweep = Sweep(store, storage, experiment.name, experiment, checkpoints[experiment.name])
        sweep.end(1)
        assert experiment.predictor is not None
        predictor = experiment.predictor(sweep.checkpoint(1))
        inputs = predictor.example.iloc[:, 0].tolist() * 2
        program += LOAD.format(line=sweep.load_line(1), inputs=inputs)
        expected.append(predictor.predict(pd.DataFrame(inputs)))
    # In the folder of MLflow's artifacts, as the whole of this test.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MLFLOW_TRACKING_URI")
    }
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    code, *said = ran.stdout.strip().splitlines()
    assert code.endswith("/code/trainables/__init__.py")
    for table, printed in zip(expected, said[::2], strict=True):
        predicted = pd.read_json(io.StringIO(printed))
        pd.testing.assert_frame_equal(predicted, table)


@pytest.mark.parametrize(
    ("here", "wanted"),
    [("2.15.0", "2.15.0"), ("2.6.0+hpu_1.20.0-543.git4952fce", "2.6.0"), ("2.5.1a0+git6fc067b", "2.5.1")],
)
def test_requirements_are_versions_that_pip_finds(
    here: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / f"torch_of_a_container-{here}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Name: torch-of-a-container\nVersion: {here}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert requirement("torch-of-a-container") == f"torch-of-a-container=={wanted}"


def test_a_package_installed_under_another_name_is_left_to_pip() -> None:
    assert requirement("gaudi-tune-has-no-such-package") == "gaudi-tune-has-no-such-package"


@pytest.mark.parametrize(
    ("name", "says"),
    [("", r"--register : MLflow does not take this name"), ("a/b", "--register a/b: .*give one without '/' and ':'")],
)
def test_a_name_that_mlflow_refuses_is_said_before_anything_starts(name: str, says: str, storage: Path) -> None:
    with pytest.raises(SweepError, match=says):
        make_plan(BERT, SweepOptions(storage=storage, register=name))


def test_an_experiment_that_does_not_predict_has_nothing_to_register(storage: Path) -> None:
    with pytest.raises(SweepError, match="--register digits: the experiment quadratic has no model to register"):
        make_plan(QUADRATIC, SweepOptions(storage=storage, register="digits"))


def test_a_predictor_that_nobody_else_could_import_is_an_error() -> None:
    unnamed: tuple[Any, ...] = (lambda folder: None, partial(print))
    for wrong in unnamed:
        with pytest.raises(ValueError, match="predictor must be a function of a module that others can import"):
            replace(BERT, predictor=wrong)


def test_a_resumed_sweep_keeps_the_name_unless_given_another(sweep: Sweep) -> None:
    sweep.outbox.close()
    write_sweep_file(sweep.plan)
    resumed, uri = SweepOptions(storage=sweep.plan.folder.parent, resume=sweep.plan.name), sweep.plan.tracking_uri
    assert options_of_sweep("bert", resumed, uri).register == f"model of {sweep.plan.name}"
    assert options_of_sweep("bert", replace(resumed, register="other"), uri).register == "other"
