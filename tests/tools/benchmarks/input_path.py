"""What it takes to bring images from files to the device: as uint8, beside float32 that the loaders have normalised.

256 images of 224 x 224 pixels a batch, ImageNet's augmentation, one loader process, and the stand-in for an HPU, whose
copies take the calling thread as a Gaudi's do (a memcpy into pinned memory). For each of the two ways it prints the CPU
time of the thread that trains, in ms a batch; the CPU time of the whole process in ms a batch; and the images a second
of CPU time of the loader process. Prints, last, a JSON object with these and the ratios. About a minute.

    python -m tests.tools.benchmarks.input_path
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.transforms import v2

from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.data.images import NORMALIZATIONS, Images, images_of, preparation
from gaudi_tune.training.loading import Batch, BatchIndices, Loader, one_ahead
from tests.helpers.stand_in_hpu import environment

BATCH, BATCHES, IMAGES = 256, 12, 512
"""Samples of a batch; batches that are measured, after one that is not; image files."""
FILE_SIZE = (500, 375)
"""Width and height of the files, ImageNet's median."""


class Normalised(Dataset[Any]):
    """The same images, normalised by the loader."""

    def __init__(self, images: Images, name: str) -> None:
        self.images, self.name = images, name
        self.augments = images.augments

    def __getitems__(self, indices: list[int]) -> Batch:
        batch = self.images.__getitems__(indices)
        return {**batch, "images": self._normalise(batch["images"])}

    def seeded(self, indices: list[int], seed: tuple[int, ...]) -> Batch:
        batch = self.images.seeded(indices, seed)
        return {**batch, "images": self._normalise(batch["images"])}

    def _normalise(self, images: torch.Tensor) -> torch.Tensor:
        transform = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORMALIZATIONS[self.name])])
        result: torch.Tensor = transform(images)
        return result


def draw_images(root: Path) -> None:
    """Write images with the detail of photographs: smooth noise."""
    generator = np.random.default_rng(0)
    for number in range(IMAGES):
        split = "train" if number % 8 else "val"
        file = root / split / f"class-{number // 8 % 2}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        coarse = generator.integers(0, 256, (75, 100, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(FILE_SIZE, Image.Resampling.BICUBIC).save(file, quality=90)


def measure(batches: Callable[[], Iterator[Batch]]) -> dict[str, float]:
    """Return CPU times of a batch, and the images a second of a loader's core."""
    iterator = batches()
    next(iterator)
    loaders = psutil.Process().children(recursive=True)

    def loader_seconds() -> float:
        return sum(sum(loader.cpu_times()[:2]) for loader in loaders)

    thread_s, process_s, loading_s = time.thread_time(), time.process_time(), loader_seconds()
    for _ in range(BATCHES):
        next(iterator)
    return {
        "training_thread_ms": round(1e3 * (time.thread_time() - thread_s) / BATCHES, 1),
        "process_ms": round(1e3 * (time.process_time() - process_s) / BATCHES, 1),
        "images_per_loader_core_s": round(BATCH * BATCHES / (loader_seconds() - loading_s)),
    }


def compare(root: Path) -> None:
    """Measure both ways in this process, and print them."""
    import habana_frameworks.torch.core  # noqa: F401  (which makes "hpu" a device)

    device = torch.device("hpu")
    config = ImageConfig.from_dict(
        {"data": str(root), "epochs": 1, "lr": 0.1, "batch_size": BATCH, "momentum": 0.9, "weight_decay": 0.0}
    )
    images, prepare = images_of(config).train, preparation(config)
    order = np.random.default_rng(1)
    batches = [BatchIndices((0, n), list(order.permutation(len(images))[:BATCH])) for n in range(BATCHES + 3)]

    def on_device(batch: Batch) -> Batch:
        return {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}

    def normalised_by_loader() -> Iterator[Batch]:
        loader = Loader(Normalised(images, config.normalization), batches, loader_workers=1)
        return (on_device(batch) for batch in loader)

    def as_uint8() -> Iterator[Batch]:
        loaded = iter(Loader(images, batches, loader_workers=1))
        return one_ahead(lambda: on_device(next(loaded)))

    results = {"float32": measure(normalised_by_loader), "uint8": measure(as_uint8)}
    first, second = results["float32"], results["uint8"]
    results["uint8 to float32"] = {name: round(second[name] / first[name], 2) for name in first}
    assert torch.equal(prepare(next(as_uint8()))["images"], next(normalised_by_loader())["images"])
    print(json.dumps(results))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1:]:
            compare(Path(sys.argv[1]))
            return
        draw_images(Path(folder))
        own = {"HABANA_VISIBLE_MODULES": "0", "HLS_MODULE_ID": "0", "PT_HPU_LAZY_MODE": "0", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.tools.benchmarks.input_path", folder]
        subprocess.run(command, env=environment(Path(folder), GAUDI_TUNE_CACHE=f"{folder}/cache", **own), check=True)


if __name__ == "__main__":
    main()
