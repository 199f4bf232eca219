from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

from gaudi_tune.data.images import NORMALIZATIONS, Normalization, augmentation, evaluation, images_of, preparation
from gaudi_tune.data.sample_digits import sample_digits
from gaudi_tune.training.fresh_start import seed_host
from tests.helpers.image_files import config, draw


def test_training_crops_at_random_and_validation_does_not(folder: Path) -> None:
    image = (torch.arange(3 * 40 * 40).reshape(3, 40, 40) % 256).to(torch.uint8)
    at_random, centred = augmentation(config(folder, image_size=16)), evaluation(16, "crop")
    assert not torch.equal(at_random(image), at_random(image))
    assert torch.equal(centred(image), centred(image))
    assert at_random(image).shape == centred(image).shape == (3, 16, 16)
    still = images_of(config(folder, image_size=16, augment=False))
    assert not still.train.augments
    assert images_of(config(folder)).train.augments


def test_validation_sees_the_middle_or_all_of_an_image() -> None:
    halves = torch.cat([torch.zeros(3, 40, 40), torch.full((3, 40, 40), 255.0)], dim=2).to(torch.uint8)
    squeezed, middle = evaluation(16, "square")(halves), evaluation(16, "crop")(halves)
    assert squeezed.shape == middle.shape == (3, 16, 16)
    assert (squeezed == 0).float().mean() == pytest.approx(0.5, abs=0.1)
    wide = torch.cat([halves, halves[:, :, 40:]], dim=2)  # black is its first third, which a crop leaves out
    assert (evaluation(16, "crop")(wide) == 0).float().mean() < 0.05
    assert (evaluation(16, "square")(wide) == 0).float().mean() == pytest.approx(1 / 3, abs=0.1)


ONE_BY_ONE = ("AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix")


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_a_policy_of_torchvision_changes_the_colours_of_what_is_cropped(name: str) -> None:
    def shades(**changes: Any) -> torch.Tensor:
        torch.manual_seed(0)
        settings = config(sample_digits("train-val"), image_size=32, flip=False, crop_scale=1.0, **changes)
        return preparation(settings)(images_of(settings).train.__getitems__(list(range(12))))["images"]

    changed = (shades(auto_augment=name) - shades()).abs().mean(dim=(1, 2, 3))
    assert (changed > 0.05).float().mean() > 0.5
    assert torch.equal(shades(auto_augment=name), shades(auto_augment=name))


@pytest.mark.parametrize("normalization", ["imagenet", "half", "none"])
def test_erasing_leaves_a_rectangle_of_the_mean_in_that_share_of_the_images(folder: Path, normalization: str) -> None:
    for file in folder.glob("train/*/*.png"):
        draw(file, shade=255, size=(40, 40))
    torch.manual_seed(0)
    shares = {}
    for share in (0.0, 0.5, 1.0):
        settings = config(folder, image_size=32, random_erase=share, normalization=normalization)
        batch = images_of(settings).train.__getitems__([0, 1, 2, 3, 4, 5] * 20)
        red = preparation(settings)(batch)["images"][:, 0]
        erased = red.abs() < 0.01  # a 256th of the range, over a deviation
        shares[share] = float(erased.any(dim=(1, 2)).float().mean())
        for image in erased[erased.any(dim=(1, 2))]:
            rows, columns = image.any(dim=1).sum(), image.any(dim=0).sum()
            assert image.sum() == rows * columns
    assert shares == {0.0: 0.0, 0.5: pytest.approx(0.5, abs=0.15), 1.0: 1.0}


def test_mixup_blends_images_as_it_blends_their_labels(folder: Path) -> None:
    """Each class has another shade, so an image says how much of which class is in it."""
    for label, shade in (("ants", 0), ("bees", 255)):
        for file in (folder / "train" / label).glob("*.png"):
            draw(file, shade=shade)
    for mix in ({"mixup": 1.0}, {"cutmix": 1.0}, {"mixup": 1.0, "cutmix": 1.0}):
        settings = config(folder, image_size=8, normalization="none", **mix)
        data = images_of(settings)
        blended, cut = 0, 0
        for seed in range(20):
            torch.manual_seed(seed)
            batch = preparation(settings)(data.train.__getitems__([0, 1, 2, 3, 4, 5]))
            red = batch["images"][:, 0]
            assert batch["labels"].shape == (6, 2)
            torch.testing.assert_close(red.mean(dim=(1, 2)), batch["labels"][:, 1])
            flat = red.flatten(1).max(dim=1).values == red.flatten(1).min(dim=1).values
            blended += bool(((red > 0.01) & (red < 0.99)).any())
            cut += bool((~flat).any())
        assert (blended > 0) is ("mixup" in mix)
        assert (cut > 0) is ("cutmix" in mix)
        assert data.val.__getitems__([0, 1])["labels"].shape == (2,)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mixup": -0.1}, "mixup and cutmix must be finite and not negative, but got mixup=-0.1, cutmix=0.0"),
        ({"cutmix": float("nan")}, "mixup and cutmix must be finite and not negative"),
        ({"random_erase": 1.5}, "random_erase must be from 0 to 1, but got 1.5"),
        ({"auto_augment": "Sharpen"}, "auto_augment='Sharpen'"),
        ({"augment": False, "mixup": 0.2}, "auto_augment, random_erase, mixup and cutmix go with augment"),
        ({"augment": False, "auto_augment": "AugMix"}, "auto_augment, random_erase, mixup and cutmix go with augment"),
    ],
)
def test_augmentation_out_of_bounds_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config("anywhere", **changes)


