"""The published runs as their sources compute them, in plain torch, and small enough for a test.

Each has its source's optimizer, learning rates, loss and gradients. Weights to start from, batches and their order are
this project's, and with two workers so is data-parallel training: gradients are averaged.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file
from scipy.ndimage import zoom
from torch import nn
from torch.optim import SGD
from torchvision import transforms
from transformers import AutoModelForSequenceClassification

from gaudi_tune.base import names
from gaudi_tune.data.images import NORMALIZATIONS, images_of, preparation
from gaudi_tune.data.text import tokenized
from gaudi_tune.recipes.loading import Batch, TrainSampler
from gaudi_tune.training.checkpoint import read_state
from gaudi_tune.training.fresh_start import fresh_start
from tests.experiments.test_every_experiment import experiment_of
from tests.helpers.llm_source import train_with_peft
from trainables.resnet_network import build_resnet
from trainables.vit import network_of
from trainables.vit_network import build_vit

EPOCHS, STEPS_PER_EPOCH = 3, 7
STEPS = EPOCHS * STEPS_PER_EPOCH
WIDTH, HEADS, INNER, PATCH, LAYERS, SIDE = 8, 2, 16, 4, 2, 3
"""The authors' ViT, made small: 3 by 3 patches of 4 pixels."""
WARMUP_STEPS = 4
RATES_BY_EPOCH = {0: 0.1, 1: 0.275, 2: 0.45, 3: 0.625, 4: 0.8, 30: 0.08, 60: 0.008, 80: 0.0008}
"""The published learning rates of ResNet-50 on ImageNet, from that of 90 epochs on."""


@dataclass(frozen=True)
class Source:
    """What a source computes."""

    build: Callable[[Any, int], nn.Module]
    """Returns the network for a configuration and a number of classes."""
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    """Returns the mean loss of a batch."""
    optimizer: dict[str, float]
    """The arguments of SGD."""
    rate: Callable[[int], float] = lambda step: 1.0
    """Returns the learning rate in a step, as a share of that of the optimizer."""
    passes: int = 1
    """Backward passes of a step, on each worker."""
    clip: float = 0.0
    """Largest total norm of the gradients; 0 means no limit."""


