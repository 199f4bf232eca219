"""What is imported where: ``--help`` answers at once, and groups start soon."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from gaudi_tune.base.process import no_collection
from gaudi_tune.define.options import PROJECT_ROOT

LARGE = ("torch", "torchvision", "transformers", "datasets", "evaluate", "ray", "pandas", "sklearn")
SMALL = (
    "trainables.bert", "trainables.vit", "trainables.resnet18", "trainables.resnet50", "trainables.resnet50_imagenet",
    "gaudi_tune.training.prediction", "gaudi_tune.data.configs", "gaudi_tune.data.sample_text",
    "gaudi_tune.data.sample_digits",
    "gaudi_tune", "gaudi_tune.base.process", "gaudi_tune.base.names", "gaudi_tune.training.session",
    "gaudi_tune.base.files",
    "gaudi_tune.recipes.training_config", "gaudi_tune.recipes.schedules",
)  # fmt: skip


def imported_with(module: str) -> list[str]:
    """Return which of the large libraries a process has that imports a module of this project."""
    program = f"import sys, {module}; print(*[name for name in {LARGE} if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.split()


@pytest.mark.processes
@pytest.mark.parametrize("module", SMALL)
def test_it_imports_no_large_library(module: str) -> None:
    assert imported_with(module) == []


@pytest.mark.processes
def test_a_trial_actor_imports_what_ray_needs_and_no_torch() -> None:
    """Workers do: in their trial actor it would take 1.6 s of CPU and 500 MB more."""
    assert imported_with("gaudi_tune.group.warm_trainable") == ["ray", "pandas"]


@pytest.mark.processes
def test_rays_tune_can_be_the_first_name_that_is_imported() -> None:
    program = "from gaudi_tune import tune; tune.uniform(0, 1)"
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.processes
def test_python_without_docstrings_is_refused() -> None:
    command = [sys.executable, "-OO", "-c", "import gaudi_tune"]
    ran = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert "ImportError: python -OO, or PYTHONOPTIMIZE=2, removes docstrings" in ran.stderr


def test_no_garbage_is_looked_for_in_the_block_and_afterwards_as_before() -> None:
    enabled = []
    with no_collection():
        with no_collection():
            enabled.append(gc.isenabled())
        enabled.append(gc.isenabled())
    assert [*enabled, gc.isenabled()] == [False, False, True]
