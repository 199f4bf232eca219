"""Warm worker groups, with real workers: what a trial gives must not depend on what ran before it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer
from safetensors.torch import load_file

from experiments import tune_resnet18
from gaudi_tune.base import names
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.errors import WorkerGroupError, WorkerRaisedError
from tests.experiments.test_every_experiment import SCRIPTS, experiment_of, small_trial_of
from tests.helpers.groups import run_trial, start_group
from tests.helpers.loops import any_loop
from tests.helpers.sessions import numbers_of, reports_of
from tests.helpers.sources import EPOCHS, assert_as_published, source_trial
from trainables import bert, llm

on_one = pytest.mark.parametrize("group", [1], ids=["one worker"], indirect=True)
on_each = pytest.mark.parametrize("group", [1, 2], ids=["one worker", "two workers"], indirect=True)


@pytest.fixture(scope="module", params=[2], ids=["two workers"])
def group(request: pytest.FixtureRequest, host: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    started = start_group(host, any_loop, request.param, tmp_path_factory.mktemp("group"))
    started.width = request.param
    yield started
    started.exit()


@pytest.fixture(scope="module")
def first_run(group: Any, small_trial: dict[str, Any]) -> list[dict[str, Any]]:
    """The small trial as the first of its group."""
    return run_trial(group, {**small_trial, "loop": "bert"})


def test_a_used_group_gives_the_numbers_of_a_fresh_one(
    group: Any, first_run: list[dict[str, Any]], small_trial: dict[str, Any], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    group.start_trial({"loop": "untidy", "log": str(log)}, None)
    other = run_trial(group, {**small_trial, "loop": "bert", "seed": 8, "batch_size": 16})
    assert log.read_text() == "finally" * group.width
    assert other != first_run
    assert run_trial(group, {**small_trial, "loop": "bert"}) == first_run
    assert [report[names.EPOCH] for report in first_run] == [1, 2]


def test_what_is_kept_stays_until_a_trial_has_changed_it(group: Any) -> None:
    made = [
        group.start_trial({"loop": "keeping", "changes": changes}, None)["metrics"]["made"]
        for changes in (False, True, False, False)
    ]
    assert made == [1, 0, 1, 0]


@pytest.mark.parametrize("script", ["tune_bert", "tune_resnet50_imagenet"])
def test_a_baseline_trains_as_its_source_does_on_two_workers(group: Any, script: str, tmp_path: Path) -> None:
    trial, end = source_trial(script, group.width, tmp_path), tmp_path / "end"
    reports = [group.start_trial({**trial, "loop": script.removeprefix("tune_")}, None)]
    while len(reports) < EPOCHS:
        reports.append(group.next_report())
    group.save(str(end))
    metrics = [report["metrics"] for report in reports]
    assert_as_published(script, trial, group.width, metrics, end, tmp_path)


def test_a_loop_that_seeds_nothing_draws_the_same_after_another_trial(group: Any, tmp_path: Path) -> None:
    quadratic = {"loop": "quadratic", "x": 0.5, "epochs": 2, "seed": 5}
    draws = []
    for _ in range(2):
        draws.append(group.start_trial(quadratic, None)["metrics"]["noise"])
        group.start_trial({"loop": "untidy", "log": str(tmp_path / "log")}, None)
    assert draws[0] == draws[1] != group.start_trial({**quadratic, "seed": 6}, None)["metrics"]["noise"]


def test_a_trial_resumed_from_its_checkpoint_gives_the_numbers_of_one_that_was_not_interrupted(
    group: Any, first_run: list[dict[str, Any]], small_trial: dict[str, Any], tmp_path: Path
) -> None:
    group.start_trial({**small_trial, "loop": "bert"}, None)
    group.save(str(tmp_path / "checkpoint"))
    assert run_trial(group, {**small_trial, "loop": "bert"}, str(tmp_path / "checkpoint")) == first_run[1:]


@on_one
@pytest.mark.parametrize("script", ["tune_llm", "tune_resnet50_imagenet", "tune_vit"])
def test_an_experiment_gives_in_a_used_group_the_numbers_of_this_process(group: Any, script: str) -> None:
    experiment = experiment_of(script)
    trial = {**small_trial_of(experiment), "epochs": 2}
    here = list(map(numbers_of, reports_of(experiment.train_loop, trial)))
    loop = experiment.train_loop.__module__.removeprefix("trainables.")
    for seed in (trial["seed"] + 1, trial["seed"]):  # another trial of its kind first
        numbers = run_trial(group, {**trial, "seed": seed, "loop": loop})
        assert (numbers == here) is (seed == trial["seed"])


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_trial_of_every_experiment_continues_with_two_workers_as_with_one(
    group: Any, script: str, tmp_path: Path
) -> None:
    """But for the order of sums, which steps of a usual length would blow up in networks as small as these."""
    experiment, cpu = experiment_of(script), DEVICE_TYPES["cpu"]
    known = {"dropout": 0.0} if "dropout" in experiment.config_class.field_names() else {}
    trial = {**small_trial_of(experiment), **known, "train_samples": 8, "batch_size": 8, "lr": 1e-4, "epochs": 2}
    config = experiment.config_class.from_dict(trial)
    assert config.why_not_wider(cpu, 1, 2) is None
    here = reports_of(experiment.train_loop, trial, save_at=1, save_to=tmp_path / "saved")[1]
    changes = config.settings_of_wider(cpu, 1, 2)
    loop = experiment.train_loop.__module__.removeprefix("trainables.")
    (there,) = run_trial(group, {**trial, **changes, "loop": loop}, str(tmp_path / "saved"))
    # In 50 layers without the statistics of a batch, the order of sums makes 0.5 % on one machine (and 150 % if wrong).
    loose = {"val_loss": 1e-2} if script == "tune_resnet50" else {}
    alike = {name: pytest.approx(value, rel=loose.get(name, 1e-4)) for name, value in numbers_of(here).items()}
    assert there == alike
    if changes:  # with batch normalisation over each worker's share it is another trial
        (there,) = run_trial(group, {**trial, "loop": loop}, str(tmp_path / "saved"))
        assert there != alike


def test_a_sharded_language_model_trains_as_a_whole_one_at_any_width(group: Any, tmp_path: Path) -> None:
    """Its losses after 10 steps. One validation sample is left over, and rank 1 has a batch fewer than rank 0."""
    trial = {**small_trial_of(experiment_of("tune_llm")), "dropout": 0.0, "epochs": 2, "clip_norm": 0.5}
    trial |= {"train_samples": 40, "batch_size": 8, "val_samples": 5, "eval_batch": 2}
    parts = {**trial, "sharding": "full"}
    whole = list(map(numbers_of, reports_of(llm.train_loop, trial)))
    assert whole[1][names.STEP] == 10
    alike = [{name: pytest.approx(value, rel=1e-5) for name, value in numbers.items()} for numbers in whole]
    group.start_trial({**parts, "loop": "llm"}, None)
    group.save(str(tmp_path / "of-two"))
    assert run_trial(group, {**parts, "loop": "llm"}) == alike
    assert run_trial(group, {**parts, "loop": "llm"}, str(tmp_path / "of-two")) == alike[1:]
    alone = {"save_at": 1, "save_to": tmp_path / "of-one"}
    assert list(map(numbers_of, reports_of(llm.train_loop, parts, start_from=tmp_path / "of-two"))) == alike[1:]
    reports_of(llm.train_loop, parts, **alone)
    assert run_trial(group, {**parts, "loop": "llm"}, str(tmp_path / "of-one")) == alike[1:]
    two, one = (load_file(tmp_path / folder / "adapter_model.safetensors") for folder in ("of-two", "of-one"))
    assert all((two[name] - weight).norm() < 1e-3 * weight.norm() for name, weight in one.items())


@on_each
def test_parts_that_ranks_report_to_ray_train_are_put_together(group: Any, tmp_path: Path) -> None:
    """Also at a report without any, for which each rank keeps its own. Of files with one name it is rank 0's, whole."""
    group.start_trial({"loop": "writing_parts"}, None)
    group.save(str(tmp_path / "1"))
    group.next_report()
    group.save(str(tmp_path / "2"))
    parts = {"random": "0" * 2**22, **{f"part-{rank}": f"of rank {rank}" for rank in range(group.width)}}
    for saved in (tmp_path / "1", tmp_path / "2"):
        assert {file.name: file.read_text() for file in saved.iterdir()} == parts


