"""Reading a folder of images: which layout it has, which class each file belongs to, which files cannot be read."""

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
"""Folders taken for validation, the first that is there."""
ANNOTATIONS = "val_annotations.txt"
"""Tiny ImageNet's list of validation images and their classes, tab-separated."""
PROGRESS_FROM = 20_000
"""With this many files or more, checking them shows a progress bar."""

LabelledFile = tuple[str, str]
"""A path below the root, and the name of its class."""


@dataclass
class ImageList:
    """What a folder holds."""

    train: list[LabelledFile]
    val: list[LabelledFile]
    test: list[LabelledFile]
    """Empty if there is no labelled test split beside that for validation."""
    bad: dict[str, str] = field(default_factory=dict)
    """Files that cannot be read, and why. They are in no split."""
    notes: list[str] = field(default_factory=list)
    """How the folder was read, where it is not obvious."""


def list_images(root: Path) -> ImageList:
    """List the images below ``root`` and read each once.

    Layouts: ``train/<class>/*`` with ``val/``, ``validation/`` or ``valid/`` likewise (ImageNet, Imagenette,
    Hymenoptera); with ``test/`` alone, which then serves for validation; and Tiny ImageNet as downloaded, with
    ``train/<class>/images/*`` and ``val/images/*`` beside its list of classes.

    Raises:
        ValueError: It has none of these layouts, or a split without images; says what is missing.
    """
    if not (root / "train").is_dir():
        below = [folder.name for folder in root.glob("*/") if (folder / "train").is_dir()]
        hint = f"; {below[0]}/ in it has one, give that" if below else ""
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
        which = root / "train" if not listed.train else validation
        raise ValueError(f"there are no readable images in {which}, whose folders should be named after their classes")
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
    if not (annotations.is_file() and images.is_dir()):  # the list alone is left where someone sorted the images
        return _by_class(root, split)
    lines = (line.split("\t") for line in annotations.read_text().splitlines() if line.strip())
    return [(str((images / file).relative_to(root)), label) for file, label, *_ in lines]


def _test(root: Path, validation: Path, classes: set[str]) -> list[LabelledFile]:
    """Return the images of ``test/``, if it does not serve for validation and its folders are classes: the public test
    sets of ImageNet and Tiny ImageNet have no labels."""
    folder = root / "test"
    if folder == validation or not folder.is_dir():
        return []
    below = {entry.name for entry in _visible(folder) if entry.is_dir()}
    return _by_class(root, folder) if below and below <= classes else []


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
    """Move the files that cannot be read to ``listed.bad``."""
    files = [file for file, _ in (*listed.train, *listed.val, *listed.test)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = pool.map(lambda file: _why_unreadable(root / file), files)
        console = Console(stderr=True)
        quiet = len(files) < PROGRESS_FROM or not console.is_terminal
        checked = track(reasons, "checking images", total=len(files), console=console, disable=quiet)
        listed.bad = {file: reason for file, reason in zip(files, checked, strict=True) if reason}
    if not quiet:
        print(f"checked {len(files)} images", file=sys.stderr)
    listed.train = [entry for entry in listed.train if entry[0] not in listed.bad]
    listed.val = [entry for entry in listed.val if entry[0] not in listed.bad]
    listed.test = [entry for entry in listed.test if entry[0] not in listed.bad]


def _why_unreadable(file: Path) -> str | None:
    try:
        with Image.open(file) as image:
            # A JPEG is decoded at an eighth of its size: five times quicker, and a truncated one still shows.
            image.draft("RGB", (1, 1))
            image.load()
            if image.mode in ("I", "F"):
                return f"pixels of mode {image.mode} have no agreed range; save it with 8 or 16 bits"
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error and others for broken files.
        return str(error).replace(f" {str(file)!r}", "") or type(error).__name__
    return None
