"""The settings of text and image data. This module imports no library; the modules that load data do."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from typing_extensions import override

from gaudi_tune.devices.device import DeviceType
from gaudi_tune.recipes.training_config import TrainingConfig

MANY_LENGTHS = 6
"""Lengths that texts are padded to if there are many: 20 % of the tokens of Yelp reviews are then padding."""
FEW_TEXTS = 5000
"""Training texts up to which one length is the default (``docs/measurements.md``, BERT's lengths)."""


@dataclass(frozen=True, kw_only=True)
class TextConfig(TrainingConfig):
    """Settings of text classification data."""

    data: str = "yelp_review_full"
    """A name on the hub, a folder with ``train.*`` and ``test.*`` or ``validation.*`` files, or a single file."""
    model: str = "bert-base-cased"
    """An encoder and its tokenizer: a name on the hub, or a local folder."""
    text_column: str = "text"
    """Column of the text."""
    label_column: str = "label"
    """Column of the class: whole numbers, strings or a ClassLabel."""
    max_length: int = 512
    """Tokens per text. Longer texts are cut."""
    padded_lengths: int = 0
    """Most lengths that texts are padded to. They are chosen from the training texts, so that padding is least, and a
    batch has texts of one length. Each length is another graph. 1: all texts are padded to ``max_length``. 0: 1 with at
    most 5,000 training texts, for which more graphs take longer than they save, and else 6."""

    @property
    @override
    def most_shapes(self) -> int:
        """The most lengths that texts are padded to, each with its own graphs."""
        is_small = 0 < self.train_samples <= FEW_TEXTS
        return self.padded_lengths or (1 if is_small else MANY_LENGTHS)

    @override
    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        lengths = {"max_length": self.max_length, "padded_lengths": self.most_shapes}
        return super().graph(workers) | {"model": self.model, **lengths}

    @override
    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether the values keep it."""
        return super().rules() | {
            "max_length must be at least 8": self.max_length >= 8,
            "padded_lengths must not be negative": self.padded_lengths >= 0,
        }


@dataclass(frozen=True, kw_only=True)
class ChatConfig(TrainingConfig):
    """Settings of conversations, or other texts, that a language model learns to continue."""

    fractions = frozenset()
    paths = ("data", "model", "chat_template")

    data: str = "yahma/alpaca-cleaned"
    """A name on the hub, a folder with ``train.*`` and ``test.*`` or ``validation.*`` files, or a single file. The
    columns are ``messages``; or ``prompt`` and ``completion``; or ``instruction``, perhaps ``input``, and ``output``;
    or ``text``."""
    model: str = "meta-llama/Llama-3.2-1B-Instruct"
    """A causal language model and its tokenizer: a name on the hub, or a local folder."""
    chat_template: str = ""
    """File with a Jinja template in place of the tokenizer's own."""
    max_length: int = 2048
    """Most tokens that the model sees at once. Longer conversations are cut at their end."""
    packing: bool = False
    """Whether several whole conversations fill a sample of ``max_length`` tokens, none of which sees another. All
    samples then have one length, and hardly any padding; ``batch_size`` counts samples."""
    padded_lengths: int = 4
    """Without packing, the most lengths that conversations are padded to, chosen so that padding is least. A batch has
    one length, and each length is another graph. 1: all are padded to ``max_length``."""

    @property
    @override
    def most_shapes(self) -> int:
        """The most lengths of samples, each with its own graphs."""
        return 1 if self.packing else self.padded_lengths

    @override
    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        names = ("model", "max_length", "packing", "most_shapes")
        return super().graph(workers) | {name: getattr(self, name) for name in names}

    @override
    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether the values keep it."""
        return super().rules() | {
            "max_length must be at least 8": self.max_length >= 8,
            "padded_lengths must be at least 1": self.padded_lengths >= 1,
            "label_smoothing must be 0 for a language model": self.label_smoothing == 0,
            "ema_decay must be 0 for a language model, whose base would be copied": self.ema_decay == 0,
            "train_accuracy, top5_accuracy and balanced_metrics must be false, since they are a classifier's": not (
                self.train_accuracy or self.top5_accuracy or self.balanced_metrics
            ),
        }


@dataclass(frozen=True, kw_only=True)
class ImageConfig(TrainingConfig):
    """Settings of image classification data."""

    data: str = ""
    """A folder with ``train/`` and ``val/`` (or ``test/``), which have a folder for each class; Tiny ImageNet as
    downloaded; or the name of a data set that can be fetched."""
    image_size: int = 224
    """Side of the square that a network sees, in pixels."""
    crop_scale: float = 0.08
    """Smallest share of an image's area that a random crop in training keeps. 1 means nearly all."""
    flip: bool = True
    """Whether training mirrors half of the images."""
    augment: bool = True
    """Whether training crops images at random and augments them as other settings say. If not, they are loaded as for
    validation."""
    auto_augment: Literal["none", "AutoAugment", "RandAugment", "TrivialAugmentWide", "AugMix"] = "none"
    """A policy of torchvision that training applies after the crop, with torchvision's default strength."""
    random_erase: float = 0.0
    """Share of the training images in which a random rectangle is erased."""
    mixup: float = 0.0
    """Alpha of the beta distribution of the share of another image, and of its label, that is blended into each
    training image of a micro-batch. 0 means none. With ``cutmix``, one of the two is drawn for each micro-batch."""
    cutmix: float = 0.0
    """Alpha of the beta distribution of the share of each image that a rectangle of another image covers. 0 means
    none."""
    resize: Literal["crop", "square"] = "crop"
    """How validation images become square. crop: the centre of an image whose shorter side is a seventh longer. square:
    the whole image, squeezed."""
    normalization: Literal["imagenet", "half", "none"] = "imagenet"
    """Mean and standard deviation by which channels are normalized. none: they stay from 0 to 1."""
    channels_last: bool | Literal["auto"] = "auto"
    """Whether weights and images have the channels as the last dimension in memory, which changes the last digits of
    what a network computes. auto: on a GPU, whose kernels for convolutions are faster so."""
    skip_bad_images: bool = False
    """Whether to leave out files that cannot be read as images. Otherwise they are an error."""

    @override
    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        return super().graph(workers) | {"image_size": self.image_size}

    @override
    def why_not_wider(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return None."""
        return None

    @override
    def why_not_exact(self, device: DeviceType, workers: int, wider: int) -> str | None:
        """Return a reason if images are mixed with one another; other augmentation is drawn for each image alone."""
        mixes = self.mixup or self.cutmix
        mixing = "mixup and cutmix mix the images of one worker" if mixes else None
        return mixing or super().why_not_exact(device, workers, wider)

    @override
    def rules(self) -> dict[str, bool]:
        """Return each rule in words, and whether the values keep it."""
        return super().rules() | {
            "image_size must be at least 8": self.image_size >= 8,
            "crop_scale must be above 0 and at most 1": 0 < self.crop_scale <= 1,
            "random_erase must be from 0 to 1": 0 <= self.random_erase <= 1,
            "mixup and cutmix must be finite and not negative": all(
                0 <= alpha < inf for alpha in (self.mixup, self.cutmix)
            ),
            "auto_augment, random_erase, mixup and cutmix go with augment": self.augment
            or not (self.auto_augment != "none" or self.random_erase or self.mixup or self.cutmix),
        }


def limited(samples: str, split: str, limit: int, count: int) -> str:
    """Return a remark that a setting limits the samples of a split."""
    option = "train_samples" if split == "train" else "val_samples"
    return f"{limit} of {count} {samples} of {split} are used ({option}={limit}; 0: all)"
