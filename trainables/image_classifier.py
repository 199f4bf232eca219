"""The shared part of the image models: it trains a network for a configuration, and loads it from a checkpoint."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn

from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.data.images import Normalization, evaluation, images_of, preparation, read_image
from gaudi_tune.devices.find import DEVICE_TYPES, worker_device
from gaudi_tune.recipes.loading import Batch
from gaudi_tune.recipes.loop import train
from gaudi_tune.recipes.prediction import PACKAGES, ClassPredictor
from gaudi_tune.recipes.task import Task
from gaudi_tune.training.checkpoint import read_state

DESCRIPTION_FILE = "classifier.json"
"""The file in a checkpoint with the classes, the preparation of images, and the description of the network."""

Build = Callable[[int], nn.Module]
"""A function of the number of classes that makes a network. It maps images of shape (n, 3, size, size) to logits of
shape (n, classes)."""


def train_classifier(config: ImageConfig, build: Build, network: dict[str, Any]) -> None:
    """Train one trial.

    Args:
        config: The configuration of the trial.
        build: Makes the network, pretrained or not.
        network: A description from which the network can be built again. It is kept in checkpoints as JSON.
    """
    images = images_of(config)
    by_default = DEVICE_TYPES[worker_device().type].channels_last
    channels_last = by_default if config.channels_last == "auto" else config.channels_last
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    task = Task(
        model=build(len(images.classes)).to(memory_format=memory_format),
        prepare=preparation(config, memory_format),
        forward=_logits,
        train_data=images.train,
        val_data=images.val,
        test_data=images.test,
        describe=partial(_describe, config, images.classes, network),
    )
    train(task, config)


def read_classifier(checkpoint: str | Path, build: Callable[[dict[str, Any], int], nn.Module]) -> tuple[Any, list[str]]:
    """Return the trained network (in evaluation mode, on the CPU) and its classes from a checkpoint's folder.

    Args:
        checkpoint: The folder.
        build: Makes the network from the description given to :func:`train_classifier` and the number of classes.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    state, description = read_state(Path(checkpoint)), _description(Path(checkpoint))
    model = build(description["network"], len(description["classes"]))
    model.load_state_dict(state["model"])
    return model.eval(), description["classes"]


def image_predictor(checkpoint: Path, model: nn.Module, packages: Sequence[str] = ()) -> ClassPredictor:
    """Return a predictor of the class of images, given as the bytes of image files. It prepares them as validation
    does.

    Args:
        checkpoint: The folder of the checkpoint.
        model: Its network, in evaluation mode and on the CPU.
        packages: Packages that must be installed to build the network, besides torchvision.
    """
    description = _description(checkpoint)
    size = description["image_size"]
    prepare, normalize = evaluation(size, description["resize"]), Normalization(description["normalization"])

    def logits(files: list[bytes]) -> torch.Tensor:
        images = torch.stack([prepare(_image_in(file)) for file in files])
        return _logits(model, {"images": normalize(images)})

    grey = io.BytesIO()
    Image.new("RGB", (size, size), "grey").save(grey, "PNG")
    return ClassPredictor(
        column="image",
        sample=grey.getvalue(),
        packages=[*PACKAGES, "pillow", "rich", "torchvision", *packages],
        classes=description["classes"],
        logits=logits,
    )


def _image_in(file: bytes) -> torch.Tensor:
    try:
        return read_image(io.BytesIO(file))
    except OSError as error:
        raise ValueError(f"an image must be the bytes of an image file, such as PNG or JPEG ({error})") from error


def _description(checkpoint: Path) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((checkpoint / DESCRIPTION_FILE).read_text())
    return description


def _logits(model: nn.Module, batch: Batch) -> torch.Tensor:
    logits: torch.Tensor = model(batch["images"])
    return logits


def _describe(config: ImageConfig, classes: list[str], network: dict[str, Any], directory: Path) -> None:
    preparation_of_images = {name: getattr(config, name) for name in ("image_size", "resize", "normalization")}
    description = {"classes": classes, **preparation_of_images, "network": network}
    (directory / DESCRIPTION_FILE).write_text(json.dumps(description, indent=1))
