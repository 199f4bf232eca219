"""Finding out who has which module: real processes that have files open which are laid out as a driver's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_tune.devices.module_owners import DEVICE_ROOT, Owner, find_owners, module_files
from tests.devices.test_doctor import install_hl_smi
from tests.helpers.stand_in_hpu import lay_out_devices


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(DEVICE_ROOT, str(tmp_path))
    return tmp_path


def make_files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def found_here() -> list[Owner]:
    return [owner for owner in find_owners().owners if owner.pid == os.getpid()]


def test_the_owner_is_who_has_the_device_file_open(devices: Path) -> None:
    lay_out_devices(devices, 4)
    assert find_owners().modules == (0, 1, 2, 3)
    assert not found_here()
    with (devices / "dev/accel/accel1").open("a"):
        (owner,) = found_here()
    assert owner.module == 2  # sysfs says so
    command = " ".join(Path("/proc/self/cmdline").read_text().replace("\0", " ").split())
    assert owner.command[:50] == command[:50]
    assert not found_here()


def test_the_control_file_makes_no_owner(devices: Path) -> None:
    lay_out_devices(devices, 1)
    make_files(devices, "dev/accel/accel_controlD0")
    with (devices / "dev/accel/accel_controlD0").open():
        assert not found_here()


def test_one_that_has_a_module_twice_is_one_owner(devices: Path) -> None:
    lay_out_devices(devices, 1)
    with (devices / "dev/accel/accel0").open("a"), (devices / "dev/accel/accel0").open():
        assert len(found_here()) == 1


def test_an_older_driver_has_other_files_and_hl_smi_knows_their_modules(
    devices: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(devices, "dev/hl0", "dev/hl1", "dev/hl_controlD0", "dev/hlx")
    monkeypatch.setenv("PATH", install_hl_smi(devices, "0, 5\n1, 4\nN/A, N/A"))
    assert module_files() == {devices / "dev/hl0": 5, devices / "dev/hl1": 4}


def test_another_makers_accelerator_is_no_module(devices: Path) -> None:
    lay_out_devices(devices, 2)
    make_files(devices, "dev/accel/accel2")
    assert sorted(module_files().values()) == [0, 1]


def test_without_devices_there_is_nobody(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(devices))  # no hl-smi either
    assert module_files() == {}
    assert find_owners().owners == ()


def test_a_file_whose_module_nobody_knows_is_left_out(devices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(devices, "dev/accel/accel0")
    monkeypatch.setenv("PATH", str(devices))
    assert module_files() == {}
