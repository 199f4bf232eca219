"""Vision transformers in the five published sizes, fine-tuned or trained from scratch on any folder of images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gaudi_tune.base.process import no_collection
from gaudi_tune.data.configs import ImageConfig
from gaudi_tune.data.facts import check_images
from gaudi_tune.data.pretrained import HUB, RANDOM
from gaudi_tune.recipes.schedules import Schedule, ScheduleKind
from trainables.attention import AttentionConfig, choose_attention

if TYPE_CHECKING:
    from transformers import ViTConfig

    from gaudi_tune.recipes.prediction import ClassPredictor
    from trainables.vit_network import ViTClassifier

PUBLISHED_RATE = 850
"""Images a second that an HPU trains, of ViT-B/16: 6,800 on 8 HPUs over whole epochs, by the source's progress bar."""


@dataclass(frozen=True, kw_only=True)
class ViTTrialConfig(ImageConfig, AttentionConfig):
    """Hyperparameters and settings of one trial. The defaults are those of the published recipe."""

    data: str = "imagenette"
    """A folder of images in ``train/`` and ``val/`` (or ``test/``), or the name of a data set that can be fetched."""
    size: Literal["B/16", "B/32", "L/16", "L/32", "H/14", "sample"] = "B/16"
    """Width and patch size of the network."""
    model: str = HUB
    """Weights to start from: ``in21k`` (those of the authors on the hub), ``random``, a folder of save_pretrained, or
    an ``.npz`` file of the authors."""
    image_size: int = 160
    """Side of the square that the network sees, in pixels. Positions are interpolated if the weights have another
    size."""
    crop_scale: float = 0.05
    """Smallest share of an image's area that a random crop in training keeps."""
    flip: bool = False
    """Whether training mirrors half of the images."""
    resize: Literal["crop", "square"] = "square"
    """How validation images become square. crop: the centre of an image whose shorter side is a seventh longer. square:
    the whole image, squeezed."""
    normalization: Literal["imagenet", "half", "none"] = "half"
    """Mean and standard deviation by which channels are normalized."""
    dropout: float = 0.1
    """Share of the activations that are dropped in training, after the embeddings and twice in each MLP."""
    zero_head: bool = True
    """Whether the new head begins with zeros, so that the first gradients do not disturb the pretrained layers."""
    schedule: ScheduleKind = "cosine"
    """How the learning rate falls from its peak over the budget."""
    micro_batch: int = 128
    """Most samples that a worker trains on at once; the published run has 256 for each worker, in 2 parts. 0: no
    limit."""
    clip_norm: float = 1.0
    """Largest total norm of all gradients. 0 means no limit."""
    loader_workers: int | Literal["auto"] = 4
    """Processes per worker that load batches. 0: the worker loads them itself."""

    def graph(self, workers: int) -> dict[str, Any]:
        """Return what the graphs of the model depend on."""
        return super().graph(workers) | {"size": self.size}

    def make_schedule(self) -> Schedule:
        """Return the schedule of the learning rate. Its warm-up begins with 0, as in the published run."""
        return replace(super().make_schedule(), warmup_from_zero=True)


def train_loop(config: dict[str, Any]) -> None:
    """Train one trial, as an ordinary Ray Train loop. ``config`` has the fields of :class:`ViTTrialConfig`."""
    with no_collection():
        from gaudi_tune.training.fresh_start import fresh_start
        from trainables.image_classifier import train_classifier
        from trainables.vit_network import build_vit

    vit = ViTTrialConfig.from_dict(config)
    fresh_start(vit.seed)
    network = network_of(vit)

    def build(classes: int) -> ViTClassifier:
        model = build_vit(vit.model, vit.size, network, classes, zero_head=vit.zero_head)
        choose_attention(model.vit, vit)
        return model

    train_classifier(vit, build, network.to_dict())


def network_of(config: ViTTrialConfig) -> ViTConfig:
    """Return the description of the network that a trial trains.

    Raises:
        ValueError: Its weights do not exist, or belong to another network.
    """
    from trainables.vit_network import describe_network

    return describe_network(config.model, config.size, config.image_size, config.dropout)


def check(config: ViTTrialConfig) -> list[str]:
    """Check that data and model can be used, and return lines that describe them.

    Raises:
        ValueError: The data or the model cannot be used; the message says why, and what to give instead.
    """
    from trainables.vit_network import HUB_MODELS, build_vit, source_of

    if config.model == HUB and config.size not in HUB_MODELS:
        raise ValueError(f"--set size={config.size}: there are no weights of this size; take --model {RANDOM}")
    facts, network = check_images(config), network_of(config)
    if config.image_size % network.patch_size:
        raise ValueError(
            f"image_size must be a multiple of the network's patches of {network.patch_size} pixels, but got "
            f"{config.image_size}"
        )
    weights = "random weights"
    if config.model != RANDOM:
        build_vit(config.model, config.size, network, classes=2)  # also fetches them once, for all workers of the node
        weights = f"weights {source_of(config.model, config.size)}, a new head"
    if config.size == "B/16" and config.steps:
        hours = config.steps * config.lr_for_batch / PUBLISHED_RATE / 3600
        facts.append(f"time: a whole trial takes {hours:.1f} HPU-hours at the published {PUBLISHED_RATE} images/s")
    return [*facts, f"model: ViT-{config.size}, {network.num_hidden_layers} layers, {weights}"]


def load_model(checkpoint: str | Path) -> tuple[ViTClassifier, list[str]]:
    """Return the trained network (in evaluation mode, on the CPU) and its classes from a checkpoint's folder.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    from transformers import ViTConfig

    from trainables.image_classifier import read_classifier
    from trainables.vit_network import build_vit

    return read_classifier(
        checkpoint, lambda network, classes: build_vit(RANDOM, "", ViTConfig.from_dict(network), classes)
    )


def predictor(checkpoint: Path) -> ClassPredictor:
    """Return a predictor of the class of images, given as the bytes of image files.

    Raises:
        FileNotFoundError: There is no checkpoint in the folder.
    """
    from trainables.image_classifier import image_predictor

    model, _ = load_model(checkpoint)
    return image_predictor(checkpoint, model, packages=["transformers"])
