"""The networks of :mod:`trainables.resnet`: those of torchvision, with a new head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision.models import get_model, get_model_weights
from torchvision.models.resnet import Bottleneck, ResNet

from gaudi_tune.base.node_cache import prepare_once
from gaudi_tune.data.fetch import download
from gaudi_tune.data.pretrained import RANDOM
from gaudi_tune.training.checkpoint import STATE_FILE

QUARTER = "resnet50-quarter"
"""ResNet-50 with a quarter of its channels after the stem, for the sample recipe: 1.5 M parameters in place of 25 M."""
WEIGHTS_FILE = "weights.pt"


def build_resnet(architecture: str, weights: str, classes: int) -> ResNet:
    """Return a ResNet on the CPU.

    Args:
        architecture: See :class:`~trainables.resnet.ResNetConfig`.
        weights: See ``model`` there.
        classes: Number of outputs of the new head.

    Raises:
        ValueError: The weights are not available, or belong to another network.
    """
    model: ResNet = _quarter() if architecture == QUARTER else get_model(architecture, weights=None)
    if weights != RANDOM:
        state = {name: value for name, value in _read_weights(architecture, weights).items() if "fc." not in name}
        expected = {name for name in model.state_dict() if "fc." not in name}
        try:
            model.load_state_dict(state, strict=False)  # the head is a new one
        except RuntimeError as error:
            raise ValueError(
                f"--model {weights}: these are the weights of another network than {architecture}"
            ) from error
        if expected - set(state):
            raise ValueError(
                f"--model {weights}: these are not the weights of a {architecture}: {len(expected - set(state))} of "
                f"{len(expected)} parts are missing, such as {min(expected - set(state))}"
            )
    model.fc = nn.Linear(model.fc.in_features, classes)
    return model


class _QuarterBottleneck(Bottleneck):
    """A bottleneck whose output is a quarter as wide. ``width_per_group`` makes its inside narrow as well."""

    expansion = 1


def _quarter() -> ResNet:
    return ResNet(_QuarterBottleneck, [3, 4, 6, 3], width_per_group=16)


def _read_weights(architecture: str, weights: str) -> dict[str, Any]:
    file = Path(weights).expanduser()
    if not file.exists():
        file = prepare_once(
            "weights", {"architecture": architecture, "weights": weights}, _fetcher(architecture, weights)
        )
        file /= WEIGHTS_FILE
    if file.is_dir():  # a checkpoint of a sweep
        file /= STATE_FILE
    try:
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch.load raises pickle's, zipfile's and its own errors for files that are something else.
        raise ValueError(
            f"--model {weights}: the file holds no state dict that torch can read safely (weights_only)"
        ) from error
    if isinstance(state, dict) and isinstance(state.get("model"), dict):
        state = state["model"]
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise ValueError(
            f"--model {weights}: the file holds a {type(state).__name__}, not a state dict (names to tensors)"
        )
    return state


def _fetcher(architecture: str, weights: str) -> Any:
    weight_names = [] if architecture == QUARTER else [entry.name for entry in get_model_weights(architecture)]
    if weights not in weight_names:
        raise ValueError(
            f"--model {weights}: no such file, and no weights that torchvision has for {architecture}; "
            f"give a file of a state dict, or one of {', '.join([RANDOM, *weight_names])}"
        )
    entry = get_model_weights(architecture)[weights]

    def fetch(folder: Path) -> None:
        try:
            download(entry.url, folder / WEIGHTS_FILE)  # torch.hub does not notice an interrupted download
        except OSError as error:
            raise ValueError(
                f"--model {weights}: {entry.url} cannot be fetched ({error}); fetch it where there is a network and "
                f"give the file, or train from scratch with --model {RANDOM}"
            ) from error

    return fetch
