"""The parts of a training that depend on the model: what a recipe gives the training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.data import Dataset

from gaudi_tune.base import names
from gaudi_tune.recipes import metrics
from gaudi_tune.recipes.loading import Batch

if TYPE_CHECKING:
    from evaluate import Metric

Loss = Callable[[torch.Tensor, Batch], tuple[torch.Tensor, torch.Tensor | int]]
"""A function of a model's outputs and the batch. It returns the loss, summed over all predictions, and their number:
samples, or tokens if each token has a label."""


def classes_of(outputs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the most probable class and the label of each sample; for a mixture (mixup, cutmix), the larger label."""
    labels = batch["labels"]
    return outputs.argmax(dim=1), labels.argmax(dim=1) if labels.ndim > 1 else labels


@dataclass(frozen=True, kw_only=True)
class Task:
    """The parts of a training that depend on the model. The defaults train a classifier."""

    model: nn.Module
    """The model, on the CPU and not wrapped."""
    forward: Callable[[nn.Module, Batch], torch.Tensor]
    """Returns the model's outputs, with samples in the first dimension; for a classifier, logits of shape (n,
    classes)."""
    train_data: Dataset[Any]
    """The training data. ``__getitems__`` takes a list of indices and returns a :data:`Batch`. It is pickled if there
    are loader workers. If it has an attribute ``padded_to``, an array of the length that each sample is padded to,
    batches are drawn from samples of one length, which ``__getitems__`` takes as its second argument."""
    prepare: Callable[[Batch], Batch] | None = None
    """Turns a batch, on the device, into the model's input. So data may be copied in a small type, such as uint8. None:
    the batch is the input."""
    val_data: Dataset[Any]
    """The validation data, in the same form."""
    test_data: Dataset[Any] | None = None
    """The test data, in the same form, for trials that confirm others; None if there is none."""
    loss: Loss | None = None
    """The loss, of which the mean over each micro-batch is minimised, so that all micro-batches and workers weigh the
    same. None: the cross-entropy of the batch's ``labels``, in training with ``label_smoothing``."""
    count: Callable[[Batch], torch.Tensor] | None = None
    """Returns of how many predictions the loss of a batch is the sum. Then the mean over the whole batch of a step, of
    all micro-batches and workers, is minimised, and each prediction weighs the same, such as each token. None: each
    micro-batch and worker does."""
    predict: Callable[[torch.Tensor, Batch], tuple[torch.Tensor, torch.Tensor]] = classes_of
    """Returns equally many predictions and references for the metrics, integers or floats."""
    metrics: Mapping[str, Callable[[], Metric]] = field(
        default_factory=lambda: {names.VAL_ACCURACY: metrics.accuracy_metric}
    )
    """Functions that make the metrics, such as a subclass of ``evaluate.Metric``, by the names of the metrics in
    reports. A metric is one number. It is computed on rank 0, over the predictions of all ranks."""
    describe: Callable[[Path], None] | None = None
    """Writes to a checkpoint what is needed to build the model again, besides its state."""
    restore: Callable[[Path], None] | None = None
    """Reads the weights that ``describe`` has written. Then checkpoints have no others, such as those of a base model
    that is not trained. None: they have the state of the whole model."""
    sharded: bool = False
    """Whether each worker has a part of the model only. Then ``describe`` and ``restore`` must be given, and all ranks
    call ``describe``, which gathers the weights and writes them on rank 0."""
    tokens_per_sample: float = 0.0
    """Mean number of tokens in a training sample, without padding, for the throughput in reports. 0: none is
    reported."""


def cross_entropy(
    logits: torch.Tensor, batch: Batch, label_smoothing: float | torch.Tensor = 0.0
) -> tuple[torch.Tensor, int]:
    """Return the loss of a classifier: the summed cross-entropy of the batch's ``labels``, and their number."""
    labels = batch["labels"]
    if isinstance(label_smoothing, torch.Tensor):  # torch's own takes numbers
        hard = F.cross_entropy(logits, labels, reduction="sum")
        even = F.log_softmax(logits, dim=1).sum() / -logits.shape[1]
        return torch.lerp(hard, even, label_smoothing), len(labels)
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=label_smoothing), len(labels)
