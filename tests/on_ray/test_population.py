"""Population-based training: what is recorded of a trial is what its optimizer had.

A sweep of one experiment; tests/trainables/test_every_model.py holds the train loops of all to it, without a sweep.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Run
from optuna.trial import TrialState

from experiments.tune_bert import EXPERIMENT
from gaudi_tune import build_tuner
from gaudi_tune.base import names
from gaudi_tune.show.trackers.trial_run import PARAM_METRIC_PREFIX
from tests.helpers.loops import noting_the_optimizer
from tests.helpers.stored_study import stored_trials
from trainables.bert import BertConfig

SMALL = ("train_samples=64", "val_samples=33", "batch_size=16")
MAY_CHANGE = ("lr", "momentum", "weight_decay")


def test_the_recorded_learning_rate_is_the_optimizers(ray_here: None, tmp_path: Path) -> None:
    noted, folder = tmp_path / "noted", tmp_path / "population"
    noted.mkdir()
    loop = partial(noting_the_optimizer, train_loop=EXPERIMENT.train_loop, folder=noted)
    results = build_tuner(
        replace(EXPERIMENT, train_loop=loop), name=folder.name, storage=tmp_path, scheduler="pbt", recipe="sample",
        num_samples=6, epochs=5, seed=3, settings=SMALL, device="cpu", checkpoint_budget="1KB",
    ).fit()  # fmt: skip
    assert not results.errors
    trials = stored_trials(folder)
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 6
    there = {str(place) for place in folder.glob("trial-*/checkpoint_*")}
    assert {result.checkpoint.path for result in results if result.checkpoint} <= there

    steps: dict[int, list[dict[str, Any]]] = defaultdict(list)  # of each seed: a clone has another
    for file in noted.iterdir():
        steps[int(file.stem)] = [json.loads(line) for line in file.read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    parent = summary["mlflow"].rsplit("/", maxsplit=1)[-1]  # other tests tune BERT, too
    of_sweep = f"tags.`mlflow.parentRunId` = '{parent}'"
    runs = mlflow.search_runs(experiment_names=[EXPERIMENT.name], filter_string=of_sweep, output_format="list")
    clones, best = 0, []
    for run in runs:
        assert isinstance(run, Run)
        number, began_with = int(run.data.tags["trial"]), run.data.params
        for line in (folder / f"trial-{number:03d}" / "result.json").read_text().splitlines():
            report = json.loads(line)
            config, epoch = report["config"], report[names.EPOCH]
            clones += began_with["seed"] != str(config["seed"])
            if (number, epoch) == (summary["best"]["trial"], summary["best"]["epoch"]):
                best.append(config)
            optimizer = steps[config["seed"]]
            peak = BertConfig.from_dict({**summary["settings"], **config}).peak_lr
            assert report[names.PEAK_LEARNING_RATE] == peak
            assert report[names.LEARNING_RATE] in {step["lr"] for step in optimizer}
            assert all(step["lr"] <= peak * 1.001 and step["kind"] == config["optimizer"] for step in optimizer)
            for name in set(MAY_CHANGE) & set(config):
                assert name == "lr" or {step[name] for step in optimizer} == {config[name]}
                if str(config[name]) != began_with.get(name):
                    assert config[name] in values_at(run.info.run_id, PARAM_METRIC_PREFIX + name, epoch)
    assert len(runs) == 6
    assert clones
    # A trial that starts again gets the stored result.json in the place of the newer, which may have more reports.
    assert not best or summary["best"]["config"] in best
    had = steps[summary["best"]["config"]["seed"]]
    for name in {"momentum", "weight_decay"} & set(summary["best"]["config"]):
        assert {step[name] for step in had} == {summary["best"]["config"][name]}


def values_at(run_id: str, metric: str, step: int) -> set[float]:
    """Return the values of a metric at a step; a trial that takes over another's weights may go back."""
    return {point.value for point in MlflowClient().get_metric_history(run_id, metric) if point.step == step}
