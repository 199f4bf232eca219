"""A model is added as CONTRIBUTING says: three files, nothing else, and a loop as Ray's documentation has it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.sweep.define.options import PROJECT_ROOT

pytestmark = pytest.mark.workers

TRAINABLE = '''"""A line through points, with the train loop of Ray Train's PyTorch guide; one import is changed."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from ray.train import Checkpoint
from ray.train.torch import prepare_data_loader, prepare_model
from torch.utils.data import DataLoader, TensorDataset

from trainables import runtime as train
from trainables.runtime import TrialConfig


@dataclass(frozen=True, kw_only=True)
class LineConfig(TrialConfig):
    lr: float


def train_loop(config):
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, 3 * x), batch_size=16, shuffle=True))
    model = prepare_model(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for epoch in range(config["epochs"]):
        for points, values in loader:
            loss = torch.nn.functional.mse_loss(model(points), values)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), Path(folder) / "model.pt")
            train.report({"loss": loss.item()}, checkpoint=Checkpoint.from_directory(folder))


def check(config):
    return ["data: 64 points on a line"]
'''
SPACE = '''"""Search space of the line."""

from ray import tune

SPACE = {"lr": tune.loguniform(1e-3, 1.0)}
BASELINE = {"lr": 0.01}
'''
SCRIPT = '''"""Tune a line."""

from experiments import Budget, Experiment, Recipe, main
from search_spaces.line import BASELINE, SPACE
from trainables import line

EXPERIMENT = Experiment(
    name="line",
    train_loop=line.train_loop,
    config_class=line.LineConfig,
    space=SPACE,
    baseline=BASELINE,
    recipes={name: Recipe(settings=dict, budget=Budget(epochs=3), num_samples=3) for name in ("full", "sample")},
    check=line.check,
    load_line='import torch; state = torch.load("{checkpoint}/model.pt", weights_only=True)',
    display_params=("lr",),
    metric="loss",
    mode="min",
)

if __name__ == "__main__":
    main(EXPERIMENT, __doc__)
'''


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The packages of this project in a folder of the test's own, and the three files."""
    for package in ("experiments", "search_spaces", "trainables"):
        shutil.copytree(PROJECT_ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "trainables" / "line.py").write_text(TRAINABLE)
    (tmp_path / "search_spaces" / "line.py").write_text(SPACE)
    (tmp_path / "experiments" / "tune_line.py").write_text(SCRIPT)
    return tmp_path


def test_three_files_make_a_sweep(project: Path) -> None:
    options = ["--name", "sixth", "--storage", "results", "--device", "cpu", "--workers-per-trial", "2"]
    script = [sys.executable, "experiments/tune_line.py", *options]
    done = subprocess.run(
        script, cwd=project, env={**os.environ, "PYTHONPATH": str(project)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((project / "results" / "sixth" / "summary.json").read_text())
    assert sum(summary["trials"].values()) == 3
    assert summary["best"]["value"] < summary["baseline"]
    assert (Path(summary["best"]["checkpoint"]) / "model.pt").is_file()
