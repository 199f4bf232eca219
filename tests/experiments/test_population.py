"""Population-based training of every experiment: what is recorded of a trial is what its optimizer had."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

from experiments import build_tuner, published
from experiments.sweep.show.trackers.mlflow_tracker import CHANGED
from tests.loops import noting_the_optimizer
from trainables.runtime import names
from trainables.runtime.training.training_config import TrainingConfig

EXPERIMENTS = {experiment.name: experiment for experiment in published.experiments()}
SMALL = {"train_samples": 64, "val_samples": 33, "batch_size": 16}
EPOCHS = 5
NUMBERS = ("lr", "momentum", "weight_decay")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_is_recorded_is_what_the_optimizer_had(ray_here: None, tmp_path: Path, name: str) -> None:
    experiment = EXPERIMENTS[name]
    known = experiment.config_class.field_names()
    settings = tuple(f"{key}={value}" for key, value in SMALL.items() if key in known)
    noted = tmp_path / "noted"
    noted.mkdir()
    loop = partial(noting_the_optimizer, train_loop=experiment.train_loop, folder=noted)
    results = build_tuner(
        replace(experiment, train_loop=loop), name="population", storage=tmp_path, scheduler="pbt", recipe="sample",
        num_samples=6, epochs=EPOCHS, seed=3, settings=settings, device="cpu",
    ).fit()  # fmt: skip
    assert not results.errors

    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)  # of each seed: a clone has one of its own
    for file in noted.iterdir():
        steps[int(file.stem)] = [json.loads(line) for line in file.read_text().splitlines()]
    runs = mlflow.search_runs(experiment_names=[name], filter_string="tags.kind = 'trial'", output_format="list")
    by_trial = {int(run.data.tags["trial"]): run for run in runs}
    summary = json.loads((tmp_path / "population" / "summary.json").read_text())
    clones = 0
    for result in results:
        assert result.metrics_dataframe is not None
        run = by_trial[int(Path(result.path).name.removeprefix("trial-"))]
        began_with = run.data.params
        for report in _reports(Path(result.path)):
            config, epoch = report["config"], report[names.EPOCH]
            typed = experiment.config_class.from_dict({**summary["settings"], **config})
            assert isinstance(typed, TrainingConfig)
            clones += began_with["seed"] != str(config["seed"])
            # The optimizer, step by step.
            rates = {step["lr"] for step in steps[config["seed"]]}
            assert report[names.LEARNING_RATE] in rates
            assert max(rates) <= typed.peak_lr * 1.001
            assert report[names.PEAK_LEARNING_RATE] == typed.peak_lr
            for step in steps[config["seed"]]:
                assert step["kind"] == config["optimizer"]
                assert all(step[key] == config[key] for key in ("momentum", "weight_decay") if key in config)
            # MLflow: a parameter as the trial began with it, and a metric at each report since it changed.
            for key in NUMBERS:
                if str(config.get(key)) != began_with.get(key) and key in config:
                    assert _at(run.info.run_id, CHANGED + key, epoch) == config[key]
    assert clones
    best = next(r for r in results if int(Path(r.path).name.removeprefix("trial-")) == summary["best"]["trial"])
    reported = [report for report in _reports(Path(best.path)) if report["epoch"] == summary["best"]["epoch"]]
    assert summary["best"]["config"] in [
        {key: report["config"][key] for key in summary["best"]["config"]} for report in reported
    ]


def _reports(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "result.json").read_text().splitlines()]


def _at(run_id: str, metric: str, step: int) -> float:
    (value,) = {point.value for point in MlflowClient().get_metric_history(run_id, metric) if point.step == step}
    return value
