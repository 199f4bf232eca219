"""Images for the sample recipes: scikit-learn's handwritten digits, in folders with the layouts of the recipes.

They are 1,797 digits of 43 people (UCI, 8 by 8 pixels, 17 grey levels), enlarged to 32 by 32. A fifth is for
validation.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path
from typing import Literal

from gaudi_tune.base.node_cache import prepare_once

SIZE = 32
"""Side of a written image, in pixels."""
VALIDATION_SHARE = 5
"""One in this many images is for validation."""
FORMAT = 1
"""Version of the content."""

Layout = Literal["train-val", "train-test", "imagenet", "tiny-imagenet"]


def sample_digits(layout: Layout) -> Path:
    """Return a folder of the digits, which is made once per node.

    Args:
        layout: ``train-val`` and ``train-test`` have PNG files in class folders. ``imagenet`` has JPEG files in folders
            named by WordNet ids. ``tiny-imagenet`` has nested ``images/`` and a list of the validation images' classes.
    """
    key = {"format": FORMAT, "layout": layout, "scikit-learn": importlib.metadata.version("scikit-learn")}
    return prepare_once(f"digits-{layout}", key, lambda folder: _write(folder, layout))


def digit_settings(layout: Layout) -> dict[str, object]:
    """Return the settings of a sample recipe on the digits. Digits must not be mirrored, or cropped too much."""
    return {"data": str(sample_digits(layout)), "image_size": SIZE, "crop_scale": 0.7, "flip": False}


def _write(folder: Path, layout: Layout) -> None:
    from PIL import Image
    from sklearn.datasets import load_digits

    annotations = []
    for number, (pixels, digit) in enumerate(zip(*load_digits(return_X_y=True), strict=True)):
        image = Image.fromarray((pixels.reshape(8, 8) * 15.9375).astype("uint8")).resize(
            (SIZE, SIZE), Image.Resampling.BICUBIC
        )
        validates = hashlib.sha1(str(number).encode(), usedforsecurity=False).digest()[0] % VALIDATION_SHARE == 0
        file = folder / _place(layout, int(digit), number, validates)
        file.parent.mkdir(parents=True, exist_ok=True)
        image.convert("RGB").save(file, quality=95)
        if validates:
            annotations.append(f"{file.name}\t{_class_name(layout, int(digit))}\t0\t0\t{SIZE}\t{SIZE}")
    if layout == "tiny-imagenet":
        (folder / "val" / "val_annotations.txt").write_text("\n".join(annotations) + "\n", encoding="utf-8")


def _class_name(layout: Layout, digit: int) -> str:
    if layout in ("imagenet", "tiny-imagenet"):
        return f"n{digit:08d}"  # like a WordNet id: an n and eight digits
    return f"digit-{digit}"


def _place(layout: Layout, digit: int, number: int, validates: bool) -> Path:
    name, validation = _class_name(layout, digit), "test" if layout == "train-test" else "val"
    split = validation if validates else "train"
    if layout == "tiny-imagenet":
        return Path(split, "images" if validates else f"{name}/images", f"{split}_{number}.JPEG")
    return Path(split, name, f"{number:04d}.{'JPEG' if layout == 'imagenet' else 'png'}")
