"""The contract that every experiment keeps: run over each ``experiments/tune_*.py`` that there is."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gaudi_tune import Experiment, SweepOptions
from gaudi_tune.base import names
from gaudi_tune.cli.run import dry_run_lines
from gaudi_tune.data.configs import ImageConfig, TextConfig
from gaudi_tune.data.images import images_of
from gaudi_tune.data.text import _load_texts
from gaudi_tune.define.experiment import CHECKPOINT
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.plan.decide_plan import GRAPH_DRAWS, count_graphs
from gaudi_tune.plan.planner import make_plan
from gaudi_tune.training.trial_config import TrialConfig
from tests.helpers.sessions import numbers_of, reports_of

SCRIPTS = sorted(file.stem for file in (PROJECT_ROOT / "experiments").glob("tune_*.py"))
SMALL = {"train_samples": 96, "val_samples": 33, "batch_size": 32}
"""What makes a trial of any experiment take a second or two."""


def experiment_of(script: str) -> Experiment:
    found = importlib.import_module(f"experiments.{script}").EXPERIMENT
    assert isinstance(found, Experiment)
    return found


def small_trial_of(experiment: Experiment) -> dict[str, Any]:
    """Return a small trial of the sample recipe with hyperparameters that learn."""
    learning: dict[str, Any] = {"lr": 0.01, "warmup": 0.0, "momentum": 0.9}
    learning |= {"optimizer": "adamw", "lr": 0.002} if experiment.name in ("bert", "llm") else {}
    learning |= {"packing": False, "micro_batch": 16} if experiment.name == "llm" else {}
    known = set(experiment.config_class.field_names())
    changes = {name: value for name, value in {**SMALL, **learning}.items() if name in known}
    return {**experiment.recipes["sample"].settings(), **experiment.baseline, **changes, "epochs": 3, "seed": 5}


@pytest.fixture(scope="module", params=SCRIPTS)
def experiment(request: pytest.FixtureRequest) -> Experiment:
    return experiment_of(request.param)


@pytest.fixture(scope="module")
def trial(experiment: Experiment) -> dict[str, Any]:
    return small_trial_of(experiment)


@pytest.fixture(scope="module")
def saved(experiment: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(experiment.name) / "checkpoint"


@pytest.fixture(scope="module")
def reports(experiment: Experiment, trial: dict[str, Any], saved: Path) -> list[dict[str, Any]]:
    """The trial in this process, saved after its first report."""
    return reports_of(experiment.train_loop, trial, save_at=1, save_to=saved)


GRAPHS = {"bert": 1, "llm": 16, "resnet18": 2, "resnet50": 1, "resnet50-imagenet": 1, "vit": 1}
"""Of each full recipe on one HPU a trial. An adapter's rank and layers are shapes. Its smallest
batch is two samples on each of eight HPUs, which is one more."""


def test_few_graphs_are_compiled_for_many_trials(experiment: Experiment) -> None:
    for workers in (1, 8):
        full = experiment.for_recipe("full", workers)
        settings = {**full.recipes["full"].settings(), **full.recipes["full"].budget.settings(), "compile": True}
        config = full.config_class.from_dict({**settings, **full.search_space.draws[0].config})
        draws = full.search_space.random_draws(GRAPH_DRAWS)
        graphs = count_graphs(config, draws, DEVICE_TYPES["hpu"], workers)
        assert not graphs.continuous
        assert graphs.most_shapes == (4 if experiment.name == "llm" else 1)  # BERT's batches are in the published order
        assert workers > 1 or graphs.signatures == GRAPHS[experiment.name]
        assert graphs.signatures <= (2 * GRAPHS["llm"] if experiment.name == "llm" else 3)


def test_all_six_are_there() -> None:
    models = ("bert", "llm", "resnet18", "resnet50", "resnet50_imagenet", "vit")
    assert {f"tune_{model}" for model in models} <= set(SCRIPTS)


def test_it_builds_and_dry_runs(experiment: Experiment, storage: Path) -> None:
    plan = make_plan(experiment, SweepOptions(storage=storage, device="cpu"))
    lines = dry_run_lines(plan)
    assert "dry run: all checks passed, nothing was started" in lines
    assert plan.recipe == "sample"
    assert not storage.exists() or not list(storage.iterdir())


@pytest.mark.processes
def test_plans_of_prepared_data_need_no_torch(storage: Path) -> None:
    scripts = [script for script in SCRIPTS if script != "tune_vit"]
    for script in scripts:
        dry_run_lines(make_plan(experiment_of(script), SweepOptions(storage=storage, device="cpu")))
    code = (
        f"import sys; from importlib import import_module; from gaudi_tune import main\nfor script in {scripts}:\n"
        "    experiment = import_module(f'experiments.{script}').EXPERIMENT\n"
        f"    try: main(experiment, '', ['--dry-run', '--device=cpu', '--storage', {str(storage)!r}])\n"
        "    except SystemExit as end: print(script, end.code, {'torch', 'transformers'} & set(sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    ends = [line for line in ran.stdout.splitlines() if line.startswith("tune_")]
    assert ends == [f"{script} 0 set()" for script in scripts]


def test_the_space_asks_for_the_hyperparameters_and_holds_the_baseline(experiment: Experiment) -> None:
    space = experiment.search_space
    assert set(experiment.config_class.required_names()) <= space.always_searched <= set(experiment.baseline)
    assert set(experiment.baseline) <= space.names
    assert space.outside(experiment.baseline) == []
    for optimizer, has_momentum in (("sgd", True), ("adamw", False)):
        assert ("momentum" in space.fix({"optimizer": optimizer}).names) == has_momentum


def test_the_full_recipe_is_the_published_one(experiment: Experiment) -> None:
    full = experiment.recipes["full"]
    config = experiment.config_class.from_dict({**full.settings(), **experiment.baseline, **full.budget.settings()})
    assert config.data
    assert experiment.recipes["sample"].budget.unit == full.budget.unit


def test_a_trial_trains(reports: list[dict[str, Any]]) -> None:
    losses = [report[names.TRAIN_LOSS] for report in reports]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


def test_a_trial_goes_on_from_its_checkpoint(
    experiment: Experiment, trial: dict[str, Any], reports: list[dict[str, Any]], saved: Path
) -> None:
    rest = reports_of(experiment.train_loop, trial, start_from=saved)
    assert list(map(numbers_of, rest)) == list(map(numbers_of, reports[1:]))


def test_the_printed_line_loads_the_checkpoint(
    experiment: Experiment, reports: list[dict[str, Any]], saved: Path
) -> None:
    loaded: dict[str, Any] = {}
    exec(experiment.load_line.replace(CHECKPOINT, str(saved)), loaded)
    assert not loaded["model"].training
    assert all(bool(parameter.isfinite().all()) for parameter in loaded["model"].parameters())


def test_the_predictor_does_on_raw_input_what_the_evaluation_did(
    experiment: Experiment, trial: dict[str, Any], reports: list[dict[str, Any]], saved: Path
) -> None:
    assert experiment.predictor is not None
    predictor = experiment.predictor(saved)
    if experiment.name == "llm":
        pytest.skip("it answers in text: tests/trainables/test_llm.py")
    inputs, labels = raw_validation(experiment.config_class.from_dict(trial))
    predicted = predictor.predict(pd.DataFrame({predictor.example.columns[0]: inputs}))
    right = [label == prediction for label, prediction in zip(labels, predicted["prediction"], strict=True)]
    assert sum(right) / len(right) == pytest.approx(reports[0][names.VAL_ACCURACY])
    assert predicted["probability"].between(1 / len(set(labels)) - 1e-6, 1).all()
    with pytest.raises(ValueError, match=r"the \(first\) column must be '(text|image)', but it is 'label'"):
        predictor.predict(pd.DataFrame({"label": labels, **{predictor.example.columns[0]: inputs}}))


def raw_validation(config: TrialConfig) -> tuple[list[Any], list[str]]:
    """Return the validation samples as a person has them, and the names of their classes."""
    if isinstance(config, TextConfig):
        rows = _load_texts(config)[0]["val"][: config.val_samples or None]
        return [row.text for row in rows], [row.label for row in rows]
    assert isinstance(config, ImageConfig)
    data = images_of(config)
    files = [(data.val._root / os.fsdecode(path)).read_bytes() for path in data.val._paths]
    return files, [data.classes[label] for label in data.val.labels]