def source_trial(script: str, world: int, folder: Path) -> dict[str, Any]:
    """Return the published hyperparameters on the sample recipe's data, without what is random in training."""
    experiment = experiment_of(script)
    small: dict[str, Any] = {"train_samples": 16 * STEPS_PER_EPOCH + 5, "val_samples": 70, "batch_size": 16}
    small |= {"lr_for_batch": 0, "mixed_precision": "off", "compile": False, "loader_workers": 0, "seed": 3}
    if script == "tune_bert":
        small |= {"dropout": 0.0}
    elif script == "tune_llm":
        small |= {"packing": False, "padded_lengths": 1, "micro_batch": 8 // world, "warmup": WARMUP_STEPS / STEPS}
    else:
        small |= {"augment": False}
    if script == "tune_resnet18":
        small |= {"image_size": 16}
    if script == "tune_vit":
        np.savez(folder / "weights.npz", **google_weights())
        network = {"model": str(folder / "weights.npz"), "dropout": 0.0, "zero_head": True, "image_size": 4 * PATCH}
        budget = {"steps": STEPS, "eval_every": STEPS_PER_EPOCH, "warmup": WARMUP_STEPS / STEPS}
        small |= {**network, **budget, "micro_batch": 8 // world}
    else:
        small |= {"epochs": EPOCHS}
    return {**experiment.recipes["sample"].settings(), **experiment.for_recipe("full", world).baseline, **small}


def train_as_published(script: str, trial: dict[str, Any], world: int) -> tuple[list[dict[str, float]], nn.Module]:
    """Train a trial as its source does, and return the losses and the accuracy of each epoch, and the network."""
    source, config = SOURCES[script], experiment_of(script).config_class.from_dict(trial)
    if script == "tune_bert":
        texts = tokenized(config)  # type: ignore[arg-type]
        train, val, classes = texts.split("train"), texts.split("val"), texts.labels
    else:
        images = images_of(config)  # type: ignore[arg-type]
        train, val, classes = images.train, images.val, images.classes  # type: ignore[assignment]

    def take(data: Any, indices: list[int]) -> Batch:
        batch: Batch = data.__getitems__(indices)
        return _prepared(config, batch) if "images" in batch else batch

    fresh_start(trial["seed"])
    replicas = [source.build(config, len(classes))]
    replicas += [copy.deepcopy(replicas[0]) for _ in range(world - 1)]
    optimizers = [SGD(replica.parameters(), **source.optimizer) for replica in replicas]  # type: ignore[arg-type]
    samplers = [TrainSampler(len(train), config, rank, world) for rank in range(world)]  # type: ignore[arg-type]
    reports = []
    for epoch in range(EPOCHS):
        for sampler in samplers:
            sampler.start_at(epoch, 0)
        batches = [iter(sampler) for sampler in samplers]
        losses = []
        for step in range(STEPS_PER_EPOCH):
            for replica, own, optimizer in zip(replicas, batches, optimizers, strict=True):
                replica.train()
                optimizer.zero_grad()
                optimizer.param_groups[0]["lr"] = source.optimizer["lr"] * source.rate(epoch * STEPS_PER_EPOCH + step)
                for _ in range(source.passes):
                    loss = source.loss(replica, take(train, next(own).indices)) / source.passes
                    loss.backward()
                    losses.append(float(loss.detach()))
            _average_gradients(replicas)
            for replica, optimizer in zip(replicas, optimizers, strict=True):
                if source.clip:
                    nn.utils.clip_grad_norm_(replica.parameters(), source.clip)
                optimizer.step()
        train_loss = sum(losses) / STEPS_PER_EPOCH / world
        reports.append({names.TRAIN_LOSS: train_loss, **_scores(source, replicas[0], take(val, [*range(70)]))})
    return reports, replicas[0]


def _average_gradients(replicas: list[nn.Module]) -> None:
    for parameters in zip(*(replica.parameters() for replica in replicas), strict=True):
        if any(parameter.grad is not None for parameter in parameters):
            mean = torch.stack([parameter.grad / len(replicas) for parameter in parameters]).sum(dim=0)
            for parameter in parameters:
                parameter.grad = mean.clone()


@torch.no_grad()
def _scores(source: Source, model: nn.Module, batch: Batch) -> dict[str, float]:
    model.eval()
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    logits = model(**inputs).logits if "input_ids" in inputs else model(inputs["images"])
    accuracy = (logits.argmax(dim=1) == batch["labels"]).double().mean()
    return {names.VAL_LOSS: float(source.loss(model, batch)), names.VAL_ACCURACY: float(accuracy)}


def _image_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return nn.CrossEntropyLoss()(model(batch["images"]), batch["labels"])


def _prepared(config: Any, batch: Batch) -> Batch:
    """Return a batch with this project's normalized images, which are torchvision's but for the last bit.

    A ResNet from scratch makes of a last bit a hundredth of the loss within a few steps.
    """
    images = batch["images"].float().div(255)
    if config.normalization != "none":
        images = transforms.Normalize(*NORMALIZATIONS[config.normalization])(images)
    prepared = preparation(config)(batch)
    torch.testing.assert_close(prepared["images"], images, rtol=0, atol=1e-6)
    return prepared


def _text_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    loss: torch.Tensor = model(**batch).loss
    return loss


def _build_bert(config: Any, classes: int) -> nn.Module:
    model: nn.Module = AutoModelForSequenceClassification.from_pretrained(
        config.model, num_labels=classes, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return model


def _imagenet_rate(step: int) -> float:
    epoch = step * 90 // STEPS
    return RATES_BY_EPOCH[max(start for start in RATES_BY_EPOCH if start <= epoch)] / 0.8


def _vit_rate(step: int) -> float:
    if step < WARMUP_STEPS:
        return step / WARMUP_STEPS
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP_STEPS) / (STEPS - WARMUP_STEPS)))


