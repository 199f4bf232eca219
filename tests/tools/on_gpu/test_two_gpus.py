"""A trial on several GPUs of one node, with real workers on a Ray that was told of two: each takes its own.

They compute on the CPU. ``ON_GPU_AS=cpu`` runs it where there is no GPU, in 20 s.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.train.torch
import torch

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import DEVICE_TYPES
from gaudi_tune.group.trainer import WorkerGroupSpec
from gaudi_tune.group.worker_group import WorkerGroup
from gaudi_tune.on_ray.local_ray import ENVIRONMENT
from gaudi_tune.private.ray_core import lean_ray
from gaudi_tune.training.session import get_context, report
from tests.helpers.host import Host, Hosted

pytestmark = [pytest.mark.cuda, pytest.mark.workers, pytest.mark.own_ray]


class Pretended(DeviceType):
    """A GPU to Ray, a core to torch."""

    measures_memory = False


def devices_of(config: dict[str, Any]) -> None:
    """Write down what this worker takes for its GPU."""
    seen = os.environ["CUDA_VISIBLE_DEVICES"], DEVICE_TYPES["cuda"].torch_device(), ray.train.torch.get_device()
    Path(config["folder"], str(get_context().get_world_rank())).write_text(" ".join(map(str, seen)))
    report({"epoch": 1})


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not torch.cuda.is_available() and os.environ.get("ON_GPU_AS") != "cpu":
        pytest.skip("ON_GPU_AS=cpu runs it without a GPU")
    modules = f"{PROJECT_ROOT}:{os.environ.get('PYTHONPATH', '')}"  # where the libraries may be
    for variable, value in {**ENVIRONMENT, "PYTHONPATH": modules}.items():
        monkeypatch.setenv(variable, value)
    with lean_ray():
        ray.init(
            "local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )
    yield
    ray.shutdown()


@pytest.mark.usefixtures("two_gpus")
def test_each_worker_of_a_trial_takes_its_own_gpu(tmp_path: Path) -> None:
    device = Pretended(kind="cpu", resource="GPU", backend="gloo", bf16=False)
    spec = WorkerGroupSpec(train_loop=devices_of, num_workers=2, device=device, storage=str(tmp_path))
    group = Hosted(ray.remote(Host).options(num_cpus=0).remote(), WorkerGroup.start, spec, "two-gpus")
    group.start_trial({"folder": str(tmp_path)}, None)
    group.exit()
    assert [(tmp_path / str(rank)).read_text() for rank in (0, 1)] == ["0 cuda:0 cuda:0", "1 cuda:0 cuda:0"]
