"""Every experiment's model trains with the hyperparameters that its configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gaudi_tune.base import names
from gaudi_tune.devices.find import DEVICE_TYPES
from tests.experiments.test_every_experiment import SCRIPTS, experiment_of
from tests.helpers.sessions import hyperparameters_of_each_step, reports_of

SMALL = {"train_samples": 32, "val_samples": 8, "batch_size": 8, "micro_batch": 0, "warmup": 0.0, "loader_workers": 0}
PEAKS_AT_ONCE = {"schedule": "step", "optimizer": "sgd", "packing": False}
"""For models with a choice of schedules; the published table of ImageNet has its peak in no short trial."""
DONOR = {"lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4, "seed": 1}
CLONE = {"lr": 0.003, "momentum": 0.5, "weight_decay": 1e-2, "seed": 2}
STEPS_PER_EPOCH, EPOCHS = 4, 3
DROPOUT, MIXING = "each worker draws its own dropout", "mixup and cutmix mix the images of one worker"


@pytest.mark.parametrize(
    ("script", "changes", "reason"),
    [
        ("tune_bert", {"dropout": 0.0}, None),
        ("tune_bert", {"dropout": 0.1}, DROPOUT),
        ("tune_llm", {"dropout": 0.1}, DROPOUT),
        ("tune_vit", {"dropout": 0.0}, None),
        ("tune_vit", {"dropout": 0.1}, DROPOUT),
        ("tune_vit", {"dropout": 0.0, "mixup": 0.2}, MIXING),
        ("tune_resnet50", {"sync_batch_norm": True, "cutmix": 1.0}, MIXING),
    ],
    ids=str,
)
def test_what_more_workers_would_draw_differently_is_named(
    script: str, changes: dict[str, Any], reason: str | None
) -> None:
    experiment = experiment_of(script)
    config = experiment.config_class.from_dict({**experiment.baseline, "epochs": 1, "compile": False, **changes})
    assert config.why_not_wider(DEVICE_TYPES["cpu"], 1, 2) is None
    assert config.why_not_exact(DEVICE_TYPES["cpu"], 1, 2) == reason


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_clone_trains_with_the_hyperparameters_that_its_configuration_names(script: str, tmp_path: Path) -> None:
    experiment = experiment_of(script)
    known = {name: value for name, value in PEAKS_AT_ONCE.items() if name in experiment.config_class.field_names()}
    small = {**experiment.recipes["sample"].settings(), **experiment.baseline, **SMALL, **known, "epochs": EPOCHS}
    with hyperparameters_of_each_step() as of_donor:
        reports_of(experiment.train_loop, {**small, **DONOR}, save_at=1, save_to=tmp_path / "saved")
    with hyperparameters_of_each_step() as of_clone:
        reports = reports_of(experiment.train_loop, {**small, **CLONE}, start_from=tmp_path / "saved")
    assert len(of_donor) == EPOCHS * STEPS_PER_EPOCH
    assert len(of_clone) == len(of_donor) - STEPS_PER_EPOCH
    assert max(step["lr"] for step in of_donor) == DONOR["lr"]
    # A schedule gives each step a share of the peak, whichever trial trained the steps before.
    shares = [step["lr"] / DONOR["lr"] for step in of_donor[STEPS_PER_EPOCH:]]
    assert [step["lr"] / CLONE["lr"] for step in of_clone] == pytest.approx(shares)
    for config, steps in ((DONOR, of_donor), (CLONE, of_clone)):  # as in nearly every baseline
        assert {(s["momentum"], s["weight_decay"]) for s in steps} == {(config["momentum"], config["weight_decay"])}
    last_of_each_epoch = [step["lr"] for step in of_clone[STEPS_PER_EPOCH - 1 :: STEPS_PER_EPOCH]]
    assert [report[names.LEARNING_RATE] for report in reports] == last_of_each_epoch