def test_workers_meet_as_ray_train_has_them_meet(group: Any) -> None:
    """Twice: the second trial finds the actor in which the first one's workers met."""
    for said in ("a", "b"):
        assert group.start_trial({"loop": "meeting", "said": said}, None)["metrics"]["heard"] == f"{said} of rank 0"


@pytest.mark.parametrize(
    ("reports", "says"),
    [
        ([1, 0], "rank 0 has reported and rank 1 has returned"),
        ([0, 1], "rank 1 has reported and rank 0 has returned"),
        ([2, 1], "rank 0 has reported and rank 1 has returned"),
    ],
)
def test_ranks_that_do_not_report_equally_often_fail_their_trial_at_once(
    group: Any, reports: list[int], says: str
) -> None:
    """The rank that has returned would never answer, and the others would wait for it."""
    with pytest.raises(WorkerRaisedError, match=says):
        run_trial(group, {"loop": "uneven", "reports": reports})


def test_unequal_shares_of_the_ranks_count_each_sample_once(first_run: list[dict[str, Any]], group: Any) -> None:
    """101 validation texts over 2 workers: the accuracy is a whole number of texts out of 101."""
    right = first_run[-1][names.VAL_ACCURACY] * 101
    assert right == pytest.approx(round(right), abs=1e-9)


