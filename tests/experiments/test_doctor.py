"""The doctor on a machine without a Gaudi, on the stand-in, and on one of whose modules is taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from experiments import doctor
from experiments.sweep.options import PROJECT_ROOT
from tests.stand_in_hpu import environment, ownerships, start

HOLD = """
import time, torch, habana_frameworks.torch
torch.ones(1, device="hpu")
print("have it", flush=True)
time.sleep(60)
"""


def consult(folder: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "experiments.doctor"],
        cwd=PROJECT_ROOT,
        env=environment(folder, HABANA_STAND_IN_MODULES="2", COLUMNS="200"),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_without_a_gaudi_it_says_what_there_is() -> None:
    found = {finding.what: finding for finding in doctor.examine()}
    assert "torch 2." in found["versions"].found
    assert "cpu" in found["devices"].found
    assert "matmul" not in found


def test_it_computes_on_every_hpu_and_gives_them_back(tmp_path: Path) -> None:
    _, printed = consult(tmp_path)
    assert "right on each of 2 HPUs" in printed
    assert "right over 2 HPUs" in printed
    assert "finds 2 HPUs" in printed
    assert all(ownership.until is not None for ownership in ownerships(tmp_path))


def test_a_module_that_is_taken_is_named_with_a_mend(tmp_path: Path) -> None:
    with start(HOLD, tmp_path, HLS_MODULE_ID="1") as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "have it\n"
        status, printed = consult(tmp_path)
        owner.kill()
    assert status == 1
    assert "matmul on module 1" in printed
    assert "synStatus=20 [Device already acquired]" in printed
    assert "hl-smi names it; end it, or wait" in printed
    assert "matmul on module 0" not in printed


@pytest.mark.parametrize(
    ("modules", "mended"), [("0,1", False), ("1,2", True), ("4,5,6,7", False), ("2,3,4,5", True), ("0,1,2", True)]
)
def test_modules_must_be_an_aligned_set(modules: str, mended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", modules)
    assert bool(doctor.alignment(8).mend) is mended
