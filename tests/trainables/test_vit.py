from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom
from transformers import ViTForImageClassification

from experiments.tune_vit import EXPERIMENT, sample_settings
from gaudi_tune.data.pretrained import RANDOM
from tests.helpers.sessions import reports_of
from tests.helpers.sources import LAYERS, PATCH, SIDE, GoogleViT, google_weights
from trainables.vit import ViTTrialConfig, check, network_of, train_loop
from trainables.vit_network import build_vit

MILLIONS = {"B/16": 86, "B/32": 87.5, "L/16": 304, "L/32": 306, "H/14": 632}
"""Parameters as published (Dosovitskiy et al. 2021, table 1); /32 has larger patches and fewer positions."""


def vit(**changes: Any) -> ViTTrialConfig:
    recipe = {**sample_settings(), **EXPERIMENT.baseline, "steps": 2, "eval_every": 1}
    return ViTTrialConfig.from_dict({**recipe, **changes})


@pytest.mark.parametrize("size", MILLIONS)
def test_the_published_sizes(size: Any) -> None:
    with torch.device("meta"):  # shapes without memory
        model = build_vit(RANDOM, size, network_of(vit(size=size, image_size=224)), classes=2)
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(MILLIONS[size], rel=0.005)


def test_pretrained_weights_get_a_new_head_and_other_image_sizes(tmp_path: Path) -> None:
    network = network_of(vit())
    network.num_labels = 21
    pretrained = ViTForImageClassification(network)
    pretrained.save_pretrained(tmp_path)
    config = vit(model=str(tmp_path), image_size=48)
    assert "new head" in check(config)[-1]
    model = build_vit(str(tmp_path), "sample", network_of(config), classes=3)
    assert model(torch.zeros(2, 3, 48, 48)).shape == (2, 3)
    kept = pretrained.vit.embeddings.patch_embeddings.projection.weight
    assert torch.equal(model.vit.vit.embeddings.patch_embeddings.projection.weight, kept)


def test_the_plan_says_hours_at_the_published_rate() -> None:
    published = {"size": "B/16", "steps": 20_000}
    assert "takes 13.4 HPU-hours" in check(vit(**published, lr_for_batch=2048))[-2]  # 8 HPUs for 1.7 hours
    assert "takes 1.7 HPU-hours" in check(vit(**published, lr_for_batch=256))[-2]


def test_positions_are_resampled_once_and_linearly_as_in_the_published_run(tmp_path: Path) -> None:
    network = network_of(vit(image_size=56))  # 7 by 7 patches
    network.num_labels = 21
    pretrained = ViTForImageClassification(network)
    pretrained.save_pretrained(tmp_path)
    model = build_vit(str(tmp_path), "sample", network_of(vit(model=str(tmp_path), image_size=40)), classes=3)
    before, after = (one.vit.embeddings.position_embeddings.detach() for one in (pretrained, model.vit))
    assert torch.equal(after[:, :1], before[:, :1])
    expected = zoom(before[0, 1:].reshape(7, 7, -1).numpy(), (5 / 7, 5 / 7, 1), order=1)
    np.testing.assert_allclose(after[0, 1:].reshape(5, 5, -1), expected, atol=1e-6)
    assert model.vit.vit.embeddings.position_embeddings.requires_grad
    read_again = build_vit(RANDOM, "", type(network).from_dict(model.vit.config.to_dict()), classes=3)
    read_again.load_state_dict(model.state_dict())
    images = torch.rand(2, 3, 40, 40)
    torch.testing.assert_close(read_again.eval()(images), model.eval()(images))


