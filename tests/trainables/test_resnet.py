from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision.models import resnet18

from experiments.tune_resnet50_imagenet import EXPERIMENT, sample_settings
from gaudi_tune.data.pretrained import RANDOM
from gaudi_tune.recipes.training_config import check_batch
from gaudi_tune.training.checkpoint import read_state, write_state
from tests.helpers.sessions import numbers_of, reports_of
from trainables.resnet50_imagenet import ResNet50ImageNetConfig, check
from trainables.resnet_network import QUARTER, build_resnet


def test_a_new_head_for_the_classes_there_are(tmp_path: Path) -> None:
    pretrained = resnet18()
    torch.save(pretrained.state_dict(), tmp_path / "resnet18.pth")
    model = build_resnet("resnet18", str(tmp_path / "resnet18.pth"), classes=2)
    assert model.fc.out_features == 2
    assert torch.equal(model.layer4[1].conv2.weight, pretrained.layer4[1].conv2.weight)


def test_weights_with_another_head_serve(tmp_path: Path) -> None:
    torch.save(resnet18(num_classes=7).state_dict(), tmp_path / "seven.pth")
    assert build_resnet("resnet18", str(tmp_path / "seven.pth"), classes=2).fc.out_features == 2


def test_a_checkpoint_serves_as_weights(tmp_path: Path) -> None:
    write_state(tmp_path, {"model": resnet18(num_classes=7).state_dict(), "optimizer": {}})
    assert build_resnet("resnet18", str(tmp_path), classes=2).fc.out_features == 2


def test_one_value_per_channel_is_too_few_for_batch_normalisation() -> None:
    for workers, batch in ((1, {"batch_size": 8, "micro_batch": 1}), (2, {"batch_size": 2})):
        with pytest.raises(ValueError, match=f"batch_size must leave each of {workers} workers 2 samples at a time"):
            check_batch(imagenet(**batch), workers, samples=100)
    check_batch(imagenet(batch_size=2), 1, samples=100)
    check_batch(imagenet(batch_size=2, sync_batch_norm=True), 2, samples=100)
    check_batch(imagenet(batch_size=2, image_size=224), 2, samples=100)


def test_the_plan_says_hours_at_intels_rate() -> None:
    """Of 127 million images: the sample has 1,411 to train on."""
    hours = [fact for fact in check(imagenet(architecture="resnet50", image_size=224, epochs=90_000)) if "HPU" in fact]
    assert hours == ["time: a whole trial takes 6.3 HPU-hours at the 5600 images/s of Intel's MLPerf runs"]


def test_channels_last_computes_the_same_in_another_layout(tmp_path: Path) -> None:
    trial = {**sample_settings(), **EXPERIMENT.baseline, "epochs": 1, "batch_size": 32, "train_samples": 32, "lr": 1e-6}
    trial |= {"val_samples": 8, "lr_for_batch": 0, "schedule": "constant"}
    reports, layouts = {}, {}
    for last in (False, True):
        end = tmp_path / str(last)
        reports[last] = reports_of(EXPERIMENT.train_loop, {**trial, "channels_last": last}, save_at=1, save_to=end)
        weight = read_state(end)["model"]["layer1.0.conv2.weight"]
        layouts[last] = weight.is_contiguous(memory_format=torch.channels_last)
    assert layouts == {False: False, True: True}
    assert numbers_of(reports[True][0]) == pytest.approx(numbers_of(reports[False][0]), rel=1e-4)


def test_the_quarter_is_a_resnet50_of_a_quarter_of_its_channels() -> None:
    channels = []
    for architecture in ("resnet50", QUARTER):
        layers = build_resnet(architecture, RANDOM, 10).named_modules()
        blocks = [layer for name, layer in layers if "layer" in name and "downsample" not in name]
        channels.append([layer.out_channels for layer in blocks if isinstance(layer, torch.nn.Conv2d)])
    assert len(channels[0]) == 48
    assert channels[1] == [whole // 4 for whole in channels[0]]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("other.pth", "these are (the weights of another network than resnet50|not the weights of a resnet50)"),
        ("list.pth", "the file holds a list, not a state dict"),
        ("no.pth", "the file holds no state dict that torch can read safely"),
        ("IMAGENET21K", "no such file, and no weights that torchvision has for resnet50; .*random, IMAGENET1K_V1"),
    ],
)
def test_weights_that_cannot_be_used_are_named(weights: str, message: str, tmp_path: Path) -> None:
    torch.save(resnet18().state_dict(), tmp_path / "other.pth")
    (tmp_path / "no.pth").write_text("no weights")
    torch.save([1, 2], tmp_path / "list.pth")
    given = str(tmp_path / weights) if weights.endswith(".pth") else weights
    with pytest.raises(ValueError, match=f"--model {given}: {message}"):
        build_resnet("resnet50", given, classes=2)


def imagenet(**changes: Any) -> ResNet50ImageNetConfig:
    recipe = {**sample_settings(), **EXPERIMENT.baseline, "epochs": 1}
    return ResNet50ImageNetConfig.from_dict({**recipe, **changes})


def test_habanas_switches_become_variables_of_the_process() -> None:
    assert imagenet().worker_environment() == {}
    assert imagenet(gpu_migration=True, fp16_to_bf16=True).worker_environment() == {
        "PT_HPU_GPU_MIGRATION": "1",
        "PT_HPU_CONVERT_FP16_TO_BF16_FOR_MIGRATION": "1",
    }
    assert imagenet(lazy_mode=True).worker_environment() == {"PT_HPU_LAZY_MODE": "1"}
    assert imagenet(lazy_mode=False).worker_environment() == {"PT_HPU_LAZY_MODE": "0"}


def test_habanas_switches_are_refused_without_habana() -> None:
    with pytest.raises(ValueError, match="--set gpu_migration=true: this setting needs habana_frameworks"):
        check(imagenet(gpu_migration=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fp16_to_bf16": True}, "with gpu_migration, but got gpu_migration=False, fp16_to_bf16=True"),
        ({"lazy_mode": True, "compile": True}, "compile and lazy_mode exclude each other"),
        ({"sync_batch_norm": True, "compile": True}, "compile and sync_batch_norm exclude each other"),
    ],
)
def test_switches_that_contradict_each_other_are_an_error(changes: dict[str, bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        imagenet(**changes)
