"""The training loop in this process, against what torch gives by hand."""

from __future__ import annotations

import math
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.metrics import balanced_accuracy_score, f1_score

from gaudi_tune.base import names
from gaudi_tune.base.node_cache import first_alone
from gaudi_tune.devices.cpu import CPU
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.recipes.loading import TrainSampler
from gaudi_tune.recipes.loop import train
from gaudi_tune.recipes.task import cross_entropy
from gaudi_tune.recipes.training_config import check_batch, check_classes
from gaudi_tune.training.checkpoint import read_state
from gaudi_tune.training.fresh_start import release_memory
from gaudi_tune.training.session import open_session
from tests.helpers.sessions import Collector, hyperparameters_of_each_step, numbers_of, reports_of
from tests.helpers.small_task import Points, SmallConfig, small_loop, small_task

QUIET: dict[str, Any] = {"dropout": 0.0, "noise": 0.0}
HOLDS_S = 5.0
"""How long another group compiles: far longer than the loop trains, also on a busy machine."""


def trained(**changes: Any) -> tuple[list[dict[str, Any]], torch.nn.Module]:
    """Return the reports and the trained model of a trial."""
    config = SmallConfig.from_dict({"epochs": 2, **changes})
    task, collector = small_task(config), Collector()
    with open_session(collector):
        train(task, config)
    return collector.reports, task.model


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("mixed", [False, True])
def test_label_smoothing_may_be_a_tensor(mixed: bool) -> None:
    """A number would be a constant of a graph."""
    torch.manual_seed(0)
    labels = torch.rand(8, 5).softmax(dim=1) if mixed else torch.arange(8) % 5
    logits = torch.randn(8, 5, requires_grad=True)
    number, _ = cross_entropy(logits, {"labels": labels}, 0.1)
    tensor, count = cross_entropy(logits, {"labels": labels}, torch.tensor(0.1))
    slopes = [torch.autograd.grad(loss, logits)[0] for loss in (number, tensor)]
    assert torch.allclose(number, tensor) and torch.allclose(slopes[0], slopes[1], atol=1e-6)
    assert count == 8
    assert not torch.allclose(number, cross_entropy(logits, {"labels": labels})[0])


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_loop_does_what_a_hand_written_one_does(nesterov: bool, tmp_path: Path) -> None:
    settings = {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01, "nesterov": nesterov}
    others = {"label_smoothing": 0.1, "ema_decay": 0.8, "train_accuracy": True}
    reports = reports_of(small_loop, {"epochs": 2, **QUIET, **settings, **others}, save_at=2, save_to=tmp_path / "end")
    config = SmallConfig(epochs=2, **QUIET)
    by_hand, data = small_task(config).model, Points(config.size, 0.0)
    optimizer = torch.optim.SGD(by_hand.parameters(), **settings)  # type: ignore[arg-type]
    average, right = weights(by_hand), [0, 0]
    sampler = TrainSampler(config.size, config, rank=0, world=1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2 * len(sampler))
    for epoch in range(2):
        sampler.start_at(epoch, 0)
        for indices in sampler:
            batch = data.__getitems__(indices.indices)
            optimizer.zero_grad()
            logits = by_hand(batch["points"])
            F.cross_entropy(logits, batch["labels"], label_smoothing=0.1).backward()
            optimizer.step()
            schedule.step()
            average = 0.8 * average + 0.2 * weights(by_hand)
            right[epoch] += int((logits.argmax(1) == batch["labels"]).sum())
    assert [report[names.TRAIN_ACCURACY] for report in reports] == [count / 40 for count in right]
    state = read_state(tmp_path / "end")
    for part, expected in (("trained_model", weights(by_hand)), ("model", average)):
        torch.testing.assert_close(torch.cat([t.flatten() for t in state[part].values()]), expected)
    assert not torch.allclose(average, weights(by_hand), rtol=1e-2)
    by_hand.load_state_dict(state["model"])  # what is evaluated
    with torch.no_grad():
        val_loss = F.cross_entropy(by_hand(Points(131, 0.0).points), Points(131, 0.0).labels)
    assert reports[-1][names.VAL_LOSS] == pytest.approx(float(val_loss))


def test_validation_counts_each_sample_once_whatever_the_batches() -> None:
    reports, model = trained(**QUIET)
    data = Points(131, 0.0)  # two batches of 64 and one of 3
    with torch.no_grad():
        logits = model(data.points)
    assert reports[-1][names.VAL_LOSS] == pytest.approx(float(F.cross_entropy(logits, data.labels)))
    assert reports[-1][names.VAL_ACCURACY] == float((logits.argmax(1) == data.labels).double().mean())


