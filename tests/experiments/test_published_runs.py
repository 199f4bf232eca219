"""What is published, pinned: baselines, budgets and settings of the recipes. And every space holds its baseline."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from typing import Any

import pytest
from optuna.distributions import FloatDistribution

from gaudi_tune import Experiment, SweepOptions
from gaudi_tune.cli.command_line import parse_options
from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.define.experiment import RecipeName
from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices.find import DEVICE_TYPES, Devices
from gaudi_tune.plan.apply import AppliedOptions, apply_options, check_space
from gaudi_tune.recipes.training_config import TrainingConfig, num_micro_batches
from gaudi_tune.sweep.policies.growth import max_devices
from trainables import resnet50_imagenet, vit

SCRIPTS = sorted((PROJECT_ROOT / "experiments").glob("tune_*.py"))
EXPERIMENTS = [importlib.import_module(f"experiments.{script.stem}").EXPERIMENT for script in SCRIPTS]
BY_NAME = {experiment.name: experiment for experiment in EXPERIMENTS}
PLAIN = {"optimizer": "sgd", "weight_decay": 0.0, "schedule": "constant", "warmup": 0.0}
TABLE = {"optimizer": "sgd", "weight_decay": 1e-4, "schedule": "published", "warmup": 0.0, "label_smoothing": 0.0}
BASELINES: dict[tuple[str, int], dict[str, Any]] = {
    ("resnet50", 2): {"lr": 0.001, "batch_size": 32, "momentum": 0.9, **PLAIN},
    ("bert", 2): {"lr": 0.001, "batch_size": 8, "momentum": 0.9, **PLAIN},
    ("resnet50-imagenet", 1): {"lr": 0.8, "batch_size": 256, "momentum": 0.9, "decayed": "all", **TABLE},
    ("resnet50-imagenet", 8): {"lr": 0.8, "batch_size": 2048, "momentum": 0.9, "decayed": "all", **TABLE},
    ("vit", 8): {
        "lr": 0.06, "batch_size": 2048, "momentum": 0.9, **PLAIN, "schedule": "cosine", "warmup": 500 / 20_000,
    },
    ("resnet18", 2): {"lr": 0.001, "batch_size": 128, "momentum": 0.0, **PLAIN},
    ("llm", 1): {
        "lr": 3e-4, "batch_size": 32, "micro_batch": 4, "optimizer": "adamw", "weight_decay": 0.01, "rank": 64,
        "alpha_ratio": 2.0, "dropout": 0.0, "schedule": "cosine", "warmup": 100 / 1617, "max_length": 2048,
    },
}  # fmt: skip
"""By experiment and workers of a trial."""


def config_of(experiment: Experiment, workers: int, **changes: Any) -> TrainingConfig:
    """The full recipe's baseline as a trial gets it."""
    full, baseline = experiment.recipes["full"], experiment.for_recipe("full", workers).baseline
    settings = {**full.settings(), **full.budget.settings(), **baseline, **changes}
    config = experiment.config_class.from_dict(settings)
    assert isinstance(config, TrainingConfig)
    return config


def asked_of(name: str, workers: int, **options: Any) -> AppliedOptions:
    """What the full recipe's sweep has with these options."""
    return apply_options(BY_NAME[name], SweepOptions(recipe="full", workers_per_trial=workers, **options), "hpu")


@pytest.mark.parametrize(("name", "workers"), BASELINES)
def test_the_baseline_is_the_published_run(name: str, workers: int) -> None:
    published = BASELINES[name, workers]
    config = config_of(BY_NAME[name], workers, **asked_of(name, workers).settings)
    assert {key: getattr(config, key) for key in published} == published
    assert (config.lr_for_batch, config.peak_lr) == (published["batch_size"], published["lr"])


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("name", BY_NAME)
def test_the_learning_rate_goes_with_the_batch(name: str, workers: int) -> None:
    asked = asked_of(name, workers, settings=("lr=0.01",))
    settings, usual = asked.settings, asked.experiment.baseline["batch_size"]
    trials = [
        config_of(BY_NAME[name], workers, **{**settings, "batch_size": times * usual, "optimizer": optimizer})
        for times, optimizer in ((1, "sgd"), (4, "sgd"), (4, "adamw"))
    ]
    assert asked.experiment.search_space.fixed == {"lr": 0.01}
    assert [trial.peak_lr for trial in trials] == pytest.approx([0.01, 0.04, 0.02])


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_the_range_of_imagenets_learning_rate_follows_the_published_batch(workers: int) -> None:
    experiment = asked_of("resnet50-imagenet", workers).experiment
    around_goyals = FloatDistribution(0.02 * workers, 0.8 * workers, log=True)  # 0.1 for 256 images
    assert experiment.search_space.ranges["lr"] == [around_goyals]
    assert experiment.baseline["lr"] == 0.8
    assert experiment.search_space.outside(experiment.baseline) == []


@pytest.mark.parametrize(
    ("name", "most"),
    [("bert", 8), ("llm", 8), ("vit", 8), ("resnet50-imagenet", 8), ("resnet18", 2), ("resnet50", None)],
)
def test_on_eight_hpus_five_of_the_six_recipes_grow(name: str, most: int | None) -> None:
    """The batch of ResNet-50 on ants and bees, 32 images, leaves batch normalisation 16 images on each of two."""
    config, devices = config_of(BY_NAME[name], 1), Devices(DEVICE_TYPES["hpu"], (8,), "for a test")
    answer = max_devices(config, devices, SweepOptions())
    assert answer == most if most else "16 images on each of 2" in str(answer)
    exact = max_devices(config, devices, SweepOptions(grow="exact"))
    assert exact == 8 if name == "llm" else isinstance(exact, str)  # its published run has no dropout


