from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ViTForImageClassification

from experiments.tune_vit import EXPERIMENT, sample_settings
from trainables.vit import RANDOM, ViTTrialConfig, check
from trainables.vit_network import build_vit, describe_network

MILLIONS = {"B/16": 86, "B/32": 87.5, "L/16": 304, "L/32": 306, "H/14": 632}
"""Parameters as published (Dosovitskiy et al. 2021, table 1); /32 has larger patches and fewer positions."""


def vit(**changes: Any) -> ViTTrialConfig:
    recipe = {**sample_settings(), **EXPERIMENT.baseline, "steps": 2, "eval_every": 1}
    return ViTTrialConfig.from_dict({**recipe, **changes})


@pytest.mark.parametrize("size", MILLIONS)
def test_the_published_sizes(size: Any) -> None:
    with torch.device("meta"):  # shapes without memory
        model = build_vit(RANDOM, size, describe_network(vit(size=size, image_size=224)), classes=2)
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(MILLIONS[size], rel=0.005)


def test_pretrained_weights_get_a_new_head_and_other_image_sizes(tmp_path: Path) -> None:
    network = describe_network(vit())
    network.num_labels = 21
    pretrained = ViTForImageClassification(network)
    pretrained.save_pretrained(tmp_path)
    config = vit(model=str(tmp_path), image_size=48)
    assert "new head" in check(config)[-1]
    model = build_vit(str(tmp_path), "sample", describe_network(config), classes=3)
    assert model(torch.zeros(2, 3, 48, 48)).shape == (2, 3)
    kept = pretrained.vit.embeddings.patch_embeddings.projection.weight
    assert torch.equal(model.vit.vit.embeddings.patch_embeddings.projection.weight, kept)


def test_weights_of_another_network_are_refused(sample: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a ViT of 3 channels is needed, and this is a bert of 3"):
        check(vit(model=sample["model"]))
    network = describe_network(vit())
    network.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"--model {tmp_path}: the folder does not hold a model"):
        check(vit(model=str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 36}, "image_size must be a multiple of the network's patches of 8 pixels, but got 36"),
        ({"model": "in21k"}, "--set size=sample: there are no weights of this size; take --model random"),
        ({"model": "/nowhere"}, "--model /nowhere: no such folder, and not on the hub"),
    ],
)
def test_a_network_that_cannot_be_had_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(vit(**changes))


@pytest.mark.parametrize("zero_head", [True, False])
def test_dropout_and_a_head_of_zeros_are_settings(zero_head: bool) -> None:
    network = describe_network(vit(dropout=0.3))
    built = build_vit(RANDOM, "sample", network, classes=3, zero_head=zero_head).vit
    assert built.config.hidden_dropout_prob == 0.3
    assert bool(built.classifier.weight.any()) is not zero_head