def test_dropout_is_where_the_published_network_has_it() -> None:
    model = build_vit(RANDOM, "sample", network_of(vit(dropout=0.3)), classes=3)
    zeros: dict[str, float] = {}

    def look(name: str) -> Callable[..., None]:
        def note(module: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            for side, values in (("in", inputs[0]), ("out", output)):  # a layer's dropout comes after attention first
                zeros.setdefault(f"{name} {side}", (values == 0).float().mean().item())

        return note

    names = {"fc2": "mlp.fc2", "attention": "layers.0.dropout", "embeddings": "embeddings.dropout"}
    modules = dict(model.vit.named_modules())
    for name, ending in names.items():
        module = next(found for path, found in modules.items() if path.endswith(ending))
        module.register_forward_hook(look(name))
    images = torch.rand(64, 3, 32, 32)
    model.train()(images)
    dropped = {name for name, share in zeros.items() if share > 0.2}
    assert dropped == {"fc2 in", "fc2 out", "embeddings out"}
    assert all(zeros[name] == pytest.approx(0.3, abs=0.01) for name in dropped)
    zeros.clear()
    model.eval()(images)
    assert max(zeros.values()) < 0.01


def test_the_learning_rate_rises_as_in_the_published_run() -> None:
    """k / 500 of the peak in step k, and then a cosine to the end."""
    schedule = vit(schedule="cosine", warmup=0.025, steps=20_000).make_schedule()
    factors = [schedule.factor(step, 20_000, 4) for step in (0, 1, 499, 500, 10_250, 19_999)]
    later = [0.5 * (1 + math.cos(math.pi * (step - 500) / 19_500)) for step in (500, 10_250, 19_999)]
    assert factors == pytest.approx([0.0, 1 / 500, 499 / 500, *later], abs=1e-15)


def test_the_authors_files_are_read(tmp_path: Path) -> None:
    file, arrays = tmp_path / "B_4.npz", google_weights()
    np.savez(file, **arrays)
    config = vit(model=str(file), image_size=SIDE * PATCH)
    assert f"ViT-sample, {LAYERS} layers, weights {file}, a new head" in check(config)[-1]
    model = build_vit(str(file), "sample", network_of(config), classes=5).eval()
    images = torch.rand(2, 3, SIDE * PATCH, SIDE * PATCH)
    head = model.vit.classifier
    torch.testing.assert_close(model(images), head(GoogleViT(arrays).features(images)), rtol=1e-4, atol=1e-5)
    assert head.out_features == 5
    small = {"image_size": 32, "train_samples": 64, "val_samples": 8, "batch_size": 32}
    reports = reports_of(train_loop, {**asdict(config), **small})
    assert len(reports) == 2  # at another image size than the weights'


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: file.unlink(), "it cannot be read as an .npz file"),
        (lambda file: file.write_text("no zip"), "it cannot be read as an .npz file"),
        (lambda file: np.savez(file, cls=np.zeros(3)), "not the weights of a ViT .* embedding/kernel is missing"),
        (
            lambda file: np.savez(file, **{n: a for n, a in google_weights().items() if "_1/LayerNorm_2" not in n}),
            "encoderblock_1/LayerNorm_2/scale is missing or damaged",
        ),
    ],
    ids=["missing", "no zip", "another network", "incomplete"],
)
def test_files_that_are_not_the_authors_are_refused(spoil: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "B_4.npz"
    np.savez(file, **google_weights())
    spoil(file)
    with pytest.raises(ValueError, match=f"--model {file}: .*{message}"):
        check(vit(model=str(file), image_size=SIDE * PATCH))


def test_weights_of_another_network_are_refused(sample: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a ViT of 3 channels is needed, and this is a bert of 3"):
        check(vit(model=sample["model"]))
    network = network_of(vit())
    network.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"--model {tmp_path}: the folder does not hold a model"):
        check(vit(model=str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 36}, "image_size must be a multiple of the network's patches of 8 pixels, but got 36"),
        ({"model": "in21k"}, "--set size=sample: there are no weights of this size; take --model random"),
        ({"model": "/nowhere"}, "--model /nowhere: no such folder here, and the hub lacks it or cannot be reached"),
    ],
)
def test_a_network_that_cannot_be_had_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(vit(**changes))


@pytest.mark.parametrize("zero_head", [True, False])
def test_dropout_and_a_head_of_zeros_are_settings(zero_head: bool) -> None:
    network = network_of(vit(dropout=0.3))
    built = build_vit(RANDOM, "sample", network, classes=3, zero_head=zero_head).vit
    assert built.config.hidden_dropout_prob == 0.3
    assert bool(built.classifier.weight.any()) is not zero_head
