"""What every command imports, so that ``--help`` answers at once: no module here may bring a large library with it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from experiments.sweep.define.options import PROJECT_ROOT

LARGE = ("torch", "torchvision", "transformers", "datasets", "evaluate", "ray", "pandas", "sklearn")
SMALL = (
    "trainables.bert", "trainables.vit", "trainables.resnet18", "trainables.resnet50", "trainables.resnet50_imagenet",
    "trainables.prediction", "trainables.data.configs", "trainables.data.sample_text", "trainables.data.sample_digits",
    "trainables.runtime", "trainables.runtime.names", "trainables.runtime.session", "trainables.runtime.writing",
    "trainables.runtime.training.training_config", "trainables.runtime.training.schedules",
)  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("module", SMALL)
def test_it_imports_no_large_library(module: str) -> None:
    program = f"import sys, {module}; print(*[name for name in {LARGE} if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == []
