"""Metrics over all ranks and all samples, each sample counted once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from gaudi_tune.base import names

if TYPE_CHECKING:
    from evaluate import Metric


@cache
def accuracy_metric() -> Metric:
    """Return the metric for the share of right predictions."""
    return _of_classes("Share of predictions equal to their reference.", lambda right, said: np.mean(said == right))


@cache
def balanced_accuracy_metric() -> Metric:
    """Return the metric for the mean over the references' classes of the share that is predicted right."""
    from sklearn.metrics import recall_score

    # sklearn's balanced_accuracy_score is this, and warns of each class that is predicted and is no reference.
    return _of_classes(
        "Mean of the recalls of the references' classes.",
        lambda right, said: recall_score(right, said, average="macro", labels=np.unique(right)),
    )


@cache
def macro_f1_metric() -> Metric:
    """Return the metric for the mean of F1 over the classes that are predicted or are references."""
    from sklearn.metrics import f1_score

    return _of_classes(
        "Mean of the classes' F1.", lambda right, said: f1_score(right, said, average="macro", zero_division=0)
    )


def _of_classes(description: str, score: Callable[[Any, Any], Any]) -> Metric:
    """Return the metric that is ``score(references, predictions)``; ``evaluate.load`` would need the hub."""
    # Imported here, since not every process computes metrics: evaluate imports transformers' pipelines, which takes 2 s
    # where the model is not one of transformers. The experiments have the fork server import it.
    import datasets
    import evaluate

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


BALANCED: dict[str, Callable[[], Metric]] = {
    names.VAL_BALANCED_ACCURACY: balanced_accuracy_metric,
    names.VAL_MACRO_F1: macro_f1_metric,
}
"""What ``balanced_metrics`` adds to the metrics of a task."""


def sum_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the element-wise sum of ``values`` over all ranks; that of integers is exact."""
    if not (dist.is_initialized() and dist.get_world_size() > 1):
        return values
    if values.is_floating_point():
        dist.all_reduce(values)
        return values
    return torch.stack(_of_all_ranks(values)).sum(dim=0)  # hccl would sum them as float32, exact up to 2^24


def gather_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, one after the other; ranks may hold different numbers of them.

    Args:
        values: Shape (n,), integers or floats; n is free on each rank, and a rank without values need not know which.
    """
    if not (dist.is_initialized() and dist.get_world_size() > 1):
        return values
    kind = values.is_floating_point() + (values.dtype == torch.float64)
    own = torch.tensor([len(values), kind], dtype=torch.int64, device=values.device)
    counts, kinds = torch.stack(_of_all_ranks(own)).T.tolist()
    dtype = (torch.int64, torch.float32, torch.float64)[max(kinds)]
    padded = torch.zeros(max(counts), dtype=dtype, device=values.device)
    padded[: len(values)] = values
    return torch.cat([part[:count] for part, count in zip(_of_all_ranks(padded), counts, strict=True)])


def _of_all_ranks(values: torch.Tensor) -> list[torch.Tensor]:
    """Return the values of each rank, which have the same shape."""
    parts = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, values)
    return parts
