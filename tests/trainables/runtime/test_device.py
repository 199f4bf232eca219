from pathlib import Path

import pytest

from trainables.runtime.device import DEVICE_TYPES, find_devices, make_recipe_folder


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


def test_a_worker_books_one_device_and_a_core() -> None:
    assert DEVICE_TYPES["hpu"].worker_resources() == {"CPU": 1, "HPU": 1}
    assert DEVICE_TYPES["cpu"].worker_resources() == {"CPU": 1}


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