def test_a_finished_trial_can_still_be_saved(group: Any, small_trial: dict[str, Any], tmp_path: Path) -> None:
    run_trial(group, {**small_trial, "loop": "bert"})
    group.save(str(tmp_path))
    model, tokenizer = bert.load_model(tmp_path)
    logits = model(**tokenizer(["The estimator is fitted on the data frame."], return_tensors="pt")).logits
    assert logits.shape == (1, 5)
    assert not model.training


@pytest.fixture(scope="module")
def resnet_trial() -> dict[str, Any]:
    """20 steps of ResNet-18.

    The learning rate is small because this network, untrained, is chaotic: after a change of its weights by 1e-7, in
    one process, 20 steps at 1e-6 move them 1 % otherwise, and 20 steps at 1e-5 move them 14 % otherwise.
    """
    experiment = tune_resnet18.EXPERIMENT
    trial = {**experiment.recipes["sample"].settings(), **experiment.baseline, "batch_size": 32, "lr": 1e-6}
    return trial | {"steps": 20, "eval_every": 20, "train_samples": 200, "val_samples": 50, "augment": False}


def test_settings_beyond_the_baseline_resume_and_count_on_all_workers(
    group: Any, resnet_trial: dict[str, Any], tmp_path: Path
) -> None:
    disturbed = {"augment": True, "mixup": 0.2, "cutmix": 1.0, "random_erase": 0.5, "auto_augment": "RandAugment"}
    metrics = {"train_accuracy": True, "top5_accuracy": True, "balanced_metrics": True}
    trial = {**resnet_trial, **disturbed, **metrics, "lr": 0.01, "momentum": 0.9, "nesterov": True, "ema_decay": 0.6}
    trial |= {"loop": "resnet18", "steps": 3, "eval_every": 1, "label_smoothing": 0.1}
    whole = run_trial(group, trial)
    group.start_trial(trial, None)
    group.save(str(tmp_path / "checkpoint"))
    assert run_trial(group, trial, str(tmp_path / "checkpoint")) == whole[1:]
    for name, of in ((names.TRAIN_ACCURACY, 32), (names.VAL_TOP5_ACCURACY, 50)):
        right = [report[name] * of for report in whole]
        assert right == pytest.approx([round(count) for count in right], abs=1e-9)
        assert 0 < max(right) < of
    assert all(0 < report[names.VAL_BALANCED_ACCURACY] < 1 for report in whole)


@pytest.mark.parametrize("loop", ["hugging_face", "lightning"])
def test_a_trainer_of_another_library_ends_on_all_ranks_and_leaves_nothing_behind(
    loop: str, group: Any, tmp_path: Path
) -> None:
    value, others = {"hugging_face": "eval_loss", "lightning": "val_loss"}[loop], {"bf16": True, "accumulate": 2}
    config = {"loop": loop, "lr": 0.01, "epochs": 3, "seed": 3, "log": str(tmp_path)}

    def losses(checkpoint: str | None = None) -> list[float]:
        reports = [group.start_trial(config, checkpoint)]
        while reports[-1]["kind"] == "metrics":
            reports.append(group.next_report())
        return [report["metrics"][value] for report in reports[:-1]]

    first = losses()
    assert len(first) == len(set(first)) == 3
    (stopped := tmp_path / "stopped").mkdir()
    group.start_trial({**config, "lr": 0.02, **others, "seed_everything": 7, "log": str(stopped)}, None)
    group.save(str(tmp_path / "checkpoint"))
    group.start_trial(config, None)
    ended = [(stopped / str(rank)).read_text() for rank in range(group.width)]
    assert ended == ["0.02 ended"] * group.width
    assert losses() == first
    group.start_trial(config, None)
    group.save(str(tmp_path / "own"))
    assert losses(str(tmp_path / "own")) == first[1:]


@on_each
def test_an_error_on_a_rank_ends_the_group_with_that_error(group: Any, tmp_path: Path) -> None:
    """The last of its group: a checkpoint of a loop without save=, or rank 1 fails while rank 0 waits for it."""
    began = time.monotonic()
    if group.width == 1:
        assert group.start_trial({"loop": "silent"}, None)["kind"] == "finished"
        with pytest.raises(WorkerGroupError, match="has neither save= nor checkpoint=; add one"):
            group.save(str(tmp_path))
    else:
        with pytest.raises(WorkerGroupError, match="rank 1 failed on purpose"):
            group.start_trial({"loop": "failing_on_one_rank"}, None)
    group.exit()
    assert time.monotonic() - began < 30
    with pytest.raises(Exception, match=r"."):
        group.start_trial({}, None)


def test_a_plain_torch_trainer_has_the_same_numbers(
    ray_here: None, group: Any, first_run: list[dict[str, Any]], small_trial: dict[str, Any], tmp_path: Path
) -> None:
    group.exit()  # it has both cores of this Ray
    trainer = TorchTrainer(
        bert.train_loop,
        train_loop_config=small_trial,
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="plain", storage_path=str(tmp_path)),
    )
    result = trainer.fit()
    assert result.metrics is not None
    assert numbers_of(result.metrics) == first_run[-1]
    assert result.checkpoint is not None
    assert bert.load_model(result.checkpoint.path)
