"""Reads a folder of images: its layout, the class of each file, and the files that cannot be read."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from gaudi_tune.base.words import counted, shown
from gaudi_tune.recipes.data.readable import unreadable

VALIDATION_FOLDERS = ("val", "validation", "valid", "test")
"""Names of the folder for validation; the first that exists counts."""
ANNOTATIONS = "val_annotations.txt"
"""Tiny ImageNet's list of validation images and their classes, tab-separated."""
ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""What torchvision's ImageFolder takes for an image, in small letters or capitals."""
NO_IMAGE = f"with an ending other than {', '.join(ENDINGS)}"
HIDDEN = "with a hidden name"
NO_CLASS = "in no folder of a class"
NOT_ANNOTATED = f"that {ANNOTATIONS} does not name"

LabelledFile = tuple[str, str]
"""A path below the root, and the name of its class."""


@dataclass
class ImageList:
    """The images of a folder."""

    train: list[LabelledFile] = field(default_factory=list)
    val: list[LabelledFile] = field(default_factory=list)
    test: list[LabelledFile] = field(default_factory=list)
    """Empty if there is no labelled test split besides the validation split."""
    bad: dict[str, str] = field(default_factory=dict)
    """Files that cannot be read, and why. They are in no split."""
    aside: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Files that are in no split for another reason, by the reason."""
    notes: list[str] = field(default_factory=list)
    """Remarks on how the folder was read, if that is not obvious."""


def list_images(root: Path) -> ImageList:
    """List the images below ``root`` and read each of them once.

    A folder may have ``train/<class>/*`` and the same in ``val/``, ``validation/`` or ``valid/`` (ImageNet, Imagenette,
    Hymenoptera). It may have only ``test/`` besides, which then serves for validation. Or it is Tiny ImageNet as
    downloaded, with ``train/<class>/images/*``, and ``val/images/*`` beside a list of their classes.

    Raises:
        ValueError: It has none of these layouts, or a split without images; the message says what is missing. The
            layout is checked before any image is read.
    """
    if not (root / "train").is_dir():
        folders = [folder.name for folder in root.glob("*/") if (folder / "train").is_dir()]
        hint = f"; {folders[0]}/ in it has one, give that" if folders else ""
        raise ValueError(f"there is no folder train/ in it{hint}")
    validation = next((root / name for name in VALIDATION_FOLDERS if (root / name).is_dir()), None)
    if validation is None:
        raise ValueError("there is no folder val/ (nor test/) in it to validate on")
    listed = ImageList()
    listed.train = _by_class(root, root / "train", listed)
    listed.val = _validation(root, validation, listed)
    listed.test = _test(root, validation, listed)
    if validation.name == "test":
        listed.notes.append("there is no val/: test/ serves for validation")
    for reason, files in listed.aside.items():
        if files:
            listed.notes.append(f"left aside {counted(len(files), 'file')} {reason}, the first {shown(files[0])}")
    _check(root, validation, listed)
    listed.bad = unreadable(root, [file for file, _ in (*listed.train, *listed.val, *listed.test)])
    listed.train = [entry for entry in listed.train if entry[0] not in listed.bad]
    listed.val = [entry for entry in listed.val if entry[0] not in listed.bad]
    listed.test = [entry for entry in listed.test if entry[0] not in listed.bad]
    _check(root, validation, listed)
    return listed


def _check(root: Path, validation: Path, listed: ImageList) -> None:
    """Check that there is something to tell apart, and something to validate on."""
    for folder, files in ((root / "train", listed.train), (validation, listed.val)):
        if not files:
            raise ValueError(
                f"there are no readable images in {folder}, whose folders should be named after their classes"
            )
    classes = {label for _, label in listed.train}
    for folder, files in ((validation, listed.val), (root / "test", listed.test)):
        if unseen := {label for _, label in files} - classes:
            raise ValueError(
                f"no image of the classes {sorted(unseen)[:5]} is there to train on, and {folder.name}/ has some; put "
                f"some into train/, or remove these classes from {folder.name}/"
            )
    if len(classes) < 2:
        raise ValueError(f"{root / 'train'} holds one class, and there is nothing to tell it from; give two or more")


def _by_class(root: Path, split: Path, listed: ImageList) -> list[LabelledFile]:
    labelled = []
    for entry in sorted(split.iterdir()):
        if entry.is_dir() and not entry.name.startswith("."):
            labelled += [(file, entry.name) for file in _images_of_class(root, entry, listed)]
        elif _ends_as_image(entry):
            listed.aside[NO_CLASS].append(str(entry.relative_to(root)))
    return labelled


def _images_of_class(root: Path, folder: Path, listed: ImageList) -> list[str]:
    """Return the images in the folder of a class.

    Raises:
        ValueError: There are none, or there are folders in it. Tiny ImageNet has the images in a folder ``images/``,
            beside a text file of bounding boxes.
    """
    images = _images_in(root, folder, listed)
    folders = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    if [entry.name for entry in folders] == ["images"] and not images:
        folder = folders[0]
        images = _images_in(root, folder, listed)
        folders = [entry for entry in folder.iterdir() if entry.is_dir()]
    if folders:
        raise ValueError(
            f"{folder} has a folder {folders[0].name}/ in it{', beside images' if images else ''}: images lie directly "
            f"in the folder of their class, or all of them in a folder images/ in it"
        )
    if not images:
        endings = Counter(file.suffix.lower() or "no ending" for file in folder.iterdir())
        reason = f"its files have {', '.join(endings)}" if endings else "it is empty"
        raise ValueError(
            f"the folder {folder} has no image ({reason}; an image ends in {', '.join(ENDINGS)}); put in images of "
            f"this class, or remove the folder"
        )
    return images


def _images_in(root: Path, folder: Path, listed: ImageList) -> list[str]:
    images = []
    for file in sorted(folder.iterdir()):
        name = str(file.relative_to(root))
        if file.name.startswith("."):
            if _ends_as_image(file):
                listed.aside[HIDDEN].append(name)
        elif _ends_as_image(file):
            images.append(name)
        elif not file.is_dir():
            listed.aside[NO_IMAGE].append(name)
    return images


def _ends_as_image(file: Path) -> bool:
    return file.name.lower().endswith(ENDINGS) and not file.is_dir()


def _validation(root: Path, split: Path, listed: ImageList) -> list[LabelledFile]:
    annotations, images = split / ANNOTATIONS, split / "images"
    if not (annotations.is_file() and images.is_dir()):  # after sorting the images, people leave the list behind
        return _by_class(root, split, listed)
    labelled = []
    text = annotations.read_text(encoding="utf-8", errors="surrogateescape")
    for number, line in enumerate(text.split("\n"), 1):
        file, *about = line.rstrip("\r").split("\t")
        if about:
            labelled.append((str((images / file).relative_to(root)), about[0]))
        elif line.strip():
            raise ValueError(f"line {number} of {annotations} must be a file, a tab and its class, but is {line!r}")
    named = {file for file, _ in labelled}
    listed.aside[NOT_ANNOTATED] += [file for file in _images_in(root, images, listed) if file not in named]
    return labelled


def _test(root: Path, validation: Path, listed: ImageList) -> list[LabelledFile]:
    """Return the images of ``test/``, unless it serves for validation or its folders are not classes.

    The public test sets of ImageNet and Tiny ImageNet have no labels.
    """
    folder = root / "test"
    if folder == validation or not folder.is_dir():
        return []
    folders = {entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")}
    if folders and folders <= {label for _, label in listed.train}:
        return _by_class(root, folder, listed)
    listed.notes.append("test/ is left aside: its folders are not the classes of train/")
    return []
