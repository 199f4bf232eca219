"""Labelled images as people have them: folders, listed and checked once per node, loaded when they are needed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sized
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import v2

from trainables.data.configs import ImageConfig
from trainables.data.fetch import DATA_SETS, fetch
from trainables.data.held_out import rows_of
from trainables.data.image_folder import list_images
from trainables.runtime.node_cache import prepare_once
from trainables.runtime.training.fresh_start import seed_host
from trainables.runtime.training.loading import Batch

INDEX_FORMAT = 2
"""Raised when the index of the same folder changes."""
NORMALIZATIONS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}
"""Mean and standard deviation of each channel, values from 0 to 1: ImageNet's, those of the ViT authors, and none."""
RESIZE_TO_CROP = 256 / 224
"""A validation image's shorter side before the centre crop, as in the evaluation of every published ImageNet model."""
BAD_NAMED = 3
"""Unreadable files named in an error."""


class Images(Dataset[Any]):
    """The images of a split, loaded when they are asked for. A pickled one holds the index's path, not the images."""

    def __init__(self, index: Path, split: Literal["train", "val", "test"], config: ImageConfig) -> None:
        """Open a split.

        Args:
            index: A folder that :func:`indexed_images` made.
            split: Which one. Data without a test split has half of the validation split for it.
            config: Says how many images are used, and how they are prepared.
        """
        self._made_of = (index, split, config)
        limit = config.train_samples if split == "train" else config.val_samples
        file = split if (index / f"{split}_labels.npy").is_file() else "val"
        paths, labels = np.load(index / f"{file}_paths.npy", mmap_mode="r"), np.load(index / f"{file}_labels.npy")
        if split != "train" and config.hold_out and not (index / "test_labels.npy").is_file():
            rows = rows_of(split, labels)
            paths, labels = paths[rows], labels[rows]
        self.augments = split == "train" and config.augment
        known = _known(index)
        self._root = Path(known["root"])
        # Memory-mapped, so that the processes of a node share one copy: ImageNet has 1.3 million paths.
        self._paths, self.labels = paths[: limit or None], labels[: limit or None]
        self._crop = augmentation(config) if self.augments else as_validated(config.image_size, config.resize)
        self._normalize = normalization(config.normalization)
        self._mix = mixing(config, len(known["classes"])) if self.augments else None

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[Any, ...]:
        return Images, self._made_of

    def __getitems__(self, indices: list[int]) -> Batch:
        """Return ``images`` of shape (n, 3, size, size) and ``labels`` of shape (n,), or (n, classes) if mixed."""
        return self._batch([self._crop(self._load(index)) for index in indices], indices)

    def seeded(self, indices: list[int], seed: tuple[int, ...]) -> Batch:
        """Return the same; how an image is changed depends on the seed and its index, not on who loads it with which
        others, and how images are mixed on the seed and the first of them."""
        images = []
        for index in indices:
            seed_host(*seed, index)
            images.append(self._crop(self._load(index)))
        seed_host(*seed, indices[0])
        return self._batch(images, indices)

    def _batch(self, loaded: list[torch.Tensor], indices: list[int]) -> Batch:
        images, labels = self._normalize(torch.stack(loaded)), torch.from_numpy(self.labels[indices])
        if self._mix is not None:
            images, labels = self._mix(images, labels)
        return {"images": images, "labels": labels}

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
    """Names, in the order of the labels."""
    notes: list[str]
    """How the folder was read, where a person should know."""


def images_of(config: ImageConfig) -> ImageData:
    """Return the images of ``config``, their folder listed and every file read on this node if nobody has yet.

    Raises:
        ValueError: The folder cannot be used; says which, why, and what to give instead.
    """
    index = indexed_images(config.data, config.skip_bad_images)
    known = _known(index)
    bad: dict[str, str] = known["bad"]
    notes = list(known["notes"])
    if bad:
        notes.append(f"left out {_files(bad)} that cannot be read as images, the first {next(iter(bad))}")
    return ImageData(
        train=Images(index, "train", config),
        val=Images(index, "val", config),
        test=Images(index, "test", config) if config.hold_out else None,
        classes=known["classes"],
        notes=notes,
    )


def indexed_images(data: str, skip_bad: bool) -> Path:
    """Return the folder of the node's cache that lists the images of ``data``, made if nobody has.

    A list of a folder with bad files is kept only if they are to be left out: someone may fix them.

    Raises:
        ValueError: See :func:`images_of`.
    """
    root = fetch(data) if data in DATA_SETS else Path(data).expanduser().resolve()
    if not root.is_dir():
        names = ", ".join(DATA_SETS)
        raise ValueError(
            f"--data {data}: there is no such folder. Give one with train/ and val/ (or test/), each with a folder of "
            f"images per class, or one of {names}."
        )
    folders = [root, *root.glob("*/"), *root.glob("*/*/"), *root.glob("*/*/images/"), *root.glob("val/*.txt")]
    key = {
        "format": INDEX_FORMAT,
        "skip_bad": skip_bad,
        "folders": sorted([str(f), f.stat().st_mtime_ns] for f in folders),
    }
    return prepare_once("image-index", key, lambda into: _write_index(data, root, skip_bad, into))