def test_budgets_and_settings_are_the_published_ones() -> None:
    budgets = {name: str(experiment.recipes["full"].budget) for name, experiment in BY_NAME.items()}
    assert budgets == {
        "resnet50": "10 epochs",
        "bert": "10 epochs",
        "llm": "1 epoch",
        "resnet50-imagenet": "90 epochs",
        "vit": "20000 steps (a report every 1000)",
        "resnet18": "1 epoch",
    }
    transformer = config_of(BY_NAME["vit"], 8)
    assert isinstance(transformer, vit.ViTTrialConfig)
    assert (transformer.size, transformer.image_size, transformer.crop_scale) == ("B/16", 160, 0.05)
    assert (transformer.clip_norm, transformer.normalization) == (1.0, "half")
    assert (transformer.flip, transformer.resize, transformer.dropout, transformer.zero_head) == (
        False, "square", 0.1, True,
    )  # fmt: skip
    tiny = config_of(BY_NAME["resnet18"], 2)
    assert isinstance(tiny, ImageConfig)
    assert (tiny.normalization, tiny.flip, tiny.resize, tiny.loader_workers) == ("none", True, "crop", 4)
    imagenet = config_of(BY_NAME["resnet50-imagenet"], 8)
    assert isinstance(imagenet, resnet50_imagenet.ResNet50ImageNetConfig)
    assert (imagenet.eval_batch, imagenet.compile, imagenet.schedule) == (256, "auto", "published")
    table = imagenet.make_schedule()
    epochs = {0: 0.1, 1: 0.275, 2: 0.45, 3: 0.625, 4: 0.8, 29: 0.8, 30: 0.08, 60: 0.008, 79: 0.008, 80: 0.0008}
    rates = {epoch: imagenet.lr * table.factor(epoch * 10, 900, steps_per_epoch=10) for epoch in epochs}
    assert rates == pytest.approx(epochs)


def test_the_command_for_lars_repeats_its_published_run() -> None:
    """The options that docs/recipes.md has, for 8 HPUs."""
    command = re.search(r"`(--epochs 35 [^`]*)`", (PROJECT_ROOT / "docs" / "recipes.md").read_text())
    assert command is not None
    options = parse_options(command[1].split())
    asked = apply_options(BY_NAME["resnet50-imagenet"], replace(options, recipe="full", workers_per_trial=8), "hpu")
    config = asked.experiment.config_with({**asked.settings, "epochs": 35})
    assert isinstance(config, TrainingConfig)
    assert (options.epochs, options.grace) == (35, 4)
    assert (config.optimizer, config.schedule, config.decayed) == ("lars", "polynomial", "weights")
    assert (config.momentum, config.weight_decay, config.label_smoothing) == (0.9, 5e-5, 0.1)
    assert (config.batch_size, config.lr_for_batch, config.peak_lr) == (2048, 2048, 9.0)
    rates = [config.peak_lr * config.make_schedule().factor(epoch * 100, 3500, 100) for epoch in range(36)]
    assert rates[3] == max(rates)
    assert rates[1] == pytest.approx(rates[3] / 3, rel=0.02)
    left = [1 - (epoch - 3) / 33 for epoch in range(4, 35)]  # of the source's 36 epochs, without the warm-up
    assert rates[4:-1] == pytest.approx([rates[3] * share**2 for share in left], abs=0.07 * rates[3])


def test_trials_of_imagenet_are_compared_between_the_drops_of_the_learning_rate() -> None:
    for recipe, rungs in (("full", [5, 15, 45]), ("sample", [4])):
        budget = BY_NAME["resnet50-imagenet"].recipes[recipe].budget
        assert budget.rungs() == rungs
        drops = [share * budget.total for share, _ in resnet50_imagenet.PUBLISHED_TABLE]
        assert not any(drop - 1 <= rung <= drop for rung in rungs for drop in drops[1:] if drop > 4)


@pytest.mark.parametrize(
    ("name", "workers", "batch_size", "number"),
    [("vit", 8, 2048, 2), ("vit", 1, 2048, 16), ("vit", 1, 256, 2), ("resnet50-imagenet", 8, 2048, 1),
     ("resnet50-imagenet", 1, 256, 1), ("resnet50-imagenet", 1, 2048, 8)],
)  # fmt: skip
def test_the_published_batch_trains_in_passes_that_a_device_holds(
    name: str, workers: int, batch_size: int, number: int
) -> None:
    assert num_micro_batches(config_of(BY_NAME[name], workers, batch_size=batch_size), workers) == number


@pytest.mark.parametrize("recipe", ["full", "sample"])
@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("name", BY_NAME)
def test_every_space_holds_its_baseline_at_every_width(name: str, workers: int, recipe: RecipeName) -> None:
    experiment = BY_NAME[name].for_recipe(recipe, workers)
    check_space(experiment)
    sizes = experiment.search_space.values("batch_size")
    assert experiment.baseline["batch_size"] in sizes
    assert all(size % workers == 0 for size in sizes)