def test_a_trial_that_confirms_is_scored_on_the_test_data_too_and_trains_no_differently() -> None:
    searched, _ = trained(**QUIET)
    confirmed, model = trained(confirms=1, **QUIET)
    loss, accuracy = (names.test_metric(name) for name in (names.VAL_LOSS, names.VAL_ACCURACY))
    for report, before in zip(confirmed, searched, strict=True):
        assert set(report) - set(before) == {loss, accuracy}
        assert numbers_of(report) == numbers_of(before)
    data = Points(77, 0.0)
    with torch.no_grad():
        logits = model(data.points)
    assert confirmed[-1][loss] == pytest.approx(float(F.cross_entropy(logits, data.labels)))
    assert confirmed[-1][accuracy] == float((logits.argmax(1) == data.labels).double().mean())


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
    monkeypatch.setitem(DEVICE_TYPES, "cpu", replace(CPU, static_shapes=True))
    filled = reports_of(small_loop, {"epochs": 2, **QUIET})
    assert shapes == {(True, 8), (False, 64)}
    assert [report[names.VAL_ACCURACY] for report in filled] == [report[names.VAL_ACCURACY] for report in plain]
    losses = [report[names.VAL_LOSS] for report in plain]
    assert [report[names.VAL_LOSS] for report in filled] == pytest.approx(losses, rel=1e-6)


def test_accumulated_passes_are_one_step() -> None:
    whole, parts = trained(**QUIET)[1], trained(**QUIET, micro_batch=2)[1]
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
    assert 0 < reports[-1][names.LEARNING_RATE] < 0.01 * SmallConfig(epochs=1).lr


@pytest.mark.parametrize(("optimizer", "peak"), [("sgd", 0.4), ("adamw", 0.2), ("rmsprop", 0.2), ("lars", 0.2)])
def test_the_rate_goes_with_the_batch_and_is_reported(optimizer: str, peak: float, tmp_path: Path) -> None:
    config = {"epochs": 2, "optimizer": optimizer, "lr_for_batch": 2, "batch_size": 8, "lr": 0.1}
    config["decayed"] = "weights"
    with hyperparameters_of_each_step() as steps:
        reports = reports_of(small_loop, config, save_at=1, save_to=tmp_path / "saved")
    assert max(step["lr"] for step in steps) == pytest.approx(peak)
    assert [report[names.PEAK_LEARNING_RATE] for report in reports] == pytest.approx([peak, peak])
    with hyperparameters_of_each_step() as clones:  # as pbt changes it
        (last,) = reports_of(small_loop, {**config, "lr": 0.2}, start_from=tmp_path / "saved")
    assert last[names.PEAK_LEARNING_RATE] == pytest.approx(2 * peak)
    assert [step["lr"] for step in clones] == pytest.approx([2 * step["lr"] for step in steps[-len(clones) :]])


def test_without_a_batch_of_its_own_the_rate_is_the_peak_at_any_batch() -> None:
    assert SmallConfig(epochs=1, lr=0.3, batch_size=64).peak_lr == 0.3
    assert SmallConfig(epochs=1, lr=0.3, batch_size=64, lr_for_batch=64).peak_lr == 0.3


def test_weight_decay_may_spare_norms_biases_and_embeddings() -> None:
    config = SmallConfig(epochs=1, weight_decay=0.1, decayed="weights")
    model = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    groups = config.make_optimizer(model, torch.device("cpu")).param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in groups] == [(0.1, 1), (0.0, 4)]
    assert groups[0]["params"][0] is model[1].weight
    lars = replace(config, optimizer="lars").make_optimizer(model, torch.device("cpu"))
    assert [group["adapts"] for group in lars.param_groups] == [True, False]
    (all_of_it,) = replace(config, decayed="all").make_optimizer(model, torch.device("cpu")).param_groups
    assert (all_of_it["weight_decay"], len(all_of_it["params"])) == (0.1, 5)


