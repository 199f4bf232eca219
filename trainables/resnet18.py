"""ResNet-18 from scratch on Tiny ImageNet: the recipe of a multi-node Ray workshop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from trainables.resnet import ResNetConfig, train_resnet


@dataclass(frozen=True, kw_only=True)
class ResNet18Config(ResNetConfig):
    """Hyperparameters and settings of one trial. The defaults are those of the published recipe."""

    data: str = "tiny-imagenet-200"
    """The folder of Tiny ImageNet as downloaded, or another folder of images in ``train/`` and ``val/``."""
    architecture: Literal["resnet18", "resnet34"] = "resnet18"
    """The name of the network in torchvision."""
    normalization: Literal["imagenet", "half", "none"] = "none"
    """Mean and standard deviation by which channels are normalized. none: they stay from 0 to 1."""
    loader_workers: int | Literal["auto"] = 4
    """Processes per worker that load batches. 0: the worker loads them itself."""


def train_loop(config: dict[str, Any]) -> None:
    """Train one trial, as an ordinary Ray Train loop. ``config`` has the fields of :class:`ResNet18Config`."""
    train_resnet(ResNet18Config.from_dict(config))
