"""What is trained again after the search is trained with the same settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from ray import tune

from gaudi_tune import Budget, Experiment, Recipe, build_tuner, report
from gaudi_tune.devices.cuda import CUDA
from tests.helpers.groups import in_one_group


def choosing(config: dict[str, Any]) -> None:
    """Choose algorithms as the shared loop does on a GPU, and report which are on."""
    CUDA.choose_algorithms(tf32=config["tf32"], benchmark=config["cudnn_benchmark"])
    chosen = {"tf32": torch.backends.cudnn.allow_tf32, "cudnn_benchmark": torch.backends.cudnn.benchmark}
    report({"score": config["x"] + config["tf32"], "of": config["confirms"], **chosen})


CHOOSING = Experiment(
    train_loop=choosing,
    space={"x": tune.uniform(0.0, 0.5), "tf32": tune.choice([False, True])},
    baseline={"x": 0.1, "tf32": False},
    recipes={"full": Recipe(settings=lambda: {"cudnn_benchmark": False}, budget=Budget(epochs=1), num_samples=4)},
    metric="score",
)
"""One algorithm is a setting and the other a hyperparameter, with which a trial is better."""


def test_the_confirmation_chooses_the_algorithms_of_the_search(ray_here: None, tmp_path: Path) -> None:
    given: dict[str, Any] = {"settings": ("cudnn_benchmark=true",), "confirm": 1, "seeds": 2, "search": "random"}
    in_one_group(build_tuner(CHOOSING, storage=tmp_path, name="chosen", seed=1, device="cpu", **given)).fit()
    reports = [json.loads(file.read_text()) for file in sorted((tmp_path / "chosen").glob("trial-*/result.json"))]
    assert [row["cudnn_benchmark"] for row in reports] == [True] * 8
    assert [row["tf32"] for row in reports if row["of"]] == [False] * 2 + [True] * 2, "the baseline, then the best"