def google_weights() -> dict[str, Any]:
    """Return random weights with the names and shapes of the authors' files."""
    shapes: dict[str, tuple[int, ...]] = {
        "cls": (1, 1, WIDTH),
        "embedding/kernel": (PATCH, PATCH, 3, WIDTH),
        "embedding/bias": (WIDTH,),
        "Transformer/posembed_input/pos_embedding": (1, SIDE * SIDE + 1, WIDTH),
        "pre_logits/kernel": (WIDTH, WIDTH),
        "pre_logits/bias": (WIDTH,),
        "head/kernel": (WIDTH, 21),
        "head/bias": (21,),
    }
    norms = ["Transformer/encoder_norm"]
    for layer in range(LAYERS):
        block = f"Transformer/encoderblock_{layer}"
        norms += [f"{block}/LayerNorm_0", f"{block}/LayerNorm_2"]
        attention = f"{block}/MultiHeadDotProductAttention_1"
        for name in ("query", "key", "value"):
            shapes[f"{attention}/{name}/kernel"] = (WIDTH, HEADS, WIDTH // HEADS)
            shapes[f"{attention}/{name}/bias"] = (HEADS, WIDTH // HEADS)
        shapes |= {f"{attention}/out/kernel": (HEADS, WIDTH // HEADS, WIDTH), f"{attention}/out/bias": (WIDTH,)}
        shapes |= {f"{block}/MlpBlock_3/Dense_0/kernel": (WIDTH, INNER), f"{block}/MlpBlock_3/Dense_0/bias": (INNER,)}
        shapes |= {f"{block}/MlpBlock_3/Dense_1/kernel": (INNER, WIDTH), f"{block}/MlpBlock_3/Dense_1/bias": (WIDTH,)}
    shapes |= {f"{norm}/{part}": (WIDTH,) for norm in norms for part in ("scale", "bias")}
    draw = np.random.default_rng(0)
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


class GoogleViT(nn.Module):
    """The authors' Flax modules, rewritten, with weights by their names."""

    def __init__(self, arrays: dict[str, Any]) -> None:
        super().__init__()
        weights = {name: nn.Parameter(torch.from_numpy(np.array(array))) for name, array in arrays.items()}
        self.weights = nn.ParameterDict({name.removeprefix("Transformer/"): w for name, w in weights.items()})

    def features(self, images: torch.Tensor) -> torch.Tensor:
        """Return the class token's features of images, channels first."""
        w, side = self.weights, images.shape[-1] // PATCH
        patches = images.reshape(len(images), 3, side, PATCH, side, PATCH)
        x = torch.einsum("ncyixj,ijcd->nyxd", patches, w["embedding/kernel"]).flatten(1, 2) + w["embedding/bias"]
        x = torch.cat([w["cls"].expand(len(x), 1, WIDTH), x], dim=1) + w["posembed_input/pos_embedding"]
        for layer in range(LAYERS):
            block = f"encoderblock_{layer}"
            attention, mlp = f"{block}/MultiHeadDotProductAttention_1", f"{block}/MlpBlock_3"
            normed = self._norm(x, f"{block}/LayerNorm_0")
            query, key, value = (self._heads(normed, f"{attention}/{name}") for name in ("query", "key", "value"))
            shares = (query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5).softmax(dim=3)
            x = x + torch.einsum("nhlk,hkd->nld", shares @ value, w[f"{attention}/out/kernel"])
            x = x + w[f"{attention}/out/bias"]
            inner = self._norm(x, f"{block}/LayerNorm_2") @ w[f"{mlp}/Dense_0/kernel"] + w[f"{mlp}/Dense_0/bias"]
            x = x + F.gelu(inner) @ w[f"{mlp}/Dense_1/kernel"] + w[f"{mlp}/Dense_1/bias"]
        return self._norm(x, "encoder_norm")[:, 0]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits of images."""
        return self.features(images) @ self.weights["head/kernel"] + self.weights["head/bias"]

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (WIDTH,), self.weights[f"{name}/scale"], self.weights[f"{name}/bias"], eps=1e-6)

    def _heads(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return torch.einsum("nld,dhk->nhlk", x, self.weights[f"{name}/kernel"]) + self.weights[f"{name}/bias"][:, None]

    def state_in_transformers(self, config: Any, file: Path) -> dict[str, torch.Tensor]:
        """Return the weights by their names in transformers, written to and read from a file of the authors'."""
        prefixed = ("encoder", "posembed")
        arrays = {
            f"Transformer/{name}" if name.startswith(prefixed) else name: weight.detach().numpy()
            for name, weight in self.weights.items()
        }
        np.savez(file, **arrays)
        model = build_vit(str(file), "sample", network_of(config), classes=len(arrays["head/bias"]))
        head = {"vit.classifier.weight": arrays["head/kernel"].T, "vit.classifier.bias": arrays["head/bias"]}
        return {**model.state_dict(), **{name: torch.from_numpy(array) for name, array in head.items()}}


def _build_vit(config: Any, classes: int) -> nn.Module:
    """Return the authors' network with a head of zeros and positions that are zoomed to the images' size."""
    arrays = google_weights()
    name, side = "Transformer/posembed_input/pos_embedding", config.image_size // PATCH
    grid = arrays[name][0, 1:].reshape(SIDE, SIDE, WIDTH)
    zoomed = zoom(grid, (side / SIDE, side / SIDE, 1), order=1).reshape(-1, WIDTH)
    arrays[name] = np.concatenate([arrays[name][0, :1], zoomed])[None]
    arrays |= {"head/kernel": np.zeros((WIDTH, classes), np.float32), "head/bias": np.zeros(classes, np.float32)}
    return GoogleViT({name: array for name, array in arrays.items() if "pre_logits" not in name})


def _build_resnet(config: Any, classes: int) -> nn.Module:
    return build_resnet(config.architecture, "random", classes)


SOURCES = {
    "tune_resnet50": Source(_build_resnet, _image_loss, {"lr": 0.001, "momentum": 0.9}),
    "tune_bert": Source(_build_bert, _text_loss, {"lr": 0.001, "momentum": 0.9}),
    "tune_resnet50_imagenet": Source(
        _build_resnet, _image_loss, {"lr": 0.8, "momentum": 0.9, "weight_decay": 1e-4}, _imagenet_rate
    ),
    "tune_vit": Source(_build_vit, _image_loss, {"lr": 0.06, "momentum": 0.9}, _vit_rate, passes=2, clip=1.0),
    "tune_resnet18": Source(_build_resnet, _image_loss, {"lr": 0.001}),
}
"""By the experiment's script."""


def assert_as_published(
    script: str, trial: dict[str, Any], world: int, reports: list[dict[str, Any]], end: Path, folder: Path
) -> None:
    """Check a trial's losses, accuracies and final weights, in the checkpoint ``end``, against those of its source."""
    config = experiment_of(script).config_class.from_dict(trial)
    if script == "tune_llm":
        state = load_file(end / "adapter_model.safetensors")
        expected, weights = train_with_peft(config, world, EPOCHS, STEPS_PER_EPOCH, trial["val_samples"])
    else:
        state = read_state(end)["model"]
        expected, model = train_as_published(script, trial, world)
        weights = model.state_dict()
        if isinstance(model, GoogleViT):
            weights = model.state_in_transformers(config, folder / "trained.npz")
    for report, of_source in zip(reports, expected, strict=True):
        found = {name: report[name] for name in of_source}
        assert found == pytest.approx(of_source, rel=1e-5), f"{found}, and the source has {of_source}"
    assert set(weights) == set(state), set(weights) ^ set(state)
    for name, weight in weights.items():
        torch.testing.assert_close(state[name], weight, rtol=0, atol=1e-6, msg=f"{name}: {state[name]}, {weight}")
