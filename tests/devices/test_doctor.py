"""The doctor on a machine without a Gaudi, and on the stand-in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gaudi_tune.define.options import PROJECT_ROOT
from gaudi_tune.devices import doctor
from tests.helpers.stand_in_hpu import environment, lay_out_devices, ownerships


def test_without_a_gaudi_it_says_what_there_is() -> None:
    found = {finding.subject: finding for finding in doctor.examine()}
    assert "torch 2." in found["versions"].result
    assert "cpu" in found["devices"].result
    assert "matmul" not in found
    assert found["Gaudi"].result == "habana is not installed: nothing of a Gaudi was checked"
    assert found["Gaudi"].warns, "it is no error to have none"


@pytest.mark.processes
def test_it_computes_on_every_hpu_and_gives_them_back(tmp_path: Path) -> None:
    lay_out_devices(tmp_path, 2)
    done = subprocess.run(
        [sys.executable, "-m", "gaudi_tune", "doctor"],
        cwd=PROJECT_ROOT,
        env=environment(tmp_path, HABANA_STAND_IN_MODULES="2", COLUMNS="360"),
        capture_output=True,
        text=True,
        check=False,
    )
    printed = done.stdout + done.stderr
    assert "correct on each of 2 HPUs" in printed
    assert "correct over 2 HPUs" in printed
    assert "finds 2 HPUs" in printed
    assert all(ownership.until is not None for ownership in ownerships(tmp_path))


@pytest.mark.parametrize(
    ("plugin", "torch", "fix"),
    [
        ("1.23.1.25", "2.9.0+hpu_1.23.1-25.git8598e6d", ""),
        ("1.22.0.740", "2.7.1+hpu_1.22.0", ""),
        ("1.24.0.1007", "2.13.0+hpu_1.24.0", ""),
        ("1.24.0.1007", "2.9.0+hpu_1.23.1", "it belongs with torch 2.10 or 2.11 or 2.12 or 2.13: reinstall"),
        ("1.23.1.25", "2.11.0+cu130", "it belongs with torch 2.9: reinstall"),
        ("1.23.1.25", "2.90.0", "it belongs with torch 2.9: reinstall"),
        ("1.21.0.555", "2.6.0+hpu_1.21.0", "known are 1.22, 1.23, 1.24: older ones do not work, newer ones may"),
        ("", "2.9.0", "work in Intel's Gaudi container"),
    ],
)
def test_torch_is_held_against_what_intel_released(plugin: str, torch: str, fix: str) -> None:
    (finding,) = doctor.release(plugin, torch)
    assert finding.fix.startswith(fix)
    assert bool(finding.fix) is bool(fix)
    assert plugin in finding.result


@pytest.mark.parametrize(
    ("modules", "wrong"), [("0,1", False), ("1,2", True), ("4,5,6,7", False), ("2,3,4,5", True), ("0,1,2", True)]
)
def test_modules_must_be_an_aligned_set(modules: str, wrong: bool) -> None:
    (finding,) = doctor.modules_fit([int(module) for module in modules.split(",")])
    assert bool(finding.fix) is wrong
