"""Folders of small images, and the configurations that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from gaudi_tune.data.configs import ImageConfig

REQUIRED = {"epochs": 1, "lr": 0.1, "batch_size": 2, "momentum": 0.9, "weight_decay": 0.0, "warmup": 0.0}


def config(data: Path | str, **changes: Any) -> ImageConfig:
    return ImageConfig.from_dict({**REQUIRED, "data": str(data), **changes})


def draw(file: Path, shade: int = 100, size: tuple[int, int] = (12, 9)) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, shade, 0)).save(file)
    return file
