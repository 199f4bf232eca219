"""A trial whose model is sharded over its workers: each writes its part of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from ray.tune.utils.util import flatten_dict
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from gaudi_tune.base import names
from gaudi_tune.base.trial_place import Place
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.errors import WorkersLostError
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.training.checkpoint import copy_to_predict, read_seal
from tests.helpers.host import Hosted
from tests.helpers.sharded_loop import loss_of, movable, network, sharded

PARTS = {".metadata", "__0_0.distcp", "__1_0.distcp"}


def no_environment(config: Any) -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def trainable(host: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = str(tmp_path_factory.mktemp("groups"))
    spec = WorkerGroupSpec(train_loop=sharded, num_workers=2, device=DEVICE_TYPES["cpu"], storage=folder)
    parameters = {"spec": spec, "settings": {}, "environment_of": no_environment, "retries": 1}
    made = Hosted(host, movable, parameters, {})
    yield made
    made.stop()


@pytest.fixture(scope="module")
def whole(trainable: Any) -> list[float]:
    """The losses of a trial that was never interrupted."""
    trainable.reset({})
    results = [trainable.train() for _ in range(4)]
    assert results[0]["parts"] == 9 + 3 + 6 + 1  # of 18 + 6 + 6 + 1: a matrix of one row has one part
    return [result["loss"] for result in results]


def losses(trainable: Any, reports: int) -> list[float]:
    return [trainable.train()["loss"] for _ in range(reports)]


def test_a_sharded_trial_goes_on_from_the_parts_of_its_workers(
    trainable: Any, whole: list[float], tmp_path: Path
) -> None:
    trainable.reset({})
    assert losses(trainable, 2) == whole[:2]
    saved = trainable.save(str(tmp_path / "saved"))
    assert {file.name for file in (tmp_path / "saved").iterdir()} >= PARTS
    trainable.reset({})
    trainable.restore(saved)
    assert losses(trainable, 2) == whole[2:]


def test_it_goes_on_with_another_number_of_workers(trainable: Any, whole: list[float], tmp_path: Path) -> None:
    trainable.reset({})
    results = [trainable.train()]
    for width in (1, 2):
        trainable.save(str(tmp_path / f"for-{width}"))
        trainable.move_to(Place(width))
        results.append(trainable.train())
    assert [result["parts"] for result in results] == [19, 31, 19]
    assert [result["loss"] for result in results] == pytest.approx(whole[:3], rel=1e-5)


def test_a_rank_that_is_killed_costs_what_came_after_the_last_checkpoint(
    trainable: Any, whole: list[float], tmp_path: Path
) -> None:
    trainable.reset({"dies": "training", "killed": str(tmp_path / "killed")})
    losses(trainable, 1)
    trainable.save(str(tmp_path / "saved"))
    result = flatten_dict(trainable.train())
    assert (tmp_path / "killed").exists()
    assert result[names.LOST_SECONDS] > 0
    assert [result["loss"], *losses(trainable, 2)] == whole[1:]


def test_a_checkpoint_that_a_rank_has_not_written_does_not_count(
    trainable: Any, whole: list[float], tmp_path: Path
) -> None:
    trainable.reset({"dies": "saving", "killed": str(tmp_path / "killed")})
    losses(trainable, 1)
    trainable.save(str(tmp_path / "first"))
    losses(trainable, 1)
    with pytest.raises(WorkersLostError):
        trainable.save(str(tmp_path / "second"))
    assert (tmp_path / "killed").exists()
    assert not read_seal(tmp_path / "second").report
    assert losses(trainable, 2) == whole[2:]


def test_parts_of_workers_on_other_nodes_are_brought_together(
    trainable: Any, whole: list[float], tmp_path: Path
) -> None:
    trainable.reset({})
    losses(trainable, 2)
    trainable.go_away()
    saved = trainable.save(str(tmp_path / "saved"))
    assert {file.name for file in (tmp_path / "saved").iterdir()} >= PARTS
    trainable.reset({})
    trainable.restore(saved)
    assert losses(trainable, 2) == whole[2:]


def test_parts_are_read_without_a_process_group(trainable: Any, whole: list[float], tmp_path: Path) -> None:
    """What torch offers for it, of the copy that goes to MLflow, too."""
    trainable.reset({})
    losses(trainable, 3)
    trainable.save(str(tmp_path / "saved"))
    copy_to_predict(tmp_path / "saved", tmp_path / "copy")
    dcp_to_torch_save(tmp_path / "copy", tmp_path / "whole.pt")
    state = torch.load(tmp_path / "whole.pt", weights_only=True)
    model = network()
    model.load_state_dict(state["model"])
    assert state["epoch"] == 3
    assert float(loss_of(model).detach()) == pytest.approx(whole[2], rel=1e-5)
