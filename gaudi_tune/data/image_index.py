"""The index of a folder's images, their classes and splits. Each node makes it once, and reads each file for it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gaudi_tune.base.node_cache import prepare_once
from gaudi_tune.base.words import counted, shown
from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.data.fetch import DATA_SETS, fetch
from gaudi_tune.data.held_out import Split, rows_of
from gaudi_tune.data.image_folder import list_images

INDEX_FORMAT = 6
"""Version of the index. It is raised when the index of the same folder changes."""
BAD_FILES_SHOWN = 3
"""How many unreadable files an error lists."""


@dataclass(frozen=True)
class ImageIndex:
    """The images of a folder."""

    folder: Path
    """The index, in the node's cache."""
    root: Path
    """The folder with the images."""
    classes: list[str]
    """Names of the classes, in the order of the labels."""
    notes: list[str]
    """Remarks on how the folder was read, for the user."""

    def files(self, split: Split, config: ImageConfig) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]:
        """Return the paths below the root and the labels of those images of a split that a configuration uses.

        Without a test split, half of the validation split serves as test data. The paths are memory-mapped, so that the
        processes of a node share one copy: ImageNet has 1.3 million.
        """
        file = split if self._labels_of(split).is_file() else "val"
        paths, labels = np.load(self.folder / f"{file}_paths.npy", mmap_mode="r"), np.load(self._labels_of(file))
        if split != "train" and config.hold_out and not self.has_test:
            rows = rows_of(split, labels)
            paths, labels = paths[rows], labels[rows]
        limit = config.train_samples if split == "train" else config.val_samples
        return paths[: limit or None], labels[: limit or None]

    @property
    def has_test(self) -> bool:
        """Whether there is a test split with labels."""
        return self._labels_of("test").is_file()

    def _labels_of(self, split: str) -> Path:
        return self.folder / f"{split}_labels.npy"


def image_index(config: ImageConfig) -> ImageIndex:
    """Return the index of the data of ``config``; make it if this node does not have it.

    If the folder has bad files and they are not to be left out, no index is kept, since they may be repaired.

    Raises:
        ValueError: The folder cannot be used; the message says why, and what to give instead.
    """
    data, skip_bad = config.data, config.skip_bad_images
    root = fetch(data) if data in DATA_SETS else Path(data).expanduser().resolve()
    if not root.is_dir():
        names = ", ".join(DATA_SETS)
        raise ValueError(
            f"--data {data}: there is no such folder. Give one with train/ and val/ (or test/), each with a folder of "
            f"images per class, or one of {names}."
        )
    patterns = ("*/", "*/*/", "*/*/images/", "*/val_annotations.txt")
    folders = [root, *(folder for pattern in patterns for folder in root.glob(pattern))]
    key = {
        "format": INDEX_FORMAT,
        "skip_bad": skip_bad,
        "folders": sorted([str(f), f.stat().st_mtime_ns] for f in folders),
    }
    return read_index(
        prepare_once("image-index", key, lambda index_folder: _write_index(data, root, skip_bad, index_folder))
    )


@cache
def read_index(folder: Path) -> ImageIndex:
    """Return the index in a folder. A process reads it once."""
    content: dict[str, Any] = json.loads((folder / "index.json").read_text())
    bad, notes = content["bad"], content["notes"]
    if bad:
        notes = [
            *notes,
            f"left out {counted(len(bad), 'file')} that cannot be read as images, the first {shown(next(iter(bad)))}",
        ]
    return ImageIndex(folder, Path(content["root"]), content["classes"], notes)


def _write_index(data: str, root: Path, skip_bad: bool, index_folder: Path) -> None:
    try:
        listed = list_images(root)
    except ValueError as error:
        raise ValueError(f"--data {data}: {error}") from error
    if listed.bad and not skip_bad:
        examples = "; ".join(f"{shown(file)} ({reason})" for file, reason in list(listed.bad.items())[:BAD_FILES_SHOWN])
        remainder = f" and {len(listed.bad) - BAD_FILES_SHOWN} more" if len(listed.bad) > BAD_FILES_SHOWN else ""
        raise ValueError(
            f"--data {data}: {counted(len(listed.bad), 'file')} cannot be read as images: {examples}{remainder}. "
            f"Fix or remove them, or leave them out with --set skip_bad_images=true."
        )
    classes = sorted({label for _, label in listed.train})
    for split, files in (("train", listed.train), ("val", listed.val), ("test", listed.test)):
        if not files:
            continue
        # Files are sorted by their hashes, so that the first n of them are a fair sample of all classes.
        files = sorted(files, key=lambda entry: hashlib.sha1(os.fsencode(entry[0]), usedforsecurity=False).digest())
        np.save(index_folder / f"{split}_paths.npy", np.array([os.fsencode(file) for file, _ in files]))
        np.save(
            index_folder / f"{split}_labels.npy", np.array([classes.index(label) for _, label in files], dtype=np.int64)
        )
    content = {"root": str(root), "classes": classes, "bad": listed.bad, "notes": listed.notes}
    (index_folder / "index.json").write_text(json.dumps(content, indent=1))
