"""The training loop in this process, against what torch gives by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from tests.sessions import Collector, numbers_of, reports_of
from tests.small_task import Points, SmallConfig, small_loop, small_task
from trainables.runtime import names
from trainables.runtime.checkpoint import read_state
from trainables.runtime.contract import open_session
from trainables.runtime.loading import TrainDraws
from trainables.runtime.training import check_batch, train

QUIET: dict[str, Any] = {"dropout": 0.0, "noise": 0.0}


def trained(**changes: Any) -> tuple[list[dict[str, Any]], torch.nn.Module]:
    """Return the reports and the trained model of a trial."""
    config = SmallConfig.from_dict({"epochs": 2, **changes})
    task, collector = small_task(config), Collector()
    with open_session(collector):
        train(task, config)
    return collector.reports, task.model


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_the_loop_does_what_a_hand_written_one_does() -> None:
    _, model = trained(**QUIET, lr=0.05, momentum=0.5, weight_decay=0.01, label_smoothing=0.1)
    config = SmallConfig(epochs=2, **QUIET)
    by_hand, data = small_task(config).model, Points(config.size, 0.0)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.05, momentum=0.5, weight_decay=0.01)
    draws = TrainDraws(config.size, config.batch_size, 1, 0, 1, config.seed)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * len(draws))
    for epoch in range(2):
        draws.start_at(epoch, 0)
        for draw in draws:
            batch = data.__getitems__(draw.indices)
            optimizer.zero_grad()
            F.cross_entropy(by_hand(batch["points"]), batch["labels"], label_smoothing=0.1).backward()
            optimizer.step()
            schedule.step()
    torch.testing.assert_close(weights(model), weights(by_hand), rtol=1e-5, atol=1e-7)


def test_validation_counts_each_sample_once_whatever_the_batches() -> None:
    reports, model = trained(**QUIET)
    data = Points(131, 0.0)  # two batches of 64 and one of 3
    with torch.no_grad():
        logits = model(data.points)
    assert reports[-1][names.VAL_LOSS] == pytest.approx(float(F.cross_entropy(logits, data.labels)))
    assert reports[-1][names.VAL_ACCURACY] == float((logits.argmax(1) == data.labels).double().mean())


def test_batches_of_one_shape_where_another_is_compiled_give_the_same_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: set[tuple[bool, int]] = set()
    inner = torch.nn.Sequential.forward

    def forward(self: torch.nn.Sequential, points: torch.Tensor) -> torch.Tensor:
        shapes.add((self.training, len(points)))
        return inner(self, points)

    monkeypatch.setattr(torch.nn.Sequential, "forward", forward)
    plain = reports_of(small_loop, {"epochs": 2, **QUIET})
    assert {size for training, size in shapes if not training} == {64, 3}
    shapes.clear()
    monkeypatch.setattr("trainables.runtime.device.wants_static_shapes", lambda device: True)
    filled = reports_of(small_loop, {"epochs": 2, **QUIET})
    assert shapes == {(True, 8), (False, 64)}
    assert [report[names.VAL_ACCURACY] for report in filled] == [report[names.VAL_ACCURACY] for report in plain]
    losses = [report[names.VAL_LOSS] for report in plain]
    assert [report[names.VAL_LOSS] for report in filled] == pytest.approx(losses, rel=1e-6)


def test_accumulated_passes_are_one_step() -> None:
    whole, parts = trained(**QUIET)[1], trained(**QUIET, accumulation=4)[1]
    torch.testing.assert_close(weights(whole), weights(parts), rtol=1e-4, atol=1e-6)


def test_gradients_are_clipped_together() -> None:
    start = weights(small_task(SmallConfig(epochs=1)).model)
    one_step = {**QUIET, "epochs": 0, "steps": 1, "eval_every": 1, "momentum": 0.0, "lr": 1.0}
    free = (weights(trained(**one_step)[1]) - start).norm()
    clipped = (weights(trained(**one_step, clip_norm=0.01)[1]) - start).norm()
    assert free > 0.1
    assert float(clipped) == pytest.approx(0.01, rel=1e-3)


def test_a_budget_in_steps_reports_every_so_many_and_at_its_end() -> None:
    reports, _ = trained(epochs=0, steps=17, eval_every=6)
    assert [report[names.STEP] for report in reports] == [6, 12, 17]
    assert [report[names.EPOCH] for report in reports] == [1.2, 2.4, 3.4]
    assert reports[-1][names.LEARNING_RATE] == pytest.approx(0.0)


@pytest.mark.parametrize("loader_workers", [0, 1])
@pytest.mark.parametrize("saved_after", [1, 2])
def test_a_break_in_the_middle_of_an_epoch_changes_nothing(
    saved_after: int, loader_workers: int, tmp_path: Path
) -> None:
    config = {"steps": 17, "eval_every": 4, "loader_workers": loader_workers}
    whole = reports_of(small_loop, config, save_at=saved_after, save_to=tmp_path / "saved")
    rest = reports_of(small_loop, config, start_from=tmp_path / "saved")
    assert list(map(numbers_of, rest)) == list(map(numbers_of, whole[saved_after:]))
    assert read_state(tmp_path / "saved")["steps_done"] == 4 * saved_after


def test_seconds_of_compiling_are_in_the_first_report_alone() -> None:
    reports, _ = trained(epochs=3)
    assert all(report[names.COMPILE_SECONDS] == 0.0 for report in reports[1:])
    assert reports[0][names.COMPILE_SECONDS] >= 0.0
    assert all(report[names.SAMPLES_PER_SECOND] > 0 for report in reports)


def test_compiled_and_not_compiled_agree() -> None:
    compiled, model = trained(**QUIET, compile=True)
    plain, same = trained(**QUIET)
    torch.testing.assert_close(weights(model), weights(same), rtol=1e-4, atol=1e-6)
    assert compiled[0][names.COMPILE_SECONDS] > 10 * plain[0][names.COMPILE_SECONDS]


def test_bfloat16_is_coarser_and_near() -> None:
    coarse, exact = trained(**QUIET, mixed_precision="bf16")[0][-1], trained(**QUIET)[0][-1]
    assert coarse[names.TRAIN_LOSS] != exact[names.TRAIN_LOSS]
    assert coarse[names.TRAIN_LOSS] == pytest.approx(exact[names.TRAIN_LOSS], rel=0.05)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 6, "accumulation": 4}, r"multiple of the 1 worker\(s\) times the accumulation of 4 .* got 6"),
        ({"batch_size": 64}, "batch_size must be at most the 45 training samples, but got 64"),
    ],
)
def test_a_batch_that_cannot_be_had_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_batch(SmallConfig.from_dict({"epochs": 1, **changes}), workers=1, samples=45)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({}, "epochs or steps must be above 0, and the other 0"),
        ({"epochs": 1, "steps": 1, "eval_every": 1}, "epochs or steps must be above 0, and the other 0"),
        ({"steps": 5}, "eval_every goes with a budget in steps"),
        ({"steps": 5, "eval_every": 6}, "eval_every goes with a budget in steps"),
        ({"epochs": -1}, "must not be negative"),
    ],
)
def test_a_budget_is_in_epochs_or_in_steps(budget: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SmallConfig.from_dict(budget)