def test_channels_are_brought_to_the_mean_and_deviation_of_the_pretraining() -> None:
    grey = torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)
    assert Normalization("half")(grey).unique().tolist() == [1.0]
    assert Normalization("none")(grey).unique().tolist() == [1.0]
    assert Normalization("none")(grey // 255 * 51).unique().tolist() == pytest.approx([0.2])
    imagenet = Normalization("imagenet")(grey)[0, :, 0, 0]
    torch.testing.assert_close(imagenet, torch.tensor([2.2489, 2.4286, 2.6400]), rtol=1e-4, atol=0.0)


@pytest.mark.parametrize("mix", [{}, {"mixup": 0.8}, {"cutmix": 1.0}], ids=["plain", "mixup", "cutmix"])
@pytest.mark.parametrize("normalization", ["imagenet", "half", "none"])
def test_images_are_loaded_as_uint8_and_prepared_as_torchvision_does(
    folder: Path, normalization: Any, mix: dict[str, float]
) -> None:
    """The mixers here are torchvision's own, and mix images that are normalized already."""
    settings = config(folder, image_size=16, normalization=normalization, **mix)
    unmixed = images_of(config(folder, image_size=16, normalization=normalization)).train
    indices, seed = [3, 0, 5, 1], (7, 2)
    loaded = images_of(settings).train.seeded(indices, seed)
    assert loaded["images"].dtype == torch.uint8
    prepared = preparation(settings)(loaded)

    normalize = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORMALIZATIONS[normalization])])
    batch = unmixed.seeded(indices, seed)
    images, labels = normalize(batch["images"]), batch["labels"]
    mixers = [
        mixer(alpha=alpha, num_classes=2)
        for mixer, alpha in ((v2.MixUp, mix.get("mixup")), (v2.CutMix, mix.get("cutmix")))
        if alpha
    ]
    if mixers:
        seed_host(*seed, indices[0])
        images, labels = v2.RandomChoice(mixers)(images, labels)
    torch.testing.assert_close(prepared["images"], images, rtol=0, atol=1e-6)
    torch.testing.assert_close(prepared["labels"], labels, rtol=0, atol=0)


@pytest.mark.parametrize("auto_augment", ["none", "AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix"])
def test_an_image_is_augmented_by_the_seed_and_its_index_alone(folder: Path, auto_augment: Any) -> None:
    """Python's and NumPy's generators, which are not seeded here, play no part, and neither do the other images."""
    settings = config(folder, image_size=16, auto_augment=auto_augment, random_erase=0.5, mixup=0.2, cutmix=1.0)
    loaded = []
    for other in (1, 2):
        random.seed(other)
        np.random.seed(other)
        loaded.append(images_of(settings).train.seeded([3, 0, 5, 1], (7, 2)))
    assert all(torch.equal(loaded[0][name], loaded[1][name]) for name in loaded[0])
    unmixed = images_of(config(folder, image_size=16, auto_augment=auto_augment, random_erase=0.5)).train
    alone, beside = unmixed.seeded([5], (7, 2))["images"], unmixed.seeded([3, 5], (7, 2))["images"]
    assert torch.equal(alone[0], beside[1])
    assert not torch.equal(alone, unmixed.seeded([5], (7, 3))["images"])


def test_a_split_pickles_as_the_name_of_its_files(folder: Path) -> None:
    data = images_of(config(folder, augment=False)).train
    pickled = pickle.dumps(data)
    assert len(pickled) < 3000
    assert torch.equal(pickle.loads(pickled).__getitems__([2])["images"], data.__getitems__([2])["images"])