def test_parameters_that_are_frozen_are_not_in_the_optimizer_and_no_group_is_empty() -> None:
    """habana's fused SGD refuses a group without gradients."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    model[0].bias.requires_grad_(False)
    model[1].requires_grad_(False)
    for decayed in ("weights", "all"):
        config = SmallConfig(epochs=1, decayed=decayed)
        (group,) = config.make_optimizer(model, torch.device("cpu")).param_groups
        assert group["params"] == [model[0].weight]


def test_the_configuration_names_the_schedule() -> None:
    with hyperparameters_of_each_step() as steps:
        reports_of(small_loop, {"steps": 4, "eval_every": 4, "schedule": "linear", "lr_floor": 0.5})
    assert [step["lr"] for step in steps] == pytest.approx([0.1, 0.0875, 0.075, 0.0625])
    with pytest.raises(ValueError, match="schedule=published needs a recipe with a table"):
        SmallConfig(epochs=1, schedule="published")


def test_seconds_of_compiling_are_in_the_first_report_alone() -> None:
    reports, _ = trained(epochs=3)
    assert all(report[names.COMPILE_SECONDS] == 0.0 for report in reports[1:])
    assert reports[0][names.COMPILE_SECONDS] >= 0.0
    assert all(report[names.SAMPLES_PER_SECOND] > 0 for report in reports)


@pytest.mark.processes
def test_compiled_and_not_compiled_agree() -> None:
    compiled, model = trained(**QUIET, compile=True, ema_decay=0.7)
    plain, same = trained(**QUIET, ema_decay=0.7)
    assert compiled[-1][names.VAL_LOSS] == pytest.approx(plain[-1][names.VAL_LOSS], rel=1e-5)
    torch.testing.assert_close(weights(model), weights(same), rtol=1e-4, atol=1e-6)
    assert compiled[0][names.COMPILE_SECONDS] > 10 * plain[0][names.COMPILE_SECONDS]
    release_memory()
    again, model = trained(**QUIET, compile=True, ema_decay=0.7)
    assert list(map(numbers_of, again)) == list(map(numbers_of, compiled))
    assert again[0][names.COMPILE_SECONDS] < compiled[0][names.COMPILE_SECONDS] / 5


def test_a_trial_reuses_what_was_compiled_for_an_earlier_one_of_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph.code)
        time.sleep(0.5)
        return graph

    monkeypatch.setattr(type(CPU), "compile", lambda self, model: torch.compile(model, backend=backend, dynamic=False))
    torch._dynamo.reset()
    reports, compiled = [], []
    changes: list[dict[str, Any]] = [{}, {"lr": 0.02, "momentum": 0.5}, {"dropout": 0.3}, {"batch_size": 5}, {}]
    for change in changes:
        start = time.monotonic()
        trial, model = trained(compile=True, **change)
        wall_s = time.monotonic() - start
        reports.append(list(map(numbers_of, trial)))
        compiled.append(len(graphs))
        assert trial[0][names.COMPILE_SECONDS] >= 0.5 * (compiled[-1] - (compiled[-2] if len(compiled) > 1 else 0))
        assert trial[1][names.COMPILE_SECONDS] == 0
        parts = (names.COMPILE_SECONDS, names.TRAIN_SECONDS, names.EVAL_SECONDS)
        assert sum(report[part] for report in trial for part in parts) <= wall_s, "compiling counts once"
        gone = weakref.ref(model)
        del model
        release_memory()
        assert gone() is None
    assert compiled == [2, 2, 4, 5, 5]  # training and evaluation; the latter has no dropout, and another batch
    assert reports[-1] == reports[0]


def test_waiting_for_a_group_that_compiles_the_same_graph_is_compiling(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(type(CPU), "compile", lambda self, model: torch.compile(model, backend="eager", dynamic=False))
    monkeypatch.setattr(type(CPU), "compiled_graphs", lambda self: tmp_path / "graphs")
    signature = SmallConfig(epochs=2, compile=True).graph_signature(CPU, 1) or {}
    shapes = {name: [*tensor.shape[1:]] for name, tensor in Points(1, 0.0).__getitems__([0]).items()}
    key = {**signature, "part": "evaluation", "shapes": shapes, "config": "SmallConfig", "workers": 1}
    compiles, waits, folder = threading.Event(), threading.Event(), tmp_path / "graphs-compiled"

    def compile_in_another_group() -> None:
        with first_alone(folder, key):
            compiles.set()
            waits.wait()
            time.sleep(HOLDS_S)

    def waiting(folder: Path, key: Any) -> Any:
        waits.set()  # the seconds that the loop waits begin before this
        return first_alone(folder, key)

    with ThreadPoolExecutor(1) as other:
        other.submit(compile_in_another_group)
        compiles.wait()
        monkeypatch.setattr("gaudi_tune.recipes.compiling.first_alone", waiting)
        reports, _ = trained(compile=True)
    assert reports[0][names.COMPILE_SECONDS] > HOLDS_S / 2
    assert max(reports[0][name] for name in (names.TRAIN_SECONDS, names.EVAL_SECONDS)) < HOLDS_S / 2
    assert reports[1][names.COMPILE_SECONDS] == 0
    assert len([*folder.glob("*.done")]) == 2


def test_bfloat16_is_coarser_and_near() -> None:
    coarse, exact = trained(**QUIET, mixed_precision="bf16")[0][-1], trained(**QUIET)[0][-1]
    assert coarse[names.TRAIN_LOSS] != exact[names.TRAIN_LOSS]
    assert coarse[names.TRAIN_LOSS] == pytest.approx(exact[names.TRAIN_LOSS], rel=0.05)


def test_a_loss_is_computed_exactly_in_training_as_in_evaluation() -> None:
    lowered = []

    def loss(outputs: torch.Tensor, batch: Any) -> tuple[torch.Tensor, int]:
        lowered.append(torch.is_autocast_enabled("cpu") or outputs.dtype != torch.float32)
        return cross_entropy(outputs, batch)

    config = SmallConfig(epochs=1, mixed_precision="bf16")
    with open_session(Collector()):
        train(replace(small_task(config), loss=loss), config)
    assert len(lowered) > 1
    assert not any(lowered)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"batch_size": 7, "micro_batch": 4},
            "2 equal parts of at most micro_batch, but got batch_size=7, .*micro_batch=4",
        ),
        ({"batch_size": 64}, "batch_size must be at most the 45 training samples, but got 64"),
    ],
)
def test_a_batch_that_cannot_be_had_is_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_batch(SmallConfig.from_dict({"epochs": 1, **changes}), workers=1, samples=45)


def test_metrics_for_unbalanced_classes_are_scikit_learns() -> None:
    reports, model = trained(**QUIET, balanced_metrics=True, lr=0.01)
    data = Points(131, 0.0)
    said = model(data.points).argmax(1)
    expected = balanced_accuracy_score(data.labels, said), f1_score(data.labels, said, average="macro")
    assert (reports[-1][names.VAL_BALANCED_ACCURACY], reports[-1][names.VAL_MACRO_F1]) == pytest.approx(expected)
    assert reports[-1][names.VAL_ACCURACY] not in expected


def test_more_metrics_are_nan_where_nothing_is_evaluated() -> None:
    reports, _ = trained(lr=1e30, balanced_metrics=True, top5_accuracy=True)
    for name in (names.VAL_TOP5_ACCURACY, names.VAL_BALANCED_ACCURACY, names.VAL_MACRO_F1):
        assert math.isnan(reports[-1][name])


def test_the_label_is_always_among_the_first_five_of_five_classes() -> None:
    config = SmallConfig(epochs=1, top5_accuracy=True)
    with pytest.raises(ValueError, match="top5_accuracy needs more than 5 classes, but the data has 5; leave it out"):
        check_classes(config, 5)
    check_classes(config, 6)


@pytest.mark.parametrize("copy_ahead", [True, False, "auto"])
def test_a_thread_begins_the_next_epoch_before_the_last_one_is_scored(copy_ahead: Any) -> None:
    """Its numbers are those of a loop without it."""
    taken: list[tuple[str, bool]] = []
    next_epoch_begun = threading.Event()

    class Noted(Points):
        def __getitems__(self, indices: list[int]) -> Any:
            in_a_thread = threading.current_thread() is not threading.main_thread()
            if len(self) == VAL_SIZE and in_a_thread:  # two threads: on a busy machine this one may be the faster
                next_epoch_begun.wait(timeout=10)
            taken.append(("val" if len(self) == VAL_SIZE else "train", in_a_thread))
            if taken.count(("train", True)) > steps:
                next_epoch_begun.set()
            return super().__getitems__(indices)

    config = SmallConfig.from_dict({"epochs": 2, **QUIET, "copy_ahead": copy_ahead})
    task, collector = small_task(config), Collector()
    VAL_SIZE = len(task.val_data)  # type: ignore[arg-type]  # noqa: N806
    steps = len(task.train_data) // config.batch_size  # type: ignore[arg-type]
    task = replace(task, train_data=Noted(len(task.train_data), 0.0), val_data=Noted(VAL_SIZE, 0.0))  # type: ignore[arg-type]
    with open_session(collector):
        train(task, config)
    plain, _ = trained(epochs=2, **QUIET)
    assert [*map(numbers_of, collector.reports)] == [*map(numbers_of, plain)]
    before_scores = taken.index(next(entry for entry in taken if entry[0] == "val"))
    assert before_scores == steps + (copy_ahead is True)
    assert [source for source, _ in taken].count("train") == 2 * steps
    assert {in_a_thread for _, in_a_thread in taken} == {copy_ahead is True}


def test_scores_do_not_depend_on_the_batch_of_evaluation() -> None:
    small, _ = trained(**QUIET, eval_batch=7)
    large, _ = trained(**QUIET)
    for ours, theirs in zip(small, large, strict=True):
        assert numbers_of(ours) == pytest.approx(numbers_of(theirs), rel=1e-6)


@pytest.mark.parametrize(("cores", "processes"), [(20, 18), (4, 3), (2, 1), (1, 0), (0, 0)])
def test_loader_processes_follow_the_cores_of_a_worker(cores: int, processes: int) -> None:
    config = SmallConfig.from_dict({"epochs": 1, "loader_workers": "auto"})
    assert config.for_device(DEVICE_TYPES["hpu"], cores).loader_workers == processes
    assert replace(config, loader_workers=3).for_device(DEVICE_TYPES["hpu"], cores).loader_workers == 3
