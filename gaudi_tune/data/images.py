"""Labelled images in folders, which are listed and checked once per node, and loaded when they are needed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import v2

from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.data.held_out import Split
from gaudi_tune.data.image_index import image_index, read_index
from gaudi_tune.recipes.loading import Batch, BatchIndices, Loader
from gaudi_tune.training.fresh_start import seed_of

NORMALIZATIONS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""Mean and standard deviation of each channel with values from 0 to 1: ImageNet's, those of the ViT authors, and
none."""
RESIZE_TO_CROP = 256 / 224
"""Shorter side of a validation image before the centre crop, relative to the crop, as usual for ImageNet models."""


class Images(Dataset[Any]):
    """The images of a split, which are loaded on demand. Pickling keeps the path of the index, not the images."""

    def __init__(self, index: Path, split: Split, config: ImageConfig) -> None:
        """Open a split.

        Args:
            index: The folder of an :class:`ImageIndex`.
            split: Name of the split.
            config: How many images are used, and how they are prepared.
        """
        self._arguments = (index, split, config)
        content = read_index(index)
        self._root = content.root
        self._paths, self.labels = content.files(split, config)
        self.augments = split == "train" and config.augment
        self._crop = augmentation(config) if self.augments else evaluation(config.image_size, config.resize)
        mixes = self.augments and (config.mixup or config.cutmix)
        self._mix = Mixing(config.mixup, config.cutmix, len(content.classes)) if mixes else None
        self._seeds: dict[tuple[int, ...], npt.NDArray[Any]] = {}  # by the last seed: one for each image

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[Any, ...]:
        return Images, self._arguments

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return ``images``, uint8 of shape (n, 3, size, size), and ``labels`` of shape (n,).

        If images are mixed, the batch is as :class:`Mixing` returns it. :func:`preparation` turns it into a network's
        input.
        """
        return self._batch([self._crop(self._load(index)) for index in indices], indices)

    def seeded(self, indices: list[int], seed: tuple[int, ...]) -> Batch:
        """Return the same as ``__getitems__``, with augmentation that depends only on the seed and the indices.

        Each image is augmented by the seed and its own index, whichever process loads it in whichever batch. Images are
        mixed by the seed and the first index. It seeds torch alone, from which torchvision draws.
        """
        if seed not in self._seeds:  # all at once: one by one takes longer than to read a small image
            self._seeds = {seed: np.random.SeedSequence(seed).generate_state(len(self))}
        seeds, generator = self._seeds[seed], torch.default_generator
        images = []
        for index in indices:
            generator.manual_seed(int(seeds[index]))
            images.append(self._crop(self._load(index)))
        if self._mix is not None:
            generator.manual_seed(seed_of(*seed, indices[0]))
        return self._batch(images, indices)

    def _batch(self, loaded: list[torch.Tensor], indices: list[int]) -> Batch:
        images, labels = torch.stack(loaded), torch.from_numpy(self.labels[indices])
        return self._mix(images, labels) if self._mix is not None else {"images": images, "labels": labels}

    def _load(self, index: int) -> torch.Tensor:
        file = self._root / os.fsdecode(self._paths[index])
        try:
            return read_image(file)
        except OSError as error:
            raise OSError(
                f"{file} could be read when the sweep was planned, and cannot be any more: {error}"
            ) from error


@dataclass(frozen=True)
class ImageData:
    """The images of a configuration."""

    train: Images
    val: Images
    test: Images | None
    """None unless test data is held out."""
    classes: list[str]
    """Names of the classes, in the order of the labels."""


def images_of(config: ImageConfig) -> ImageData:
    """Return the images of ``config``.

    Raises:
        ValueError: See :func:`image_index`.
    """
    index = image_index(config)
    return ImageData(
        train=Images(index.folder, "train", config),
        val=Images(index.folder, "val", config),
        test=Images(index.folder, "test", config) if config.hold_out else None,
        classes=index.classes,
    )


def images_per_second(images: Images, count: int = 24) -> float:
    """Return how many images of a split one process loads in a second, measured with some from all over the split."""
    indices = np.linspace(0, len(images) - 1, count).astype(int).tolist()
    loaded = iter(Loader(images, [BatchIndices((0,), indices[:1]), BatchIndices((0,), indices)], loader_workers=0))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a loader process has
    try:
        next(loaded)  # which opens what later ones find open
        began = time.perf_counter()
        next(loaded)
        return count / (time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)


def read_image(file: Path | IO[bytes]) -> torch.Tensor:
    """Return an image file as uint8 of shape (3, height, width).

    Raises:
        OSError: It cannot be read, or is not an image.
    """
    with Image.open(file) as image:
        return v2.functional.pil_to_tensor(_eight_bits(image).convert("RGB"))


def augmentation(config: ImageConfig) -> v2.Compose:
    """Return the transform of training images, from uint8 of any size to uint8 of shape (3, size, size)."""
    steps: list[Any] = [v2.RandomResizedCrop(config.image_size, scale=(config.crop_scale, 1.0), antialias=True)]
    if config.flip:
        steps.append(v2.RandomHorizontalFlip())
    if config.auto_augment != "none":
        steps.append(getattr(v2, config.auto_augment)(interpolation=v2.InterpolationMode.BILINEAR))
    if config.random_erase:  # torchvision's script fills with 0 after normalization, which is the mean before it
        grey = [round(255 * mean) for mean in NORMALIZATIONS[config.normalization][0]]
        steps.append(v2.RandomErasing(config.random_erase, value=grey))
    return v2.Compose(steps)


class _MixUpOfLabels(v2.MixUp):
    """torchvision's MixUp, which leaves the images as they are."""

    def transform(self, inpt: torch.Tensor, params: dict[str, Any]) -> torch.Tensor:
        """Mix labels, and note the share that each image keeps."""
        self.share: float = params["lam"]
        return super().transform(inpt, params) if inpt is params["labels"] else inpt


