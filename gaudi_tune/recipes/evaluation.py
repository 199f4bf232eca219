"""The scores of a model on validation and test data, where each sample counts once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn

from gaudi_tune.base import names
from gaudi_tune.recipes import metrics
from gaudi_tune.recipes.compiling import Compiling
from gaudi_tune.recipes.feed import Feed
from gaudi_tune.recipes.loading import Batch, Loader
from gaudi_tune.recipes.task import cross_entropy
from gaudi_tune.recipes.training_config import TOP


class Evaluation:
    """Scores the model of one trial, together with the trial's other workers."""

    def __init__(
        self, feed: Feed, model: nn.Module, forward_model: nn.Module, compiling: Compiling, *, pads: bool
    ) -> None:
        """Prepare to score.

        Args:
            feed: What the worker loads.
            model: The model.
            forward_model: The same, perhaps compiled.
            compiling: The compilations of the trial.
            pads: Whether the last batch is filled up, since another shape would be compiled again.
        """
        self._feed, self._model, self._forward_model, self._compiling = feed, model, forward_model, compiling
        self._task, self._config, self._worker = feed.task, feed.config, feed.worker
        self._pad_to = self._config.eval_batch if pads else 0
        self._loss = self._task.loss or cross_entropy
        self._metrics = {**self._task.metrics, **(metrics.BALANCED_METRICS if self._config.balanced_metrics else {})}
        self._val_loader = feed.eval_loader(self._task.val_data)
        test_data = self._task.test_data if self._config.confirms else None
        self._test_loader = None if test_data is None else feed.eval_loader(test_data)

    def scores(self, after_batch: Callable[[], None] = lambda: None, *, is_finite: bool = True) -> dict[str, float]:
        """Return loss and metrics of the validation data, and of the test data if there is any to score.

        Args:
            after_batch: Is called between two batches.
            is_finite: Whether the training loss is finite. If not, nothing is evaluated, and all scores are NaN.
        """
        scores = self._evaluate(self._val_loader, after_batch) if is_finite else self._nan_scores()
        if self._test_loader is not None:
            test_scores = self._evaluate(self._test_loader, after_batch) if is_finite else self._nan_scores()
            scores |= {names.test_metric(name): value for name, value in test_scores.items()}
        return scores

    @torch.no_grad()
    def _evaluate(self, loader: Loader, after_batch: Callable[[], None]) -> dict[str, float]:
        """Return the mean loss over all samples of the data and the metrics, by the names of validation.

        Metrics are computed on rank 0; on other ranks they are NaN.
        """
        self._model.eval()  # not the wrapper, which would synchronise ranks with different numbers of batches
        self._share_buffers()
        device, device_type = self._worker.device, self._worker.device_type
        loss_sum = torch.zeros((), device=device)
        count_sum = torch.zeros((), dtype=torch.int64, device=device)
        top5_correct = torch.zeros((), dtype=torch.int64, device=device)
        empty = torch.empty(0, dtype=torch.int64, device=device)  # for a rank without samples
        predictions, references = [empty], [empty]
        for model_input, size in self._passes(loader):
            batch = {name: tensor[:size] for name, tensor in model_input.items()}
            after_batch()
            with self._compiling.alone("evaluation", model_input):
                with device_type.autocast(self._config.mixed_precision):
                    outputs = self._task.forward(self._forward_model, model_input).float()
                device_type.mark_step()
            outputs = outputs[:size]
            summed_loss, count = self._loss(outputs, batch)
            loss_sum += summed_loss
            count_sum += count
            if self._config.top5_accuracy:
                top5_correct += (outputs.topk(TOP, dim=1).indices == batch["labels"].unsqueeze(1)).sum()
            predicted, expected = self._task.predict(outputs, batch)
            predictions.append(predicted.flatten())
            references.append(expected.flatten())
            device_type.mark_step()
        count = int(metrics.sum_over_ranks(count_sum))
        scores = {**self._nan_scores(), names.VAL_LOSS: float(metrics.sum_over_ranks(loss_sum)) / count}
        if self._config.top5_accuracy:
            scores[names.VAL_TOP5_ACCURACY] = int(metrics.sum_over_ranks(top5_correct)) / count
        gathered = [metrics.gather_over_ranks(torch.cat(parts)) for parts in (predictions, references)]
        if self._worker.rank == 0:
            predicted, expected = (values.cpu() for values in gathered)
            for name, make_metric in self._metrics.items():
                result = make_metric().compute(predictions=predicted, references=expected)
                if len(result) != 1:
                    raise ValueError(f"the metric {name!r} must be one number, but gives {', '.join(result)}")
                scores[name] = float(*result.values())
        return scores

    def _passes(self, loader: Loader) -> Iterator[tuple[Batch, int]]:
        """Yield the batches to score. Where the model is sharded, all ranks compute each layer together: one that has
        fewer batches than rank 0 passes its last one again, of which no sample counts."""
        missing = loader.passes
        for batch, size in self._feed.on_device(loader, self._pad_to):
            yield batch, size
            missing -= 1
        for _ in range(missing if self._task.sharded else 0):
            yield batch, 0

    def _nan_scores(self) -> dict[str, float]:
        """Return NaN for the loss and each metric."""
        score_names = [names.VAL_LOSS, *self._metrics]
        if self._config.top5_accuracy:
            score_names.insert(1, names.VAL_TOP5_ACCURACY)
        return dict.fromkeys(score_names, math.nan)

    def _share_buffers(self) -> None:
        """Give all ranks the running statistics of rank 0, which are those that are saved."""
        if self._worker.world == 1:
            return
        for buffer in self._model.buffers():
            if buffer.is_floating_point():
                dist.broadcast(buffer, src=0)
