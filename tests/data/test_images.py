from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.datasets.folder import IMG_EXTENSIONS

from gaudi_tune.data import image_folder
from gaudi_tune.data.facts import check_images
from gaudi_tune.data.image_index import image_index
from gaudi_tune.data.images import images_of, preparation
from gaudi_tune.data.sample_digits import sample_digits
from tests.helpers.image_files import config, draw


def test_a_folder_per_class(folder: Path) -> None:
    data = images_of(config(folder, image_size=8))
    assert (len(data.train), len(data.val), data.classes) == (6, 2, ["ants", "bees"])
    assert image_index(config(folder)).notes == []
    batch = data.train.__getitems__([0, 5])
    assert batch["images"].shape == (2, 3, 8, 8)
    assert sorted(data.train.labels) == [0, 0, 0, 1, 1, 1]


def test_a_second_folder_to_validate_on_is_named(folder: Path) -> None:
    (folder / "valid").mkdir()
    assert image_index(config(folder)).notes == ["left aside valid/: val/ serves for validation"]


def test_without_val_the_test_split_validates_and_a_line_says_so(folder: Path) -> None:
    (folder / "val").rename(folder / "test")
    data = images_of(config(folder))
    assert len(data.val) == 2
    assert "test/ serves for validation" in image_index(config(folder)).notes[0]


def in_split(split: Any) -> set[bytes]:
    return set(split._paths)


def test_without_a_test_split_half_of_each_class_of_the_validation_images_is_held_out(folder: Path) -> None:
    for label, count in (("ants", 5), ("bees", 4)):
        for number in range(1, count):
            draw(folder / "val" / label / f"{number}.jpg")
    whole, data = images_of(config(folder)), images_of(config(folder, hold_out=True))
    assert whole.test is None and data.test is not None
    assert in_split(data.val).isdisjoint(in_split(data.test))
    assert in_split(data.val) | in_split(data.test) == in_split(whole.val)
    assert abs(sum(data.val.labels) - sum(data.test.labels)) <= 1
    assert len(data.val) == 5 and len(data.test) == 4
    assert data.test.__getitems__([0, 3])["images"].shape == (2, 3, 224, 224)


def test_a_test_split_with_labels_is_held_out_and_one_without_is_not_read(folder: Path) -> None:
    draw(folder / "test" / "ants" / "7.jpg")
    data = images_of(config(folder, hold_out=True))
    assert data.test is not None
    assert in_split(data.test) == {b"test/ants/7.jpg"} and len(data.val) == 2
    (folder / "test" / "ants").rename(folder / "test" / "images")
    data = images_of(config(folder, hold_out=True))
    assert data.test is not None
    assert len(data.val) == len(data.test) == 1 and b"test" not in b"".join(in_split(data.test))


def test_too_few_images_to_hold_out_some(folder: Path) -> None:
    shutil.rmtree(folder / "val" / "bees")
    with pytest.raises(ValueError, match="too few samples: 1; give more, or a separate test part, or --confirm 0"):
        images_of(config(folder, hold_out=True))


