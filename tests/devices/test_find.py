from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices import gaudi_node
from gaudi_tune.devices.cpu import Cpu
from gaudi_tune.devices.device import DeviceType
from gaudi_tune.devices.find import DEVICE, DEVICE_TYPES, find_devices, worker_device
from gaudi_tune.devices.gaudi_node import AUTOLOAD, GRADIENT_VIEWS, LAZY_MODE, MODULES, prepare_worker, visible_modules
from tests.helpers.sessions import numbers_of, reports_of
from tests.helpers.small_task import small_loop


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
    with pytest.raises(ValueError, match="--device tpu: must be auto, hpu, cuda, cpu; an NVIDIA GPU is cuda"):
        find_devices("tpu", None)


def test_gpus_are_counted_by_torch_only_where_a_driver_may_have_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = DEVICE_TYPES["cuda"]
    monkeypatch.setattr("gaudi_tune.devices.cuda.DEV", tmp_path)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert cuda.count_here() == 0
    (tmp_path / "nvidiactl").touch()
    assert cuda.count_here() == 2


def test_a_container_has_as_many_cores_as_its_share_of_time_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaudi_tune.devices.cpu.QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(64)))
    cores = []
    for quota in (None, "max 100000", "400000 100000", "50000 100000", "9900000 100000"):
        if quota is not None:
            (tmp_path / "cpu.max").write_text(f"{quota}\n")
        cores.append(DEVICE_TYPES["cpu"].count_here())
    assert cores == [64, 64, 4, 1, 64]


class Meta(Cpu):
    """A device that torch knows and no other module here does."""

    def count_here(self) -> int:
        return 3

    def torch_device(self) -> torch.device:
        return torch.device("meta")


def test_a_new_kind_of_device_is_one_class_and_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Meta(kind="meta", resource="META", backend="gloo", bf16=False)
    kinds = {"meta": ours, **DEVICE_TYPES}
    monkeypatch.setattr("gaudi_tune.devices.find.DEVICE_TYPES", kinds)
    devices = find_devices("auto", None)
    assert (devices.type, devices.nodes) == (ours, (3,))
    assert find_devices("meta", [{"CPU": 4.0}, {"META": 2.0}]).nodes == (2,)
    assert worker_device() == torch.device("meta")


def test_a_kind_that_torch_knows_needs_no_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interface is plain torch: an Intel GPU would be this line, and what it does otherwise."""
    xpu = DeviceType(kind="xpu", resource="GPU", backend="xccl")
    assert (xpu.count_here(), xpu.is_available(), xpu.worker_resources()) == (0, False, {"CPU": 1, "GPU": 1})
    trial = {"epochs": 1, "seed": 3}
    usual = reports_of(small_loop, trial)
    monkeypatch.setitem(DEVICE_TYPES, "cpu", DeviceType(kind="cpu", resource="CPU", backend="gloo", bf16=False))
    assert [*map(numbers_of, reports_of(small_loop, trial))] == [*map(numbers_of, usual)]


def test_a_kind_of_device_is_one_short_module_and_nothing_else_asks_for_kinds() -> None:
    room = PROJECT_ROOT / "gaudi_tune" / "devices"
    for module in ("device", "worker_side", *DEVICE_TYPES):
        assert len((room / f"{module}.py").read_text().splitlines()) < 180, module
    asks = re.compile(r"""kind [!=]= "(hpu|cuda|cpu)"|torch\.(cuda|hpu|xpu)\.""")
    for folder in ("gaudi_tune", "experiments", "search_spaces", "trainables"):
        for file in (PROJECT_ROOT / folder).rglob("*.py"):
            assert file.is_relative_to(room) or not asks.search(file.read_text()), file


def test_a_worker_of_a_sweep_has_the_device_of_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray leaves a node's HABANA_VISIBLE_MODULES to workers that booked no HPU."""
    monkeypatch.setitem(DEVICE_TYPES, "hpu", Meta(kind="meta", resource="META", backend="gloo", bf16=False))
    assert worker_device() == torch.device("meta")
    monkeypatch.setenv(DEVICE, "cpu")
    assert worker_device() == torch.device("cpu")


