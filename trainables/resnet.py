"""ResNets of torchvision, from scratch or with pretrained weights and a new head: what the three recipes share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torchvision.models import get_model, get_model_weights
from torchvision.models.resnet import Bottleneck, ResNet

from trainables.data.images import ImageConfig
from trainables.image_classifier import check_images, image_predictor, read_classifier, train_classifier
from trainables.prediction import ClassPredictor
from trainables.runtime.fresh_start import fresh_start
from trainables.runtime.node_cache import prepare_once
from trainables.runtime.schedules import Schedule

RANDOM = "random"
"""In place of pretrained weights: train from scratch."""
QUARTER = "resnet50-quarter"
"""ResNet-50 with a quarter of its channels after the stem, for the sample recipe: 1.5 M parameters in place of 25 M."""
ONE_PIXEL_LEFT = 32
"""Image sizes up to which a ResNet's last stage has one pixel, and batch normalisation one value per image."""
WEIGHTS_FILE = "weights.pt"


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(ImageConfig):
    """Settings of a ResNet."""

    architecture: Literal[
        "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d",
        "resnet50-quarter",
    ] = "resnet50"  # fmt: skip
    """torchvision's name of the network, or the sample recipe's narrow ResNet-50."""
    model: str = RANDOM
    """Weights to start from: ``random``, a local file of a state dict, or torchvision's name (``IMAGENET1K_V1``)."""


def train_resnet(config: ResNetConfig, schedule: Schedule) -> None:
    """Train one trial; what the recipes' train loops call."""
    fresh_start(config.seed)
    network = {"architecture": config.architecture}
    train_classifier(config, partial(build_resnet, config.architecture, config.model), schedule, network)


def check_resnet(config: ResNetConfig) -> list[str]:
    """Load what a trial would load, and say what was found, a line each.

    Raises:
        ValueError: The data or the weights cannot be used; says which, why, and what to give instead.
    """
    facts = check_images(config)
    if config.batch_size // config.accumulation < 2 and config.image_size <= ONE_PIXEL_LEFT:
        raise ValueError(
            f"batch_size {config.batch_size} in {config.accumulation} passes leaves batch normalisation one value per "
            f"channel at {config.image_size} pixels; take fewer passes (accumulation) or a larger batch_size"
        )
    weights = "random weights" if config.model == RANDOM else f"weights {config.model}, a new head"
    build_resnet(config.architecture, config.model, classes=2)
    return [*facts, f"model: {config.architecture}, {weights}"]


def load_model(checkpoint: str | Path) -> tuple[ResNet, list[str]]:
    """Return the trained network (in evaluation mode, on the CPU) and its classes from a checkpoint's folder.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    return read_classifier(checkpoint, lambda network, classes: build_resnet(network["architecture"], RANDOM, classes))


def predictor(checkpoint: Path) -> ClassPredictor:
    """Return what says the class of images, given as the bytes of image files.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    model, _ = load_model(checkpoint)
    return image_predictor(checkpoint, model)


def build_resnet(architecture: str, weights: str, classes: int) -> ResNet:
    """Return a ResNet on the CPU.

    Args:
        architecture: See :class:`ResNetConfig`.
        weights: See ``model`` of :class:`ResNetConfig`.
        classes: Outputs of the new head.

    Raises:
        ValueError: The weights cannot be had, or are another network's.
    """
    model: ResNet = _quarter() if architecture == QUARTER else get_model(architecture, weights=None)
    if weights != RANDOM:
        state = {name: value for name, value in _read_weights(architecture, weights).items() if "fc." not in name}
        expected = {name for name in model.state_dict() if "fc." not in name}
        try:
            model.load_state_dict(state, strict=False)  # the head is made anew
        except RuntimeError as error:
            raise ValueError(
                f"--model {weights}: these are the weights of another network than {architecture}"
            ) from error
        if expected - set(state):
            raise ValueError(
                f"--model {weights}: these are not the weights of a {architecture}: {len(expected - set(state))} of "
                f"{len(expected)} parts are missing, such as {min(expected - set(state))}"
            )
    model.fc = nn.Linear(model.fc.in_features, classes)
    return model


class _QuarterBottleneck(Bottleneck):
    """A bottleneck whose output is a quarter as wide; ``width_per_group`` makes its inside so, too."""

    expansion = 1


def _quarter() -> ResNet:
    return ResNet(_QuarterBottleneck, [3, 4, 6, 3], width_per_group=16)


def _read_weights(architecture: str, weights: str) -> dict[str, Any]:
    file = Path(weights).expanduser()
    if not file.exists():
        file = prepare_once(
            "weights", {"architecture": architecture, "weights": weights}, _fetcher(architecture, weights)
        )
        file /= WEIGHTS_FILE
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch.load raises pickle's, zipfile's and its own errors for files that are something else.
        raise ValueError(
            f"--model {weights}: the file holds no state dict that torch can read safely (weights_only)"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError(
            f"--model {weights}: the file holds a {type(state).__name__}, and no state dict (names to tensors)"
        )
    return state


def _fetcher(architecture: str, weights: str) -> Any:
    known = [] if architecture == QUARTER else [entry.name for entry in get_model_weights(architecture)]
    if weights not in known:
        raise ValueError(
            f"--model {weights}: no such file, and no weights that torchvision has for {architecture}; "
            f"give a file of a state dict, or one of {', '.join([RANDOM, *known])}"
        )
    chosen = get_model_weights(architecture)[weights]

    def fetch(folder: Path) -> None:
        try:
            torch.hub.download_url_to_file(chosen.url, str(folder / WEIGHTS_FILE), progress=False)
        except OSError as error:
            raise ValueError(
                f"--model {weights}: {chosen.url} cannot be fetched ({error}); fetch it where there is a network and "
                f"give the file, or train from scratch with --model {RANDOM}"
            ) from error

    return fetch
