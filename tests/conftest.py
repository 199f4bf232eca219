"""What tests share: one Ray, one MLflow store, the sample data, a small trial of BERT."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import setuptools  # noqa: F401  (before anything imports Python's own distutils: torch's compiler fails after that)

from experiments.sweep.options import PROJECT_ROOT
from experiments.sweep.tuner import ENVIRONMENT
from experiments.tune_bert import sample_settings
from search_spaces.bert import BASELINE


@pytest.fixture(scope="session", autouse=True)
def tracking_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An MLflow store of the tests' own, so that they leave the user's alone."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        uri = f"sqlite:///{folder}/mlflow.db"
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        patch.chdir(folder)  # MLflow puts the artifacts of a database store into the current folder
        yield uri


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """One Ray with 2 CPUs for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in ENVIRONMENT.items():
            patch.setenv(variable, value)
        patch.setenv("PYTHONPATH", str(PROJECT_ROOT))  # workers import the loops in tests.loops
        ray.init(num_cpus=2, include_dashboard=True, log_to_driver=False, logging_level=logging.ERROR)
        yield
        ray.shutdown()


@pytest.fixture(scope="session")
def sample() -> dict[str, Any]:
    """Settings of the sample recipe."""
    return dict(sample_settings())


@pytest.fixture(scope="session")
def small_trial(sample: dict[str, Any]) -> dict[str, Any]:
    """A configuration of BERT that learns something in a second."""
    small = {"train_samples": 256, "val_samples": 101, "epochs": 2, "seed": 7}
    return {**sample, **BASELINE, **small, "optimizer": "adamw", "dropout": 0.2, "warmup": 0.1}


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    """A folder for sweeps."""
    return tmp_path / "results"
