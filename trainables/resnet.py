"""ResNets of torchvision, from scratch or with pretrained weights and a new head. Three recipes share this module."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gaudi_tune.base.process import no_collection
from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.data.facts import check_images
from gaudi_tune.data.pretrained import RANDOM
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.recipes.training_config import num_micro_batches

if TYPE_CHECKING:
    from torchvision.models.resnet import ResNet

    from gaudi_tune.recipes.prediction import ClassPredictor

ONE_PIXEL_LEFT = 32
"""Largest image size for which a ResNet's last stage has one pixel, and its batch normalisation one value per image."""
LEAST_NORMALISED = 32
"""Images that batch normalisation must see at a time for a trial to grow. With 32 and 16 a worker, ResNet-50 has the
same error on ImageNet, and with fewer a larger one (Wu and He 2018, Group Normalization, figure 5)."""


@dataclass(frozen=True, kw_only=True)
class ResNetConfig(ImageConfig):
    """Settings of a ResNet."""

    architecture: Literal[
        "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "wide_resnet50_2", "resnext50_32x4d",
        "resnet50-quarter",
    ] = "resnet50"  # fmt: skip
    """The name of the network in torchvision, or the narrow ResNet-50 of the sample recipe."""
    model: str = RANDOM
    """Weights to start from: ``random``, a local file of a state dict, or a name in torchvision (``IMAGENET1K_V1``)."""

    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        return super().graph(workers) | {"architecture": self.architecture}

    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return a reason if batch normalisation would see fewer than :data:`LEAST_NORMALISED` images at a time."""
        images = self.batch_size // wider // num_micro_batches(self, wider)
        if images < LEAST_NORMALISED and (reason := self._why_other_statistics(device, workers)):
            return f"{reason}, {images} images on each of {wider}"
        return super().why_not_wider(device, workers, wider)

    def why_not_exact(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return a reason if batch normalisation would see other batches, because it cannot be synchronised."""
        return self._why_other_statistics(device, workers) or super().why_not_exact(device, workers, wider)

    def _why_other_statistics(self, device: DeviceType, workers: int) -> str | None:
        if workers > 1 and not self.sync_batch_norm:
            return "batch normalisation sees each worker's share of the batch alone (sync_batch_norm)"
        if num_micro_batches(self, workers) > 1:
            return "batch normalisation sees one micro-batch of several at a time (micro_batch)"
        if self.mode_on(device).name == "compiled":
            return "batch normalisation over several workers cannot be compiled"
        return None

    def settings_of_wider(self, device: DeviceType, workers: int, wider: int) -> dict[str, Any]:
        """Return settings with which batch normalisation still sees the whole batch, unless the model is compiled."""
        settings = super().settings_of_wider(device, workers, wider)
        if workers == 1 and self.mode_on(device).name != "compiled":
            settings["sync_batch_norm"] = True
        return settings

    def min_micro_batch(self, workers: int) -> int:
        """Return 2 if batch normalisation has one value per channel and image, and sees only one worker's images."""
        synchronised = workers > 1 and self.sync_batch_norm
        return 1 if self.image_size > ONE_PIXEL_LEFT or synchronised else 2


def train_resnet(config: ResNetConfig) -> None:
    """Train one trial. The train loops of the recipes call this."""
    with no_collection():
        from gaudi_tune.training.fresh_start import fresh_start
        from trainables.image_classifier import train_classifier
        from trainables.resnet_network import build_resnet

    fresh_start(config.seed)
    network = {"architecture": config.architecture}
    train_classifier(config, partial(build_resnet, config.architecture, config.model), network)


def check_resnet(config: ResNetConfig) -> list[str]:
    """Check that data and weights can be used, and return lines that describe them.

    Raises:
        ValueError: The data or the weights cannot be used; the message says why, and what to give instead.
    """
    facts = check_images(config)
    weights = "random weights"
    if config.model != RANDOM:
        from trainables.resnet_network import build_resnet

        build_resnet(config.architecture, config.model, classes=2)
        weights = f"weights {config.model}, a new head"
    return [*facts, f"model: {config.architecture}, {weights}"]


def load_model(checkpoint: str | Path) -> tuple[ResNet, list[str]]:
    """Return the trained network (in evaluation mode, on the CPU) and its classes from a checkpoint's folder.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    from trainables.image_classifier import read_classifier
    from trainables.resnet_network import build_resnet

    return read_classifier(checkpoint, lambda network, classes: build_resnet(network["architecture"], RANDOM, classes))


def predictor(checkpoint: Path) -> ClassPredictor:
    """Return a predictor of the class of images, given as the bytes of image files.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    from trainables.image_classifier import image_predictor

    model, _ = load_model(checkpoint)
    return image_predictor(checkpoint, model)
