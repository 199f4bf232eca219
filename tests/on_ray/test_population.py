"""Population-based training on real workers: what is reported of a trial is what its optimizer had.

tests/trainables/test_every_model.py holds the train loops of all to it, and tests/tools/agree compares all places that
show it, both without a sweep of Ray.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from experiments.tune_bert import EXPERIMENT
from gaudi_tune import build_tuner
from gaudi_tune.base import names
from tests.helpers.loops import noting_the_optimizer
from tests.helpers.stored_study import stored_trials
from trainables.bert import BertConfig

SMALL = ("train_samples=64", "val_samples=33", "batch_size=16")


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
    summary, clones = json.loads((folder / "summary.json").read_text()), 0
    for file in folder.glob("trial-*/result.json"):
        reports = [json.loads(line) for line in file.read_text().splitlines()]
        clones += len({report["config"]["seed"] for report in reports}) - 1
        for report in reports:
            config, optimizer = report["config"], steps[report["config"]["seed"]]
            peak = BertConfig.from_dict({**summary["settings"], **config}).peak_lr
            assert report[names.PEAK_LEARNING_RATE] == peak
            assert report[names.LEARNING_RATE] in {step["lr"] for step in optimizer}
            assert all(step["lr"] <= peak * 1.001 and step["kind"] == config["optimizer"] for step in optimizer)
            for name in {"momentum", "weight_decay"} & set(config):
                assert {step[name] for step in optimizer} == {config[name]}
    assert clones
    best = summary["best"]["config"]
    assert all({step[name] for step in steps[best["seed"]]} == {best[name]} for name in {"momentum"} & set(best))
