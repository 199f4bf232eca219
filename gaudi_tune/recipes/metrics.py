"""Metrics over the samples of all ranks, where each sample counts once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from gaudi_tune.base import names
from gaudi_tune.private.datasets import import_datasets

if TYPE_CHECKING:
    from evaluate import Metric


@cache
def accuracy_metric() -> Metric:
    """Return the metric for the share of correct predictions."""
    return _class_metric(
        "Share of predictions equal to their reference.",
        lambda references, predictions: np.mean(predictions == references),
    )


@cache
def balanced_accuracy_metric() -> Metric:
    """Return the metric for the mean over the references' classes of the share that is predicted correctly."""
    from sklearn.metrics import recall_score

    # sklearn's balanced_accuracy_score is the same, but warns of each class that is predicted and is not a reference.
    return _class_metric(
        "Mean of the recalls of the references' classes.",
        lambda references, predictions: recall_score(
            references, predictions, average="macro", labels=np.unique(references)
        ),
    )


@cache
def macro_f1_metric() -> Metric:
    """Return the metric for the mean of F1 over all classes among the predictions and references."""
    from sklearn.metrics import f1_score

    return _class_metric(
        "Mean of the classes' F1.",
        lambda references, predictions: f1_score(references, predictions, average="macro", zero_division=0),
    )


def _class_metric(description: str, score: Callable[[Any, Any], Any]) -> Metric:
    """Return a metric that computes ``score(references, predictions)``; ``evaluate.load`` would need the hub."""
    # Imported here, since not every process computes metrics: evaluate imports transformers' pipelines, which takes 2 s
    # where the model is not one of transformers. The experiments have the fork server import it.
    import evaluate

    datasets = import_datasets()

    class OfClasses(evaluate.Metric):
        def _info(self) -> Any:
            features = {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
            return evaluate.MetricInfo(
                description=description,
                citation="",
                inputs_description="predictions, references: class indices, equally many",
                features=datasets.Features(features),
            )

        def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
            return {"score": float(score(np.asarray(references), np.asarray(predictions)))}

    return OfClasses(keep_in_memory=True)


BALANCED_METRICS: dict[str, Callable[[], Metric]] = {
    names.VAL_BALANCED_ACCURACY: balanced_accuracy_metric,
    names.VAL_MACRO_F1: macro_f1_metric,
}
"""The metrics that ``balanced_metrics`` adds to those of a task."""


def sum_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the element-wise sum of ``values`` over all ranks. The sum of integers is exact."""
    if not (dist.is_initialized() and dist.get_world_size() > 1):
        return values
    if values.is_floating_point():
        dist.all_reduce(values)
        return values
    return torch.stack(_all_gather(values)).sum(dim=0)  # hccl sums integers as float32, exact only up to 2^24


def gather_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, one after the other. Ranks may have different numbers of values.

    Args:
        values: Integers or floats of shape (n,); n may be 0, and then the type does not matter.
    """
    if not (dist.is_initialized() and dist.get_world_size() > 1):
        return values
    kind = values.is_floating_point() + (values.dtype == torch.float64)  # 0, 1 or 2, an index of the types below
    count_and_kind = torch.tensor([len(values), kind], dtype=torch.int64, device=values.device)
    counts, kinds = torch.stack(_all_gather(count_and_kind)).T.tolist()
    dtype = (torch.int64, torch.float32, torch.float64)[max(kinds)]
    padded = torch.zeros(max(counts), dtype=dtype, device=values.device)
    padded[: len(values)] = values
    return torch.cat([part[:count] for part, count in zip(_all_gather(padded), counts, strict=True)])


def _all_gather(values: torch.Tensor) -> list[torch.Tensor]:
    """Return the values of each rank, which must have the same shape."""
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values)
    return parts
