"""Metrics over all ranks and all samples, each sample counted once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from trainables.runtime.internals.transformers import import_evaluate

if TYPE_CHECKING:
    from evaluate import Metric


@cache
def accuracy_metric() -> Metric:
    """Return the metric for the share of right predictions; ``evaluate.load`` would need the hub."""
    import datasets

    evaluate = import_evaluate()

    class Accuracy(evaluate.Metric):  # type: ignore[name-defined]
        def _info(self) -> Any:
            features = {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
            return evaluate.MetricInfo(
                description="Share of predictions equal to their reference.",
                citation="",
                inputs_description="predictions, references: class indices, equally many",
                features=datasets.Features(features),
            )

        def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
            return {"accuracy": float(np.mean(np.asarray(predictions) == np.asarray(references)))}

    return Accuracy(keep_in_memory=True)


def sum_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the element-wise sum of ``values`` over all ranks."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.all_reduce(values)
    return values


def gather_over_ranks(values: torch.Tensor) -> torch.Tensor:
    """Return the values of all ranks, one after the other; ranks may hold different numbers of them.

    Args:
        values: Shape (n,), integers or floats; n is free on each rank, and a rank without values need not know which.
    """
    if not (dist.is_initialized() and dist.get_world_size() > 1):
        return values
    world = dist.get_world_size()
    about = torch.zeros(world + 1, dtype=torch.int64, device=values.device)  # counts, and how many ranks hold floats
    about[dist.get_rank()], about[world] = len(values), int(values.is_floating_point())
    dist.all_reduce(about)
    counts, dtype = about[:world], torch.float32 if about[world] else torch.int64
    padded = torch.zeros(int(counts.max()), dtype=dtype, device=values.device)
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])