def test_tiny_imagenet_as_it_is_downloaded(tmp_path: Path) -> None:
    root, wnids = tmp_path / "tiny", ("n01443537", "n01629819")
    for wnid in wnids:
        draw(root / "train" / wnid / "images" / f"{wnid}_0.JPEG", shade=30 * wnids.index(wnid))
        (root / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t9\t9\n")
        draw(root / "val" / "images" / f"val_{wnids.index(wnid)}.JPEG", shade=50 + 30 * wnids.index(wnid))
        draw(root / "test" / "images" / f"test_{wnid}.JPEG")  # has no labels, and is no validation split
    draw(root / "val" / "images" / "val_2.JPEG")
    lines = [f"val_{number}.JPEG\t{wnids[1 - number]}\t0\t0\t9\t9" for number in range(2)]
    (root / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    data = images_of(config(root))
    assert (len(data.train), len(data.val), data.classes) == (2, 2, list(wnids))
    assert [note.rpartition(", the first ")[2] for note in image_index(config(root)).notes] == [
        "test/ is left aside: its folders are not the classes of train/",
        "train/n01443537/n01443537_boxes.txt",
        "val/images/val_2.JPEG",
    ]
    by_file = {file.decode(): data.classes[label] for file, label in zip(data.val._paths, data.val.labels, strict=True)}
    assert by_file == {"val/images/val_0.JPEG": wnids[1], "val/images/val_1.JPEG": wnids[0]}


def test_files_that_are_no_images_are_named_and_counted_or_left_out(folder: Path) -> None:
    (folder / "train" / "ants" / "notes.png").write_text("ants are small")
    whole = draw(folder / "train" / "bees" / "cut.jpg", size=(400, 300)).read_bytes()
    (folder / "train" / "bees" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "train" / "bees" / "empty.png").touch()
    (folder / "train" / "bees" / ".hidden").touch()
    (folder / "train" / "bees" / ".hidden.png").touch()
    with pytest.raises(ValueError, match=r"3 files cannot be read as images: train/ants/notes.png .*--set skip_bad"):
        images_of(config(folder))
    data = images_of(config(folder, skip_bad_images=True))
    assert len(data.train) == 6
    notes = image_index(config(folder, skip_bad_images=True)).notes
    assert notes == [
        "left aside 1 file with a hidden name, the first train/bees/.hidden.png",
        "left out 3 files that cannot be read as images, the first train/ants/notes.png",
    ]


UNUSABLE: dict[str, tuple[Any, ...]] = {
    "missing": (
        lambda root: root.rename(root.with_name("gone")),
        "there is no such folder. Give one with train/ and val/",
    ),
    "no train": (lambda root: (root / "train").rename(root / "training"), "there is no folder train/ in it"),
    "no val": (lambda root: (root / "val").rename(root / "holdout"), r"no folder val/ \(nor test/\) in it"),
    "empty val": (
        lambda root: [file.unlink() for file in root.glob("val/*/*")],
        "val: Found no valid file for the classes ants, bees. An image ends in .jpg, .*or remove its folder",
    ),
    "gif": (
        lambda root: [file.rename(file.with_suffix(".gif")) for file in root.glob("train/ants/*")],
        "train: Found no valid file for the classes ants. An image ends in .jpg, .*or remove its folder",
    ),
    "flat val": (
        lambda root: [file.rename(root / "val" / f"{file.parent.name}.jpg") for file in root.glob("val/*/*")],
        "val: Found no valid file for the classes ants, bees.",
    ),
    "only flat val": (
        lambda root: (
            [file.rename(root / "val" / f"{file.parent.name}.jpg") for file in root.glob("val/*/*")],
            list(map(shutil.rmtree, root.glob("val/*/"))),
        ),
        "there are no readable images in .*val, whose folders should be named after",
    ),
    "beside images/": (
        lambda root: draw(root / "train" / "ants" / "images" / "x.png"),
        "the images of .*train/ants are in .*train/ants, .*train/ants/images: images lie dir",
    ),
    "bad annotations": (
        lambda root: (
            draw(root / "val" / "images" / "x.png"),
            (root / "val" / "val_annotations.txt").write_text("x.png ants\n"),
        ),
        r"line 1 of .*val_annotations.txt must be a file, a tab and its class, but is 'x.png ants'",
    ),
    "nested": (
        lambda root: draw(root / "train" / "ants" / "2024" / "x.png"),
        "the images of .*train/ants are in .*train/ants, .*train/ants/2024: images lie dir",
    ),
    "one class": (lambda root: list(map(shutil.rmtree, root.glob("*/bees"))), "holds one class"),
    "dangling link": (
        lambda root: (root / "train" / "ants" / "gone.png").symlink_to("nowhere"),
        "gone.png .*No such file",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_folder_that_cannot_be_used_is_an_error(spoil: Callable[[Path], Any], message: str, folder: Path) -> None:
    spoil(folder)
    with pytest.raises(ValueError, match=f"--data {folder}: .*{message}"):
        images_of(config(folder))


def test_images_by_torchvisions_rule_count_and_the_plan_names_the_rest(folder: Path) -> None:
    """The published archive of ants and bees has an imageNotFound.gif, which ImageFolder does not take."""
    Image.new("RGB", (9, 9)).save(folder / "train" / "ants" / "imageNotFound.gif")
    draw(folder / "train" / "ants" / "3.JPG", shade=77)
    draw(folder / "train" / "loose.png")
    (folder / "train" / "bees" / "notes.txt").touch()
    data = images_of(config(folder)).train
    theirs = ImageFolder(str(folder / "train"))
    assert {os.fsdecode(path) for path in data._paths} == {os.path.relpath(path, folder) for path, _ in theirs.samples}
    assert len(theirs) == 7
    assert image_index(config(folder)).notes == [
        "left aside 1 file in no folder of a class, the first train/loose.png",
        f"left aside 2 files with an ending other than {', '.join(IMG_EXTENSIONS)}, "
        "the first train/ants/imageNotFound.gif",
    ]


def test_a_layout_that_cannot_be_used_is_named_before_any_image_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaudi_tune.data.image_folder._read_problem", lambda file: pytest.fail(f"read {file}"))
    (folder / "val" / "bees").rename(folder / "val" / "wasps")
    with pytest.raises(
        ValueError, match=rf"{folder}: .*no image of the classes \['wasps'\] is there to train on, and val/"
    ):
        images_of(config(folder))


def test_a_long_check_shows_its_progress(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image_folder, "PROGRESS_FROM", 6)
    assert len(images_of(config(folder)).train) == 6
    assert "images" in capsys.readouterr().err


def test_a_fixed_image_is_seen(folder: Path) -> None:
    file = folder / "train" / "ants" / "0.png"
    whole = file.read_bytes()
    file.write_bytes(whole[:40])
    with pytest.raises(ValueError, match=r"1 file cannot be read as images: train/ants/0.png"):
        images_of(config(folder))
    file.write_bytes(whole)
    assert len(images_of(config(folder)).train) == 6


@pytest.mark.parametrize("mode", ["I;16", "L", "RGBA", "CMYK"])
def test_images_of_other_modes_keep_their_shades(mode: str, folder: Path) -> None:
    shade = {"I;16": 100 * 256, "L": 100, "RGBA": (100, 100, 100, 255), "CMYK": (155, 155, 155, 0)}[mode]
    file = folder / "train" / "ants" / ("0.png" if mode != "CMYK" else "0.tif")
    Image.new(mode, (9, 9), shade).save(file)  # type: ignore[arg-type]
    data = images_of(config(folder)).train
    index = next(i for i, path in enumerate(data._paths) if path.decode().endswith(str(Path(*file.parts[-2:]))))
    assert data._load(index).unique().tolist() == [100]


def test_images_without_an_agreed_range_are_bad(folder: Path) -> None:
    Image.new("F", (9, 9), 0.5).save(folder / "train" / "ants" / "float.tif")
    with pytest.raises(ValueError, match=r"float\.tif \(pixels of mode F have no agreed range"):
        images_of(config(folder))


def test_tiny_imagenet_whose_validation_images_were_sorted(folder: Path) -> None:
    (folder / "val" / "val_annotations.txt").write_text("0.jpg\tants\t0\t0\t9\t9\n")
    assert len(images_of(config(folder)).val) == 2


@pytest.mark.parametrize("split", ["val", "test"])
def test_images_that_another_split_has_under_another_name_are_said(split: str, folder: Path) -> None:
    draw(folder / split / "bees" / "new.jpg", shade=7)
    for number, file in enumerate(sorted((folder / "train" / "ants").iterdir())):
        (folder / split / "ants").mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / split / "ants" / f"copy-{number}.jpg")
    shutil.copy(folder / split / "bees" / "new.jpg", folder / split / "bees" / "again.jpg")
    count = len([*(folder / split).glob("*/*")])
    notes = image_index(config(folder)).notes
    assert f"3 of {count} images of {split} are the same as images of train" in notes
    twice = "images of val that are there twice: 1; --confirm tests with one half of val"
    assert (twice in notes) == (split == "val")  # a test part is not made of val


def test_hidden_files_and_folders_are_no_data(folder: Path) -> None:
    draw(folder / "train" / ".ipynb_checkpoints" / "0.png")
    draw(folder / "train" / "ants" / ".thumbnails" / "0.png")
    data = images_of(config(folder))
    assert (len(data.train), data.classes) == (6, ["ants", "bees"])


def test_a_file_name_that_is_not_utf8_loads(folder: Path) -> None:
    image = folder / "train" / "ants" / "0.png"
    os.rename(os.fsencode(image), os.fsencode(image.parent) + b"/\xe9.png")
    data = images_of(config(folder)).train
    assert data.__getitems__(list(range(6)))["images"].shape[0] == 6


@pytest.mark.parametrize(
    "name", ["a[1]*?{b}", "a::b", "100%23 #1", "s3:", "-x", "日本 é", "a\nb", "$HOME ~", "[red]", "\udce9"]
)
def test_a_path_may_have_any_character(name: str, folder: Path) -> None:
    for split in ("train", "val"):
        (folder / split / "ants").rename(folder / split / name)
    (folder / "train" / name / "0.png").rename(folder / "train" / name / f"{name}.png")
    root = folder.rename(folder.with_name(name))
    data = images_of(config(root))
    assert (len(data.train), set(data.classes)) == (6, {name, "bees"})
    assert data.train.__getitems__(list(range(6)))["images"].shape[0] == 6
    check_images(config(root))[0].encode()


def test_a_folder_above_the_right_one_is_pointed_down(folder: Path) -> None:
    with pytest.raises(ValueError, match="mine/ in it has one, give that"):
        images_of(config(folder.parent))


def test_an_image_that_is_added_is_seen(folder: Path) -> None:
    assert len(images_of(config(folder)).train) == 6
    draw(folder / "train" / "ants" / "new.png")
    assert len(images_of(config(folder)).train) == 7


def test_any_first_n_are_a_draw_of_all_classes() -> None:
    data = images_of(config(sample_digits("train-val"), train_samples=60))
    assert len(data.train) == 60
    assert set(data.train.labels) == set(range(10))


@pytest.mark.parametrize("layout", ["train-val", "train-test", "imagenet", "tiny-imagenet"])
def test_the_digits_are_the_same_in_every_layout(layout: Any) -> None:
    settings = config(sample_digits(layout), image_size=32)
    data = images_of(settings)
    assert (len(data.train), len(data.val), len(data.classes)) == (1411, 386, 10)
    mean = preparation(settings)(data.val.__getitems__(list(range(386))))["images"].mean()
    assert float(mean) == pytest.approx(-0.414, abs=0.005)


def test_a_class_of_which_nothing_is_left_to_train_on_is_named(folder: Path) -> None:
    draw(folder / "test" / "cats" / "1.png")
    (folder / "train" / "cats").mkdir()
    (folder / "train" / "cats" / "1.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"no image of the classes \['cats'\] is there to train on"):
        images_of(config(folder, skip_bad_images=True, hold_out=True))


def test_an_image_that_is_of_two_classes_and_classes_of_like_names_are_said(folder: Path) -> None:
    shutil.copy(folder / "train" / "ants" / "1.png", folder / "train" / "bees" / "again.png")
    (folder / "train" / "Ants").mkdir()
    shutil.copy(folder / "train" / "ants" / "2.png", folder / "train" / "Ants" / "other.png")
    assert image_index(config(folder)).notes == [
        "equal images are of several classes: 2, the first of Ants and ants",
        "classes that may be the same, and are written differently: 'Ants', 'ants'",
    ]
