"""Which images a folder has, in which classes and splits: listed, and each file read, once per node."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sized
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gaudi_tune.base.node_cache import prepare_once
from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.data.fetch import DATA_SETS, fetch
from gaudi_tune.data.held_out import Split, rows_of
from gaudi_tune.data.image_folder import list_images

INDEX_FORMAT = 2
"""Raised when the index of the same folder changes."""
BAD_NAMED = 3
"""Unreadable files named in an error."""


@dataclass(frozen=True)
class ImageIndex:
    """The images of a folder."""

    folder: Path
    """The index, in the node's cache."""
    root: Path
    """The folder with the images."""
    classes: list[str]
    """Names, in the order of the labels."""
    notes: list[str]
    """How the folder was read, where a person should know."""

    def files(self, split: Split, config: ImageConfig) -> tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]]:
        """Return the paths below the root, and the labels, of the images of a split that a configuration uses.

        Data without a test split has half of the validation split for it. The paths are memory-mapped, so that the
        processes of a node share one copy: ImageNet has 1.3 million.
        """
        file = split if self._labels_of(split).is_file() else "val"
        paths, labels = np.load(self.folder / f"{file}_paths.npy", mmap_mode="r"), np.load(self._labels_of(file))
        if split != "train" and config.hold_out and not self._labels_of("test").is_file():
            rows = rows_of(split, labels)
            paths, labels = paths[rows], labels[rows]
        limit = config.train_samples if split == "train" else config.val_samples
        return paths[: limit or None], labels[: limit or None]

    def _labels_of(self, split: str) -> Path:
        return self.folder / f"{split}_labels.npy"


def image_index(config: ImageConfig) -> ImageIndex:
    """Return the index of the data of ``config``, made if nobody has on this node.

    That of a folder with bad files is kept only if they are to be left out: someone may fix them.

    Raises:
        ValueError: The folder cannot be used; says which, why, and what to give instead.
    """
    data, skip_bad = config.data, config.skip_bad_images
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
    return read_index(prepare_once("image-index", key, lambda into: _write_index(data, root, skip_bad, into)))


@cache
def read_index(folder: Path) -> ImageIndex:
    """Return the index in a folder, which a process reads once."""
    known: dict[str, Any] = json.loads((folder / "index.json").read_text())
    bad, notes = known["bad"], known["notes"]
    if bad:
        notes = [*notes, f"left out {_count_of(bad)} that cannot be read as images, the first {next(iter(bad))}"]
    return ImageIndex(folder, Path(known["root"]), known["classes"], notes)


def _write_index(data: str, root: Path, skip_bad: bool, into: Path) -> None:
    try:
        listed = list_images(root)
    except ValueError as error:
        raise ValueError(f"--data {data}: {error}") from error
    if listed.bad and not skip_bad:
        named = "; ".join(f"{file} ({why})" for file, why in list(listed.bad.items())[:BAD_NAMED])
        more = f" and {len(listed.bad) - BAD_NAMED} more" if len(listed.bad) > BAD_NAMED else ""
        raise ValueError(
            f"--data {data}: {_count_of(listed.bad)} cannot be read as images: {named}{more}. "
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


def _count_of(bad: Sized) -> str:
    return f"{len(bad)} file{'' if len(bad) == 1 else 's'}"
