"""Reads a folder of images: its layout, the class of each file, and the files that cannot be read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.progress import track

VALIDATION_FOLDERS = ("val", "validation", "valid", "test")
"""Names of the folder for validation; the first that exists counts."""
ANNOTATIONS = "val_annotations.txt"
"""Tiny ImageNet's list of validation images and their classes, tab-separated."""
PROGRESS_BAR_FROM = 20_000
"""Number of files from which on a progress bar is shown while they are checked."""

LabelledFile = tuple[str, str]
"""A path below the root, and the name of its class."""


@dataclass
class ImageList:
    """The images of a folder."""

    train: list[LabelledFile]
    val: list[LabelledFile]
    test: list[LabelledFile]
    """Empty if there is no labelled test split besides the validation split."""
    bad: dict[str, str] = field(default_factory=dict)
    """Files that cannot be read, and why. They are in no split."""
    notes: list[str] = field(default_factory=list)
    """Remarks on how the folder was read, if that is not obvious."""


def list_images(root: Path) -> ImageList:
    """List the images below ``root`` and read each of them once.

    A folder may have ``train/<class>/*`` and the same in ``val/``, ``validation/`` or ``valid/`` (ImageNet, Imagenette,
    Hymenoptera). It may have only ``test/`` besides, which then serves for validation. Or it is Tiny ImageNet as
    downloaded, with ``train/<class>/images/*``, and ``val/images/*`` beside a list of their classes.

    Raises:
        ValueError: It has none of these layouts, or a split without images; the message says what is missing.
    """
    if not (root / "train").is_dir():
        folders = [folder.name for folder in root.glob("*/") if (folder / "train").is_dir()]
        hint = f"; {folders[0]}/ in it has one, give that" if folders else ""
        raise ValueError(f"there is no folder train/ in it{hint}")
    validation = next((root / name for name in VALIDATION_FOLDERS if (root / name).is_dir()), None)
    if validation is None:
        raise ValueError("there is no folder val/ (nor test/) in it to validate on")
    train = _by_class(root, root / "train")
    listed = ImageList(train, _validation(root, validation), _test(root, validation, {label for _, label in train}))
    if validation.name == "test":
        listed.notes.append("there is no val/: test/ serves for validation")
    _sort_out(root, listed)
    if not listed.train or not listed.val:
        folder = root / "train" if not listed.train else validation
        raise ValueError(f"there are no readable images in {folder}, whose folders should be named after their classes")
    unseen = {label for _, label in listed.val} - {label for _, label in listed.train}
    if unseen:
        raise ValueError(f"classes {sorted(unseen)[:5]} are in {validation.name}/ and not in train/")
    if len({label for _, label in listed.train}) < 2:
        raise ValueError(f"{root / 'train'} holds one class, and there is nothing to tell it from; give two or more")
    return listed


def _by_class(root: Path, split: Path) -> list[LabelledFile]:
    labelled = []
    for folder in _visible(split):
        if folder.is_dir():
            # Tiny ImageNet has the images one level deeper, beside a text file of bounding boxes.
            images = folder / "images" if (folder / "images").is_dir() else folder
            labelled += [(str(file.relative_to(root)), folder.name) for file in _files(images)]
    return labelled


def _validation(root: Path, split: Path) -> list[LabelledFile]:
    annotations, images = split / ANNOTATIONS, split / "images"
    if not (annotations.is_file() and images.is_dir()):  # after sorting the images, people leave the list behind
        return _by_class(root, split)
    lines = (line.split("\t") for line in annotations.read_text(encoding="utf-8").splitlines() if line.strip())
    return [(str((images / file).relative_to(root)), label) for file, label, *_ in lines]


def _test(root: Path, validation: Path, classes: set[str]) -> list[LabelledFile]:
    """Return the images of ``test/``, unless it serves for validation or its folders are not classes.

    The public test sets of ImageNet and Tiny ImageNet have no labels.
    """
    folder = root / "test"
    if folder == validation or not folder.is_dir():
        return []
    folders = {entry.name for entry in _visible(folder) if entry.is_dir()}
    return _by_class(root, folder) if folders and folders <= classes else []


def _files(folder: Path) -> Iterable[Path]:
    for file in _visible(folder):
        if file.is_dir():
            raise ValueError(
                f"{folder} has a folder {file.name}/ in it: images lie directly in the folder of their class"
            )
        yield file


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))


def _sort_out(root: Path, listed: ImageList) -> None:
    """Move files that cannot be read to ``listed.bad``."""
    files = [file for file, _ in (*listed.train, *listed.val, *listed.test)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = pool.map(lambda file: _read_problem(root / file), files)
        console = Console(stderr=True)
        quiet = len(files) < PROGRESS_BAR_FROM or not console.is_terminal
        checked = track(reasons, "checking images", total=len(files), console=console, disable=quiet)
        listed.bad = {file: reason for file, reason in zip(files, checked, strict=True) if reason}
    if not quiet:
        print(f"checked {len(files)} images", file=sys.stderr)
    listed.train = [entry for entry in listed.train if entry[0] not in listed.bad]
    listed.val = [entry for entry in listed.val if entry[0] not in listed.bad]
    listed.test = [entry for entry in listed.test if entry[0] not in listed.bad]


def _read_problem(file: Path) -> str | None:
    try:
        with Image.open(file) as image:
            # A JPEG is decoded at an eighth of its size, which is five times faster and still finds truncated files.
            image.draft("RGB", (1, 1))
            image.load()
            if image.mode in ("I", "F"):
                return f"pixels of mode {image.mode} have no agreed range; save it with 8 or 16 bits"
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error and others for broken files.
        return str(error).replace(f" {str(file)!r}", "") or type(error).__name__
    return None
