"""What is imported where: ``--help`` answers at once, and groups start soon."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_tune.base.process import no_collection
from gaudi_tune.define.options import PROJECT_ROOT
from tests.helpers.kept_sweeps import kept

LARGE = (
    "torch", "torchvision", "transformers", "datasets", "evaluate", "ray", "pandas", "sklearn", "scipy", "mlflow",
    "optuna", "plotly", "matplotlib", "habana_frameworks",
)  # fmt: skip
SMALL = (
    "trainables.bert", "trainables.vit", "trainables.resnet18", "trainables.resnet50", "trainables.resnet50_imagenet",
    "gaudi_tune.training.prediction", "gaudi_tune.data.configs", "gaudi_tune.data.sample_text",
    "gaudi_tune.data.sample_digits", "gaudi_tune", "gaudi_tune.base.process", "gaudi_tune.base.names",
    "gaudi_tune.training.session", "gaudi_tune.base.files", "gaudi_tune.recipes.training_config",
    "gaudi_tune.recipes.schedules",
)  # fmt: skip
HELP = """
from gaudi_tune import main
try:
    main(None, "A test.", ["--help"])
except SystemExit:
    pass
"""
LOOK = """
from gaudi_tune.cli.commands import main
for command in (["ls", sys.argv[1]], ["show", sys.argv[1] + "/done"]):
    assert main(command) == 0
"""
DEVICES = """
from gaudi_tune.devices.find import find_devices
find_devices("cpu", None), find_devices("auto", [{"HPU": 8.0}])
"""
SPACE = """
from gaudi_tune.define.search_space import SearchSpace
from search_spaces.bert import space
SearchSpace(space).names
"""
DRY_RUN = """
from pathlib import Path
from gaudi_tune import SweepOptions
from gaudi_tune.cli.run import run
from tests.helpers.quadratic import QUADRATIC
assert run(QUADRATIC, SweepOptions(storage=Path(sys.argv[1]), dry_run=True), []) == 0
"""
TRIAL_ACTOR = "import gaudi_tune.group.warm_trainable"
"""Workers import torch: in their trial actor it would take 1.6 s of CPU and 500 MB more."""
FIGURES = "import gaudi_tune.show.pictures.figures"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "may_have"),
    [
        (f"import {', '.join(SMALL)}", ""),
        (HELP, "optuna"),
        (LOOK, "optuna"),
        (DEVICES, ""),
        (SPACE, "optuna"),
        (DRY_RUN, "optuna ray pandas torch scipy"),
        (TRIAL_ACTOR, "ray pandas"),
        (FIGURES, "plotly optuna pandas"),
    ],
    ids=["small modules", "help", "ls and show", "devices", "space", "dry run", "trial actor", "figures"],
)
def test_large_libraries_are_imported_only_where_they_are_used(program: str, may_have: str, storage: Path) -> None:
    kept(storage, "done", 0.1, 0.8, num_samples=2, confirm=0)
    look = f"print(*[name for name in {LARGE} if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\n{look}", str(storage)],
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(ran.stdout.splitlines()[-1].split()) <= set(may_have.split())


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
