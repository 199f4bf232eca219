"""Reads a folder of images: its layout, the class of each file, and the files that cannot be read."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.progress import track

from gaudi_tune.base.words import counted, shown
from gaudi_tune.data.held_out import several_classes, shared_samples, similar_classes

VALIDATION_FOLDERS = ("val", "validation", "valid", "test")
"""Names of the folder for validation; the first that exists counts."""
ANNOTATIONS = "val_annotations.txt"
"""Tiny ImageNet's list of validation images and their classes, tab-separated."""
PROGRESS_FROM = 20_000
"""Number of files from which on progress is shown."""
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
    unused = [name for name in VALIDATION_FOLDERS[:-1] if (root / name).is_dir() and name != validation.name]
    listed.notes += [f"left aside {name}/: {validation.name}/ serves for validation" for name in unused]
    if validation.name == "test":
        listed.notes.append("there is no val/: test/ serves for validation")
    for reason, files in listed.aside.items():
        if files:
            listed.notes.append(f"left aside {counted(len(files), 'file')} {reason}, the first {shown(files[0])}")
    _check(root, validation, listed)
    listed.bad = unreadable(root, [file for file, _ in (*listed.train, *listed.val, *listed.test)])
    for split in (listed.train, listed.val, listed.test):
        split[:] = [entry for entry in split if entry[0] not in listed.bad]
    _check(root, validation, listed)
    splits = {"train": listed.train, "val": listed.val, "test": listed.test}
    contents = _contents(root, splits)
    labels = {split: [label for _, label in entries] for split, entries in splits.items()}
    listed.notes += shared_samples(contents, "images")
    if not listed.test and (copies := len(listed.val) - len({*contents["val"]})):
        listed.notes.append(f"images of val that are there twice: {copies}; --confirm tests with one half of val")
    listed.notes += [*several_classes(contents, labels, "images"), *similar_classes(sorted({*labels["train"]}))]
    return listed


def _contents(root: Path, splits: Mapping[str, Sequence[LabelledFile]]) -> dict[str, list[str]]:
    """Return what tells each image from all others: its path, or its content where another file has its size."""
    files = [file for labelled in splits.values() for file, _ in labelled]
    sizes = {file: os.path.getsize(root / file) for file in files}
    counts = Counter(sizes.values())

    def content(entry: LabelledFile) -> str:
        file, _ = entry
        return hashlib.sha256((root / file).read_bytes()).hexdigest() if counts[sizes[file]] > 1 else file

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {split: list(pool.map(content, labelled)) for split, labelled in splits.items()}


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
    """Return the images that torchvision's ImageFolder finds, without hidden ones.

    Raises:
        ValueError: A class has none, or they lie deeper than its folder or a folder images/ in it, as in Tiny ImageNet.
    """
    from torchvision.datasets.folder import IMG_EXTENSIONS, is_image_file, make_dataset

    def is_taken(path: str) -> bool:
        name = path.removeprefix(f"{root}{os.sep}")
        is_image, is_hidden = is_image_file(path), f"{os.sep}." in name
        if is_image and is_hidden:
            listed.aside[HIDDEN].append(name)
        elif not is_image and not is_hidden:
            listed.aside[f"with an ending other than {', '.join(IMG_EXTENSIONS)}"].append(name)
        return is_image and not is_hidden

    entries = sorted(split.iterdir())
    listed.aside[NO_CLASS] += [str(e.relative_to(root)) for e in entries if is_image_file(e.name) and not e.is_dir()]
    classes = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    numbers = {name: number for number, name in enumerate(classes)}
    try:
        samples = make_dataset(split, numbers, is_valid_file=is_taken) if classes else []
    except FileNotFoundError as error:
        raise ValueError(
            f"{split}: {error}An image ends in {', '.join(IMG_EXTENSIONS)}; put in images of each class, or remove its "
            f"folder"
        ) from error
    labelled = [(path.removeprefix(f"{root}{os.sep}"), classes[number]) for path, number in samples]
    folders: dict[str, set[Path]] = defaultdict(set)
    for folder, label in {(os.path.dirname(file), label) for file, label in labelled}:
        folders[label].add(root / folder)
    for label, found in folders.items():
        if found not in ({split / label}, {split / label / "images"}):
            raise ValueError(
                f"the images of {split / label} are in {', '.join(map(str, sorted(found)))}: images lie directly in "
                f"the folder of their class, or all of them in a folder images/ in it"
            )
    return labelled


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
    files = {str(file.relative_to(root)) for file in images.iterdir() if not file.name.startswith(".")}
    listed.aside[NOT_ANNOTATED] += sorted(files - {file for file, _ in labelled})
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


def unreadable(root: Path, files: Sequence[str]) -> dict[str, str]:
    """Return the files below ``root`` that cannot be read as images, and why."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = track(
            pool.map(lambda file: _read_problem(root / file), files),
            f"checking {len(files):,} images",
            total=len(files),
            console=Console(stderr=True),
            disable=len(files) < PROGRESS_FROM,
        )
        return {file: problem for file, problem in zip(files, problems, strict=True) if problem}


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