@pytest.mark.parametrize("named", ["all", "", "0,x", "1,1", "0,"])
def test_a_variable_that_names_no_modules_is_an_error(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODULES, named)
    with pytest.raises(ValueError, match=rf"must be numbers of modules, such as 0,1,2,3, but got '{named}'; unset it"):
        visible_modules()


def test_a_node_whose_container_was_given_devices_by_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray would hand out modules 0 and 1, which are not there."""
    hl_smi = tmp_path / "hl-smi"
    hl_smi.write_text("#!/bin/sh\necho 5; echo 4\n")
    hl_smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.delenv(MODULES, raising=False)
    assert DEVICE_TYPES["hpu"].node_environment() == {AUTOLOAD: "0", MODULES: "4,5"}
    assert DEVICE_TYPES["hpu"].ray_resources(2) == {"HPU": 2.0}
    monkeypatch.setenv(MODULES, "3,2")
    assert DEVICE_TYPES["hpu"].node_environment()[MODULES] == "2,3"
    assert not DEVICE_TYPES["cpu"].node_environment()
    assert not DEVICE_TYPES["cpu"].ray_resources(2)


def test_a_workers_environment_keeps_the_mode_and_drops_tcmalloc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LAZY_MODE, raising=False)
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libfirst.so /usr/lib/libtcmalloc.so.4:/usr/lib/libother.so")
    environment = DEVICE_TYPES["hpu"].worker_environment()
    assert (environment["LD_PRELOAD"], environment[LAZY_MODE]) == ("/usr/lib/libfirst.so:/usr/lib/libother.so", "0")
    assert environment[GRADIENT_VIEWS] == "1"
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libother.so")
    monkeypatch.setenv(LAZY_MODE, "1")
    monkeypatch.setenv(GRADIENT_VIEWS, "0")
    environment = DEVICE_TYPES["hpu"].worker_environment()
    assert ("LD_PRELOAD" in environment, environment[LAZY_MODE]) == (False, "1")
    assert environment[GRADIENT_VIEWS] == "0"


@pytest.mark.parametrize(
    ("message", "released"),
    [
        ("synStatus=8 [Device not found] Device acquire failed.", True),
        ("RuntimeError: synStatus=20 [Device already acquired] Device acquire failed.", True),
        ("synStatus=26 [Generic failure] Device acquire failed.", True),
        ("synStatus=8 [Device not found]", True),
        ("synStatus=81 [Something else]", False),
        ("Session init failed: read-only file system, synStatus=26", False),
    ],
)
def test_messages_of_a_busy_hpu(message: str, released: bool) -> None:
    assert DEVICE_TYPES["hpu"].is_being_released(message) is released


@pytest.mark.parametrize(("habana", "tried_again"), [("1.24.0.1007", True), ("1.23.0.695", False), ("", True)])
def test_a_driver_of_another_release_is_waited_for_in_vain(
    habana: str, tried_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 26 has other causes, such as a long reset. Where the driver's release is unknown, they are assumed."""
    monkeypatch.setattr(gaudi_node, "version_of", lambda package: habana)
    failed = "synStatus=26 [Generic failure] Device acquire failed."
    monkeypatch.setenv("PATH", str(tmp_path))
    assert DEVICE_TYPES["hpu"].is_being_released(failed)
    hl_smi = tmp_path / "hl-smi"
    hl_smi.write_text("#!/bin/sh\necho 1.24.1-abc; echo 1.24.1-abc\n")
    hl_smi.chmod(0o755)
    assert DEVICE_TYPES["hpu"].is_being_released(failed) is tried_again
    assert DEVICE_TYPES["hpu"].is_being_released("synStatus=8 [Device not found] Device acquire failed.")


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
    reason = DEVICE_TYPES["hpu"].placement_problem(modules, nodes)
    assert bool(re.search(says, reason)) if reason else not says
    assert DEVICE_TYPES["cuda"].placement_problem(modules, nodes) is None


def test_the_folder_of_compiled_graphs_is_made_where_the_worker_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUDI_TUNE_CACHE", str(tmp_path))
    environment = DEVICE_TYPES["hpu"].worker_environment()
    assert not list(tmp_path.iterdir())  # this process may be on another node than the workers
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    prepare_worker()
    (folder,) = (tmp_path / "recipes").iterdir()
    assert environment["PT_HPU_RECIPE_CACHE_CONFIG"].startswith(f"{folder},false,")