def read_image(file: Path | IO[bytes]) -> torch.Tensor:
    """Return an image file in uint8, of shape (3, height, width).

    Raises:
        OSError: It cannot be read, or is no image.
    """
    with Image.open(file) as image:
        return v2.functional.pil_to_tensor(_eight_bits(image).convert("RGB"))


def augmentation(config: ImageConfig) -> v2.Compose:
    """Return the transform of training: from a uint8 image of any size to one of shape (3, size, size)."""
    steps: list[Any] = [v2.RandomResizedCrop(config.image_size, scale=(config.crop_scale, 1.0), antialias=True)]
    if config.flip:
        steps.append(v2.RandomHorizontalFlip())
    if config.auto_augment != "none":
        steps.append(getattr(v2, config.auto_augment)(interpolation=v2.InterpolationMode.BILINEAR))
    if config.random_erase:  # torchvision's script erases normalized images with 0, which is the mean of these
        grey = [round(255 * mean) for mean in NORMALIZATIONS[config.normalization][0]]
        steps.append(v2.RandomErasing(config.random_erase, value=grey))
    return v2.Compose(steps)


def mixing(config: ImageConfig, classes: int) -> v2.RandomChoice | None:
    """Return what blends the images and labels of a pass with one another, None if nothing does.

    It takes images of shape (n, 3, size, size) and labels of shape (n,), and returns labels of shape (n, classes).
    """
    alphas = {v2.MixUp: config.mixup, v2.CutMix: config.cutmix}
    mixers = [mixer(alpha=alpha, num_classes=classes) for mixer, alpha in alphas.items() if alpha]
    return v2.RandomChoice(mixers) if mixers else None


def as_validated(size: int, resize: Literal["crop", "square"]) -> v2.Compose:
    """Return the transform of evaluation: from a uint8 image of any size to one of shape (3, size, size)."""
    if resize == "square":
        return v2.Compose([v2.Resize((size, size), antialias=True)])
    return v2.Compose([v2.Resize(round(size * RESIZE_TO_CROP), antialias=True), v2.CenterCrop(size)])


def normalization(name: str) -> v2.Compose:
    """Return the transform from uint8 images to a network's input, float32; the names are in ``NORMALIZATIONS``."""
    return v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORMALIZATIONS[name])])


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return a 16-bit image in 8 bits; Pillow's own conversion would make everything above 255 white."""
    if not image.mode.startswith("I;16"):
        return image
    return Image.fromarray((np.asarray(image, dtype=np.uint16) >> 8).astype(np.uint8))


@cache
def _known(index: Path) -> dict[str, Any]:
    known: dict[str, Any] = json.loads((index / "index.json").read_text())
    return known


def _write_index(data: str, root: Path, skip_bad: bool, into: Path) -> None:
    try:
        listed = list_images(root)
    except ValueError as error:
        raise ValueError(f"--data {data}: {error}") from error
    if listed.bad and not skip_bad:
        named = "; ".join(f"{file} ({why})" for file, why in list(listed.bad.items())[:BAD_NAMED])
        more = f" and {len(listed.bad) - BAD_NAMED} more" if len(listed.bad) > BAD_NAMED else ""
        raise ValueError(
            f"--data {data}: {_files(listed.bad)} cannot be read as images: {named}{more}. "
            f"Fix or remove them, or leave them out with --skip-bad-images."
        )
    classes = sorted({label for _, label in listed.train})
    if unseen := sorted({label for _, label in listed.test} - set(classes)):
        raise ValueError(
            f"--data {data}: no image of the classes {unseen} is left to train on, and test/ has some; fix those in "
            f"train/, or remove these classes from test/"
        )
    for split, files in (("train", listed.train), ("val", listed.val), ("test", listed.test)):
        if not files:
            continue
        # In the order of their hashes, so that any first n are a fair draw of all classes.
        files = sorted(files, key=lambda entry: hashlib.sha1(os.fsencode(entry[0]), usedforsecurity=False).digest())
        np.save(into / f"{split}_paths.npy", np.array([os.fsencode(file) for file, _ in files]))
        np.save(into / f"{split}_labels.npy", np.array([classes.index(label) for _, label in files], dtype=np.int64))
    known = {"root": str(root), "classes": classes, "bad": listed.bad, "notes": listed.notes}
    (into / "index.json").write_text(json.dumps(known, indent=1))


def _files(bad: Sized) -> str:
    return f"{len(bad)} file{'' if len(bad) == 1 else 's'}"
