"""Describes labelled data for the plan of a sweep, and prepares the data on this node if necessary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gaudi_tune.base.words import shown
from gaudi_tune.data.configs import ImageConfig, TextConfig, limited
from gaudi_tune.recipes.training_config import check_batch, check_classes

if TYPE_CHECKING:
    from gaudi_tune.data.held_out import Split

MAX_CLASS_NAMES = 8
"""Most classes that a line lists."""
CLASS_NAME_LENGTH = 40
"""Most characters of a class's name there."""


def check_texts(config: TextConfig) -> tuple[list[str], str]:
    """Return lines that describe the data, and the family of the encoder.

    Raises:
        ValueError: The data or the encoder cannot be used; the message says why, and what to give instead.
    """
    from gaudi_tune.data.text import tokenized

    texts = tokenized(config)
    summary = _check(config, "texts", texts.sizes, texts.labels)
    return [summary, *(f"data: {note}" for note in texts.notes)], texts.model_type


def check_images(config: ImageConfig) -> list[str]:
    """Return lines that describe the data.

    Raises:
        ValueError: The data cannot be used; the message says why, and what to give instead.
    """
    from gaudi_tune.data.image_index import image_index

    index = image_index(config)
    splits: tuple[Split, ...] = ("train", "val", "test") if config.hold_out else ("train", "val")
    sizes: dict[str, int] = {split: len(index.files(split, config)[1]) for split in splits}
    summary = _check(config, "images", sizes, index.classes)
    notes = [*index.notes]
    if config.hold_out and not index.has_test:
        notes.append("half of the validation images are held out for the confirmation")
    unlimited = replace(config, train_samples=0, val_samples=0)
    for split in splits:
        count = len(index.files(split, unlimited)[1])
        if sizes[split] < count:
            notes.append(limited("images", split, sizes[split], count))
    if (number := config.loader_workers) and number != "auto":
        from gaudi_tune.data.images import Images, images_per_second  # here, since most checks need no torch

        speed = images_per_second(Images(index.folder, "train", config))
        all_together = f"a worker's {number} load {number * speed:.0f} if each has a core (loader_workers={number})"
        notes.append(f"one process loads {speed:.0f} images/s here; {all_together}")
    return [f"{summary}, {config.image_size} pixels", *(f"data: {note}" for note in notes)]


def _check(config: TextConfig | ImageConfig, samples: str, sizes: Mapping[str, int], classes: Sequence[str]) -> str:
    check_batch(config, workers=1, samples=sizes["train"])
    check_classes(config, len(classes))
    test = f"{sizes['test']} to test, " if "test" in sizes else ""
    class_names = ", ".join(shown(name, CLASS_NAME_LENGTH) for name in classes[:MAX_CLASS_NAMES]) + (
        ", …" if len(classes) > MAX_CLASS_NAMES else ""
    )
    return (
        f"data: {shown(config.data)}: {sizes['train']} {samples} to train on, {sizes['val']} to validate, {test}"
        f"{len(classes)} classes ({class_names})"
    )
