from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from experiments.sweep.define.options import PROJECT_ROOT
from trainables.runtime.devices.cpu import Cpu
from trainables.runtime.devices.find import DEVICE_TYPES, find_devices, worker_device
from trainables.runtime.devices.hpu import make_recipe_folder


def test_an_accelerator_is_preferred_and_the_choice_explained() -> None:
    devices = find_devices("auto", [{"CPU": 64.0, "HPU": 8.0}])
    assert (devices.type.kind, devices.count) == ("hpu", 8)
    assert "8 hpu" in devices.reason
    assert find_devices("auto", [{"CPU": 64.0, "GPU": 4.0}]).type.kind == "cuda"
    assert find_devices("auto", [{"CPU": 2.0}]).type.kind == "cpu"


def test_the_devices_of_a_cluster_are_counted_by_node() -> None:
    head, node = {"CPU": 8.0}, {"CPU": 64.0, "HPU": 8.0}
    devices = find_devices("auto", [head, node, node])
    assert (devices.count, devices.nodes) == (16, (8, 8))
    assert "16 hpu, 0 cuda, 136 cores on 2 nodes" in devices.reason


def test_a_device_can_be_asked_for() -> None:
    assert find_devices("cpu", [{"CPU": 64.0, "HPU": 8.0}]).count == 64


def test_a_device_that_is_not_there_is_an_error_that_says_what_is() -> None:
    with pytest.raises(
        ValueError, match=r"--device hpu: there is no such device here; there is cpu\. Take --device auto"
    ):
        find_devices("hpu", [{"CPU": 2.0}])
    with pytest.raises(ValueError, match="--device must be one of auto, hpu, cuda, cpu, but got 'tpu'"):
        find_devices("tpu", None)


@pytest.mark.processes
def test_finding_devices_imports_no_torch_ray_or_habana() -> None:
    code = """
import sys
from trainables.runtime.devices.find import find_devices
find_devices("cpu", None), find_devices("auto", [{"HPU": 8.0}])
print([name for name in ("torch", "ray", "habana_frameworks", "mlflow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class Meta(Cpu):
    """A device that torch knows and no other module here does."""

    def count_here(self) -> int:
        return 3

    def torch_device(self) -> torch.device:
        return torch.device("meta")


def test_a_new_kind_of_device_is_one_class_and_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Meta(kind="meta", resource="META", backend="gloo", bf16=False)
    kinds = {"meta": ours, **DEVICE_TYPES}
    monkeypatch.setattr("trainables.runtime.devices.find.DEVICE_TYPES", kinds)
    devices = find_devices("auto", None)
    assert (devices.type, devices.nodes) == (ours, (3,))
    assert find_devices("meta", [{"CPU": 4.0}, {"META": 2.0}]).nodes == (2,)
    assert worker_device() == torch.device("meta")


def test_a_worker_books_one_device_and_a_core() -> None:
    assert DEVICE_TYPES["hpu"].worker_resources() == {"CPU": 1, "HPU": 1}
    assert DEVICE_TYPES["cuda"].worker_resources() == {"CPU": 1, "GPU": 1}
    assert DEVICE_TYPES["cpu"].worker_resources() == {"CPU": 1}


@pytest.mark.parametrize(
    ("modules", "nodes", "says"),
    [
        ([2, 3], 1, ""),
        ([4, 5, 6, 7], 1, ""),
        ([1, 2], 1, r"modules \[1, 2\] are not an aligned set of 2"),
        ([3, 2, 5, 4], 1, r"modules \[2, 3, 4, 5\] are not an aligned set of 4"),
        (list(range(8)), 2, ""),
        ([0, 1, 2, 3], 2, r"several nodes, and has only modules \[0, 1, 2, 3\] of one"),
    ],
)
def test_modules_that_intel_does_not_support_together_are_named(modules: list[int], nodes: int, says: str) -> None:
    reason = DEVICE_TYPES["hpu"].why_not_together(modules, nodes)
    assert bool(re.search(says, reason)) if reason else not says
    assert DEVICE_TYPES["cuda"].why_not_together(modules, nodes) is None


def test_the_folder_of_compiled_graphs_is_made_where_the_worker_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path))
    environment = DEVICE_TYPES["hpu"].worker_environment()
    assert not list(tmp_path.iterdir())  # this process may be on another node than the workers
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    make_recipe_folder()
    (folder,) = (tmp_path / "recipes").iterdir()
    assert environment["PT_HPU_RECIPE_CACHE_CONFIG"].startswith(f"{folder},false,")
