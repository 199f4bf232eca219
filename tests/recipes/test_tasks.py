"""The training loop with models that are no classifiers, against what torch and scikit-learn give by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import evaluate
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.metrics import r2_score, top_k_accuracy_score
from torch import nn
from torch.utils.data import Dataset

from gaudi_tune.base import names
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.recipes.loading import Batch
from gaudi_tune.recipes.loop import train
from gaudi_tune.recipes.metrics import accuracy_metric
from gaudi_tune.recipes.task import Task, classes_of
from gaudi_tune.training.fresh_start import fresh_start
from gaudi_tune.training.session import open_session
from tests.helpers.sessions import Collector, reports_of
from tests.helpers.small_task import SmallConfig

IGNORED = -100
TOKENS, LENGTH = 11, 7


class R2(evaluate.Metric):
    """The share of the references' variance that is explained."""

    def _info(self) -> Any:
        features = {"predictions": datasets.Value("float32"), "references": datasets.Value("float32")}
        return evaluate.MetricInfo(
            description="", citation="", inputs_description="", features=datasets.Features(features)
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"r2": float(r2_score(references, predictions))}


class Samples(Dataset[Any]):
    """Tensors by name, first dimension the samples."""

    augments = False

    def __init__(self, **columns: torch.Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitems__(self, indices: list[int]) -> Batch:
        return {name: values[indices] for name, values in self.columns.items()}


def lines(size: int) -> Samples:
    """Return points and a number for each that depends on them, and a little on chance."""
    generator = torch.Generator().manual_seed(size)
    points, noise = torch.randn(size, 3, generator=generator), torch.rand(size, generator=generator)
    return Samples(points=points, targets=points @ torch.tensor([1.0, -2.0, 0.5]) + 0.3 * noise)


def regression(config: SmallConfig) -> Task:
    fresh_start(config.seed)

    def squared_error(outputs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
        return F.mse_loss(outputs, batch["targets"], reduction="sum"), len(outputs)

    return Task(
        model=nn.Linear(3, 1),
        forward=lambda model, batch: model(batch["points"]).squeeze(1),
        train_data=lines(45),
        val_data=lines(131),
        loss=squared_error,
        predict=lambda outputs, batch: (outputs, batch["targets"]),
        metrics={"val_r2": R2},
    )


def sentences(size: int) -> Samples:
    """Return sequences that count upwards; each token is to name the next one, but for some that are left out."""
    generator = torch.Generator().manual_seed(size)
    start = torch.randint(TOKENS, (size, 1), generator=generator)
    sequence = (start + torch.arange(LENGTH + 1)) % TOKENS
    labels = sequence[:, 1:].clone()
    left_out = torch.rand(labels.shape, generator=generator) < 0.3
    left_out[:, 0] = False
    labels[left_out] = IGNORED
    return Samples(tokens=sequence[:, :-1], labels=labels)


def language_model(config: SmallConfig) -> Task:
    fresh_start(config.seed)

    def loss_of_tokens(outputs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        labels = batch["labels"]
        summed = F.cross_entropy(outputs.transpose(1, 2), labels, reduction="sum", ignore_index=IGNORED)
        return summed, (labels != IGNORED).sum()

    def tokens_of(outputs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        counted = batch["labels"] != IGNORED
        return outputs.argmax(dim=2)[counted], batch["labels"][counted]

    return Task(
        model=nn.Sequential(nn.Embedding(TOKENS, 8), nn.Linear(8, TOKENS)),
        forward=lambda model, batch: model(batch["tokens"]),
        train_data=sentences(45),
        val_data=sentences(131),
        loss=loss_of_tokens,
        predict=tokens_of,
        metrics={"val_token_accuracy": accuracy_metric},
    )


TASKS = {"regression": (regression, "val_r2", 0.05), "language model": (language_model, "val_token_accuracy", 0.2)}


def trained(name: str, **changes: Any) -> tuple[list[dict[str, Any]], Task]:
    make, _, lr = TASKS[name]
    config, collector = SmallConfig.from_dict({"epochs": 6, "lr": lr, **changes}), Collector()
    task = make(config)
    with open_session(collector):
        train(task, config)
    return collector.reports, task


def outputs_of(task: Task) -> tuple[torch.Tensor, Batch]:
    batch = task.val_data.__getitems__(list(range(131)))  # type: ignore[attr-defined]
    with torch.no_grad():
        return task.forward(task.model, batch), batch


@pytest.fixture(params=[False, True], ids=["as they come", "of one shape"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation batches of 64, 64 and 3, or filled up to 64 where another shape is compiled again."""
    monkeypatch.setitem(DEVICE_TYPES, "cpu", replace(CPU, static_shapes=request.param))


def test_a_regression_is_scored_by_its_own_metric(batches: None) -> None:
    reports, task = trained("regression")
    outputs, batch = outputs_of(task)
    assert reports[-1][names.VAL_LOSS] == pytest.approx(float(F.mse_loss(outputs, batch["targets"])), rel=1e-5)
    assert reports[-1]["val_r2"] == pytest.approx(r2_score(batch["targets"], outputs), rel=1e-5)
    assert reports[-1]["val_r2"] > 0.9 > reports[0]["val_r2"]
    assert names.VAL_ACCURACY not in reports[-1]


def test_a_language_model_counts_the_tokens_that_have_a_label(batches: None) -> None:
    reports, task = trained("language model")
    outputs, batch = outputs_of(task)
    labels = batch["labels"]
    expected = F.cross_entropy(outputs.transpose(1, 2), labels, ignore_index=IGNORED)
    right = (outputs.argmax(dim=2) == labels)[labels != IGNORED]
    assert reports[-1][names.VAL_LOSS] == pytest.approx(float(expected), rel=1e-5)
    assert reports[-1]["val_token_accuracy"] == pytest.approx(float(right.double().mean()))
    assert reports[-1]["val_token_accuracy"] > 0.9 > reports[0]["val_token_accuracy"]


def test_the_training_loss_is_the_mean_over_tokens() -> None:
    reports, task = trained("language model", lr=1e-9)
    batch = task.train_data.__getitems__(list(range(45)))  # type: ignore[attr-defined]
    with torch.no_grad():
        expected = F.cross_entropy(task.forward(task.model, batch).transpose(1, 2), batch["labels"])
    assert reports[-1][names.TRAIN_LOSS] == pytest.approx(float(expected), rel=0.02)  # five are left out, steps vary


@pytest.mark.parametrize("name", TASKS)
def test_it_goes_on_from_its_checkpoint(name: str, tmp_path: Path) -> None:
    make, metric, lr = TASKS[name]

    def loop(config: dict[str, Any]) -> None:
        small = SmallConfig.from_dict(config)
        train(make(small), small)

    config = {"steps": 17, "eval_every": 4, "lr": lr, "micro_batch": 4, "mixed_precision": "bf16"}
    whole = reports_of(loop, config, save_at=2, save_to=tmp_path / "saved")
    rest = reports_of(loop, config, start_from=tmp_path / "saved")
    numbers = (names.STEP, names.TRAIN_LOSS, names.VAL_LOSS, metric)
    assert [[r[n] for n in numbers] for r in rest] == [[r[n] for n in numbers] for r in whole[2:]]


def test_accumulated_passes_of_a_regression_are_one_step() -> None:
    (_, whole), (_, parts) = trained("regression"), trained("regression", micro_batch=2)
    torch.testing.assert_close(whole.model.state_dict(), parts.model.state_dict(), rtol=1e-4, atol=1e-6)


def test_top_five_of_eleven_classes(batches: None) -> None:
    config, collector = SmallConfig(epochs=1, lr=0.01, top5_accuracy=True), Collector()
    fresh_start(1)
    data = Samples(points=torch.randn(131, 3), labels=torch.randint(TOKENS, (131,)))
    task = Task(
        model=nn.Linear(3, TOKENS), forward=lambda model, batch: model(batch["points"]), train_data=data, val_data=data
    )
    with open_session(collector):
        train(task, config)
    expected = top_k_accuracy_score(data.columns["labels"], outputs_of(task)[0], k=5)
    assert collector.reports[-1][names.VAL_TOP5_ACCURACY] == expected
    assert expected > collector.reports[-1][names.VAL_ACCURACY]


def test_the_larger_label_of_a_mixture_counts() -> None:
    outputs = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    predicted, expected = classes_of(outputs, {"labels": torch.tensor([[0.7, 0.3], [0.6, 0.4]])})
    assert (predicted.tolist(), expected.tolist()) == ([1, 0], [0, 0])


def test_a_metric_of_two_numbers_is_refused() -> None:
    class Two(R2):
        def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
            return {"r2": 0.0, "mse": 0.0}

    config = SmallConfig(epochs=1)
    task = regression(config)
    task = Task(**{**task.__dict__, "metrics": {"val_r2": Two}})
    with open_session(Collector()), pytest.raises(ValueError, match="'val_r2' must be one number, but gives r2, mse"):
        train(task, config)


def test_a_loss_that_is_not_finite_leaves_the_metrics_nan() -> None:
    reports, _ = trained("regression", lr=1e30)
    assert reports[-1]["val_r2"] != reports[-1]["val_r2"]
    assert reports[-1][names.VAL_LOSS] != reports[-1][names.VAL_LOSS]
