from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.data.facts import check_images


def images_in(root: Path, **per_split: int) -> ImageConfig:
    """Draw so many images of each of two classes in each split."""
    for split, count in per_split.items():
        for label in ("ants", "bees"):
            folder = root / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("RGB", (10, 8), (20 * number, len(split), ord(label[0]))).save(folder / f"{number}.png")
    hyperparameters = {"epochs": 1, "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "warmup": 0.0, "batch_size": 2}
    return ImageConfig.from_dict({"data": str(root), "image_size": 16, **hyperparameters})


def test_a_plan_says_how_many_images_there_are_and_of_what(tmp_path: Path) -> None:
    config = images_in(tmp_path, train=5, val=4)
    of = f"data: {tmp_path}: 10 images to train on,"
    assert check_images(config) == [f"{of} 8 to validate, 2 classes (ants, bees), 16 pixels"]
    held_out = replace(config, hold_out=True, train_samples=6)
    assert check_images(held_out) == [
        f"data: {tmp_path}: 6 images to train on, 4 to validate, 4 to test, 2 classes (ants, bees), 16 pixels",
        "data: half of the validation images are held out for the confirmation",
        "data: 6 of 10 images of train are used (train_samples=6; 0: all)",
    ]


def test_a_plan_says_how_a_folder_was_read_and_what_was_left_out(tmp_path: Path) -> None:
    config = images_in(tmp_path, train=3, test=2)
    (tmp_path / "train" / "ants" / "0.png").write_text("ants are small")
    with pytest.raises(ValueError, match="1 file cannot be read as images"):
        check_images(config)
    facts = check_images(replace(config, skip_bad_images=True))
    assert "5 images to train on, 4 to validate, 2 classes" in facts[0]
    assert facts[1:] == [
        "data: there is no val/: test/ serves for validation",
        "data: left out 1 file that cannot be read as images, the first train/ants/0.png",
    ]


def test_too_few_images_for_a_batch_are_named(tmp_path: Path) -> None:
    config = replace(images_in(tmp_path, train=2, val=2), batch_size=5)
    with pytest.raises(ValueError, match="batch_size must be at most the 4 training samples, but got 5"):
        check_images(config)


def test_a_plan_says_how_fast_images_are_loaded(tmp_path: Path) -> None:
    config = replace(images_in(tmp_path, train=5, val=4), loader_workers=3)
    found = re.search(r"one process loads (\d+) images/s here; a worker's 3 load (\d+)", check_images(config)[-1])
    assert found is not None
    assert 0 < int(found[2]) == pytest.approx(3 * int(found[1]), abs=2)
