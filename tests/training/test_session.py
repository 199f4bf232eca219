import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from ray import tune
from ray.train import Checkpoint
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

import gaudi_tune as train
from gaudi_tune.base.files import is_disk_full
from gaudi_tune.training.session import Sharded, open_session, report
from tests.helpers.sessions import Collector, reports_of


def test_without_ray_there_is_one_worker_and_reports_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    context = train.get_context()
    assert (context.get_world_size(), context.get_world_rank(), context.get_local_rank()) == (1, 0, 0)
    assert train.get_checkpoint() is None
    with caplog.at_level(logging.INFO):
        train.report({"epoch": 1, "val_loss": 0.25})
    assert "'val_loss': 0.25" in caplog.text


def test_a_loop_as_in_rays_documentation_reports_a_checkpoint_it_has_written(tmp_path: Path) -> None:
    written = tmp_path / "written"
    written.mkdir()
    (written / "model.txt").write_text("weights")
    asked_for = tmp_path / "asked for"
    with open_session(Collector(start_from=asked_for, save_at=1, save_to=asked_for)):
        train.report({"epoch": 1}, checkpoint=Checkpoint.from_directory(written))
        checkpoint = train.get_checkpoint()
    assert checkpoint is not None
    assert (Path(checkpoint.path) / "model.txt").read_text() == "weights"
    assert train.get_checkpoint() is None  # the session is over


def test_a_value_that_is_no_metric_is_an_error_of_the_loop() -> None:
    with pytest.raises(ValueError, match=r"the metric 'recalls' must be a number or a text, but is a Tensor of shape "):
        reports_of(lambda config: report({"loss": 0.1, "recalls": torch.ones(2)}), {})


@pytest.mark.workers
def test_in_a_function_trainable_of_ray_tune_a_loop_is_a_single_worker(ray_here: None, tmp_path: Path) -> None:
    def trainable(config: dict[str, Any]) -> None:
        tune.report({"world_size": train.get_context().get_world_size(), "begins": train.get_checkpoint() is None})

    run_config = tune.RunConfig(storage_path=str(tmp_path), verbose=0)
    (result,) = tune.Tuner(tune.with_resources(trainable, {"cpu": 1}), run_config=run_config).fit()
    assert result.metrics is not None
    assert (result.metrics["world_size"], result.metrics["begins"]) == (1, True)


def test_a_full_disk_under_a_part_is_known_as_such_on_each_rank(tmp_path: Path) -> None:
    """torch raises what is no Exception, and what other ranks raised has lost its causes."""
    (tmp_path / "__0_0.distcp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        Sharded(lambda folder: save({"weight": torch.ones(10_000)}, checkpoint_id=folder))(tmp_path)
    assert is_disk_full(caught.value)
    with pytest.raises(CheckpointException, match="Is a directory"):
        Sharded(lambda folder: save({"weight": torch.ones(3)}, checkpoint_id=folder / "part"))(blocked(tmp_path))


def blocked(folder: Path) -> Path:
    (folder / "part" / "__0_0.distcp").mkdir(parents=True)
    return folder
