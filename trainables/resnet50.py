"""ResNet-50 with pretrained weights, fine-tuned on a small set of images: Ray's Gaudi example on ants and bees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainables.resnet import ResNetConfig, train_resnet


@dataclass(frozen=True, kw_only=True)
class ResNet50Config(ResNetConfig):
    """Hyperparameters and settings of one trial. The defaults are those of the published recipe."""

    data: str = "hymenoptera"
    """A folder of images in ``train/`` and ``val/``, or the name of a data set that can be fetched."""
    model: str = "IMAGENET1K_V1"
    """Weights to start from: ``random``, a local file of a state dict, or a name in torchvision."""


def train_loop(config: dict[str, Any]) -> None:
    """Train one trial, as an ordinary Ray Train loop. ``config`` has the fields of :class:`ResNet50Config`."""
    train_resnet(ResNet50Config.from_dict(config))
