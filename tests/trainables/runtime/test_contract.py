import logging
from pathlib import Path
from typing import Any

import pytest
from ray.train import Checkpoint

from trainables import runtime as train
from trainables.runtime.contract import SaveFunction, open_session


class AskForCheckpoint:
    """Writes what the loop would save at each report."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def report(self, metrics: Any, save: SaveFunction | None) -> None:
        assert save is not None
        self.directory.mkdir()
        save(self.directory)

    def get_checkpoint(self) -> Checkpoint | None:
        return Checkpoint.from_directory(self.directory)


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
    with open_session(AskForCheckpoint(tmp_path / "asked for")):
        train.report({"epoch": 1}, checkpoint=Checkpoint.from_directory(written))
        checkpoint = train.get_checkpoint()
    assert checkpoint is not None
    assert (Path(checkpoint.path) / "model.txt").read_text() == "weights"
    assert train.get_checkpoint() is None  # the session is over