class Mixing:
    """Mixes images and labels of a micro-batch by mixup or cutmix, whichever it draws."""

    def __init__(self, mixup: float, cutmix: float, classes: int) -> None:
        """Prepare to mix.

        Args:
            mixup: The alpha of mixup; 0 means none.
            cutmix: The alpha of cutmix; 0 means none.
            classes: The number of classes.
        """
        self._mixup = _MixUpOfLabels(alpha=mixup, num_classes=classes) if mixup else None
        cut = v2.CutMix(alpha=cutmix, num_classes=classes) if cutmix else None
        self._draw = v2.RandomChoice([mixer for mixer in (self._mixup, cut) if mixer is not None])

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> Batch:
        """Return a batch with ``labels`` of shape (n, classes).

        Cutmix is done here. Mixup would round the values of uint8, so :func:`preparation` does it, by the share that
        each image keeps: ``kept``, of shape (n,). The rest is taken from the image before it in the batch.
        """
        if self._mixup is None:
            images, labels = self._draw(images, labels)
            return {"images": images, "labels": labels}
        self._mixup.share = 1.0
        images, labels = self._draw(images, labels)
        return {"images": images, "labels": labels, "kept": torch.full((len(images),), self._mixup.share)}


def evaluation(size: int, resize: Literal["crop", "square"]) -> v2.Compose:
    """Return the transform of evaluated images, from uint8 of any size to uint8 of shape (3, size, size)."""
    if resize == "square":
        return v2.Compose([v2.Resize((size, size), antialias=True)])
    return v2.Compose([v2.Resize(round(size * RESIZE_TO_CROP), antialias=True), v2.CenterCrop(size)])


class Normalization:
    """Turns uint8 images into a network's float32 input, on any device."""

    def __init__(self, name: str) -> None:
        """Prepare one of ``NORMALIZATIONS``."""
        self._mean, self._std = (torch.tensor(values).view(3, 1, 1) for values in NORMALIZATIONS[name])

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return the input of shape (n, 3, height, width), computed as torchvision does."""
        if self._mean.device != images.device:  # once: each copy would wait for the device
            self._mean, self._std = self._mean.to(images.device), self._std.to(images.device)
        return images.to(torch.float32).mul_(1 / 255).sub_(self._mean).div_(self._std)


def preparation(
    config: ImageConfig, memory_format: torch.memory_format = torch.contiguous_format
) -> Callable[[Batch], Batch]:
    """Return what turns a batch of :class:`Images` into a network's input, on the device.

    So images are copied to the device as uint8, which is a quarter of the bytes.
    """
    normalize = Normalization(config.normalization)

    def prepare(batch: Batch) -> Batch:
        images = normalize(batch["images"].contiguous(memory_format=memory_format))
        if "kept" in batch:
            share = batch["kept"].view(-1, 1, 1, 1)
            images = images.roll(1, 0).mul_(1 - share).add_(images.mul(share))
        return {"images": images, "labels": batch["labels"]}

    return prepare


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return a 16-bit image with 8 bits. Pillow's own conversion would make everything above 255 white."""
    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image, dtype=np.uint16) >> 8).astype(np.uint8))
